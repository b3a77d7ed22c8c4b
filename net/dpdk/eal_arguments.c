#include "net/dpdk/eal_arguments.h"

#include <stdio.h>
#include <string.h>

enum takes { NOTHING, A_VALUE, MAYBE };

/* DPDK 22.11's own list, less what makes no sense here: help, version, secondary processes, service cores. */
static const struct {
    const char *name;
    enum takes takes;
} known[] = {
    {"-c", A_VALUE}, {"-l", A_VALUE}, {"--lcores", A_VALUE}, {"--main-lcore", A_VALUE}, {"--mbuf-pool-ops-name", A_VALUE}, {"-n", A_VALUE},
    {"-m", A_VALUE}, {"-r", A_VALUE}, {"-b", A_VALUE}, {"--block", A_VALUE}, {"-a", A_VALUE}, {"--allow", A_VALUE}, {"--vdev", A_VALUE},
    {"--iova-mode", A_VALUE}, {"-d", A_VALUE}, {"--vmware-tsc-map", NOTHING}, {"--syslog", A_VALUE}, {"--log-level", A_VALUE},
    {"--trace", A_VALUE}, {"--trace-dir", A_VALUE}, {"--trace-bufsz", A_VALUE}, {"--trace-mode", A_VALUE}, {"--in-memory", NOTHING},
    {"--base-virtaddr", A_VALUE}, {"--telemetry", NOTHING}, {"--no-telemetry", NOTHING}, {"--force-max-simd-bitwidth", A_VALUE},
    {"--huge-unlink", MAYBE}, {"--no-huge", NOTHING}, {"--no-pci", NOTHING}, {"--no-hpet", NOTHING}, {"--no-shconf", NOTHING},
    {"--socket-mem", A_VALUE}, {"--socket-limit", A_VALUE}, {"--huge-dir", A_VALUE}, {"--file-prefix", A_VALUE},
    {"--create-uio-dev", NOTHING}, {"--vfio-intr", A_VALUE}, {"--vfio-vf-token", A_VALUE}, {"--legacy-mem", NOTHING},
    {"--single-file-segments", NOTHING}, {"--match-allocations", NOTHING}, {"--huge-worker-stack", MAYBE}, {"--proc-type", A_VALUE},
};

enum { KNOWN = sizeof known / sizeof known[0] };

/* Two that exclude each other, and why. */
static const struct {
    const char *one, *other, *why;
} contradictions[] = {
    {"--no-huge", "--in-memory", "--no-huge needs no files either: leave --in-memory out"},
    {"--no-huge", "--huge-dir", "--no-huge uses no hugepages"},
    {"--no-huge", "--huge-unlink", "--no-huge uses no hugepages"},
    {"--no-huge", "--socket-mem", "without hugepages give the memory by -m"},
    {"--in-memory", "--huge-dir", "--in-memory makes no files"},
    {"--telemetry", "--no-telemetry", "give one of them"},
    {"-a", "-b", "devices are either allowed or blocked"},
    {"-a", "--block", "devices are either allowed or blocked"},
    {"--allow", "-b", "devices are either allowed or blocked"},
    {"--allow", "--block", "devices are either allowed or blocked"},
    {"-m", "--socket-mem", "give one of them"},
    {"-l", "-c", "give one of them"},
    {"-l", "--lcores", "give one of them"},
    {"-c", "--lcores", "give one of them"},
};

/* ---- splitting ---- */

static int add_byte(struct eal_arguments *out, char c, struct error *err)
{
    if (out->used == EAL_ARGUMENT_BYTES)
        return error_set(err, HS_ERR_LIMIT, "longer than %d characters", EAL_ARGUMENT_BYTES);
    out->bytes[out->used++] = c;
    return 0;
}

static int begin_word(struct eal_arguments *out, struct error *err)
{
    if (out->argc == EAL_ARGUMENTS)
        return error_set(err, HS_ERR_LIMIT, "more than %d arguments", EAL_ARGUMENTS - 1);
    out->argv[out->argc++] = out->bytes + out->used;
    out->argv[out->argc] = NULL;
    return 0;
}

