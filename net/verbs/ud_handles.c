#include "net/verbs/ud_handles.h"

#include <stdlib.h>

struct ud_path *ud_path_make(struct ud_handles *owner, void *handle, uint32_t mtu_bytes)
{
    struct ud_path *path = calloc(1, sizeof *path);
    if (path == NULL) {
        owner->destroy(handle);
        return NULL;
    }
    *path = (struct ud_path){.owner = owner, .handle = handle, .mtu_bytes = mtu_bytes};
    return path;
}

static void destroy(struct ud_path *path)
{
    path->owner->destroy(path->handle);
    free(path);
}

void ud_path_retire(struct ud_path *path)
{
    struct ud_handles *owner = path->owner;
    if (path->used_until <= owner->done) {
        destroy(path);
        return;
    }
    path->next = owner->retired;
    owner->retired = path;
}

void ud_handles_done(struct ud_handles *handles, uint64_t done)
{
    handles->done = done;
    for (struct ud_path **at = &handles->retired; *at != NULL;) {
        struct ud_path *path = *at;
        if (path->used_until > done) {
            at = &path->next;
            continue;
        }
        *at = path->next;
        destroy(path);
    }
}
