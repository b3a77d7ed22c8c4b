/* Model folders in a temporary place, to be altered by tests. */
#ifndef HEARSAY_TESTS_MODEL_FOLDER_H
#define HEARSAY_TESTS_MODEL_FOLDER_H

#include <stddef.h>

#include <jansson.h>

enum { FOLDER_PATH = 256 };

struct folder {
    char path[FOLDER_PATH];
};

void folder_create(struct folder *f);
/* With copies of all files of another folder. */
void folder_copy(struct folder *f, const char *source);
void folder_remove(struct folder *f);

/* "folder/name" in a static buffer. */
const char *folder_file(const struct folder *f, const char *name);
void folder_write(const struct folder *f, const char *name, const void *bytes, size_t n);
void folder_write_text(const struct folder *f, const char *name, const char *text);
void folder_delete(const struct folder *f, const char *name);
/* Sets keys of a JSON file from another object's text; null values remove the key. */
void folder_update_json(const struct folder *f, const char *name, const char *changes);

#endif
