/* SPDX-License-Identifier: Apache-2.0
 *
 * Judging request items: the only gate between a client's bytes and the log.
 *
 * A verdict is a function of the item alone. What depends on a shard's replicated limits (TTL
 * bounds, capacities) is decided at apply, so that every replica decides it alike.
 */
#include "dataplane/wire/wire.h"

#include <string.h>

static struct wire_verdict accept(void)
{
    return (struct wire_verdict){.status = WIRE_OK, .what = WIRE_WHAT_NONE};
}

static struct wire_verdict bad(enum wire_what what, uint64_t limit)
{
    return (struct wire_verdict){
        .status = WIRE_BAD_REQUEST, .what = (uint16_t)what, .limit = limit};
}

static struct wire_verdict over(enum wire_what what, uint64_t limit)
{
    return (struct wire_verdict){.status = WIRE_OVER_LIMIT, .what = (uint16_t)what, .limit = limit};
}

static bool accepted(struct wire_verdict verdict)
{
    return verdict.status == WIRE_OK;
}

static bool all_zero(const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    uint8_t any = 0;

    for (size_t i = 0; i < count; i++)
        any |= at[i];
    return any == 0;
}

/* Text must end in zero-fill: otherwise two spellings of one command would exist in the log. */
static bool tail_is_zero(const struct wire_item *item, size_t used)
{
    return all_zero((const uint8_t *)item + used, item->bytes - used);
}

/* ---- the parts that requests share ----------------------------------------------------------- */

static struct wire_verdict judge_item(const struct wire_item *item, size_t bytes_min, uint8_t flags)
{
    if (item->bytes < bytes_min)
        return bad(WIRE_WHAT_LENGTH, bytes_min);
    if ((item->flags & ~flags) != 0)
        return bad(WIRE_WHAT_FLAGS, flags);
    if (item->status != 0)
        return bad(WIRE_WHAT_RESERVED, 0);
    return accept();
}

/* Item header, session and numbers of a request that is recorded under its number. */
static struct wire_verdict judge_numbered(const struct wire_item *item, size_t bytes_min,
                                          uint8_t flags, bool from_log)
{
    struct wire_verdict verdict = judge_item(item, bytes_min, flags);
    const struct wire_request *request = (const struct wire_request *)item;

    if (!accepted(verdict))
        return verdict;
    if (request->session == 0 || request->number == 0)
        return bad(WIRE_WHAT_NUMBER, 1);
    /* This request's own answer cannot have been seen yet. */
    if (request->acked_below > request->number)
        return bad(WIRE_WHAT_NUMBER, request->number);
    if (!from_log && request->drawn != 0)
        return bad(WIRE_WHAT_RESERVED, 0);
    return accept();
}

static bool address_is_sound(const struct wire_address *address, bool may_be_set)
{
    if (!may_be_set)
        return all_zero(address, sizeof(*address));
    return all_zero(address->zero, sizeof(address->zero));
}

static struct wire_verdict judge_mode(uint8_t mode)
{
    if (mode != WIRE_SHARED && mode != WIRE_EXCLUSIVE)
        return bad(WIRE_WHAT_MODE, WIRE_EXCLUSIVE);
    return accept();
}

/* ---- one function per request ---------------------------------------------------------------- */

static struct wire_verdict judge_open(const struct wire_item *item, bool from_log)
{
    struct wire_verdict verdict = judge_item(item, sizeof(struct wire_open), 0);
    const struct wire_open *open = (const struct wire_open *)item;

    if (!accepted(verdict))
        return verdict;
    if (item->bytes != sizeof(*open))
        return bad(WIRE_WHAT_LENGTH, sizeof(*open));
    if (open->request.session != 0 || open->request.number != 0 || open->request.acked_below != 0)
        return bad(WIRE_WHAT_NUMBER, 0);
    if (open->nonce == 0)
        return bad(WIRE_WHAT_NUMBER, 1);
    if (open->ttl_ms == 0)
        return bad(WIRE_WHAT_SESSION_TTL_MIN, 1);
    if (open->zero != 0 || (!from_log && open->request.drawn != 0))
        return bad(WIRE_WHAT_RESERVED, 0);
    if (!address_is_sound(&open->address, from_log))
        return bad(WIRE_WHAT_RESERVED, 0);
    return accept();
}

static struct wire_verdict judge_renew(const struct wire_item *item, bool from_log)
{
    struct wire_verdict verdict = judge_numbered(item, sizeof(struct wire_renew), 0, from_log);
    const struct wire_renew *renew = (const struct wire_renew *)item;
    bool keepalive = item->op == WIRE_OP_KEEPALIVE;

