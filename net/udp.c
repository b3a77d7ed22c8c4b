#include "net/udp.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/log.h"
#include "net/udp_address.h"
#include "net/udp_link.h"

enum {
    ETHERNET_PAYLOAD = 1452,   /* 1,500 less IPv6 and UDP headers */
    LOOPBACK_PAYLOAD = 8448,   /* a message of 8 KiB and what goes with it */
    MOST_LINK_PAYLOAD = 16640, /* what loopback passes best; longer ones leave the caches (docs/fabrics.md) */
    SOCKET_BUFFER_BYTES = 8 << 20,
    RECEIVE_MESSAGES = 32,
    RECEIVE_BYTES = 65536, /* the longest datagram, or run of datagrams that the kernel joined */
    KEPT_SPACES = 64,      /* of those at most so many may be kept */
    KEEP_BYTES = 1024,     /* a shorter datagram is not worth a space */
    STREAM_STREAK = 3,     /* looks in a row that found something make a stream, */
    LONE_LOOKS = 64,       /* so many that found one datagram end it */
    SEND_MESSAGES = 64,
    SEND_PIECES = 256,
    MAX_SEGMENTS = 60,         /* the kernel takes 64 */
    MAX_SEGMENT_BYTES = 64000, /* of one run; headers must fit beside it in 65,535 */
};

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint16_t))];
};

/* Memory that one message is received into. */
struct space {
    uint8_t *data; /* [RECEIVE_BYTES] */
    uint32_t kept; /* datagrams in it that are */
    bool detached; /* no message's any more: free with the last of them */
    struct space *next_free;
};

struct udp {
    struct carrier carrier;
    int fd, family;
    uint32_t mtu;
    bool segments; /* UDP_SEGMENT works */
    struct carrier_address local;
    struct carrier_stats stats;

    /* What recvmmsg brought; message `current` is handed out from `offset` on. */
    struct mmsghdr in[RECEIVE_MESSAGES];
    struct iovec in_iov[RECEIVE_MESSAGES];
    struct sockaddr_storage in_from[RECEIVE_MESSAGES];
    union control in_control[RECEIVE_MESSAGES];
    struct space *in_space[RECEIVE_MESSAGES];
    struct space spaces[RECEIVE_MESSAGES + KEPT_SPACES], *free_spaces;
    uint32_t n_kept;
    uint8_t *in_data; /* of all spaces */
    uint32_t in_len, current, offset;
    bool streaming;              /* many are asked for, and the kernel may join them */
    uint32_t streak, lone_looks; /* looks in a row that found something; that found one datagram */

    struct mmsghdr out[SEND_MESSAGES];
    struct iovec out_iov[SEND_PIECES];
    struct sockaddr_storage out_to[SEND_MESSAGES];
    union control out_control[SEND_MESSAGES];
    uint32_t out_datagrams[SEND_MESSAGES]; /* datagrams in each message */
};

static struct udp *self_of(const struct carrier *carrier)
{
    return (struct udp *)(uintptr_t)carrier;
}

/* ---- sending ---- */

