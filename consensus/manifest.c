/* SPDX-License-Identifier: Apache-2.0 */
#include "consensus/manifest.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#define MANIFEST_MAGIC UINT64_C(0x314e414d59414c42) /* "BLAYMAN1" */

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian, as is");

/* {this, nodes, replicas}; the checksum covers everything behind it. */
struct manifest_file {
    uint64_t magic;
    uint32_t version;
    uint32_t bytes; /* of the file */
    uint64_t checksum;
    uint64_t cluster_id;
    uint64_t nonce;
    uint16_t node_id;
    uint8_t durability;
    uint8_t formed;
    uint32_t shards_count;
    uint32_t token_epoch;
    uint32_t wal_count;
    uint64_t wal_incarnation;
    uint64_t next_incarnation;
    uint32_t nodes_count;
    uint32_t replicas_count;
    uint64_t zero[2];
};
static_assert(sizeof(struct manifest_file) == 96, "manifest_file is 96 bytes");
static_assert(sizeof(struct manifest_node) == 16, "manifest_node is 16 bytes");
static_assert(sizeof(struct manifest_replica) == 16, "manifest_replica is 16 bytes");

enum { MANIFEST_CHECKED_FROM = offsetof(struct manifest_file, cluster_id) };

static const char *manifest_check_replicas(const struct manifest *manifest)
{
    for (uint32_t i = 0; i < manifest->replicas_count; i++) {
        const struct manifest_replica *replica = &manifest->replicas[i];

        if (replica->replica_id == 0) {
            return "a replica id is 0";
        }
        if (replica->shard >= manifest->shards_count) {
            return "a replica's shard does not exist";
        }
        if (replica->state != MANIFEST_NORMAL && replica->state != MANIFEST_REBUILDING) {
            return "a replica's state is unknown";
        }
        for (uint32_t j = 0; j < i; j++) {
            if (manifest->replicas[j].replica_id == replica->replica_id) {
                return "a replica is named twice";
            }
        }
    }
    return NULL;
}

const char *manifest_check(const struct manifest *manifest)
{
    if (manifest->nodes_count > MANIFEST_NODES_MAX) {
        return "too many nodes";
    }
    if (manifest->replicas_count > MANIFEST_REPLICAS_MAX) {
        return "too many replicas";
    }
    if (manifest->nonce == 0) {
        return "the directory's nonce is 0";
    }
    if (manifest->durability != RAFT_DISK && manifest->durability != RAFT_MEMORY) {
        return "the durability is unknown";
    }
    if (manifest->formed > 1) {
        return "formed is neither 0 nor 1";
    }
    if (manifest->next_incarnation <= manifest->wal_incarnation) {
        return "the next incarnation is not above the one in force";
    }
    for (uint32_t i = 0; i < manifest->nodes_count; i++) {
        if (manifest->nodes[i].formed > 1) {
            return "a node is neither formed nor not";
        }
        for (uint32_t j = 0; j < i; j++) {
            if (manifest->nodes[j].node == manifest->nodes[i].node) {
                return "a node is named twice";
            }
        }
    }
    return manifest_check_replicas(manifest);
}

size_t manifest_encode(const struct manifest *manifest, uint8_t out[MANIFEST_BYTES_MAX])
{
    size_t nodes_bytes = manifest->nodes_count * sizeof(struct manifest_node);
    size_t replicas_bytes = manifest->replicas_count * sizeof(struct manifest_replica);
    size_t bytes = sizeof(struct manifest_file) + nodes_bytes + replicas_bytes;
    struct manifest_file file = {.magic = MANIFEST_MAGIC,
                                 .version = MANIFEST_VERSION,
                                 .bytes = (uint32_t)bytes,
                                 .cluster_id = manifest->cluster_id,
                                 .nonce = manifest->nonce,
                                 .node_id = manifest->node_id,
                                 .durability = manifest->durability,
                                 .formed = manifest->formed,
                                 .shards_count = manifest->shards_count,
                                 .token_epoch = manifest->token_epoch,
                                 .wal_count = manifest->wal_count,
                                 .wal_incarnation = manifest->wal_incarnation,
                                 .next_incarnation = manifest->next_incarnation,
                                 .nodes_count = manifest->nodes_count,
                                 .replicas_count = manifest->replicas_count};

    assert(manifest_check(manifest) == NULL);
    memcpy(out, &file, sizeof file);
    memcpy(out + sizeof file, manifest->nodes, nodes_bytes);
    memcpy(out + sizeof file + nodes_bytes, manifest->replicas, replicas_bytes);
    file.checksum = XXH3_64bits_withSeed(out + MANIFEST_CHECKED_FROM, bytes - MANIFEST_CHECKED_FROM,
                                         MANIFEST_MAGIC ^ bytes);
    memcpy(out + offsetof(struct manifest_file, checksum), &file.checksum, sizeof file.checksum);
    return bytes;
}

