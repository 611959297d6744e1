/* SPDX-License-Identifier: Apache-2.0
 *
 * One lock machine under test: commands are put into a batch, the batch is applied as an entry, and
 * what came out is kept. Used by every test of the machine.
 */
#ifndef BELAY_TESTS_MACHINE_RIG_H
#define BELAY_TESTS_MACHINE_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataplane/machine/lock_machine.h"

enum { RIG_OUTPUTS_MAX = 8192, RIG_PAYLOAD_BYTES_MAX = 256 * 1024, RIG_ITEM_BYTES_MAX = 512 };

#define RIG_MS UINT64_C(1000000)

struct rig_output {
    enum lock_output_kind kind;
    uint32_t command;
    bool addressed;
    uint16_t port; /* of the address */
    _Alignas(8) uint8_t item[RIG_ITEM_BYTES_MAX];
};

struct machine_rig {
    struct lock_limits limits;
    struct lock_machine *machine;
    void *memory;
    uint64_t index;
    uint64_t stamp_ns;
    uint32_t endings_max;
    uint64_t drawn; /* the next random number of the leader */
    uint8_t *payload;
    size_t payload_bytes;
    uint32_t count;
    struct rig_output *outputs; /* of the last entry */
    uint32_t outputs_count;
};

/* Small limits that tests start from. */
struct lock_limits rig_limits(void);
/* A fresh machine; `applied`: the limits are applied as its first entry. */
void rig_init(struct machine_rig *rig, const struct lock_limits *limits, bool applied);
void rig_free(struct machine_rig *rig);

/* A command at the end of the batch, zeroed but for its item header and `drawn`. */
void *rig_add(struct machine_rig *rig, uint8_t op, size_t bytes);
/* Copies a whole item into the batch as it is. */
void rig_add_item(struct machine_rig *rig, const void *item);
/* Applies the batch (empty: an empty entry) and starts a new one. */
int rig_apply(struct machine_rig *rig);
int rig_apply_limits(struct machine_rig *rig, const struct lock_limits *limits);

/* Takes a snapshot, restores it into a fresh machine and goes on with that. Chunks of `chunk`
 * bytes. Returns 0 or the error; the digests must agree. */
int rig_restore(struct machine_rig *rig, size_t chunk);
/* The whole snapshot in malloc'ed memory. */
uint8_t *rig_snapshot(struct lock_machine *machine, size_t *length);
/* Feeds it; the result of step or end. */
int rig_feed(struct lock_machine *machine, const uint8_t *bytes, size_t length, size_t chunk);

/* ---- commands with what tests usually vary --------------------------------------------------- */

struct wire_open *rig_open(struct machine_rig *rig, uint64_t nonce, uint32_t ttl_ms);
struct wire_acquire *rig_acquire(struct machine_rig *rig, uint64_t session, uint64_t number,
                                 uint8_t mode, const char *name, uint32_t ttl_ms);
/* With namespace and value. */
struct wire_acquire *rig_acquire_value(struct machine_rig *rig, uint64_t session, uint64_t number,
                                       uint8_t mode, const char *ns, const char *name,
                                       const char *value, uint32_t ttl_ms);
struct wire_release *rig_release(struct machine_rig *rig, uint64_t session, uint64_t number,
                                 struct wire_lease_id lease, const char *name);
struct wire_renew *rig_renew(struct machine_rig *rig, uint8_t op, uint64_t session, uint64_t number,
                             uint16_t count);
struct wire_cancel *rig_cancel(struct machine_rig *rig, uint64_t session, uint64_t number,
                               uint64_t target);
struct wire_convert *rig_convert(struct machine_rig *rig, uint64_t session, uint64_t number,
                                 struct wire_lease_id lease, const char *name, uint8_t mode,
                                 uint32_t wait_ms);
struct wire_named *rig_named(struct machine_rig *rig, uint8_t op, uint64_t session, uint64_t number,
                             const char *ns, const char *name);
struct wire_close *rig_close(struct machine_rig *rig, uint64_t session, uint64_t number);
uint32_t rig_key_tag(const char *ns, const char *name);

/* ---- the last entry's outputs ---------------------------------------------------------------- */

/* Reply to the command; NULL if there is none. */
const void *rig_reply(const struct machine_rig *rig, uint32_t command);
enum wire_status rig_status(const struct machine_rig *rig, uint32_t command);
/* The n-th push of this kind; NULL. */
const void *rig_push(const struct machine_rig *rig, enum lock_output_kind kind, uint32_t n);
uint32_t rig_pushes(const struct machine_rig *rig, enum lock_output_kind kind);

/* Opens a session in an entry of its own and returns its id. */
uint64_t rig_session(struct machine_rig *rig, uint32_t ttl_ms);

#endif
