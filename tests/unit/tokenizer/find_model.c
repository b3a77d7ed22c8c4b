#include "tests/unit/tokenizer/find_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/model/gguf.h"

bool find_model(const char *name, char *path, size_t cap)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[512];
    if (cache && *cache)
        snprintf(folder, sizeof folder, "%s/hearsay", cache);
    else
        snprintf(folder, sizeof folder, "%s/.cache/hearsay", home ? home : "");
    snprintf(path, cap, "%s/%s", folder, name);
    if (access(path, R_OK) == 0)
        return true;
    snprintf(path, cap, "%s/tests/%s", folder, name);
    return access(path, R_OK) == 0;
}

int load_tokenizer(const char *path, struct tokenizer **out, struct error *err)
{
    struct gguf *gguf;
    int rc = gguf_open(path, &gguf, err);
    if (rc < 0)
        return rc;
    rc = tokenizer_from_gguf(gguf, out, err);
    gguf_close(gguf);
    return rc;
}
