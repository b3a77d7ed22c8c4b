/* A node's JSON as hearsay-ctl shows it. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "tools/ctl/show.h"

static const struct show_column columns[] = {{"name", "name"}, {"deep", "load.waiting"}, {"deeper", "a.b.c"}};

int fuzz_show(const uint8_t *data, size_t len)
{
    json_t *root = json_loadb((const char *)data, len, 0, NULL);
    char *text = NULL;
    size_t n = 0;
    FILE *out = root ? open_memstream(&text, &n) : NULL;
    if (out) {
        if (json_is_object(root))
            show_object(out, root);
        else
            show_table(out, root, columns, sizeof columns / sizeof *columns);
        fclose(out);
        for (size_t i = 0; i < n; i++)
            hs_assert((unsigned char)text[i] >= ' ' || text[i] == '\n'); /* nothing that drives a terminal */
    }
    free(text);
    json_decref(root);
    return 0;
}
