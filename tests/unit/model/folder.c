#include "tests/unit/model/folder.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/panic.h"

/* Tests cannot go on when their own preparations fail. */
static void require(bool done)
{
    hs_assert(done);
}

void folder_create(struct folder *f)
{
    snprintf(f->path, sizeof f->path, "/tmp/hearsay-model-XXXXXX");
    require(mkdtemp(f->path) != NULL);
}

const char *folder_file(const struct folder *f, const char *name)
{
    static char path[2 * FOLDER_PATH];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    return path;
}

void folder_write(const struct folder *f, const char *name, const void *bytes, size_t n)
{
    FILE *file = fopen(folder_file(f, name), "wb");
    require(file != NULL);
    require(fwrite(bytes, 1, n, file) == n);
    require(fclose(file) == 0);
}

void folder_write_text(const struct folder *f, const char *name, const char *text)
{
    folder_write(f, name, text, strlen(text));
}

void folder_delete(const struct folder *f, const char *name)
{
    require(unlink(folder_file(f, name)) == 0);
}

static void copy_file(const struct folder *f, const char *source, const char *name)
{
    char path[2 * FOLDER_PATH], bytes[1 << 18];
    snprintf(path, sizeof path, "%s/%s", source, name);
    FILE *file = fopen(path, "rb");
    require(file != NULL);
    size_t n = fread(bytes, 1, sizeof bytes, file);
    require(n < sizeof bytes);
    fclose(file);
    folder_write(f, name, bytes, n);
}

void folder_copy(struct folder *f, const char *source)
{
    folder_create(f);
    DIR *dir = opendir(source);
    require(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            copy_file(f, source, entry->d_name);
    closedir(dir);
}

void folder_remove(struct folder *f)
{
    DIR *dir = opendir(f->path);
    require(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            folder_delete(f, entry->d_name);
    closedir(dir);
    require(rmdir(f->path) == 0);
}

void folder_update_json(const struct folder *f, const char *name, const char *changes)
{
    json_t *object = json_load_file(folder_file(f, name), 0, NULL), *updates = json_loads(changes, 0, NULL), *value;
    const char *key;
    void *next;
    require(object && updates);
    json_object_foreach_safe(updates, next, key, value)
    {
        if (json_is_null(value))
            json_object_del(object, key);
        else
            json_object_set(object, key, value);
    }
    require(json_dump_file(object, folder_file(f, name), 0) == 0);
    json_decref(object);
    json_decref(updates);
}
