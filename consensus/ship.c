/* SPDX-License-Identifier: Apache-2.0
 *
 * Shipping by messages; see ship.h.
 */
#include "consensus/ship.h"

#include <assert.h>

void ship_sender_init(struct ship_sender *sender, const struct ship_options *options)
{
    assert(options->window_bytes > 0 && options->retransmit_ns > 0);
    assert(options->ring_bytes > 0 && (options->ring_bytes & (options->ring_bytes - 1)) == 0);
    assert(options->retransmit_ns_max >= options->retransmit_ns);
    *sender = (struct ship_sender){
        .options = *options,
        .wait_ns = options->retransmit_ns,
        .deadline_ns = UINT64_MAX,
    };
}

void ship_sender_start(struct ship_sender *sender, uint64_t grant, uint64_t from_position)
{
    uint64_t retransmissions = sender->retransmissions;

    ship_sender_init(sender, &sender->options);
    sender->retransmissions = retransmissions;
    sender->grant = grant;
    sender->acked = sender->next = sender->end = sender->sent = from_position;
    sender->asked_position = UINT64_MAX;
}

void ship_sender_stop(struct ship_sender *sender)
{
    sender->grant = 0;
    sender->deadline_ns = UINT64_MAX;
}

void ship_sender_extend(struct ship_sender *sender, uint64_t to_position, uint64_t last_index,
                        uint64_t last_term)
{
    if (sender->grant == 0 || to_position <= sender->end)
        return;
    sender->end = to_position;
    sender->last_index = last_index;
    sender->last_term = last_term;
}

static void ship_go_back(struct ship_sender *sender, uint64_t position)
{
    sender->next = position;
    sender->retransmissions++;
}

static uint64_t ship_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

bool ship_sender_next(struct ship_sender *sender, uint64_t now_ns, size_t datagram_payload_max,
                      uint64_t *position, size_t *length)
{
    if (sender->grant == 0)
        return false;
    if (now_ns >= sender->deadline_ns) {
        ship_go_back(sender, sender->acked);
        sender->wait_ns = ship_min(sender->wait_ns * 2, sender->options.retransmit_ns_max);
        sender->deadline_ns = UINT64_MAX;
    }
    uint64_t window = sender->options.window_bytes - (sender->next - sender->acked);
    uint64_t lap = sender->options.ring_bytes - (sender->next & (sender->options.ring_bytes - 1));
    uint64_t bytes = ship_min(sender->end - sender->next, datagram_payload_max);
    bytes = ship_min(ship_min(bytes, window), lap);
    if (bytes == 0)
        return false;
    *position = sender->next;
    *length = (size_t)bytes;
    sender->next += bytes;
    if (sender->sent < sender->next)
        sender->sent = sender->next;
    if (sender->deadline_ns == UINT64_MAX)
        sender->deadline_ns = now_ns + sender->wait_ns;
    return true;
}

/* The clock of what is still under way starts again whenever something arrives: it only runs out
 * when nothing does. */
static void ship_progress(struct ship_sender *sender, uint64_t position, uint64_t now_ns)
{
    sender->acked = position;
    if (sender->next < position)
        sender->next = position;
    sender->wait_ns = sender->options.retransmit_ns;
    sender->deadline_ns = sender->next > position ? now_ns + sender->wait_ns : UINT64_MAX;
}

void ship_sender_acked(struct ship_sender *sender, uint64_t position, bool retransmit,
                       uint64_t now_ns)
{
    if (sender->grant == 0 || position < sender->acked || position > sender->sent)
        return;
    if (position > sender->acked)
        ship_progress(sender, position, now_ns);
    if (!retransmit || position >= sender->next)
        return;
    if (position == sender->asked_position && now_ns - sender->asked_ns < sender->wait_ns)
        return; /* the repetition is under way */
    sender->asked_position = position;
    sender->asked_ns = now_ns;
    ship_go_back(sender, position);
    sender->deadline_ns = UINT64_MAX; /* set by what is sent next */
}

bool ship_receiver_ask(struct ship_receiver *receiver, uint64_t received, uint64_t now_ns,
                       uint64_t interval_ns)
{
    if (receiver->asked_ns != 0 && receiver->asked_position == received &&
        now_ns - receiver->asked_ns < interval_ns)
        return false;
    receiver->asked_position = received;
    receiver->asked_ns = now_ns != 0 ? now_ns : 1;
    return true;
}
