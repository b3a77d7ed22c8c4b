#include "net/verbs/rail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "core/base/panic.h"
#include "net/verbs/device_query.h"

enum { FIRST_COMPLETIONS = 4096, HUGE_PAGE = 2 << 20, POST_BATCH = 32 };

/* ---- registered memory ---- */

/* The kernel refused to pin memory: nearly always the limit on locked memory. */
static void explain_refusal(const struct verbs_rail *rail, size_t len, int error, struct error *err)
{
    struct rlimit limit;
    if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        error_set(err, HS_ERR_NO_MEMORY,
                  "RDMA device %s cannot register %zu KiB: the limit of locked memory (memlock) is %llu KiB; raise it with `ulimit -l "
                  "unlimited`, LimitMEMLOCK=infinity (systemd) or /etc/security/limits.conf",
                  rail->choice.device, len >> 10, (unsigned long long)limit.rlim_cur >> 10);
    else
        error_set(err, HS_ERR_NO_MEMORY, "RDMA device %s cannot register %zu KiB: %s", rail->choice.device, len >> 10, strerror(error));
}

struct ibv_mr *rail_register(struct verbs_rail *rail, void *base, size_t len, int access, struct error *err)
{
    errno = 0;
    struct ibv_mr *mr = ibv_reg_mr(rail->pd, base, len, access);
    if (mr == NULL)
        explain_refusal(rail, len, errno, err);
    return mr;
}

