/*
 * The rails of a node: the ports that --device names, or the best there is, opened. Threading: one thread. Errors: HS_ERR_* with one line.
 */
#ifndef HEARSAY_NET_VERBS_RAILS_H
#define HEARSAY_NET_VERBS_RAILS_H

#include "net/verbs/device_choice.h"
#include "net/verbs/path_records.h"
#include "net/verbs/verbs.h"

/* To be called before anything is registered: a child would else take pages away from the device. */
void rails_survive_forks(void);
/* Asks the devices and chooses: up to DEVICE_MAX_RAILS, and one alone when none is named. */
int rails_choose(const struct transport_verbs_config *config, struct device_rail chosen[DEVICE_MAX_RAILS], uint32_t *n, struct error *err);

/* Somebody to ask for path records; *out stays as it is, and a line says so, where there is nobody. 0 or HS_ERR_NO_MEMORY. */
int rails_open_paths(struct path_records **out);

#endif
