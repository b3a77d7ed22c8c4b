/*
 * --eal "ARGS": the arguments of DPDK's environment abstraction layer, split as a shell would and checked before the library sees them, which
 * would answer a mistake with a page of help on standard output.
 *
 * What is not said is filled in: -l (one CPU: hearsay starts its threads itself), --no-telemetry, with hugepages --in-memory (several nodes on
 * one machine then need no names for their files), without them --no-shconf and -m 256. Pure, save for what the caller passes in.
 */
#ifndef HEARSAY_NET_DPDK_EAL_ARGUMENTS_H
#define HEARSAY_NET_DPDK_EAL_ARGUMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"

enum { EAL_ARGUMENTS = 96, EAL_ARGUMENT_BYTES = 16384 };

struct eal_arguments {
    char *argv[EAL_ARGUMENTS + 1]; /* into bytes; [0] is the program's name; ends with NULL */
    int argc;
    bool no_huge;
    char bytes[EAL_ARGUMENT_BYTES];
    uint32_t used;
};

/* cpu: for -l. 0 or HS_ERR_PARSE, HS_ERR_INVALID (a contradiction), HS_ERR_LIMIT. out points into itself: do not copy it. */
int eal_arguments_parse(const char *text, uint32_t cpu, struct eal_arguments *out, struct error *err);
/* The nth --vdev's text from 0 on, or NULL. */
const char *eal_arguments_vdev(const struct eal_arguments *arguments, int n);
/* Adds more to the nth --vdev's text. 0 or HS_ERR_LIMIT. */
int eal_arguments_extend(struct eal_arguments *arguments, int n, const char *more, struct error *err);

/* Copies the value of key in a device's "name,key=value,..." text, the last one as DPDK does. False: not there, or longer than size. */
bool eal_device_value(const char *device, const char *key, char *out, uint32_t size);
/* Whether a device's text is of that driver, which opens its name. */
bool eal_device_is(const char *device, const char *driver);
bool eal_device_is_memif_server(const char *device);

#endif
