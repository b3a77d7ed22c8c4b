/*
 * Reads from libibverbs what device_choice.h chooses from. Threading: one thread; opens each device for the moment of asking.
 */
#ifndef HEARSAY_NET_VERBS_DEVICE_QUERY_H
#define HEARSAY_NET_VERBS_DEVICE_QUERY_H

#include "net/verbs/device_choice.h"

struct ibv_context;

/* Fills the table; no device is an empty table. 0 or HS_ERR_IO. */
int device_query(struct device_table *out, struct error *err);
/* One port as it is now. 0 or HS_ERR_IO. */
int device_query_port(struct ibv_context *context, uint32_t number, struct device_port *out);
/* Opens a device by name, or NULL. */
struct ibv_context *device_open(const char *name);

#endif
