#include "core/model/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_NAMES = 1000, DESCRIPTOR_PATH = 40 };

static void descriptor_path(int fd, char out[DESCRIPTOR_PATH])
{
    snprintf(out, DESCRIPTOR_PATH, "/proc/self/fd/%d", fd);
}

/* Gives the file a name of this run's own: a new file's if it has no descriptor yet, else that of the nameless one. */
static int name_part(struct new_file *file, struct error *err)
{
    char named[DESCRIPTOR_PATH];
    for (int n = 0; n < MAX_NAMES; n++) {
        if (asprintf(&file->part, "%s.part.%d.%d", file->path, (int)getpid(), n) < 0) {
            file->part = NULL;
            return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", file->path);
        }
        int done;
        if (file->fd < 0) {
            done = file->fd = open(file->part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        } else {
            descriptor_path(file->fd, named);
            done = linkat(AT_FDCWD, named, AT_FDCWD, file->part, AT_SYMLINK_FOLLOW);
        }
        if (done >= 0)
            return 0;
        const int problem = errno;
        if (problem != EEXIST || n + 1 == MAX_NAMES)
            error_set(err, HS_ERR_IO, "%s: cannot be written: %s", file->part, strerror(problem));
        free(file->part);
        file->part = NULL;
        if (problem != EEXIST)
            return HS_ERR_IO;
    }
    return HS_ERR_IO;
}

static int open_nameless(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    int fd = folder ? open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666) : -1;
    free(folder);
    return fd;
}

/* Whether a file without a name can have one later. Not everybody who lets us make one does: without /proc, on some file systems, under
 * some rules of security it cannot, and after hours of writing is no time to learn that. So another one tries. */
static bool can_be_named(const char *path)
{
    struct new_file trial = {.fd = open_nameless(path), .path = path};
    struct error ignored;
    if (trial.fd < 0)
        return false;
    const bool named = name_part(&trial, &ignored) == 0;
    new_file_discard(&trial);
    return named;
}

int new_file_open(const char *path, struct new_file *out, struct error *err)
{
    struct new_file file = {.fd = can_be_named(path) ? open_nameless(path) : -1, .path = path};
    int rc = file.fd < 0 ? name_part(&file, err) : 0;
    if (rc == 0)
        *out = file;
    return rc;
}

static int put_in_place(struct new_file *file, struct error *err)
{
    char named[DESCRIPTOR_PATH];
    descriptor_path(file->fd, named);
    if (!file->part && linkat(AT_FDCWD, named, AT_FDCWD, file->path, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    if (!file->part) { /* most likely there is an earlier one, and only a rename replaces it */
        int rc = name_part(file, err);
        if (rc)
            return rc;
    }
    if (rename(file->part, file->path) < 0)
        return error_set(err, HS_ERR_IO, "%s: cannot be written: %s", file->path, strerror(errno));
    free(file->part);
    file->part = NULL;
    return 0;
}

int new_file_commit(struct new_file *file, struct error *err)
{
    int rc = fsync(file->fd) < 0 ? error_set(err, HS_ERR_IO, "%s: was not written as a whole: %s", file->path, strerror(errno)) : 0;
    if (rc == 0)
        rc = put_in_place(file, err);
    new_file_discard(file); /* in its place it has no name that this would remove */
    return rc;
}

void new_file_discard(struct new_file *file)
{
    if (file->part)
        unlink(file->part);
    free(file->part);
    close(file->fd);
    *file = (struct new_file){.fd = -1};
}