static bool same_address(const struct carrier_address *a, const struct carrier_address *b)
{
    return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

/* How many datagrams from the first one on can travel as one run: one address, equal lengths save a shorter last. */
static uint32_t run_length(const struct udp *self, const struct carrier_datagram *datagrams, uint32_t n)
{
    if (!self->segments)
        return 1;
    uint32_t count = 1, bytes = datagrams[0].len;
    while (count < n && count < MAX_SEGMENTS && datagrams[count].len <= datagrams[0].len &&
           bytes + datagrams[count].len <= MAX_SEGMENT_BYTES && same_address(&datagrams[count].address, &datagrams[0].address)) {
        bytes += datagrams[count].len;
        if (datagrams[count++].len < datagrams[0].len)
            break;
    }
    return count;
}

/* Fills message m and returns the pieces used. */
static void fill_message(struct udp *self, uint32_t m, const struct carrier_datagram *datagrams, uint32_t count, struct iovec *iov)
{
    for (uint32_t i = 0; i < count; i++)
        iov[i] = (struct iovec){.iov_base = datagrams[i].data, .iov_len = datagrams[i].len};
    struct msghdr *header = &self->out[m].msg_hdr;
    *header = (struct msghdr){.msg_name = &self->out_to[m], .msg_iov = iov, .msg_iovlen = count};
    header->msg_namelen = udp_address_to_sockaddr(&datagrams[0].address, self->family, &self->out_to[m]);
    if (count > 1) {
        header->msg_control = self->out_control[m].bytes;
        header->msg_controllen = CMSG_SPACE(sizeof(uint16_t));
        struct cmsghdr *control = CMSG_FIRSTHDR(header);
        *control = (struct cmsghdr){.cmsg_level = SOL_UDP, .cmsg_type = UDP_SEGMENT, .cmsg_len = CMSG_LEN(sizeof(uint16_t))};
        uint16_t segment = (uint16_t)datagrams[0].len;
        memcpy(CMSG_DATA(control), &segment, sizeof segment);
    }
    self->out_datagrams[m] = count;
}

static void count_sent(struct udp *self, const struct carrier_datagram *datagrams, uint32_t n)
{
    self->stats.sent_datagrams += n;
    for (uint32_t i = 0; i < n; i++)
        self->stats.sent_bytes += datagrams[i].len;
}

/* Sends one batch of messages; returns datagrams dealt with (sent or given up), 0 when the socket takes no more for now. */
static uint32_t send_batch(struct udp *self, const struct carrier_datagram *datagrams, uint32_t n)
{
    uint32_t messages = 0, pieces = 0, taken = 0;
    while (messages < SEND_MESSAGES && taken < n) {
        uint32_t count = run_length(self, datagrams + taken, n - taken);
        if (pieces + count > SEND_PIECES)
            break;
        fill_message(self, messages++, datagrams + taken, count, self->out_iov + pieces);
        pieces += count;
        taken += count;
    }
    int sent = sendmmsg(self->fd, self->out, messages, MSG_DONTWAIT);
    if (sent < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == EINTR)
            return 0;
        if (self->out_datagrams[0] > 1) { /* a device on the way cannot do segments: from now on one by one */
            log_info("net", "UDP segmentation offload failed (%s): sending datagrams one by one", strerror(errno));
            self->segments = false;
            return send_batch(self, datagrams, n);
        }
        self->stats.dropped_datagrams++; /* unreachable, too long, forbidden: as if lost on the way */
        return 1;
    }
    uint32_t done = 0;
    for (int i = 0; i < sent; i++)
        done += self->out_datagrams[i];
    count_sent(self, datagrams, done);
    return done;
}

/* One datagram alone: the plain call costs the kernel less. False: as send_batch's 0. */
static bool send_one(struct udp *self, const struct carrier_datagram *datagram)
{
    socklen_t len = udp_address_to_sockaddr(&datagram->address, self->family, &self->out_to[0]);
    if (sendto(self->fd, datagram->data, datagram->len, MSG_DONTWAIT, (struct sockaddr *)&self->out_to[0], len) >= 0)
        count_sent(self, datagram, 1);
    else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == EINTR)
        return false;
    else
        self->stats.dropped_datagrams++; /* unreachable, too long, forbidden: as if lost on the way */
    return true;
}

static int udp_send(struct carrier *carrier, const struct carrier_datagram *datagrams, uint32_t n)
{
    struct udp *self = self_of(carrier);
    uint32_t done = 0;
    if (n == 1)
        return send_one(self, datagrams);
    while (done < n) {
        uint32_t count = send_batch(self, datagrams + done, n - done);
        if (count == 0)
            break;
        done += count;
    }
    return (int)done;
}

/* ---- receiving ---- */

