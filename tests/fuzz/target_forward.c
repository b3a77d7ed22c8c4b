/* One message of forwarding. What decodes encodes, and decodes to the same again. */
#include <stdlib.h>
#include <string.h>

#include "core/serve/forward_message.h"
#include "tests/fuzz/fuzz.h"

enum { MAX_TOKENS = 4096, MAX_BYTES = 1 << 16 };

int fuzz_forward(const uint8_t *data, size_t len)
{
    static uint32_t tokens[2][MAX_TOKENS];
    static struct forward_scratch scratch[2];
    static uint8_t encoded[2][MAX_BYTES];
    struct forward_message message, again;
    uint8_t *bytes = fuzz_copy(data, len);
    for (int i = 0; i < 2; i++) {
        scratch[i].tokens = tokens[i];
        scratch[i].cap_tokens = MAX_TOKENS;
    }
    if (forward_decode(bytes, len, &scratch[0], &message) == 0) {
        int n = forward_encode(&message, encoded[0], MAX_BYTES);
        hs_assert(n > 0);
        hs_assert(forward_decode(encoded[0], (size_t)n, &scratch[1], &again) == 0);
        hs_assert(again.kind == message.kind && again.id == message.id && again.attempt == message.attempt);
        hs_assert(forward_encode(&again, encoded[1], MAX_BYTES) == n);
        hs_assert(memcmp(encoded[0], encoded[1], (size_t)n) == 0);
    }
    free(bytes);
    return 0;
}
