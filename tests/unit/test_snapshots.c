/* SPDX-License-Identifier: Apache-2.0
 *
 * A plain program: snapshot files, loading them, and transfer between two nodes over loopback.
 */
#include "tests/unit/snapshots_rig.h"

/* ---- own files ------------------------------------------------------------------------------- */

static void test_save_and_load(void)
{
    start_both(&patient);
    load(&nodes[0], 0x11);
    expect_end(&nodes[0], SNAPSHOT_LOAD_END, -ENOENT);
    save(&nodes[0], 0x11, 50, 1000003);
    load(&nodes[0], 0x11);
    expect_state(&nodes[0], 0x11, 50, 1000003);
    save(&nodes[0], 0x11, 60, 1); /* the least there is */
    load(&nodes[0], 0x11);
    expect_state(&nodes[0], 0x11, 60, 1);
    load(&nodes[0], 0x12); /* another replica's is not its own */
    expect_end(&nodes[0], SNAPSHOT_LOAD_END, -ENOENT);
    stop(&nodes[0]);
    start(&nodes[0], &patient, CLUSTER); /* and after a restart */
    load(&nodes[0], 0x11);
    expect_state(&nodes[0], 0x11, 60, 1);
    stop_both();
}

static void test_newest_two_are_kept(void)
{
    start_both(&patient);
    const uint64_t indexes[] = {10, 30, 20, 40}; /* also if an older one comes late */
    for (int i = 0; i < 4; i++) {
        save(&nodes[0], 0x11, indexes[i], 1000);
        save(&nodes[0], 0x12, indexes[i], 1000);
    }
    CHECK(count_files(&nodes[0]) == 4);
    CHECK(has_file(&nodes[0], 0x11, 30) && has_file(&nodes[0], 0x11, 40));
    CHECK(has_file(&nodes[0], 0x12, 30) && has_file(&nodes[0], 0x12, 40));
    claim(&nodes[0], SNAPSHOT_DROP, 0x11);
    post(&nodes[0]);
    load(&nodes[0], 0x11);
    expect_end(&nodes[0], SNAPSHOT_LOAD_END, -ENOENT);
    CHECK(count_files(&nodes[0]) == 2 && has_file(&nodes[0], 0x12, 40));
    stop_both();
}

static void test_abandoned_saves_leave_nothing(void)
{
    start_both(&patient);
    struct node_fixture *node = &nodes[0];
    save_begin(node, 0x11, 50);
    save_blocks(node, 0x11, 50, 200000);
    claim(node, SNAPSHOT_SAVE_ABORT, 0x11);
    post(node);
    load(node, 0x11);
    expect_end(node, SNAPSHOT_LOAD_END, -ENOENT);
    CHECK(count_files(node) == 0);

    save_begin(node, 0x11, 51); /* its abort found no room: the next BEGIN stands for it */
    save_blocks(node, 0x11, 51, 200000);
    save(node, 0x12, 52, 1000);
    CHECK(count_files(node) == 1 && has_file(node, 0x12, 52));
    save_end(node, 0x11, 0, -EPROTO); /* an end that has no beginning */

    save_begin(node, 0x11, 53); /* dropped in the middle */
    save_blocks(node, 0x11, 53, 1000);
    claim(node, SNAPSHOT_DROP, 0x11);
    post(node);
    save_end(node, 0x11, 0, -EPROTO);
    CHECK(count_files(node) == 1);
    stop_both();
}

static void test_damaged_files_are_not_loaded(void)
{
    start_both(&patient);
    struct node_fixture *node = &nodes[0];
    save(node, 0x11, 50, 300000);
    save(node, 0x11, 60, 300000);
    damage(node, 0x11, 60, 1); /* the last bit of all: nothing of it may have reached the worker */
    load(node, 0x11);
    expect_state(node, 0x11, 50, 300000);
    damage(node, 0x11, 50, 150000);
    load(node, 0x11);
    expect_end(node, SNAPSHOT_LOAD_END, -EBADMSG);

    save(node, 0x11, 70, 300000);
    int fd = open_file(node, 0x11, 70);
    CHECK(ftruncate(fd, lseek(fd, 0, SEEK_END) - SNAPSHOT_FOOTER_BYTES) ==
          0); /* a whole block's end */
    close(fd);
    load(node, 0x11);
    expect_end(node, SNAPSHOT_LOAD_END, -EBADMSG);
    stop_both();
}

static void test_start_tidies_up(void)
{
    start_both(&patient);
    save(&nodes[0], 0x11, 50, 1000);
    stop(&nodes[0]);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/snapshots/snap.belay.tmp", nodes[0].options.data_directory);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    CHECK(count_files(&nodes[0]) == 2);
    start(&nodes[0], &patient, CLUSTER);
    CHECK(count_files(&nodes[0]) == 1 && has_file(&nodes[0], 0x11, 50));
    stop(&nodes[0]);
    nodes[0].options.durability = NODE_MEMORY; /* its replicas did not outlive their process */
    start(&nodes[0], &patient, CLUSTER);
    CHECK(count_files(&nodes[0]) == 0);
    stop_both();
}

