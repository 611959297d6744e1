/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose hardware address is known, and how well: a table of sets in which whoever was used longest
 * ago makes room. Hosts that answered are not pushed out by what strangers send.
 */
#include "hw/net/bytes.h"

static const uint64_t ms_ns = 1000000;

static uint32_t set_of(const uint8_t ip[16])
{
    uint64_t high, low;
    memcpy(&high, ip, 8);
    memcpy(&low, ip + 8, 8);
    uint64_t mixed = (low ^ high * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(mixed >> 40) % NET_SETS;
}

static struct net_neighbour *find(struct net *net, const uint8_t ip[16])
{
    struct net_neighbour *set = &net->neighbours[set_of(ip) * NET_WAYS];
    for (uint32_t way = 0; way < NET_WAYS; way++) {
        if (set[way].state != NET_NEIGHBOUR_NONE && memcmp(set[way].ip, ip, 16) == 0) {
            return &set[way];
        }
    }
    return NULL;
}

static bool is_usable(const struct net_neighbour *neighbour, uint64_t now_ns)
{
    return neighbour->state >= NET_NEIGHBOUR_SEEN &&
           now_ns - neighbour->known_ns < NET_USABLE_MS * ms_ns;
}

/* It answered, not too long ago: what others claim does not count. */
static bool is_confirmed(const struct net_neighbour *neighbour, uint64_t now_ns)
{
    return neighbour->state == NET_NEIGHBOUR_CONFIRMED && is_usable(neighbour, now_ns);
}

/* Whether `a` should go rather than `b`. */
static bool goes_first(const struct net_neighbour *a, const struct net_neighbour *b,
                       uint64_t now_ns)
{
    bool a_stays = is_confirmed(a, now_ns);
    bool b_stays = is_confirmed(b, now_ns);
    return a_stays != b_stays ? b_stays : a->used_ns < b->used_ns;
}

/* A place for a new neighbour; NULL: all of the set are confirmed, and this one is a stranger. */
static struct net_neighbour *make(struct net *net, const uint8_t ip[16], bool stranger,
                                  uint64_t now_ns)
{
    struct net_neighbour *set = &net->neighbours[set_of(ip) * NET_WAYS];
    struct net_neighbour *place = &set[0];
    for (uint32_t way = 0; way < NET_WAYS && place->state != NET_NEIGHBOUR_NONE; way++) {
        if (set[way].state == NET_NEIGHBOUR_NONE || goes_first(&set[way], place, now_ns)) {
            place = &set[way];
        }
    }
    if (stranger && is_confirmed(place, now_ns)) {
        return NULL;
    }
    *place = (struct net_neighbour){.used_ns = now_ns};
    memcpy(place->ip, ip, 16);
    return place;
}

static void become(struct net_neighbour *neighbour, enum net_neighbour_state state,
                   const uint8_t mac[6], uint64_t now_ns)
{
    neighbour->state = (uint8_t)state;
    neighbour->known_ns = now_ns;
    memcpy(neighbour->mac, mac, 6);
}

static void ask(struct net *net, struct net_neighbour *neighbour, uint64_t now_ns)
{
    uint64_t pause_ms = NET_ASK_MS;
    for (uint32_t times = 1; times < neighbour->asked && pause_ms < NET_ASK_MS_MAX; times++) {
        pause_ms *= 2;
    }
    if (neighbour->asked > 0 && now_ns - neighbour->asked_ns < pause_ms * ms_ns) {
        return;
    }
    if (net->questions_end - net->questions_first == NET_QUESTIONS_MAX) {
        return; /* the next datagram to it tries again */
    }
    net->questions[net->questions_end++ % NET_QUESTIONS_MAX] =
        (uint32_t)(neighbour - net->neighbours);
    neighbour->asked_ns = now_ns;
    if (neighbour->asked < UINT8_MAX) {
        neighbour->asked++;
    }
}

void neighbour_seen(struct net *net, const uint8_t ip[16], const uint8_t mac[6], uint64_t now_ns)
{
    struct net_neighbour *neighbour = find(net, ip);
    if (neighbour == NULL) {
        neighbour = make(net, ip, true, now_ns);
    } else if (is_confirmed(neighbour, now_ns)) {
        bool other = memcmp(neighbour->mac, mac, 6) != 0;
        if (other && now_ns - neighbour->asked_ns >= NET_DOUBT_MS * ms_ns) {
            ask(net, neighbour, now_ns); /* it may have moved: a process that started anew */
        }
        return;
    }
    if (neighbour != NULL) {
        become(neighbour, NET_NEIGHBOUR_SEEN, mac, now_ns);
    }
}

bool neighbour_is_asked_alone(const struct net_neighbour *neighbour)
{
    return neighbour->state == NET_NEIGHBOUR_CONFIRMED && neighbour->asked <= 1;
}

bool neighbour_answered(struct net *net, const uint8_t ip[16], const uint8_t mac[6],
                        uint64_t now_ns)
{
    struct net_neighbour *neighbour = find(net, ip);
    if (neighbour == NULL || neighbour->asked == 0) {
        return false;
    }
    if (neighbour_is_asked_alone(neighbour) && memcmp(neighbour->mac, mac, 6) != 0) {
        return false; /* nobody else can have heard the question */
    }
    become(neighbour, NET_NEIGHBOUR_CONFIRMED, mac, now_ns);
    neighbour->asked = 0;
    return true;
}

/* ---- questions ------------------------------------------------------------------------------- */

const uint8_t *neighbour_mac(struct net *net, const uint8_t ip[16], uint64_t now_ns)
{
    struct net_neighbour *neighbour = find(net, ip);
    if (neighbour == NULL) {
        neighbour = make(net, ip, false, now_ns);
        neighbour->state = NET_NEIGHBOUR_ASKED;
    }
    neighbour->used_ns = now_ns;
    bool usable = is_usable(neighbour, now_ns);
    if (!usable) {
        neighbour->state = NET_NEIGHBOUR_ASKED;
    }
    if (neighbour->state != NET_NEIGHBOUR_CONFIRMED || neighbour->asked > 0 ||
        now_ns - neighbour->known_ns >= NET_FRESH_MS * ms_ns) {
        ask(net, neighbour, now_ns);
    }
    return usable ? neighbour->mac : NULL;
}

uint32_t net_question(struct net *net, uint8_t *frame)
{
    while (net->questions_first != net->questions_end) {
        uint32_t at = net->questions[net->questions_first++ % NET_QUESTIONS_MAX];
        const struct net_neighbour *neighbour = &net->neighbours[at];
        if (neighbour->asked == 0) {
            continue; /* it has answered, or another host has its place */
        }
        net->counters.questions++;
        return port_ip_is_ipv4(neighbour->ip) ? arp_question(net, neighbour, frame)
                                              : discovery_question(net, neighbour, frame);
    }
    return 0;
}
