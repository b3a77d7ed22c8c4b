#include "tests/sim/world_options.h"

#include <string.h>

#include "core/base/log.h"
#include "core/base/parse.h"

enum field_kind { FIELD_NUMBER, FIELD_SHARE, FIELD_TIME };

struct field {
    const char *name;
    enum field_kind kind;
    size_t offset;
    double least;
};

static int parse_field_NUMBER(const char *text, double least, double most, void *out, struct error *err)
{
    uint64_t value;
    int status = parse_u64(text, (uint64_t)least, (uint64_t)most, &value, err);
    if (status == 0)
        *(uint32_t *)out = (uint32_t)value;
    return status;
}

static int parse_field_SHARE(const char *text, double least, double most, void *out, struct error *err)
{
    return parse_double(text, least, most, out, err);
}

static int parse_field_TIME(const char *text, double least, double most, void *out, struct error *err)
{
    return parse_duration(text, out, err);
}

#define SETTER(kind, field, name, group, least, most, help)                                        \
    static int set_##field(void *config, const char *text, struct error *err)                     \
    {                                                                                              \
        return parse_field_##kind(text, least, most, &((struct world_config *)config)->field, err); \
    }
WORLD_FIELDS(SETTER)

static int set_seed(void *config, const char *text, struct error *err)
{
    return parse_u64(text, 0, UINT64_MAX, &((struct world_config *)config)->seed, err);
}

static const char *const ROUTES[] = {"cost", "longest", "none", "mixed"};

static int set_route(void *config, const char *text, struct error *err)
{
    for (size_t i = 0; i < sizeof ROUTES / sizeof *ROUTES; i++)
        if (strcmp(text, ROUTES[i]) == 0) {
            ((struct world_config *)config)->route = ROUTES[i];
            return 0;
        }
    return error_set(err, HS_ERR_INVALID, "\"%s\" is not a way to route; give cost, longest, none or mixed", text);
}

static int set_verbose(void *config, const char *text, struct error *err)
{
    ((struct world_config *)config)->verbose = true;
    log_setup(LOG_LEVEL_DEBUG, LOG_FORMAT_TEXT);
    return 0;
}

#define ARGUMENT_NUMBER "N"
#define ARGUMENT_SHARE "P"
#define ARGUMENT_TIME "TIME"
#define SPEC(kind, field, name, group, least, most, help) {name, ARGUMENT_##kind, help, group, .set = set_##field},
const struct option_spec WORLD_OPTIONS[] = {
    {"seed", "N", "Seed of the world (1)", "World", .set = set_seed},
    {"verbose", NULL, "Show the nodes' logs and the troubles", NULL, .set = set_verbose},
    {"route", "MODE", "cost, longest, none or mixed (cost)", NULL, .set = set_route},
    WORLD_FIELDS(SPEC)};
const size_t WORLD_N_OPTIONS = sizeof WORLD_OPTIONS / sizeof *WORLD_OPTIONS;

#define FIELD(kind, field, name, group, least, most, help) {name, FIELD_##kind, offsetof(struct world_config, field), least},
static const struct field FIELDS[] = {WORLD_FIELDS(FIELD)};
enum { N_FIELDS = sizeof FIELDS / sizeof *FIELDS };

static size_t size_of(const struct field *field)
{
    return field->kind == FIELD_NUMBER ? sizeof(uint32_t) : field->kind == FIELD_TIME ? sizeof(uint64_t) : sizeof(double);
}

void world_print_options(const struct world_config *config, FILE *out)
{
    struct world_config plain;
    world_defaults(&plain);
    fprintf(out, "--seed %llu", (unsigned long long)config->seed);
    if (strcmp(config->route, plain.route) != 0)
        fprintf(out, " --route %s", config->route);
    for (int i = 0; i < N_FIELDS; i++) {
        const char *value = (const char *)config + FIELDS[i].offset;
        if (memcmp(value, (const char *)&plain + FIELDS[i].offset, size_of(&FIELDS[i])) == 0)
            continue;
        if (FIELDS[i].kind == FIELD_NUMBER)
            fprintf(out, " --%s %u", FIELDS[i].name, *(const uint32_t *)value);
        else if (FIELDS[i].kind == FIELD_SHARE)
            fprintf(out, " --%s %.17g", FIELDS[i].name, *(const double *)value);
        else
            fprintf(out, " --%s %.3fus", FIELDS[i].name, (double)*(const uint64_t *)value / 1e3);
    }
}

/* Sizes of the group are made smaller by and by; other settings are put to their default, and troubles, whose least is none, away. */
static bool is_size(const char *name)
{
    return strcmp(name, "nodes") == 0 || strcmp(name, "requests") == 0;
}

int world_simplify(struct world_config *config, uint32_t step)
{
    enum { WAYS = 3 };
    if (step >= N_FIELDS * WAYS)
        return -1;
    const struct field *field = &FIELDS[step / WAYS];
    uint32_t way = step % WAYS; /* the default, the least, half */
    struct world_config plain;
    world_defaults(&plain);
    char *value = (char *)config + field->offset, before[8];
    memcpy(before, value, size_of(field));
    if ((way == 2) != is_size(field->name) || (way == 1 && field->least > 0))
        return 0;
    if (way == 0)
        memcpy(value, (char *)&plain + field->offset, size_of(field));
    else if (field->kind == FIELD_NUMBER)
        *(uint32_t *)value = way == 1 ? (uint32_t)field->least : *(uint32_t *)value / 2;
    else if (field->kind == FIELD_SHARE && way == 1)
        *(double *)value = field->least;
    if (field->kind == FIELD_NUMBER && *(uint32_t *)value < (uint32_t)field->least)
        *(uint32_t *)value = (uint32_t)field->least;
    return memcmp(before, value, size_of(field)) != 0;
}
