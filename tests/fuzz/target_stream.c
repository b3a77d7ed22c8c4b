/*
 * A server's stream of events as hearsay-perf reads it. Bytes 0 and 1 say where it is cut in three: in whatever pieces it comes, the
 * outcome is the same.
 */
#include <stdlib.h>
#include <string.h>

#include "perf/serve_stream.h"
#include "tests/fuzz/fuzz.h"

static void feed(struct stream *stream, const char *text, size_t len, uint64_t now_ns)
{
    char *piece = fuzz_copy(text, len);
    stream_feed(stream, piece, len, now_ns);
    free(piece);
}

int fuzz_stream(const uint8_t *data, size_t len)
{
    struct samples gaps[2] = {{0}};
    struct stream whole = {0}, cut = {0};
    if (len < 2)
        return 0;
    const char *text = (const char *)data + 2;
    size_t n = len - 2, first = data[0] % (n + 1), second = first + data[1] % (n - first + 1);
    stream_begin(&whole, &gaps[0], 1);
    stream_begin(&cut, &gaps[1], 1);
    feed(&whole, text, n, 5);
    feed(&cut, text, first, 5);
    feed(&cut, text + first, second - first, 5);
    feed(&cut, text + second, n - second, 5);
    hs_assert(whole.done == cut.done && whole.failed == cut.failed && whole.has_usage == cut.has_usage);
    hs_assert(whole.completion_tokens == cut.completion_tokens && whole.prompt_tokens == cut.prompt_tokens);
    hs_assert(!whole.failed || whole.problem[0]);
    stream_fini(&whole);
    stream_fini(&cut);
    samples_fini(&gaps[0]);
    samples_fini(&gaps[1]);
    return 0;
}