static int add_word(struct eal_arguments *out, const char *word, struct error *err)
{
    int rc = begin_word(out, err);
    for (const char *at = word; rc == 0; at++) {
        rc = add_byte(out, *at, err);
        if (*at == '\0')
            break;
    }
    return rc;
}

/* One word from *at on: parts in '' as they are, parts in "" and bare ones with \ before a character that is meant as it is. */
static int take_word(const char **at, struct eal_arguments *out, struct error *err)
{
    char quote = 0;
    int rc = begin_word(out, err);
    const char *p = *at;
    for (; rc == 0 && *p && (quote || !strchr(" \t\r\n", *p)); p++) {
        if (quote ? *p == quote : *p == '\'' || *p == '"')
            quote = quote ? 0 : *p;
        else if (*p == '\\' && quote != '\'' && p[1])
            rc = add_byte(out, *++p, err);
        else
            rc = add_byte(out, *p, err);
    }
    if (rc == 0 && quote)
        rc = error_set(err, HS_ERR_PARSE, "a %c is never closed", quote);
    *at = p;
    return rc ? rc : add_byte(out, '\0', err);
}

/* ---- checking ---- */

/* Index in known of the option that word begins with, whether its value is in the same word; -1: none. */
static int find_option(const char *word, bool *has_value)
{
    size_t len = strncmp(word, "--", 2) == 0 ? strcspn(word, "=") : 2;
    for (int i = 0; i < KNOWN; i++)
        if (strlen(known[i].name) == len && strncmp(known[i].name, word, len) == 0) {
            *has_value = word[len] != '\0';
            return i;
        }
    return -1;
}

/* Goes through the options; seen[i] counts them. */
static int check_words(const struct eal_arguments *arguments, uint32_t seen[KNOWN], struct error *err)
{
    for (int i = 1; i < arguments->argc; i++) {
        const char *word = arguments->argv[i];
        bool has_value;
        int option = word[0] == '-' && strlen(word) >= 2 ? find_option(word, &has_value) : -1;
        if (option < 0)
            return error_set(err, HS_ERR_PARSE, "\"%s\" is not an EAL argument that DPDK 22.11 knows%s", word,
                             word[0] == '-' ? "" : " (an argument with blanks in it needs quotes)");
        if (has_value && known[option].takes == NOTHING)
            return error_set(err, HS_ERR_PARSE, "\"%s\": %s takes no value", word, known[option].name);
        if (!has_value && known[option].takes == A_VALUE && ++i == arguments->argc)
            return error_set(err, HS_ERR_PARSE, "%s needs a value", known[option].name);
        if (strcmp(known[option].name, "--proc-type") == 0)
            return error_set(err, HS_ERR_INVALID, "--proc-type: a node is a process of its own; leave it out");
        seen[option]++;
    }
    return 0;
}

static bool was_seen(const uint32_t seen[KNOWN], const char *name)
{
    bool has_value;
    return seen[find_option(name, &has_value)] > 0;
}

static int check_contradictions(const uint32_t seen[KNOWN], struct error *err)
{
    for (size_t i = 0; i < sizeof contradictions / sizeof contradictions[0]; i++)
        if (was_seen(seen, contradictions[i].one) && was_seen(seen, contradictions[i].other))
            return error_set(err, HS_ERR_INVALID, "%s and %s contradict each other: %s", contradictions[i].one, contradictions[i].other,
                             contradictions[i].why);
    return 0;
}