    if (!accepted(verdict))
        return verdict;
    if (renew->count > WIRE_RENEWALS_MAX)
        return over(WIRE_WHAT_COUNT_RANGE, WIRE_RENEWALS_MAX);
    if (renew->count == 0 && !keepalive)
        return bad(WIRE_WHAT_COUNT_RANGE, 1);
    size_t bytes = sizeof(*renew) + renew->count * sizeof(struct wire_renewal);
    if (item->bytes != bytes)
        return bad(WIRE_WHAT_LENGTH, bytes);
    if (!all_zero(renew->zero, sizeof(renew->zero)))
        return bad(WIRE_WHAT_RESERVED, 0);
    if (!address_is_sound(&renew->address, from_log && keepalive))
        return bad(WIRE_WHAT_RESERVED, 0);
    for (uint16_t i = 0; i < renew->count; i++) {
        if (renew->renewals[i].lease.zero != 0)
            return bad(WIRE_WHAT_RESERVED, 0);
    }
    return accept();
}

static struct wire_verdict judge_close(const struct wire_item *item, bool from_log)
{
    struct wire_verdict verdict = judge_numbered(item, sizeof(struct wire_close), 0, from_log);

    if (accepted(verdict) && item->bytes != sizeof(struct wire_close))
        return bad(WIRE_WHAT_LENGTH, sizeof(struct wire_close));
    return verdict;
}

static struct wire_verdict judge_acquire(const struct wire_item *item, bool from_log)
{
    const uint8_t flags = WIRE_TRY | WIRE_BARGE | WIRE_REENTRANT | WIRE_SESSION_BOUND;
    struct wire_verdict verdict =
        judge_numbered(item, sizeof(struct wire_acquire), flags, from_log);
    const struct wire_acquire *acquire = (const struct wire_acquire *)item;

    if (!accepted(verdict))
        return verdict;
    if (acquire->namespace_bytes > WIRE_NAMESPACE_BYTES_MAX)
        return over(WIRE_WHAT_NAMESPACE, WIRE_NAMESPACE_BYTES_MAX);
    if (acquire->name_bytes == 0)
        return bad(WIRE_WHAT_NAME, 1);
    size_t used =
        sizeof(*acquire) + acquire->namespace_bytes + acquire->name_bytes + acquire->value_bytes;
    if (item->bytes != wire_pad8(used))
        return bad(WIRE_WHAT_LENGTH, wire_pad8(used));
    if (!tail_is_zero(item, used) || !all_zero(acquire->zero, sizeof(acquire->zero)))
        return bad(WIRE_WHAT_RESERVED, 0);
    if ((item->flags & WIRE_SESSION_BOUND) != 0 && acquire->ttl_ms != 0)
        return bad(WIRE_WHAT_FLAGS, flags);
    if ((item->flags & WIRE_SESSION_BOUND) == 0 && acquire->ttl_ms == 0)
        return bad(WIRE_WHAT_TTL_MIN, 1);
    return judge_mode(acquire->mode);
}

static struct wire_verdict judge_release(const struct wire_item *item, bool from_log)
{
    struct wire_verdict verdict = judge_numbered(item, sizeof(struct wire_release), 0, from_log);
    const struct wire_release *release = (const struct wire_release *)item;

    if (!accepted(verdict))
        return verdict;
    if (item->bytes != sizeof(*release))
        return bad(WIRE_WHAT_LENGTH, sizeof(*release));
    if (release->lease.zero != 0 || release->zero != 0)
        return bad(WIRE_WHAT_RESERVED, 0);
    return accept();
}

static struct wire_verdict judge_cancel(const struct wire_item *item, bool from_log)
{
    struct wire_verdict verdict = judge_numbered(item, sizeof(struct wire_cancel), 0, from_log);
    const struct wire_cancel *cancel = (const struct wire_cancel *)item;

    if (!accepted(verdict))
        return verdict;
    if (item->bytes != sizeof(*cancel))
        return bad(WIRE_WHAT_LENGTH, sizeof(*cancel));
    /* A cancel is numbered after what it cancels. */
    if (cancel->target == 0 || cancel->target >= cancel->request.number)
        return bad(WIRE_WHAT_NUMBER, cancel->request.number);
    return accept();
}

static struct wire_verdict judge_convert(const struct wire_item *item, bool from_log)
{
    struct wire_verdict verdict = judge_numbered(item, sizeof(struct wire_convert), 0, from_log);
    const struct wire_convert *convert = (const struct wire_convert *)item;

    if (!accepted(verdict))
        return verdict;
    if (item->bytes != sizeof(*convert))
        return bad(WIRE_WHAT_LENGTH, sizeof(*convert));
    if (convert->lease.zero != 0 || !all_zero(convert->zero, sizeof(convert->zero)))
        return bad(WIRE_WHAT_RESERVED, 0);
    return judge_mode(convert->mode);
}

/* Namespace and name of QUERY, LIST and FORCE_RELEASE. */
static struct wire_verdict judge_named_text(const struct wire_named *named, bool name_needed)
{
    const struct wire_item *item = &named->request.item;