static void manifest_take(struct manifest *manifest, const struct manifest_file *file,
                          const uint8_t *bytes)
{
    size_t nodes_bytes = file->nodes_count * sizeof(struct manifest_node);

    memset(manifest, 0, sizeof *manifest);
    manifest->cluster_id = file->cluster_id;
    manifest->nonce = file->nonce;
    manifest->node_id = file->node_id;
    manifest->durability = file->durability;
    manifest->formed = file->formed;
    manifest->shards_count = file->shards_count;
    manifest->token_epoch = file->token_epoch;
    manifest->wal_count = file->wal_count;
    manifest->wal_incarnation = file->wal_incarnation;
    manifest->next_incarnation = file->next_incarnation;
    manifest->nodes_count = file->nodes_count;
    manifest->replicas_count = file->replicas_count;
    memcpy(manifest->nodes, bytes + sizeof *file, nodes_bytes);
    memcpy(manifest->replicas, bytes + sizeof *file + nodes_bytes,
           file->replicas_count * sizeof(struct manifest_replica));
}

int manifest_decode(struct manifest *manifest, const uint8_t *bytes, size_t length)
{
    struct manifest_file file;

    if (length < sizeof file) {
        return -EBADMSG;
    }
    memcpy(&file, bytes, sizeof file);
    if (file.magic != MANIFEST_MAGIC) {
        return -EBADMSG;
    }
    if (file.version > MANIFEST_VERSION) {
        return -EPROTONOSUPPORT;
    }
    if (file.version != MANIFEST_VERSION || file.bytes != length ||
        file.nodes_count > MANIFEST_NODES_MAX || file.replicas_count > MANIFEST_REPLICAS_MAX ||
        length != sizeof file + file.nodes_count * sizeof(struct manifest_node) +
                      file.replicas_count * sizeof(struct manifest_replica)) {
        return -EBADMSG;
    }
    if (file.checksum != XXH3_64bits_withSeed(bytes + MANIFEST_CHECKED_FROM,
                                              length - MANIFEST_CHECKED_FROM,
                                              MANIFEST_MAGIC ^ length)) {
        return -EBADMSG;
    }
    manifest_take(manifest, &file, bytes);
    return manifest_check(manifest) == NULL ? 0 : -EBADMSG;
}

size_t manifest_missing(const struct manifest *manifest, const uint64_t found[], size_t found_count,
                        uint64_t missing[], size_t max)
{
    size_t count = 0;

    if (manifest->durability != RAFT_DISK) {
        return 0;
    }
    for (uint32_t i = 0; i < manifest->replicas_count; i++) {
        const struct manifest_replica *replica = &manifest->replicas[i];
        size_t at = 0;

        while (at < found_count && found[at] != replica->replica_id) {
            at++;
        }
        if (at < found_count || replica->state != MANIFEST_NORMAL) {
            continue;
        }
        if (count < max) {
            missing[count] = replica->replica_id;
        }
        count++;
    }
    return count;
}

struct manifest_replica *manifest_find(struct manifest *manifest, uint64_t replica_id)
{
    for (uint32_t i = 0; i < manifest->replicas_count; i++) {
        if (manifest->replicas[i].replica_id == replica_id) {
            return &manifest->replicas[i];
        }
    }
    return NULL;
}

int manifest_add(struct manifest *manifest, uint64_t replica_id, uint16_t shard)
{
    if (manifest_find(manifest, replica_id) != NULL) {
        return -EEXIST;
    }
    if (manifest->replicas_count == MANIFEST_REPLICAS_MAX) {
        return -E2BIG;
    }
    manifest->replicas[manifest->replicas_count++] = (struct manifest_replica){
        .replica_id = replica_id, .shard = shard, .state = MANIFEST_NORMAL};
    return 0;
}

int manifest_remove(struct manifest *manifest, uint64_t replica_id)
{
    struct manifest_replica *replica = manifest_find(manifest, replica_id);

    if (replica == NULL) {
        return -ENOENT;
    }
    *replica = manifest->replicas[--manifest->replicas_count];
    return 0;
}

/* ---- directory names ------------------------------------------------------------------------- */

void manifest_wal_name(char out[MANIFEST_WAL_NAME_BYTES], uint64_t incarnation, uint32_t worker)
{
    snprintf(out, MANIFEST_WAL_NAME_BYTES, "wal-%016" PRIx64 "-%04" PRIx32, incarnation,
             worker & 0xffffu);
}

static uint64_t manifest_hex(const char *digits, size_t count)
{
    uint64_t value = 0;

    for (size_t i = 0; i < count; i++) {
        unsigned digit =
            digits[i] >= 'a' ? (unsigned)(digits[i] - 'a') + 10 : (unsigned)(digits[i] - '0');

        value = value << 4 | (digit & 15);
    }
    return value;
}

bool manifest_wal_name_parse(const char *name, uint64_t *incarnation, uint32_t *worker)
{
    char again[MANIFEST_WAL_NAME_BYTES];
    enum { LENGTH = 4 + 16 + 1 + 4 };
    uint64_t number;
    uint32_t at_worker;

    if (strnlen(name, LENGTH + 1) != LENGTH) {
        return false;
    }
    number = manifest_hex(name + 4, 16);
    at_worker = (uint32_t)manifest_hex(name + 21, 4);
    manifest_wal_name(again, number, at_worker);
    if (memcmp(again, name, LENGTH) != 0) {
        return false;
    }
    *incarnation = number;
    *worker = at_worker;
    return true;
}