/* ---- transfer -------------------------------------------------------------------------------- */

static void test_fetch(void)
{
    start_both(&patient);
    save(&nodes[0], 0x11, 50, 1500001);
    fetch(&nodes[1], 0x22, 1, 40);
    expect_state(&nodes[1], 0x22, 50, 1500001);
    CHECK(has_file(&nodes[1], 0x22, 50) && count_files(&nodes[1]) == 1);
    stop(&nodes[1]);
    start(&nodes[1], &patient, CLUSTER); /* it is its own now */
    load(&nodes[1], 0x22);
    expect_state(&nodes[1], 0x22, 50, 1500001);
    fetch(&nodes[0], 0x11, 2, 50); /* and can be given back */
    expect_state(&nodes[0], 0x11, 50, 1500001);
    stop_both();
}

static void test_fetch_waits_for_one_new_enough(void)
{
    start_both(&patient);
    save(&nodes[0], 0x11, 50, 1000);
    fetch(&nodes[1], 0x22, 1, 51);
    fetch(&nodes[1], 0x23, 1, 1); /* one at a time */
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -EBUSY);
    save(&nodes[0], 0x11, 60, 70000);
    expect_state(&nodes[1], 0x22, 60, 70000);
    stop_both();
}

static void test_fetch_waits_for_a_listener(void)
{
    prepare(root_directory);
    start(&nodes[1], &patient, CLUSTER);
    fetch(&nodes[1], 0x22, 1, 50);
    start(&nodes[0], &patient, CLUSTER);
    save(&nodes[0], 0x11, 50, 1000);
    expect_state(&nodes[1], 0x22, 50, 1000);
    stop_both();
}

static void test_fetch_gives_up(void)
{
    start_both(&hasty);
    fetch(&nodes[1], 0x22, 1, 1); /* it has none */
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -ETIMEDOUT);
    save(&nodes[0], 0x11, 50, 1000);
    fetch(&nodes[1], 0x22, 1, 51); /* none new enough */
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -ETIMEDOUT);
    claim(&nodes[1], SNAPSHOT_FETCH, 0x22)->peer_node = 3; /* no such node */
    post(&nodes[1]);
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -EINVAL);
    struct snapshot_mail *mail = claim(&nodes[1], SNAPSHOT_FETCH, 0x22);
    mail->peer_node = 1;
    mail->shard = 4; /* it has none of that shard */
    post(&nodes[1]);
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -ETIMEDOUT);
    stop(&nodes[0]);
    fetch(&nodes[1], 0x22, 1, 1); /* nobody there */
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -ETIMEDOUT);
    CHECK(count_files(&nodes[1]) == 0);
    stop(&nodes[1]);
}

static void test_wrong_key_and_wrong_cluster(void)
{
    prepare(root_directory);
    nodes[1].options.cluster_key[15] ^= 1;
    start(&nodes[0], &hasty, CLUSTER);
    start(&nodes[1], &hasty, CLUSTER);
    save(&nodes[0], 0x11, 50, 1000);
    fetch(&nodes[1], 0x22, 1, 1);
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -ETIMEDOUT);
    stop(&nodes[1]);
    nodes[1].options.cluster_key[15] ^= 1;
    start(&nodes[1], &hasty, CLUSTER + 1);
    fetch(&nodes[1], 0x22, 1, 1);
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -ETIMEDOUT);
    CHECK(count_files(&nodes[1]) == 0);
    stop_both();
}

static void test_damaged_files_are_not_served(void)
{
    start_both(&hasty);
    save(&nodes[0], 0x11, 50, 300000);
    save(&nodes[0], 0x11, 60, 300000);
    damage(&nodes[0], 0x11, 60, 1);
    fetch(&nodes[1], 0x22, 1, 55); /* only the damaged one would do */
    expect_end(&nodes[1], SNAPSHOT_LOAD_END, -ETIMEDOUT);
    CHECK(count_files(&nodes[1]) == 0);
    fetch(&nodes[1], 0x22, 1, 45); /* the one before it does as well */
    expect_state(&nodes[1], 0x22, 50, 300000);
    stop_both();
}

int main(void)
{
    rig_open();
    RUN(test_save_and_load);
    RUN(test_newest_two_are_kept);
    RUN(test_abandoned_saves_leave_nothing);
    RUN(test_damaged_files_are_not_loaded);
    RUN(test_start_tidies_up);
    RUN(test_fetch);
    RUN(test_fetch_waits_for_one_new_enough);
    RUN(test_fetch_waits_for_a_listener);
    RUN(test_fetch_gives_up);
    RUN(test_wrong_key_and_wrong_cluster);
    RUN(test_damaged_files_are_not_served);
    rig_close();
    return 0;
}