static int fill_in(struct eal_arguments *out, const uint32_t seen[KNOWN], uint32_t cpu, struct error *err)
{
    char list[24];
    int rc = 0;
    snprintf(list, sizeof list, "%u", cpu);
    if (!was_seen(seen, "-l") && !was_seen(seen, "-c") && !was_seen(seen, "--lcores") && (rc = add_word(out, "-l", err)) == 0)
        rc = add_word(out, list, err);
    if (rc == 0 && !was_seen(seen, "--telemetry") && !was_seen(seen, "--no-telemetry"))
        rc = add_word(out, "--no-telemetry", err);
    out->no_huge = was_seen(seen, "--no-huge");
    if (rc == 0 && out->no_huge && !was_seen(seen, "--no-shconf"))
        rc = add_word(out, "--no-shconf", err);
    if (rc == 0 && out->no_huge && !was_seen(seen, "-m") && (rc = add_word(out, "-m", err)) == 0)
        rc = add_word(out, "256", err);
    if (rc == 0 && !out->no_huge && !was_seen(seen, "--in-memory") && !was_seen(seen, "--huge-dir") && !was_seen(seen, "--huge-unlink") &&
        !was_seen(seen, "--file-prefix") && !was_seen(seen, "--no-shconf"))
        rc = add_word(out, "--in-memory", err);
    return rc;
}

int eal_arguments_parse(const char *text, uint32_t cpu, struct eal_arguments *out, struct error *err)
{
    uint32_t seen[KNOWN] = {0};
    *out = (struct eal_arguments){0};
    int rc = add_word(out, "hearsay", err);
    const char *at = text;
    while (rc == 0) {
        at += strspn(at, " \t\r\n");
        if (!*at)
            break;
        rc = take_word(&at, out, err);
    }
    if (rc == 0)
        rc = check_words(out, seen, err);
    if (rc == 0)
        rc = check_contradictions(seen, err);
    return rc ? rc : fill_in(out, seen, cpu, err);
}

/* ---- devices ---- */

/* Index of the word that ends in the nth --vdev's text, and that text; -1: there are not so many. */
static int find_vdev(const struct eal_arguments *arguments, int n, const char **device)
{
    for (int i = 1; i < arguments->argc; i++) {
        const char *word = arguments->argv[i];
        bool alone = strcmp(word, "--vdev") == 0 && i + 1 < arguments->argc;
        if (!alone && strncmp(word, "--vdev=", 7) != 0)
            continue;
        *device = alone ? arguments->argv[++i] : word + 7;
        if (n-- == 0)
            return i;
    }
    return -1;
}

const char *eal_arguments_vdev(const struct eal_arguments *arguments, int n)
{
    const char *device;
    return find_vdev(arguments, n, &device) >= 0 ? device : NULL;
}

int eal_arguments_extend(struct eal_arguments *arguments, int n, const char *more, struct error *err)
{
    const char *device;
    char *longer = arguments->bytes + arguments->used;
    int word = find_vdev(arguments, n, &device), rc = 0;
    for (const char *at = arguments->argv[word]; rc == 0 && *at; at++)
        rc = add_byte(arguments, *at, err);
    for (const char *at = more; rc == 0 && *at; at++)
        rc = add_byte(arguments, *at, err);
    if (rc == 0)
        rc = add_byte(arguments, '\0', err);
    if (rc == 0)
        arguments->argv[word] = longer;
    return rc;
}

bool eal_device_value(const char *device, const char *key, char *out, uint32_t size)
{
    size_t key_len = strlen(key);
    const char *value = NULL;
    for (const char *at = device; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, key, key_len) == 0 && at[key_len] == '=')
            value = at + key_len + 1;
    size_t len = value ? strcspn(value, ",") : 0;
    if (value == NULL || len >= size)
        return false;
    memcpy(out, value, len);
    out[len] = '\0';
    return true;
}

bool eal_device_is(const char *device, const char *driver)
{
    return strncmp(device, driver, strlen(driver)) == 0;
}

bool eal_device_is_memif_server(const char *device)
{
    char role[16];
    return eal_device_is(device, "net_memif") && eal_device_value(device, "role", role, sizeof role) &&
           (strcmp(role, "server") == 0 || strcmp(role, "master") == 0);
}
