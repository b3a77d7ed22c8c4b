/*
 * Values as people type them. Every function sets its output only on success and otherwise leaves one line in err that
 * shows what was typed and what is expected. Pure; any thread.
 */
#ifndef HEARSAY_BASE_PARSE_H
#define HEARSAY_BASE_PARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"

int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out, struct error *err);
int parse_double(const char *text, double min, double max, double *out, struct error *err);
/* "4096", "512K", "1.5G", "2GiB", "10MB": K, M, G, T are powers of 1024, KB, MB, ... of 1000. */
int parse_size(const char *text, uint64_t *bytes, struct error *err);
/* "200us", "10ms", "1.5s", "2m", "1h"; a bare number is refused, except 0. */
int parse_duration(const char *text, uint64_t *ns, struct error *err);
bool parse_bool(const char *text, bool *out);

/* "0,2-5,8" as the kernel writes CPU lists: up to cap numbers, ascending, without doubles; *n receives the count. */
int parse_cpu_list(const char *text, uint32_t *cpus, uint32_t cap, uint32_t *n, struct error *err);

/*
 * Hosts as Slurm writes them: "node[01-04,7]:7070,gpu3,[::1]:7070" (leading zeros kept). Calls each(arg, "node01:7070") for every
 * host in order, default_port added where none is given (0: none added). At most limit hosts. 0 or HS_ERR_PARSE, HS_ERR_LIMIT, or
 * the first non-zero value that each returned.
 */
int parse_host_list(const char *text, uint16_t default_port, uint32_t limit, int (*each)(void *arg, const char *host), void *arg,
                    struct error *err);

#endif
