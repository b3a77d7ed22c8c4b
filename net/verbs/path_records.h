/*
 * Asks the subnet manager for path records, through the kernel's connection manager (librdmacm), which keeps them in a cache. Answers come later.
 *
 * On Ethernet there is no subnet manager: there the kernel makes up the record itself, which nobody needs but the tests of this file.
 *
 * Threading: one thread. Ownership: the owner closes it before the devices. Errors: HS_ERR_UNSUPPORTED where there is no connection manager, or
 * the program was built without librdmacm; HS_ERR_BUSY when many questions are open.
 */
#ifndef HEARSAY_NET_VERBS_PATH_RECORDS_H
#define HEARSAY_NET_VERBS_PATH_RECORDS_H

#include "net/verbs/path.h"

enum { PATH_RECORDS_MAX = 8, PATH_ASKS_MAX = 1024, PATH_TIMEOUT_MS = 2000 }; /* records of one answer, questions at a time, of each of two steps */

struct path_records;

struct path_answer {
    uint64_t cookie;
    int status; /* 0, or why there is none: HS_ERR_TIMEOUT, HS_ERR_NOT_FOUND, HS_ERR_IO */
    uint32_t n;
    struct path_record records[PATH_RECORDS_MAX];
};

int path_records_open(struct path_records **out);
void path_records_close(struct path_records *self);
/* Readable when take has an answer. */
int path_records_fd(const struct path_records *self);
int path_records_ask(struct path_records *self, const struct device_rail *from, const uint8_t gid[16], uint64_t cookie);
/* The next answer. False: none now. */
bool path_records_take(struct path_records *self, struct path_answer *out);

#endif
