/* SPDX-License-Identifier: Apache-2.0
 *
 * RENEW, and the renewals of a KEEPALIVE: any session may renew what it knows the id of.
 */
#include "dataplane/machine/machine.h"

/* True if the lease now lasts for its TTL from this entry's stamp. */
static bool renew_one(struct lock_machine *machine, const struct wire_renewal *renewal)
{
    uint32_t lease = lease_find(machine, &renewal->lease, renewal->key_tag);
    if (lease == NONE || until_has(lease_at(machine, lease)->until, LEASE_FORCED)) {
        return false;
    }
    struct lease_record *record = lease_change(machine, lease);
    if (until_has(record->until, LEASE_BOUND)) {
        return true; /* its session's keepalives are its renewals */
    }
    if (renewal->ttl_ms != 0) {
        record->ttl_ms = renewal->ttl_ms;
    }
    lease_arm(machine, lease, lease_deadline(machine, record, record->ttl_ms));
    return true;
}

/* Before anything is renewed: one TTL out of bounds refuses the whole request. */
static bool ttl_refused(const struct lock_limits *limits, const struct wire_renew *renew,
                        struct answer_record *answer)
{
    for (uint32_t i = 0; i < renew->count; i++) {
        uint32_t ttl_ms = renew->renewals[i].ttl_ms;
        if (ttl_ms == 0) {
            continue;
        }
        if (ttl_ms < limits->ttl_ms_min) {
            answer_problem(answer, WIRE_OVER_LIMIT, WIRE_WHAT_TTL_MIN, limits->ttl_ms_min);
            return true;
        }
        if (ttl_ms > limits->ttl_ms_max) {
            answer_problem(answer, WIRE_OVER_LIMIT, WIRE_WHAT_TTL_MAX, limits->ttl_ms_max);
            return true;
        }
    }
    return false;
}

void apply_renew(struct lock_machine *machine, const struct wire_renew *renew, uint32_t answer)
{
    struct answer_record *record = answer_change(machine, answer);
    if (ttl_refused(&machine->state.limits, renew, record)) {
        return;
    }
    uint64_t lost = 0;
    for (uint32_t i = 0; i < renew->count; i++) {
        if (!renew_one(machine, &renew->renewals[i])) {
            lost |= UINT64_C(1) << i;
            count_up(&machine->state.lost_renewals);
        }
    }
    record->status = WIRE_OK;
    record->renewed.lost = lost;
    record->renewed.count = renew->count;
}
