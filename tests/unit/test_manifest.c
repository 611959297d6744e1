/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest: round trip, every damage found, manifest without log.
 */
#include <criterion/criterion.h>

#include <errno.h>
#include <string.h>

#include "consensus/manifest.h"

static struct manifest manifest;
static struct manifest back;
static uint8_t bytes[MANIFEST_BYTES_MAX + 1];

static void setup(void)
{
    memset(&manifest, 0, sizeof manifest);
    manifest.cluster_id = UINT64_C(0x1122334455667788);
    manifest.nonce = UINT64_C(0x99aabbccddeeff00);
    manifest.node_id = 2;
    manifest.durability = RAFT_DISK;
    manifest.formed = 1;
    manifest.shards_count = 16;
    manifest.token_epoch = 65535;
    manifest.wal_count = 2;
    manifest.wal_incarnation = UINT64_C(1) << 33;
    manifest.next_incarnation = (UINT64_C(1) << 33) + 1;
    manifest.nodes_count = 3;
    for (uint16_t k = 0; k < 3; k++) {
        manifest.nodes[k].node = (uint16_t)(k + 1);
        manifest.nodes[k].nonce = UINT64_C(0xaaaa) * (k + 1u);
        manifest.nodes[k].formed = k != 1;
    }
    for (uint16_t k = 0; k < 5; k++) {
        cr_assert_eq(manifest_add(&manifest, 1000u + k, k), 0);
    }
    manifest.replicas[3].state = MANIFEST_REBUILDING;
}

TestSuite(manifest, .init = setup);

Test(manifest, round_trip)
{
    size_t length = manifest_encode(&manifest, bytes);

    cr_assert_eq(manifest_decode(&back, bytes, length), 0);
    cr_assert_eq(memcmp(&back, &manifest, sizeof manifest), 0);
    cr_assert_eq(manifest_find(&back, 1003)->state, MANIFEST_REBUILDING);
}

Test(manifest, the_largest_fits)
{
    size_t length;

    manifest.shards_count = 1024;
    while (manifest.replicas_count < MANIFEST_REPLICAS_MAX) {
        cr_assert_eq(manifest_add(&manifest, 5000u + manifest.replicas_count, 9), 0);
    }
    cr_assert_eq(manifest_add(&manifest, 1, 1), -E2BIG);
    while (manifest.nodes_count < MANIFEST_NODES_MAX) {
        manifest.nodes[manifest.nodes_count].node = (uint16_t)(manifest.nodes_count + 1);
        manifest.nodes_count++;
    }
    length = manifest_encode(&manifest, bytes);
    cr_assert_eq(length, MANIFEST_BYTES_MAX);
    cr_assert_eq(manifest_decode(&back, bytes, length), 0);
    cr_assert_eq(memcmp(&back, &manifest, sizeof manifest), 0);
}

Test(manifest, every_flipped_byte_and_every_cut_is_found)
{
    size_t length = manifest_encode(&manifest, bytes);

    for (size_t k = 0; k < length; k++) {
        int error;

        bytes[k] ^= (uint8_t)(1u << (k % 8));
        error = manifest_decode(&back, bytes, length);
        cr_assert(error == -EBADMSG || (error == -EPROTONOSUPPORT && k >= 8 && k < 12),
                  "byte %zu: %d", k, error);
        bytes[k] ^= (uint8_t)(1u << (k % 8));
        cr_assert_eq(manifest_decode(&back, bytes, k), -EBADMSG, "cut at %zu", k);
    }
    cr_assert_eq(manifest_decode(&back, bytes, length + 1), -EBADMSG, "a byte too many");
    cr_assert_eq(manifest_decode(&back, bytes, length), 0);
}

static void expect_unsound(const char *what)
{
    cr_assert_not_null(manifest_check(&manifest), "%s", what);
    setup();
    cr_assert_null(manifest_check(&manifest));
}

Test(manifest, what_cannot_be_is_named)
{
    manifest.nonce = 0;
    expect_unsound("nonce");
    manifest.replicas[1].replica_id = 1000;
    expect_unsound("a replica twice");
    manifest.replicas[1].replica_id = 0;
    expect_unsound("replica 0");
    manifest.replicas[1].shard = 16;
    expect_unsound("shard");
    manifest.replicas[1].state = 0;
    expect_unsound("state");
    manifest.nodes[1].node = 1;
    expect_unsound("a node twice");
    manifest.nodes[1].formed = 2;
    expect_unsound("a node's formed");
    manifest.next_incarnation = manifest.wal_incarnation;
    expect_unsound("incarnation");
    manifest.durability = 9;
    expect_unsound("durability");
    manifest.formed = 2;
    expect_unsound("formed");
    manifest.nodes_count = MANIFEST_NODES_MAX + 1;
    expect_unsound("nodes");
    manifest.replicas_count = MANIFEST_REPLICAS_MAX + 1;
    expect_unsound("replicas");
}

Test(manifest, a_log_that_is_gone_is_missed)
{
    static const uint64_t found[] = {1004, 7, 1000};
    uint64_t missing[8] = {0};

    /* 1003 is being rebuilt: nobody expects its log. */
    cr_assert_eq(manifest_missing(&manifest, found, 3, missing, 8), 2);
    cr_assert(missing[0] == 1001 && missing[1] == 1002);
    missing[1] = 0;
    cr_assert_eq(manifest_missing(&manifest, found, 3, missing, 1), 2);
    cr_assert_eq(missing[1], 0, "no more than fit");
    cr_assert_eq(manifest_missing(&manifest, NULL, 0, missing, 8), 4);
    manifest.durability = RAFT_MEMORY;
    cr_assert_eq(manifest_missing(&manifest, NULL, 0, missing, 8), 0);
}

Test(manifest, replicas_come_and_go)
{
    cr_assert_eq(manifest_add(&manifest, 1002, 3), -EEXIST);
    cr_assert_eq(manifest_remove(&manifest, 1002), 0);
    cr_assert_null(manifest_find(&manifest, 1002));
    cr_assert_eq(manifest_remove(&manifest, 1002), -ENOENT);
    cr_assert_eq(manifest.replicas_count, 4);
    cr_assert_not_null(manifest_find(&manifest, 1004));
    cr_assert_null(manifest_check(&manifest));
}

Test(manifest, wal_directory_names)
{
    char name[MANIFEST_WAL_NAME_BYTES];
    uint64_t incarnation = 0;
    uint32_t worker = 0;

    manifest_wal_name(name, UINT64_C(0xfedc000000000001), 17);
    cr_assert_str_eq(name, "wal-fedc000000000001-0011");
    cr_assert(manifest_wal_name_parse(name, &incarnation, &worker));
    cr_assert(incarnation == UINT64_C(0xfedc000000000001) && worker == 17);
    for (size_t k = 0; name[k] != 0; k++) {
        char was = name[k];

        name[k] = 'x';
        cr_assert_not(manifest_wal_name_parse(name, &incarnation, &worker), "character %zu", k);
        name[k] = was;
    }
    cr_assert_not(manifest_wal_name_parse("wal-", &incarnation, &worker));
    cr_assert_not(manifest_wal_name_parse("wal-fedc000000000001-00111", &incarnation, &worker));
}
