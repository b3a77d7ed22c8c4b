/* A command line of hearsay, its words with a NUL between them. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/hearsay/node_options.h"

enum { MAX_WORDS = 32 };

int fuzz_options(const uint8_t *data, size_t len)
{
    static struct node_options options;
    char *words[MAX_WORDS + 2] = {"hearsay"};
    char *given[MAX_WORDS]; /* argp puts words into another order */
    int n = 0;
    struct error err = {0};
    struct reader in;
    reader_init(&in, data, len);
    while (reader_left(&in) && n < MAX_WORDS) {
        given[n] = fuzz_next_text(&in);
        words[n + 1] = given[n];
        n++;
    }
    int rc = node_options_parse(n + 1, words, &options, &err);
    if (rc < 0) {
        hs_assert(err.text[0] && !strchr(err.text, '\n'));
    } else if (rc == 0) {
        hs_assert(options.model && options.page_tokens && options.max_sequences && options.cpus.n <= NODE_MAX_CPUS);
        hs_assert(!(options.kv_pages && options.kv_memory_bytes));
    }
    for (int i = 0; i < n; i++)
        free(given[i]);
    return 0;
}
