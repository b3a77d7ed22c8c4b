#include "tests/unit/http/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct loaded_model *model;

const struct loaded_model *fixture_model(void)
{
    if (!model) {
        struct error err = {0};
        if (model_open("tests/vectors/tiny/llama3.gguf", NULL, &model, &err))
            fail_msg("%s", err.text);
    }
    return model;
}

void fixture_close(void)
{
    model_close(model);
    model = NULL;
}

struct token_list fixture_tokens(const char *text, size_t len)
{
    struct token_list tokens = {0};
    assert_int_equal(tokenizer_encode(fixture_model()->tokenizer, text, len, 0, &tokens), 0);
    return tokens;
}
