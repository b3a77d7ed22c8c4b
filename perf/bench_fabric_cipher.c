/* What one core seals when it does nothing else: by the library that hearsay uses, and by libcrypto, the reference that all machines have. */
#include "perf/bench_fabric.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "net/seal.h"
#include "perf/progress.h"

enum { HEAD_BYTES = 16, EACH_LOOK = 64 };

struct sealer {
    struct seal_key key;
    EVP_CIPHER_CTX *context;
    uint64_t counter;
    uint32_t bytes;
    uint8_t *plain, *sealed, head[HEAD_BYTES];
};

static int seal_by_ours(struct sealer *s)
{
    return seal_encrypt(&s->key, s->counter++, s->head, sizeof s->head, s->plain, s->bytes, s->sealed);
}

static int seal_by_libcrypto(struct sealer *s)
{
    uint8_t nonce[12] = {0};
    memcpy(nonce + 4, &s->counter, sizeof s->counter);
    s->counter++;
    int n;
    bool good = EVP_EncryptInit_ex2(s->context, NULL, NULL, nonce, NULL) == 1 &&
                EVP_EncryptUpdate(s->context, NULL, &n, s->head, sizeof s->head) == 1 &&
                EVP_EncryptUpdate(s->context, s->sealed, &n, s->plain, (int)s->bytes) == 1 &&
                EVP_EncryptFinal_ex(s->context, s->sealed + s->bytes, &n) == 1 &&
                EVP_CIPHER_CTX_ctrl(s->context, EVP_CTRL_AEAD_GET_TAG, SEAL_TAG_BYTES, s->sealed + s->bytes) == 1;
    return good ? 0 : HS_ERR_IO;
}

static int time_sealing(struct sealer *s, int (*seal)(struct sealer *s), uint64_t duration_ns, double *bytes_per_s)
{
    int rc = 0;
    uint64_t start_ns = perf_now_ns(), now_ns;
    s->counter = 0;
    do {
        for (int i = 0; i < EACH_LOOK && rc == 0; i++)
            rc = seal(s);
        now_ns = perf_now_ns();
    } while (rc == 0 && now_ns - start_ns < duration_ns);
    *bytes_per_s = (double)s->counter * s->bytes * 1e9 / (double)(now_ns - start_ns);
    return rc;
}

int fabric_cipher(uint32_t bytes, uint64_t duration_ns, struct fabric_cipher_speed *out, struct error *err)
{
    static const uint8_t bytes_of_key[SEAL_KEY_BYTES] = "a key of no importance";
    enum seal_cipher cipher = seal_cipher_choose(seal_ciphers_available(), seal_ciphers_available());
    struct sealer s = {.bytes = bytes, .plain = calloc(1, bytes), .sealed = malloc((size_t)bytes + SEAL_TAG_BYTES)};
    out->by = seal_cipher_library(cipher);
    s.context = EVP_CIPHER_CTX_new();
    int rc = s.plain && s.sealed && s.context ? 0 : HS_ERR_NO_MEMORY;
    if (rc == 0 && EVP_EncryptInit_ex(s.context, EVP_aes_256_gcm(), NULL, bytes_of_key, NULL) != 1)
        rc = HS_ERR_UNSUPPORTED;
    if (rc == 0)
        rc = seal_key_init(&s.key, cipher, bytes_of_key, true);
    if (rc == 0)
        rc = time_sealing(&s, seal_by_ours, duration_ns, &out->ours);
    if (rc == 0)
        rc = time_sealing(&s, seal_by_libcrypto, duration_ns, &out->libcrypto);
    if (rc)
        error_set(err, rc, "the cipher: %s", error_name(rc));
    seal_key_fini(&s.key);
    EVP_CIPHER_CTX_free(s.context);
    free(s.plain);
    free(s.sealed);
    return rc;
}
