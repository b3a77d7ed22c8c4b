/*
 * A file that is seen at its place only when it is whole: an earlier one stays until then, and a run that fails, or is killed, leaves
 * nothing.
 *
 * Until then it has no name (O_TMPFILE). Where there are no such files, or they can have no name at the end, it is PATH.part.PID.N
 * meanwhile, with the first N that is free: then a run that is killed leaves that. Either way an earlier file is replaced in one step (rename).
 *
 * Ownership: ends with new_file_commit or new_file_discard. path must stay as long. Threading: one thread.
 */
#ifndef HEARSAY_MODEL_NEW_FILE_H
#define HEARSAY_MODEL_NEW_FILE_H

#include "core/base/error.h"

struct new_file {
    int fd; /* to be written */
    const char *path;
    char *part; /* its name so far; NULL: none */
};

/* 0, HS_ERR_NO_MEMORY or HS_ERR_IO with one line. */
int new_file_open(const char *path, struct new_file *out, struct error *err);
/* Puts it in its place, when it is on the disk. A failure discards it. */
int new_file_commit(struct new_file *file, struct error *err);
void new_file_discard(struct new_file *file);

#endif
