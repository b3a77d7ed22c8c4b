/* Stands in where the program was built without librdmacm: there are no path records, and the peers' own words are taken. */
#include "net/verbs/path_records.h"

int path_records_open(struct path_records **out)
{
    (void)out;
    return HS_ERR_UNSUPPORTED;
}

void path_records_close(struct path_records *self)
{
    (void)self;
}

int path_records_fd(const struct path_records *self)
{
    (void)self;
    return -1;
}

int path_records_ask(struct path_records *self, const struct device_rail *from, const uint8_t gid[16], uint64_t cookie)
{
    (void)self, (void)from, (void)gid, (void)cookie;
    return HS_ERR_UNSUPPORTED;
}

bool path_records_take(struct path_records *self, struct path_answer *out)
{
    (void)self, (void)out;
    return false;
}
