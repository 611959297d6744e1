/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests as items. What is encoded under one number is the same at every repetition (acked_below
 * aside): whichever copy the server applies, the answer fits.
 */
#include "client/core_state.h"

static void fill_head(struct core *core, const struct core_request *request, uint64_t number,
                      struct wire_request *head)
{
    head->item.shard = request->shard;
    head->item.flags = request->flags;
    head->number = number;
    if (request->session == NO_SLOT)
        return;
    head->session = core->sessions[request->session].key;
    head->acked_below = min_ns(session_acked_below(core, request->session), number);
}

static void encode_open(struct core *core, const struct core_request *request, uint32_t node)
{
    struct wire_open *open = node_item(core, node, WIRE_OP_OPEN, sizeof(*open));

    open->request.item.shard = request->shard;
    open->nonce = core->sessions[request->session].key;
    open->ttl_ms = (uint32_t)core->options.session_ttl_ms;
}

static void encode_keepalive(struct core *core, const struct core_request *request, uint32_t node)
{
    size_t bytes =
        sizeof(struct wire_renew) + request->renewals.count * sizeof(struct wire_renewal);
    struct wire_renew *renew = node_item(core, node, WIRE_OP_KEEPALIVE, bytes);
    uint32_t at = request->renewals.head;

    fill_head(core, request, request->number, &renew->request);
    renew->count = (uint16_t)request->renewals.count;
    for (uint16_t i = 0; i < renew->count; i++) {
        const struct core_lock *lock = &core->locks[at];
        renew->renewals[i].lease = lock->sent_lease;
        renew->renewals[i].key_tag = lock->key_tag;
        renew->renewals[i].ttl_ms = lock->ask_ttl_ms;
        at = lock->renew_next;
    }
}

static void encode_renew(struct core *core, const struct core_request *request, uint32_t node)
{
    struct wire_renew *renew =
        node_item(core, node, WIRE_OP_RENEW, sizeof(*renew) + sizeof(struct wire_renewal));

    fill_head(core, request, request->number, &renew->request);
    renew->count = 1;
    renew->renewals[0].lease = request->lease;
    renew->renewals[0].key_tag = request->key_tag;
    renew->renewals[0].ttl_ms = request->ttl_ms;
}

static void encode_acquire(struct core *core, uint32_t slot, uint32_t node)
{
    const struct core_request *request = &core->requests[slot];
    size_t text = (size_t)request->namespace_bytes + request->name_bytes + request->value_bytes;
    struct wire_acquire *acquire = node_item(core, node, WIRE_OP_ACQUIRE, sizeof(*acquire) + text);

    fill_head(core, request, request->number, &acquire->request);
    acquire->ttl_ms = request->ttl_ms;
    acquire->wait_ms = request->wait_ms;
    acquire->lock_delay_ms = request->lock_delay_ms;
    acquire->grace_ms = request->grace_ms;
    acquire->mode = request->mode;
    acquire->priority = request->priority;
    acquire->namespace_bytes = request->namespace_bytes;
    acquire->name_bytes = request->name_bytes;
    acquire->value_bytes = request->value_bytes;
    memcpy(acquire->text, text_of(core, slot), text);
}

static void encode_release(struct core *core, const struct core_request *request, uint32_t node)
{
    struct wire_release *release = node_item(core, node, WIRE_OP_RELEASE, sizeof(*release));

    fill_head(core, request, request->number, &release->request);
    release->lease = request->lease;
    release->key_tag = request->key_tag;
}

static void encode_cancel(struct core *core, const struct core_request *request, uint32_t node)
{
    struct wire_cancel *cancel = node_item(core, node, WIRE_OP_CANCEL, sizeof(*cancel));

    fill_head(core, request, request->cancel_number, &cancel->request);
    cancel->request.item.flags = 0; /* the acquire's flags are not the cancel's */
    cancel->target = request->number;
}

static void encode_convert(struct core *core, const struct core_request *request, uint32_t node)
{
    struct wire_convert *convert = node_item(core, node, WIRE_OP_CONVERT, sizeof(*convert));

    fill_head(core, request, request->number, &convert->request);
    convert->lease = request->lease;
    convert->key_tag = request->key_tag;
    convert->wait_ms = request->wait_ms;
    convert->mode = request->mode;
}

/* QUERY, LIST and FORCE_RELEASE. Reads have no session: their number is our own ref, echoed. */
static void encode_named(struct core *core, uint32_t slot, uint32_t node)
{
    const struct core_request *request = &core->requests[slot];
    size_t text = (size_t)request->namespace_bytes + request->name_bytes;
    struct wire_named *named = node_item(core, node, request->op, sizeof(*named) + text);
    bool read = request->op != WIRE_OP_FORCE_RELEASE;

    fill_head(core, request, read ? ref_of(request->generation, slot) : request->number,
              &named->request);
    named->cursor = request->cursor;
    named->namespace_bytes = request->namespace_bytes;
    named->name_bytes = request->name_bytes;
    memcpy(named->text, text_of(core, slot), text);
}

static void encode_page(struct core *core, uint32_t slot, uint32_t node)
{
    struct wire_page_request *page = node_item(core, node, core->requests[slot].op, sizeof(*page));

    page->number = ref_of(core->requests[slot].generation, slot);
    page->from = (uint32_t)core->requests[slot].cursor;
}

static void encode_close(struct core *core, const struct core_request *request, uint32_t node)
{
    struct wire_close *close = node_item(core, node, WIRE_OP_CLOSE, sizeof(*close));

    fill_head(core, request, request->number, &close->request);
}

void request_encode(struct core *core, uint32_t slot, uint32_t node)
{
    const struct core_request *request = &core->requests[slot];

    if (request->phase == PHASE_CANCEL) {
        encode_cancel(core, request, node);
        return;
    }
    switch (request->op) {
    case WIRE_OP_OPEN:
        encode_open(core, request, node);
        break;
    case WIRE_OP_KEEPALIVE:
        encode_keepalive(core, request, node);
        break;
    case WIRE_OP_RENEW:
        encode_renew(core, request, node);
        break;
    case WIRE_OP_CLOSE:
        encode_close(core, request, node);
        break;
    case WIRE_OP_ACQUIRE:
        encode_acquire(core, slot, node);
        break;
    case WIRE_OP_RELEASE:
        encode_release(core, request, node);
        break;
    case WIRE_OP_CONVERT:
        encode_convert(core, request, node);
        break;
    case WIRE_OP_FORCE_RELEASE:
    case WIRE_OP_QUERY:
    case WIRE_OP_LIST:
        encode_named(core, slot, node);
        break;
    default:
        assert(asks_node(request->op));
        encode_page(core, slot, node);
        break;
    }
}
