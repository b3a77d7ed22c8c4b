#include "net/verbs/ud_pieces.h"

#include <string.h>

static struct ud_assembly *find(struct ud_assemblies *table, const struct carrier_address *source, const struct ud_piece *piece)
{
    for (uint32_t i = 0; i < table->n; i++) {
        struct ud_assembly *a = &table->all[i];
        if (a->number == piece->number && a->size == piece->size && a->source.len == source->len &&
            memcmp(a->source.bytes, source->bytes, source->len) == 0)
            return a;
    }
    return NULL;
}

/* The place is free; its buffer is somebody else's by now. */
static void forget(struct ud_assemblies *table, struct ud_assembly *a)
{
    *a = table->all[--table->n];
}

static struct ud_assembly *make_room(struct ud_assemblies *table)
{
    struct ud_assembly *oldest = &table->all[0];
    if (table->n < table->cap)
        return &table->all[table->n++];
    for (uint32_t i = 1; i < table->n; i++)
        if (table->all[i].since_ns < oldest->since_ns)
            oldest = &table->all[i];
    table->release(oldest->buffer);
    return oldest;
}

void *ud_assemble(struct ud_assemblies *table, const struct carrier_address *source, const struct ud_piece *piece, void *buffer, uint8_t *data,
                  uint32_t len, uint32_t room, uint64_t now_ns, uint8_t **out, uint32_t *out_len)
{
    uint32_t offset = (uint32_t)piece->index * piece->size, bit = 1u << piece->index;
    struct ud_assembly *a = find(table, source, piece);
    bool first = a == NULL;
    if (offset + piece->size > room || (!first && (a->have & bit))) {
        table->release(buffer); /* longer than anything we take, or here already */
        return NULL;
    }
    if (first) {
        a = make_room(table);
        *a = (struct ud_assembly){.source = *source, .number = piece->number, .size = piece->size, .buffer = buffer, .data = data, .since_ns = now_ns};
    }
    memmove(a->data + offset, data, len);
    a->have |= bit;
    if (piece->last) {
        a->n_pieces = piece->index + 1u;
        a->len = offset + len;
    }
    if (!first)
        table->release(buffer);
    if (a->n_pieces == 0 || a->have != (uint32_t)((UINT64_C(1) << a->n_pieces) - 1))
        return NULL;
    *out = a->data;
    *out_len = a->len;
    void *whole = a->buffer;
    forget(table, a);
    return whole;
}

void ud_assemblies_expire(struct ud_assemblies *table, uint64_t before_ns)
{
    for (uint32_t i = 0; i < table->n;) {
        if (table->all[i].since_ns >= before_ns) {
            i++;
            continue;
        }
        table->release(table->all[i].buffer);
        forget(table, &table->all[i]);
    }
}