/* Length of the datagrams that the kernel joined into message m; the whole when it joined none. */
static uint32_t segment_bytes(const struct udp *self, uint32_t m)
{
    const struct msghdr *header = &self->in[m].msg_hdr;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)header, c)) {
        if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
            int bytes;
            memcpy(&bytes, CMSG_DATA(c), sizeof bytes);
            if (bytes > 0)
                return (uint32_t)bytes;
        }
    }
    return self->in[m].msg_len ? self->in[m].msg_len : 1;
}

/* Whether the kernel may join datagrams on their way to us. What it joins between two calls looks broken and is as if lost. */
static void set_joining(struct udp *self, bool on)
{
    int value = on, kept = errno;
    setsockopt(self->fd, SOL_UDP, UDP_GRO, &value, sizeof value); /* where it is unknown, each message is one datagram */
    errno = kept;
    self->streaming = on;
    self->streak = self->lone_looks = 0;
}

/* ---- spaces ---- */

/* Messages get others in place of spaces with datagrams that are kept: there are as many free ones as may be. */
static void replace_kept(struct udp *self)
{
    for (uint32_t i = 0; i < self->in_len; i++) {
        struct space *space = self->in_space[i];
        if (space->kept == 0)
            continue;
        space->detached = true;
        self->in_space[i] = self->free_spaces;
        self->free_spaces = self->free_spaces->next_free;
        self->in_iov[i].iov_base = self->in_space[i]->data;
    }
}

static void *udp_keep(struct carrier *carrier, void *held)
{
    struct udp *self = self_of(carrier);
    struct space *space = held;
    if (space->kept == 0 && self->n_kept == KEPT_SPACES)
        return NULL;
    self->n_kept += space->kept++ == 0;
    return space;
}

static void udp_release(struct carrier *carrier, void *kept)
{
    struct udp *self = self_of(carrier);
    struct space *space = kept;
    if (--space->kept > 0)
        return;
    self->n_kept--;
    if (space->detached) {
        space->detached = false;
        space->next_free = self->free_spaces;
        self->free_spaces = space;
    }
}

/* ---- looking ---- */

static int look_for_one(struct udp *self)
{
    socklen_t from_len = sizeof self->in_from[0];
    ssize_t len = recvfrom(self->fd, self->in_space[0]->data, RECEIVE_BYTES, MSG_DONTWAIT, (struct sockaddr *)&self->in_from[0], &from_len);
    if (len < 0)
        return -1;
    self->in[0].msg_len = (uint32_t)len;
    self->in[0].msg_hdr.msg_controllen = 0;
    if (++self->streak >= STREAM_STREAK)
        set_joining(self, true);
    return 1;
}

static int look_for_many(struct udp *self)
{
    for (uint32_t i = 0; i < RECEIVE_MESSAGES; i++) {
        self->in[i].msg_hdr.msg_namelen = sizeof self->in_from[i];
        self->in[i].msg_hdr.msg_controllen = sizeof self->in_control[i];
    }
    int n = recvmmsg(self->fd, self->in, RECEIVE_MESSAGES, MSG_DONTWAIT, NULL);
    if (n == 1 && self->in[0].msg_hdr.msg_controllen == 0)
        self->lone_looks++;
    else if (n > 0)
        self->lone_looks = 0;
    else if (self->lone_looks >= LONE_LOOKS)
        set_joining(self, false);
    return n;
}

/* While datagrams come one by one, one is asked for and nothing else, which costs the kernel less; in a stream as many as there
 * are. */
static int refill(struct udp *self)
{
    replace_kept(self);
    self->current = self->offset = self->in_len = 0;
    int n = self->streaming ? look_for_many(self) : look_for_one(self);
    if (n < 0) {
        self->streak = 0;
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ECONNREFUSED ? 0 : HS_ERR_IO;
    }
    self->in_len = (uint32_t)n;
    return n;
}