/* Huge pages where some are free: fewer translations for the device to keep. */
static void *map_memory(size_t *bytes)
{
    size_t huge = (*bytes + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *memory = mmap(NULL, huge, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB, -1, 0);
    if (memory != MAP_FAILED) {
        *bytes = huge;
        return memory;
    }
    memory = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void free_slab(struct rail_slab *slab)
{
    if (slab->mr != NULL)
        ibv_dereg_mr(slab->mr);
    if (slab->memory != NULL)
        munmap(slab->memory, slab->bytes);
    free(slab);
}

static int add_slab(struct verbs_rail *rail, struct error *err)
{
    if (rail->n_slabs == RAIL_MAX_SLABS)
        return error_set(err, HS_ERR_LIMIT, "RDMA device %s: all %d slabs of buffers are in use", rail->choice.device, RAIL_MAX_SLABS);
    struct rail_slab *slab = calloc(1, sizeof *slab);
    if (slab == NULL)
        return error_set(err, HS_ERR_NO_MEMORY, "out of memory for buffers of RDMA device %s", rail->choice.device);
    slab->bytes = (size_t)RAIL_SLAB_BUFFERS * RAIL_BUFFER_BYTES;
    slab->memory = map_memory(&slab->bytes);
    if (slab->memory == NULL) {
        free_slab(slab);
        return error_set(err, HS_ERR_NO_MEMORY, "out of memory for buffers of RDMA device %s", rail->choice.device);
    }
    slab->mr = rail_register(rail, slab->memory, slab->bytes, IBV_ACCESS_LOCAL_WRITE, err);
    if (slab->mr == NULL) {
        free_slab(slab);
        return err ? err->code : HS_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < RAIL_SLAB_BUFFERS; i++) {
        slab->buffers[i] = (struct verbs_buffer){.next = rail->free_list,
                                                 .rail = rail,
                                                 .data = slab->memory + (size_t)i * RAIL_BUFFER_BYTES,
                                                 .key = slab->mr->lkey,
                                                 .index = rail->n_slabs * RAIL_SLAB_BUFFERS + i};
        rail->free_list = &slab->buffers[i];
    }
    rail->slabs[rail->n_slabs++] = slab;
    return 0;
}

struct verbs_buffer *rail_buffer(const struct verbs_rail *rail, uint32_t index)
{
    hs_assert(index / RAIL_SLAB_BUFFERS < rail->n_slabs);
    return &rail->slabs[index / RAIL_SLAB_BUFFERS]->buffers[index % RAIL_SLAB_BUFFERS];
}

struct verbs_buffer *rail_take(struct verbs_rail *rail)
{
    struct verbs_buffer *buffer = rail->free_list;
    if (buffer == NULL && add_slab(rail, NULL) == 0)
        buffer = rail->free_list;
    if (buffer != NULL)
        rail->free_list = buffer->next;
    return buffer;
}

void rail_give(struct verbs_rail *rail, struct verbs_buffer *buffer)
{
    buffer->next = rail->free_list;
    rail->free_list = buffer;
}

/* ---- receives ---- */

void rail_return(struct verbs_rail *rail, struct verbs_buffer *buffer)
{
    buffer->references = 0;
    buffer->link_id = 0;
    if (rail->n_receives_made > rail->n_receives) {
        rail->n_receives_made--;
        rail_give(rail, buffer);
        return;
    }
    buffer->next = rail->repost;
    rail->repost = buffer;
    rail->n_repost++;
}

bool rail_post(struct verbs_rail *rail)
{
    while (rail->repost != NULL) {
        struct ibv_recv_wr requests[POST_BATCH], *bad = NULL;
        struct ibv_sge pieces[POST_BATCH];
        uint32_t n = 0;
        for (struct verbs_buffer *buffer = rail->repost; buffer != NULL && n < POST_BATCH; buffer = buffer->next, n++) {
            pieces[n] = (struct ibv_sge){.addr = (uintptr_t)buffer->data, .length = RAIL_BUFFER_BYTES, .lkey = buffer->key};
            requests[n] = (struct ibv_recv_wr){.wr_id = buffer->index, .sg_list = &pieces[n], .num_sge = 1};
            if (n > 0)
                requests[n - 1].next = &requests[n];
        }
        if (ibv_post_srq_recv(rail->srq, requests, &bad) != 0)
            n = bad == NULL ? 0 : (uint32_t)(bad - requests);
        if (n == 0)
            return false;
        for (uint32_t i = 0; i < n; i++) {
            rail->repost = rail->repost->next;
            rail->n_repost--;
        }
    }
    return true;
}

static int add_receives(struct verbs_rail *rail, struct error *err)
{
    while (rail->n_receives_made < rail->n_receives) {
        if (rail->free_list == NULL) {
            int status = add_slab(rail, err);
            if (status != 0)
                return status;
        }
        struct verbs_buffer *buffer = rail_take(rail);
        rail->n_receives_made++;
        rail_return(rail, buffer);
    }
    if (!rail_post(rail))
        return error_set(err, HS_ERR_LIMIT, "the shared receive queue of RDMA device %s takes no more", rail->choice.device);
    return 0;
}

int rail_reserve(struct verbs_rail *rail, uint32_t completions, uint32_t receives, struct error *err)
{
    if (receives > rail->srq_entries)
        return error_set(err, HS_ERR_LIMIT, "RDMA device %s has room for %u receives, %u are needed for so many peers",
                         rail->choice.device, rail->srq_entries, receives);
    if (completions > rail->cq_entries) {
        uint32_t entries = rail->cq_entries;
        while (entries < completions)
            entries *= 2;
        if (entries > (uint32_t)rail->limits.max_cqe)
            entries = (uint32_t)rail->limits.max_cqe;
        if (entries < completions || ibv_resize_cq(rail->cq, (int)entries) != 0)
            return error_set(err, HS_ERR_LIMIT, "RDMA device %s has room for %u completions, %u are needed for so many peers",
                             rail->choice.device, rail->cq_entries, completions);
        rail->cq_entries = entries;
    }
    uint32_t before = rail->n_receives;
    rail->n_receives = receives;
    int status = add_receives(rail, err);
    if (status != 0)
        rail->n_receives = before;
    return status;
}

/* ---- opening ---- */

static int never_blocks(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

static uint32_t least(uint32_t a, int b)
{
    return b > 0 && (uint32_t)b < a ? (uint32_t)b : a;
}

static int make_queues(struct verbs_rail *rail, uint32_t max_links, uint32_t receives_per_link, struct error *err)
{
    const char *device = rail->choice.device;
    rail->cq_entries = least(FIRST_COMPLETIONS, rail->limits.max_cqe);
    rail->srq_entries = least(max_links * receives_per_link, rail->limits.max_srq_wr);
    rail->pd = ibv_alloc_pd(rail->context);
    if (rail->pd == NULL)
        return error_set(err, HS_ERR_UNSUPPORTED, "RDMA device %s gives no protection domain: %s", device, strerror(errno));
    rail->channel = ibv_create_comp_channel(rail->context);
    if (rail->channel == NULL || never_blocks(rail->channel->fd) != 0 || never_blocks(rail->context->async_fd) != 0)
        return error_set(err, HS_ERR_UNSUPPORTED, "RDMA device %s gives no completion channel: %s", device, strerror(errno));
    rail->cq = ibv_create_cq(rail->context, (int)rail->cq_entries, NULL, rail->channel, 0);
    if (rail->cq == NULL) {
        explain_refusal(rail, (size_t)rail->cq_entries * 64, errno, err);
        return err ? err->code : HS_ERR_NO_MEMORY;
    }
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = rail->srq_entries, .max_sge = 1}};
    rail->srq = ibv_create_srq(rail->pd, &attr);
    if (rail->srq == NULL)
        return error_set(err, HS_ERR_UNSUPPORTED, "RDMA device %s gives no shared receive queue of %u entries: %s", device, rail->srq_entries,
                         strerror(errno));
    return 0;
}

int rail_open(struct verbs_rail *rail, const struct device_rail *choice, uint32_t max_links, uint32_t receives_per_link,
              struct error *err)
{
    *rail = (struct verbs_rail){.choice = *choice, .active = true};
    rail->slabs = calloc(RAIL_MAX_SLABS, sizeof *rail->slabs);
    if (rail->slabs == NULL)
        return error_set(err, HS_ERR_NO_MEMORY, "out of memory for RDMA device %s", choice->device);
    int status;
    rail->context = device_open(choice->device);
    if (rail->context == NULL || ibv_query_device(rail->context, &rail->limits) != 0)
        status = error_set(err, HS_ERR_UNSUPPORTED, "RDMA device %s cannot be opened: %s", choice->device, strerror(errno));
    else
        status = make_queues(rail, max_links, receives_per_link, err);
    if (status == 0)
        status = add_slab(rail, err); /* so that too low a limit shows at the start */
    if (status != 0)
        rail_close(rail);
    return status;
}

void rail_close(struct verbs_rail *rail)
{
    if (rail->srq != NULL)
        ibv_destroy_srq(rail->srq);
    for (uint32_t i = 0; i < rail->n_slabs; i++)
        free_slab(rail->slabs[i]);
    free(rail->slabs);
    if (rail->cq != NULL)
        ibv_destroy_cq(rail->cq);
    if (rail->channel != NULL)
        ibv_destroy_comp_channel(rail->channel);
    if (rail->pd != NULL)
        ibv_dealloc_pd(rail->pd);
    if (rail->context != NULL)
        ibv_close_device(rail->context);
    *rail = (struct verbs_rail){.choice = rail->choice};
}
