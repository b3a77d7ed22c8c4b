#include "core/model/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int map_descriptor(const char *path, int fd, struct model_file *out, struct error *err)
{
    struct stat status;
    if (fstat(fd, &status) < 0)
        return error_set(err, HS_ERR_IO, "%s: cannot read its size: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return error_set(err, HS_ERR_IO, "%s: is not a regular file; give the path of a model file", path);
    if (status.st_size == 0) {
        *out = (struct model_file){0};
        return 0;
    }
    void *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return error_set(err, HS_ERR_IO, "%s: cannot map %lld bytes: %s", path, (long long)status.st_size, strerror(errno));
    *out = (struct model_file){.data = data, .len = (size_t)status.st_size};
    return 0;
}

int model_file_map(const char *path, struct model_file *out, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO is refused, not waited for */
    if (fd < 0) {
        int code = errno == ENOENT ? HS_ERR_NOT_FOUND : HS_ERR_IO;
        return error_set(err, code, "%s: cannot open: %s", path, strerror(errno));
    }
    int rc = map_descriptor(path, fd, out, err);
    close(fd);
    return rc;
}

void model_file_unmap(struct model_file *file)
{
    if (file->data)
        munmap((void *)file->data, file->len);
    *file = (struct model_file){0};
}

char *model_file_join(const char *folder, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}