static int udp_receive(struct carrier *carrier, struct carrier_datagram *datagrams, uint32_t n)
{
    struct udp *self = self_of(carrier);
    if (self->current == self->in_len) {
        int status = refill(self);
        if (status <= 0)
            return status;
    }
    uint32_t count = 0;
    while (count < n && self->current < self->in_len) {
        uint32_t total = self->in[self->current].msg_len, segment = segment_bytes(self, self->current);
        struct carrier_address from;
        udp_address_from_sockaddr(&self->in_from[self->current], &from);
        struct space *space = self->in_space[self->current];
        while (count < n && self->offset < total) {
            uint32_t len = total - self->offset < segment ? total - self->offset : segment;
            datagrams[count++] = (struct carrier_datagram){
                .address = from, .data = space->data + self->offset, .len = len, .held = len >= KEEP_BYTES ? space : NULL};
            self->offset += len;
            self->stats.received_datagrams++;
            self->stats.received_bytes += len;
        }
        if (self->offset >= total) {
            self->current++;
            self->offset = 0;
        }
    }
    return (int)count;
}

/* ---- the rest ---- */

static uint32_t udp_mtu(const struct carrier *carrier)
{
    return self_of(carrier)->mtu;
}

static int udp_resolve(struct carrier *carrier, const char *text, struct carrier_address *out)
{
    struct udp *self = self_of(carrier);
    struct carrier_address address;
    int status = udp_address_lookup(text, self->family, &address);
    if (status != 0)
        return status;
    if (udp_address_is_wildcard(&address) || (address.bytes[0] | address.bytes[1]) == 0)
        return HS_ERR_PARSE;
    *out = address;
    return 0;
}

static void udp_format(const struct carrier *carrier, const struct carrier_address *address, char *text, size_t size)
{
    (void)carrier;
    udp_address_format(address, text, size);
}

