#include "core/base/option_value.h"

#include <stdbool.h>
#include <string.h>

#include "core/base/panic.h"
#include "core/base/parse.h"
#include "core/base/strbuf.h"

static int store_text(const char **slot, const char *text, const struct option_spec *spec, struct error *err)
{
    if (!*text)
        return error_set(err, HS_ERR_PARSE, "is empty; write --%s %s", spec->name, spec->argument);
    *slot = text;
    return 0;
}

static int store_u32(uint32_t *slot, const char *text, const struct option_spec *spec, struct error *err)
{
    uint64_t value;
    int rc = parse_u64(text, spec->min, spec->max, &value, err);
    if (rc == 0)
        *slot = (uint32_t)value;
    return rc;
}

static int store_duration(uint64_t *slot, const char *text, const struct option_spec *spec, struct error *err)
{
    uint64_t ns;
    int rc = parse_duration(text, &ns, err);
    if (rc)
        return rc;
    if (ns < spec->min || ns > spec->max)
        return error_set(err, HS_ERR_RANGE, "\"%s\" is not between %gs and %gs", text, (double)spec->min / 1e9, (double)spec->max / 1e9);
    *slot = ns;
    return 0;
}

static int store_size(uint64_t *slot, const char *text, const struct option_spec *spec, struct error *err)
{
    uint64_t bytes;
    int rc = parse_size(text, &bytes, err);
    if (rc)
        return rc;
    if (bytes < spec->min)
        return error_set(err, HS_ERR_RANGE, "\"%s\" is less than %llu bytes", text, (unsigned long long)spec->min);
    *slot = bytes;
    return 0;
}

static int store_choice(int *slot, const char *text, const struct option_spec *spec, struct error *err)
{
    struct strbuf known = {0};
    int rc = HS_ERR_PARSE;
    for (const struct option_choice *c = spec->choices; c->name; c++) {
        strbuf_printf(&known, "%s%s", known.len ? ", " : "", c->name);
        if (strcmp(text, c->name) == 0) {
            *slot = c->value;
            rc = 0;
        }
    }
    if (rc)
        error_set(err, rc, "\"%s\" is not one of %s", text, strbuf_text(&known));
    strbuf_fini(&known);
    return rc;
}

int option_value_store(const struct option_spec *spec, void *config, const char *text, struct error *err)
{
    void *slot = (char *)config + spec->offset;
    switch (spec->kind) {
    case OPTION_CUSTOM:
        return spec->set(config, text, err);
    case OPTION_FLAG:
        *(bool *)slot = true;
        return 0;
    case OPTION_TEXT:
        return store_text(slot, text, spec, err);
    case OPTION_U32:
        hs_assert(spec->max <= UINT32_MAX);
        return store_u32(slot, text, spec, err);
    case OPTION_U64:
        return parse_u64(text, spec->min, spec->max, slot, err);
    case OPTION_SIZE:
        return store_size(slot, text, spec, err);
    case OPTION_DURATION:
        return store_duration(slot, text, spec, err);
    case OPTION_CHOICE:
        return store_choice(slot, text, spec, err);
    }
    return HS_ERR_INVALID;
}
