/* SPDX-License-Identifier: Apache-2.0
 *
 * What two snapshot threads say to each other over TCP, as bytes: pure, no I/O.
 *
 *     server                                client
 *     greeting {magic, nonce}        ->
 *                                    <-     request {magic, nonce, who, what, tag}
 *     answer frame {result, length}  ->
 *     data frames (the file)         ->
 *
 * Both sides derive two keys, one per direction, from the cluster key and both nonces (BLAKE2b),
 * and tag what they send with SipHash-2-4-128 under theirs. So a request proves knowledge of the
 * cluster key for this connection only, frames cannot be replayed from another one, sent back,
 * dropped, repeated or reordered (each bears its number), and nothing is believed before its tag is
 * checked. Nothing is encrypted, as with peers' datagrams.
 */
#ifndef BELAY_MGMT_SNAPSHOTS_LINK_H
#define BELAY_MGMT_SNAPSHOTS_LINK_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LINK_KEY_BYTES = 16,
    LINK_NONCE_BYTES = 16,
    LINK_TAG_BYTES = 16,
    LINK_PAYLOAD_BYTES_MAX = 64 * 1024,
};

struct link_greeting {
    uint64_t magic; /* includes the version */
    uint8_t nonce[LINK_NONCE_BYTES];
};
static_assert(sizeof(struct link_greeting) == 24, "link_greeting is 24 bytes");

struct link_request {
    uint64_t magic;
    uint8_t nonce[LINK_NONCE_BYTES];
    uint64_t cluster_id;
    uint16_t from_node;
    uint16_t to_node;
    uint16_t shard;
    uint16_t zero;
    uint64_t index_least; /* a snapshot that stands for at least so much of the log */
    uint8_t tag[LINK_TAG_BYTES];
};
static_assert(sizeof(struct link_request) == 64, "link_request is 64 bytes");

enum link_frame_kind { LINK_ANSWER = 1, LINK_DATA = 2 };

struct link_frame { /* followed by `length` bytes and a tag over both */
    uint32_t kind;
    uint32_t length;
    uint64_t sequence; /* from 0 */
};
static_assert(sizeof(struct link_frame) == 16, "link_frame is 16 bytes");

enum { LINK_FRAME_BYTES_MAX = 16 + LINK_PAYLOAD_BYTES_MAX + LINK_TAG_BYTES };

struct link_answer { /* payload of LINK_ANSWER */
    int32_t result;  /* 0: the file follows; -ENOENT: none new enough */
    uint32_t zero;
    uint64_t index;
    uint64_t file_bytes;
};
static_assert(sizeof(struct link_answer) == 24, "link_answer is 24 bytes");

struct link_keys {
    uint8_t to_server[LINK_KEY_BYTES];
    uint8_t to_client[LINK_KEY_BYTES];
};

void link_greet(struct link_greeting *greeting, const uint8_t nonce[LINK_NONCE_BYTES]);
bool link_greeting_sound(const struct link_greeting *greeting);

void link_derive(struct link_keys *keys, const uint8_t cluster_key[LINK_KEY_BYTES],
                 const uint8_t server_nonce[LINK_NONCE_BYTES],
                 const uint8_t client_nonce[LINK_NONCE_BYTES]);

/* Completes magic and tag. */
void link_request_seal(struct link_request *request, const struct link_keys *keys);
/* Magic, zeroes and tag. */
bool link_request_check(const struct link_request *request, const struct link_keys *keys);

/* Completes a frame in place: out[sizeof(struct link_frame)..] already holds `length` bytes and has
 * room for a tag. Returns the frame's whole length. */
size_t link_frame_seal(uint8_t *out, enum link_frame_kind kind, size_t length, uint64_t sequence,
                       const struct link_keys *keys);

/* Looks at the bytes received so far. 0 = more are needed; > 0 = the length of the whole frame at
 * their beginning, whose tag and number are right; -EBADMSG. */
long link_frame_check(const uint8_t *bytes, size_t length, uint64_t sequence,
                      const struct link_keys *keys);

#endif