/* Bound to every address: the first that others could use, loopback if there is no other. */
static void replace_wildcard(struct carrier_address *address, int family)
{
    struct ifaddrs *all = NULL;
    struct carrier_address best = {0};
    if (getifaddrs(&all) != 0)
        return;
    for (struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        if (i->ifa_addr == NULL || !(i->ifa_flags & IFF_UP) ||
            (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != family))
            continue;
        struct sockaddr_storage storage = {0};
        memcpy(&storage, i->ifa_addr, i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        struct carrier_address candidate;
        udp_address_from_sockaddr(&storage, &candidate);
        if (best.len == 0 || (udp_address_is_loopback_address(&best) && !(i->ifa_flags & IFF_LOOPBACK)))
            best = candidate;
    }
    freeifaddrs(all);
    if (best.len != 0) {
        memcpy(best.bytes, address->bytes, 2); /* our port */
        *address = best;
    }
}

static void udp_local(const struct carrier *carrier, char *text, size_t size)
{
    const struct udp *self = self_of(carrier);
    struct carrier_address address = self->local;
    if (udp_address_is_wildcard(&address))
        replace_wildcard(&address, self->family);
    udp_address_format(&address, text, size);
}

static int udp_wait_fd(const struct carrier *carrier)
{
    return self_of(carrier)->fd;
}

static void udp_stats(const struct carrier *carrier, struct carrier_stats *out)
{
    const struct udp *self = self_of(carrier);
    uint32_t memory[SK_MEMINFO_VARS] = {0};
    socklen_t len = sizeof memory;
    *out = self->stats;
    if (getsockopt(self->fd, SOL_SOCKET, SO_MEMINFO, memory, &len) == 0)
        out->missed_datagrams = memory[SK_MEMINFO_DROPS];
}

static void udp_destroy(struct carrier *carrier)
{
    struct udp *self = self_of(carrier);
    if (self->fd >= 0)
        close(self->fd);
    free(self->in_data);
    free(self);
}

static const struct carrier_ops udp_ops = {
    .mtu = udp_mtu,
    .resolve = udp_resolve,
    .format = udp_format,
    .send = udp_send,
    .receive = udp_receive,
    .keep = udp_keep,
    .release = udp_release,
    .local = udp_local,
    .wait_fd = udp_wait_fd,
    .stats = udp_stats,
    .destroy = udp_destroy,
};

/* ---- creation ---- */

static void set_socket_buffer(int fd, int force, int plain)
{
    int bytes = SOCKET_BUFFER_BYTES;
    if (setsockopt(fd, SOL_SOCKET, force, &bytes, sizeof bytes) != 0) /* the first needs CAP_NET_ADMIN, */
        setsockopt(fd, SOL_SOCKET, plain, &bytes, sizeof bytes);      /* the second is cut at net.core.*mem_max */
}

static void set_options(struct udp *self)
{
    int off = 0, no_discovery = IP_PMTUDISC_DONT;
    set_socket_buffer(self->fd, SO_RCVBUFFORCE, SO_RCVBUF);
    set_socket_buffer(self->fd, SO_SNDBUFFORCE, SO_SNDBUF);
    if (self->family == AF_INET6)
        setsockopt(self->fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    else /* a path narrower than Ethernet may cut our datagrams up rather than swallow them */
        setsockopt(self->fd, IPPROTO_IP, IP_MTU_DISCOVER, &no_discovery, sizeof no_discovery);
    self->segments = setsockopt(self->fd, SOL_UDP, UDP_SEGMENT, &off, sizeof off) == 0;
}

static int bind_socket(struct udp *self, const char *text, const struct carrier_address *address, struct error *err)
{
    struct sockaddr_storage storage;
    socklen_t len = udp_address_to_sockaddr(address, self->family, &storage);
    self->fd = socket(self->family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (self->fd < 0)
        return error_set(err, HS_ERR_IO, "cannot open a UDP socket for %s: %s", text, strerror(errno));
    set_options(self);
    if (bind(self->fd, (struct sockaddr *)&storage, len) != 0) {
        if (errno == EADDRINUSE)
            return error_set(err, HS_ERR_BUSY,
                             "UDP address %s is in use: stop the program that has it or choose another port (0 takes a free one)",
                             text);
        if (errno == EADDRNOTAVAIL)
            return error_set(err, HS_ERR_NOT_FOUND, "UDP address %s is not one of this machine's: `ip address` lists them", text);
        if (errno == EACCES)
            return error_set(err, HS_ERR_IO, "UDP address %s needs root: choose a port of 1024 or more", text);
        return error_set(err, HS_ERR_IO, "cannot bind UDP address %s: %s", text, strerror(errno));
    }
    len = sizeof storage;
    if (getsockname(self->fd, (struct sockaddr *)&storage, &len) != 0)
        return error_set(err, HS_ERR_IO, "cannot read the address of the UDP socket %s: %s", text, strerror(errno));
    udp_address_from_sockaddr(&storage, &self->local);
    return 0;
}

static void link_receive_buffers(struct udp *self)
{
    for (uint32_t i = 0; i < RECEIVE_MESSAGES + KEPT_SPACES; i++)
        self->spaces[i].data = self->in_data + (size_t)i * RECEIVE_BYTES;
    for (uint32_t i = 0; i < KEPT_SPACES; i++) {
        struct space *space = &self->spaces[RECEIVE_MESSAGES + i];
        space->next_free = self->free_spaces;
        self->free_spaces = space;
    }
    for (uint32_t i = 0; i < RECEIVE_MESSAGES; i++) {
        self->in_space[i] = &self->spaces[i];
        self->in_iov[i] = (struct iovec){.iov_base = self->spaces[i].data, .iov_len = RECEIVE_BYTES};
        self->in[i].msg_hdr = (struct msghdr){
            .msg_name = &self->in_from[i], .msg_iov = &self->in_iov[i], .msg_iovlen = 1, .msg_control = self->in_control[i].bytes};
    }
}

/* The longest datagram: as told, if the link passes it in one piece; what the link passes; or the default, less on a narrow link. */
static int choose_datagram(const struct carrier_address *address, uint32_t wanted, uint32_t *out, struct error *err)
{
    struct udp_link least, most;
    uint32_t bytes = udp_address_is_loopback_address(address) ? LOOPBACK_PAYLOAD : ETHERNET_PAYLOAD;
    const bool known = udp_link_find(address, &least, &most) == 0, told = wanted != 0 && wanted != UDP_DATAGRAM_OF_LINK;
    if (told && (wanted < UDP_LEAST_DATAGRAM || wanted > UDP_MOST_DATAGRAM))
        return error_set(err, HS_ERR_INVALID, "datagrams of %u bytes: give %d to %d, or 0 for the default", wanted, UDP_LEAST_DATAGRAM,
                         UDP_MOST_DATAGRAM);
    if (told && known && wanted > most.payload)
        return error_set(err, HS_ERR_INVALID,
                         "datagrams of %u bytes (--datagram-bytes): the MTU of %s is %u, which passes %u in one piece; give at most that, or raise it here "
                         "and on all that is between the nodes (ip link set %s mtu %u)",
                         wanted, most.name, most.mtu, most.payload, most.name, wanted + most.mtu - most.payload);
    if (told)
        bytes = wanted;
    else if (known && (wanted == UDP_DATAGRAM_OF_LINK || least.payload < bytes))
        bytes = least.payload < MOST_LINK_PAYLOAD ? least.payload : MOST_LINK_PAYLOAD;
    *out = bytes > UDP_LEAST_DATAGRAM ? bytes : UDP_LEAST_DATAGRAM;
    return 0;
}

int udp_carrier_create(const char *bind_text, uint32_t datagram_bytes, struct carrier **out, struct error *err)
{
    struct carrier_address address;
    int status = udp_address_lookup(bind_text, AF_UNSPEC, &address);
    if (status == HS_ERR_PARSE)
        return error_set(err, status, "\"%s\" is not an address: give HOST:PORT such as 127.0.0.1:7070 or [::1]:7070", bind_text);
    if (status != 0)
        return error_set(err, status, "address \"%s\": no such host: give one of this machine's addresses, such as 127.0.0.1:7070",
                         bind_text);
    uint32_t mtu = 0;
    status = choose_datagram(&address, datagram_bytes, &mtu, err);
    if (status != 0)
        return status;

    struct udp *self = calloc(1, sizeof *self);
    if (self == NULL)
        return error_set(err, HS_ERR_NO_MEMORY, "out of memory for the UDP socket %s", bind_text);
    self->carrier.ops = &udp_ops;
    self->fd = -1;
    self->family = address.len == 6 ? AF_INET : AF_INET6;
    self->mtu = mtu;
    self->in_data = malloc((size_t)(RECEIVE_MESSAGES + KEPT_SPACES) * RECEIVE_BYTES);
    if (self->in_data == NULL) {
        status = error_set(err, HS_ERR_NO_MEMORY, "out of memory for the buffers of the UDP socket %s", bind_text);
        goto fail;
    }
    link_receive_buffers(self);
    status = bind_socket(self, bind_text, &address, err);
    if (status != 0)
        goto fail;
    *out = &self->carrier;
    return 0;

fail:
    udp_destroy(&self->carrier);
    return status;
}

/* Whether the text names an address of this machine's loopback. */
static bool is_loopback(const char *text)
{
    struct carrier_address address;
    return udp_address_lookup(text, AF_UNSPEC, &address) == 0 && udp_address_is_loopback_address(&address);
}

int udp_check_openness(const char *bind, bool has_key, bool insecure_peers, struct error *err)
{
    if (has_key || insecure_peers || is_loopback(bind))
        return 0;
    return error_set(
        err, HS_ERR_AUTH,
        "fabric address %s can be reached from other machines: give --group-key-file (or --insecure-peers to let anyone in)", bind);
}
