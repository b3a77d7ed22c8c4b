#include "tests/unit/tokenizer/tiny_gguf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* The numbers of the format's value types. */
enum { VALUE_U32 = 4, VALUE_I32 = 5, VALUE_F32 = 6, VALUE_BOOL = 7, VALUE_STRING = 8, VALUE_ARRAY = 9 };

static void put_u32(struct strbuf *s, uint32_t value)
{
    strbuf_add(s, &value, sizeof value);
}

static void put_u64(struct strbuf *s, uint64_t value)
{
    strbuf_add(s, &value, sizeof value);
}

static void put_string(struct strbuf *s, const char *text)
{
    put_u64(s, strlen(text));
    strbuf_puts(s, text);
}

static void put_key(struct tiny_gguf *t, const char *key, uint32_t type)
{
    put_string(&t->values, key);
    put_u32(&t->values, type);
    t->n_values++;
}

static void put_array(struct tiny_gguf *t, const char *key, uint32_t type, size_t n)
{
    put_key(t, key, VALUE_ARRAY);
    put_u32(&t->values, type);
    put_u64(&t->values, n);
}

void tiny_gguf_string(struct tiny_gguf *t, const char *key, const char *text)
{
    put_key(t, key, VALUE_STRING);
    put_string(&t->values, text);
}

void tiny_gguf_u32(struct tiny_gguf *t, const char *key, uint32_t value)
{
    put_key(t, key, VALUE_U32);
    put_u32(&t->values, value);
}

void tiny_gguf_bool(struct tiny_gguf *t, const char *key, bool value)
{
    char byte = value;
    put_key(t, key, VALUE_BOOL);
    strbuf_add(&t->values, &byte, 1);
}

void tiny_gguf_strings(struct tiny_gguf *t, const char *key, const char *const *texts, size_t n)
{
    put_array(t, key, VALUE_STRING, n);
    for (size_t i = 0; i < n; i++)
        put_string(&t->values, texts[i]);
}

void tiny_gguf_i32s(struct tiny_gguf *t, const char *key, const int32_t *values, size_t n)
{
    put_array(t, key, VALUE_I32, n);
    strbuf_add(&t->values, values, n * sizeof *values);
}

void tiny_gguf_f32s(struct tiny_gguf *t, const char *key, const float *values, size_t n)
{
    put_array(t, key, VALUE_F32, n);
    strbuf_add(&t->values, values, n * sizeof *values);
}

struct gguf *tiny_gguf_open(struct tiny_gguf *t)
{
    struct gguf *gguf = NULL;
    struct error err = {0};
    strbuf_clear(&t->file);
    strbuf_puts(&t->file, "GGUF");
    put_u32(&t->file, 3);
    put_u64(&t->file, 0); /* tensors */
    put_u64(&t->file, t->n_values);
    strbuf_add(&t->file, t->values.data, t->values.len);
    while (t->file.len % 32)
        strbuf_add(&t->file, "", 1);
    int rc = gguf_open_memory(t->file.data, t->file.len, "tiny.gguf", &gguf, &err);
    if (rc < 0)
        print_error("%s\n", err.text);
    assert_int_equal(rc, 0);
    return gguf;
}

void tiny_gguf_fini(struct tiny_gguf *t)
{
    strbuf_fini(&t->values);
    strbuf_fini(&t->file);
    *t = (struct tiny_gguf){0};
}