    if (named->namespace_bytes > WIRE_NAMESPACE_BYTES_MAX)
        return over(WIRE_WHAT_NAMESPACE, WIRE_NAMESPACE_BYTES_MAX);
    if (named->name_bytes == 0 && name_needed)
        return bad(WIRE_WHAT_NAME, 1);
    size_t used = sizeof(*named) + named->namespace_bytes + named->name_bytes;
    if (item->bytes != wire_pad8(used))
        return bad(WIRE_WHAT_LENGTH, wire_pad8(used));
    if (!tail_is_zero(item, used) || !all_zero(named->zero, sizeof(named->zero)))
        return bad(WIRE_WHAT_RESERVED, 0);
    return accept();
}

static struct wire_verdict judge_force_release(const struct wire_item *item, bool from_log)
{
    struct wire_verdict verdict =
        judge_numbered(item, sizeof(struct wire_named), WIRE_NOW, from_log);
    const struct wire_named *named = (const struct wire_named *)item;

    if (!accepted(verdict))
        return verdict;
    if (named->cursor != 0)
        return bad(WIRE_WHAT_RESERVED, 0);
    return judge_named_text(named, true);
}

/* Reads are not recorded: session and number are the client's own business. */
static struct wire_verdict judge_read(const struct wire_item *item)
{
    struct wire_verdict verdict = judge_item(item, sizeof(struct wire_named), WIRE_STALE);
    const struct wire_named *named = (const struct wire_named *)item;

    if (!accepted(verdict))
        return verdict;
    if (named->request.drawn != 0)
        return bad(WIRE_WHAT_RESERVED, 0);
    return judge_named_text(named, item->op == WIRE_OP_QUERY);
}

static struct wire_verdict judge_page(const struct wire_item *item)
{
    struct wire_verdict verdict = judge_item(item, sizeof(struct wire_page_request), 0);
    const struct wire_page_request *page = (const struct wire_page_request *)item;

    if (!accepted(verdict))
        return verdict;
    if (item->bytes != sizeof(*page))
        return bad(WIRE_WHAT_LENGTH, sizeof(*page));
    if (page->zero != 0 || !all_zero(page->padding, sizeof(page->padding)))
        return bad(WIRE_WHAT_RESERVED, 0);
    return accept();
}

static struct wire_verdict judge_push_ack(const struct wire_item *item)
{
    struct wire_verdict verdict = judge_item(item, sizeof(struct wire_push_ack), 0);
    const struct wire_push_ack *ack = (const struct wire_push_ack *)item;

    if (!accepted(verdict))
        return verdict;
    if (item->bytes != sizeof(*ack))
        return bad(WIRE_WHAT_LENGTH, sizeof(*ack));
    if (ack->request.session == 0)
        return bad(WIRE_WHAT_NUMBER, 1);
    if (ack->request.drawn != 0 || ack->lease.zero != 0)
        return bad(WIRE_WHAT_RESERVED, 0);
    return accept();
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static struct wire_verdict judge_logged(const struct wire_item *item, bool from_log)
{
    switch (item->op) {
    case WIRE_OP_OPEN:
        return judge_open(item, from_log);
    case WIRE_OP_KEEPALIVE:
    case WIRE_OP_RENEW:
        return judge_renew(item, from_log);
    case WIRE_OP_CLOSE:
        return judge_close(item, from_log);
    case WIRE_OP_ACQUIRE:
        return judge_acquire(item, from_log);
    case WIRE_OP_RELEASE:
        return judge_release(item, from_log);
    case WIRE_OP_CANCEL:
        return judge_cancel(item, from_log);
    case WIRE_OP_CONVERT:
        return judge_convert(item, from_log);
    case WIRE_OP_FORCE_RELEASE:
        return judge_force_release(item, from_log);
    default:
        return (struct wire_verdict){.status = WIRE_UNKNOWN_COMMAND};
    }
}

struct wire_verdict wire_judge_request(const struct wire_item *item, bool from_log)
{
    if (item->bytes < sizeof(*item) || item->bytes % 8 != 0)
        return bad(WIRE_WHAT_LENGTH, sizeof(*item));
    if (item->op <= WIRE_OP_LOGGED_LAST || from_log)
        return judge_logged(item, from_log);
    switch (item->op) {
    case WIRE_OP_QUERY:
    case WIRE_OP_LIST:
        return judge_read(item);
    case WIRE_OP_MAP:
    case WIRE_OP_STATUS:
    case WIRE_OP_WORKER:
        return judge_page(item);
    case WIRE_OP_PUSH_ACK:
        return judge_push_ack(item);
    default:
        return (struct wire_verdict){.status = WIRE_UNKNOWN_COMMAND};
    }
}
