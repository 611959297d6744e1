/* SPDX-License-Identifier: Apache-2.0
 *
 * Configuration of belayd: what is taken, and the exact text of what is refused.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mgmt/config.h"
#include "mgmt/config_settings.h"

/* A whole one, to which tests add their line. */
#define THREE_NODES                                                                                \
    "node: 2\n"                                                                                    \
    "data_directory: /var/lib/belay\n"                                                             \
    "members:\n"                                                                                   \
    "  - {node: 1, client: '127.0.0.1:7410', peer: '127.0.0.1:7510'}\n"                            \
    "  - {node: 2, client: '127.0.0.1:7420', peer: '127.0.0.1:7520'}\n"                            \
    "  - {node: 3, client: '127.0.0.1:7430', peer: '127.0.0.1:7530'}\n"
#define ONE_NODE                                                                                   \
    "node: 1\n"                                                                                    \
    "data_directory: /var/lib/belay\n"                                                             \
    "members: [{node: 1, client: '127.0.0.1:7410', peer: '127.0.0.1:7510'}]\n"

static int parse(struct config *config, const char *text, struct config_error *error)
{
    config_defaults(config);
    return config_parse(config, "b.yaml", (const uint8_t *)text, strlen(text), error);
}

/* Parses, resolves and judges. */
static int take(struct config *config, const char *text, struct config_error *error)
{
    int result = parse(config, text, error);
    if (result == 0)
        result = config_resolve(config, error);
    return result == 0 ? config_judge(config, error) : result;
}

static void assert_taken(struct config *config, const char *text)
{
    struct config_error error = {""};
    cr_assert_eq(take(config, text, &error), 0, "%s", error.text);
}

static void assert_refused(const char *text, const char *expected)
{
    static struct config config;
    struct config_error error = {""};
    int result = take(&config, text, &error);
    cr_assert_str_eq(error.text, expected);
    cr_assert_eq(result, -EINVAL);
}

Test(config, defaults_with_one_member)
{
    static struct config config;
    assert_taken(&config, ONE_NODE);
    const struct node_options *options = &config.options;
    cr_assert_eq(options->node, 1);
    cr_assert_eq(options->members_count, 1);
    cr_assert_eq(options->members[0].client.port, 7410);
    cr_assert_eq(options->members[0].peer.port, 7510);
    cr_assert_eq(options->members[0].client.ip[12], 127);
    cr_assert_str_eq(options->data_directory, "/var/lib/belay");
    cr_assert_eq(options->shards, 16);
    cr_assert_eq(options->workers, 1);
    cr_assert_eq(options->durability, NODE_DISK);
    cr_assert_eq(options->limits.leases_max, 65536);
    cr_assert_eq(options->heartbeat_ns, 10000000);
    cr_assert_eq(options->election_timeout_ns, 40000000);
    cr_assert_eq(options->stamp_interval_ns, 250000000);
    cr_assert_eq(options->ring_bytes, 4 << 20);
    cr_assert_eq(options->entries_max, 32768);
    cr_assert_eq(options->wal_segment_bytes, 16 << 20); /* a quarter of 16 rings of 4 MiB */
    cr_assert_eq(options->wal_segments, 10);
    cr_assert_eq(options->polling, POLLER_ADAPTIVE);
    cr_assert_eq(options->spin_ns, 5000);
    cr_assert_eq(options->first_core, -1);
    cr_assert_eq(config.log_level, JOURNAL_INFO);
    uint8_t any = 0;
    for (int i = 0; i < WIRE_MAC_KEY_BYTES; i++)
        any |= options->cluster_key[i];
    cr_assert_neq(any, 0, "one member draws a key of its own");
}

Test(config, every_setting_arrives)
{
    static struct config config;
    assert_taken(&config, ONE_NODE "shards: 32\n"
                                   "workers: 2\n"
                                   "durability: memory\n"
                                   "insecure: true\n"
                                   "limits:\n"
                                   "  leases: 1000\n"
                                   "  resources: 900\n"
                                   "  sessions: 2000\n"
                                   "  waiters: 3000\n"
                                   "  answers: 40000\n"
                                   "  long_names: 500\n"
                                   "  extras: 600\n"
                                   "  window: 128\n"
                                   "  queue: 700\n"
                                   "  ttl_min: 20ms\n"
                                   "  ttl_max: 2h\n"
                                   "  session_ttl_min: 30ms\n"
                                   "  session_ttl_max: 3h\n"
                                   "  wait_max: 4m\n"
                                   "  lock_delay_max: 5s\n"
                                   "  grace_max: 6s\n"
                                   "polling: busy\n"
                                   "spin: 7us\n"
                                   "pin_first_core: 3\n"
                                   "hugepages: true\n"
                                   "heartbeat: 8ms\n"
                                   "election_timeout: 90ms\n"
                                   "stamp_interval: 1s\n"
                                   "lease_reads: true\n"
                                   "lease_drift_ppm: 11\n"
                                   "log_ring: {bytes: 8MiB, entries: 65536, ship_window: 12KiB}\n"
                                   "wal: {segment: 16MiB, segments: 19}\n"
                                   "socket_buffer: 14KiB\n"
                                   "log: {level: warn, format: json}\n");
    const struct node_options *options = &config.options;
    cr_assert_eq(options->shards, 32);
    cr_assert_eq(options->workers, 2);
    cr_assert_eq(options->durability, NODE_MEMORY);
    cr_assert(config.insecure);
    cr_assert_eq(options->limits.leases_max, 1000);
    cr_assert_eq(options->limits.resources_max, 900);
    cr_assert_eq(options->limits.sessions_max, 2000);
    cr_assert_eq(options->limits.waiters_max, 3000);
    cr_assert_eq(options->limits.answers_max, 40000);
    cr_assert_eq(options->limits.long_names_max, 500);
    cr_assert_eq(options->limits.extras_max, 600);
    cr_assert_eq(options->limits.window, 128);
    cr_assert_eq(options->limits.queue_max, 700);
    cr_assert_eq(options->limits.ttl_ms_min, 20);
    cr_assert_eq(options->limits.ttl_ms_max, 7200000);
    cr_assert_eq(options->limits.session_ttl_ms_min, 30);
    cr_assert_eq(options->limits.session_ttl_ms_max, 10800000);
    cr_assert_eq(options->limits.wait_ms_max, 240000);
    cr_assert_eq(options->limits.lock_delay_ms_max, 5000);
    cr_assert_eq(options->limits.grace_ms_max, 6000);
    cr_assert_eq(options->polling, POLLER_BUSY);
    cr_assert_eq(options->spin_ns, 7000);
    cr_assert_eq(options->first_core, 3);
    cr_assert(options->hugepages);
    cr_assert_eq(options->heartbeat_ns, 8000000);
    cr_assert_eq(options->election_timeout_ns, 90000000);
    cr_assert_eq(options->stamp_interval_ns, 1000000000);
    cr_assert(options->lease_reads);
    cr_assert_eq(options->lease_drift_ppm, 11);
    cr_assert_eq(options->ring_bytes, 8 << 20);
    cr_assert_eq(options->entries_max, 65536);
    cr_assert_eq(options->ship_window_bytes, 12 << 10);
    cr_assert_eq(options->wal_segment_bytes, 16 << 20);
    cr_assert_eq(options->wal_segments, 19);
    cr_assert_eq(options->socket_buffer_bytes, 14 << 10);
    cr_assert_eq(config.log_level, JOURNAL_WARN);
    cr_assert_eq(config.log_format, JOURNAL_JSON);
}

Test(config, limits_follow_the_number_of_leases)
{
    static struct config config;
    assert_taken(&config, ONE_NODE "limits: {leases: 500000, waiters: 100}\n");
    struct lock_limits expected = lock_limits_for(500000);
    cr_assert_eq(config.options.limits.leases_max, 500000);
    cr_assert_eq(config.options.limits.sessions_max, expected.sessions_max);
    cr_assert_eq(config.options.limits.answers_max, expected.answers_max);
    cr_assert_eq(config.options.limits.waiters_max, 100);
    cr_assert_eq(config.options.limits.queue_max, 100);
}

Test(config, unknown_keys_are_refused_with_a_suggestion)
{
    assert_refused("noed: 1\n", "b.yaml:1: noed: unknown key; did you mean 'node'?");
    assert_refused("node: 1\nelection_timout: 10ms\n",
                   "b.yaml:2: election_timout: unknown key; did you mean 'election_timeout'?");
    assert_refused("limits:\n  window: 5\n  leasse: 7\n",
                   "b.yaml:3: limits.leasse: unknown key; did you mean 'leases'?");
    assert_refused("leases: 7\n", "b.yaml:1: leases: unknown key; did you mean 'limits.leases'?");
    assert_refused("limits: {shards: 7}\n",
                   "b.yaml:1: limits.shards: unknown key; did you mean 'shards'?");
    assert_refused("memebers: []\n", "b.yaml:1: memebers: unknown key; did you mean 'members'?");
    assert_refused("limit: {leases: 7}\n", "b.yaml:1: limit: unknown key; did you mean 'limits'?");
    assert_refused("bananas: 7\n", "b.yaml:1: bananas: unknown key");
    assert_refused("limits.leases: 7\n", "b.yaml:1: limits.leases: unknown key");
    assert_refused("members:\n  - {node: 1, clinet: 'x:1'}\n",
                   "b.yaml:2: members.clinet: unknown key; did you mean 'client'?");
    assert_refused(
        "members:\n  - {node: 1, address: 'x:1'}\n",
        "b.yaml:2: members.address: unknown key; a member has node, client, peer and perhaps "
        "management");
}

Test(config, duplicates_are_refused)
{
    assert_refused("node: 1\nshards: 4\nnode: 2\n", "b.yaml:3: node: given twice; first on line 1");
    assert_refused("limits: {leases: 4}\nnode: 1\nlimits: {window: 4}\n",
                   "b.yaml:3: limits: given twice; first on line 1");
    assert_refused("limits:\n  leases: 4\n  leases: 4\n",
                   "b.yaml:3: limits.leases: given twice; first on line 2");
    assert_refused("members: []\nmembers: []\n", "b.yaml:2: members: given twice; first on line 1");
    assert_refused("members:\n  - {node: 1, node: 1}\n",
                   "b.yaml:2: members.node: given twice in one member");
}

Test(config, values_are_judged_with_what_is_expected)
{
    assert_refused("workers: 0\n",
                   "b.yaml:1: workers: found '0', expected a whole number from 1 to 64");
    assert_refused("workers: 65\n",
                   "b.yaml:1: workers: found '65', expected a whole number from 1 to 64");
    assert_refused("workers: two\n",
                   "b.yaml:1: workers: found 'two', expected a whole number from 1 to 64");
    assert_refused("workers: -1\n",
                   "b.yaml:1: workers: found '-1', expected a whole number from 1 to 64");
    assert_refused("workers: 4294967297\n",
                   "b.yaml:1: workers: found '4294967297', expected a whole number from 1 to 64");
    assert_refused("workers: 18446744073709551617\n",
                   "b.yaml:1: workers: found '18446744073709551617', expected a whole number from "
                   "1 to 64");
    assert_refused("workers:\n",
                   "b.yaml:1: workers: found '', expected a whole number from 1 to 64");
    assert_refused("workers: [1]\n",
                   "b.yaml:1: workers: found a list, expected a whole number from 1 to 64");
    assert_refused("heartbeat: 20\n", "b.yaml:1: heartbeat: found '20', expected a duration from "
                                      "1ms to 10s with its unit, such as 250ms");
    assert_refused(
        "heartbeat: 20 years\n",
        "b.yaml:1: heartbeat: found '20 years', expected a duration from 1ms to 10s with "
        "its unit, such as 250ms");
    assert_refused("heartbeat: 99999999999h\n",
                   "b.yaml:1: heartbeat: found '99999999999h', expected a duration from 1ms to 10s "
                   "with its unit, such as 250ms");
    assert_refused("limits: {ttl_min: 1500us}\n",
                   "b.yaml:1: limits.ttl_min: found '1500us', expected a duration from 1ms to 24h "
                   "with its unit, such as 250ms");
    assert_refused("log_ring: {bytes: 64KB}\n", "b.yaml:1: log_ring.bytes: found '64KB', expected "
                                                "a size from 256KiB to 1GiB, such as 64KiB");
    assert_refused("durability: disc\n",
                   "b.yaml:1: durability: found 'disc', expected disk or memory");
    assert_refused("polling: 1\n", "b.yaml:1: polling: found '1', expected busy or adaptive");
    assert_refused("hugepages: yes\n", "b.yaml:1: hugepages: found 'yes', expected true or false");
    assert_refused("pin_first_core: -2\n", "b.yaml:1: pin_first_core: found '-2', expected the "
                                           "number of a core from 0 to 1023, or none");
    assert_refused("data_directory: ''\n",
                   "b.yaml:1: data_directory: found '', expected a path of 1 to 511 bytes");
    assert_refused("log: {level: loud}\n",
                   "b.yaml:1: log.level: found 'loud', expected debug or info or warn or error");
    assert_refused("workers: \"1\\02\"\n", "b.yaml:1: workers: a zero byte in a value");
    assert_refused("members:\n- node: 6\n",
                   "b.yaml:2: members.node: found '6', expected a whole number from 1 to 5");
}

Test(config, values_with_units)
{
    static struct config config;
    assert_taken(&config, ONE_NODE "spin: 0\nheartbeat: 8000 us\nlog_ring: {bytes: 262144, "
                                   "ship_window: 65536B}\npin_first_core: none\n");
    cr_assert_eq(config.options.spin_ns, 0);
    cr_assert_eq(config.options.heartbeat_ns, 8000000);
    cr_assert_eq(config.options.ring_bytes, 262144);
    cr_assert_eq(config.options.ship_window_bytes, 65536);
    cr_assert_eq(config.options.first_core, -1);
}

Test(config, shapes_that_are_not_ours)
{
    assert_refused("- 1\n", "b.yaml:1: expected 'key: value' lines");
    assert_refused("just words\n", "b.yaml:1: expected 'key: value' lines");
    assert_refused("limits: 5\n", "b.yaml:1: limits: expected keys of its own, indented below");
    assert_refused("members: {node: 1}\n",
                   "b.yaml:1: members: expected a list, each entry with node, client and peer");
    assert_refused("members: [1]\n",
                   "b.yaml:1: members: each entry needs the keys node, client and peer");
    assert_refused("members:\n  - node: 1\n    peer: '127.0.0.1:1'\n",
                   "b.yaml:2: members: this entry lacks 'client'");
    assert_refused("node: &a 1\n", "b.yaml:1: anchors and aliases are not used here");
    assert_refused("node: *a\n", "b.yaml:1: anchors and aliases are not used here");
    assert_refused("node: !!int 1\n", "b.yaml:1: tags are not used here");
    assert_refused("node: 1\n---\nnode: 2\n", "b.yaml:2: a second document; expected one");
    assert_refused("[1]: 2\n", "b.yaml:1: top level: found a list, expected a key");
    assert_refused("node: 1\nshards: [\n",
                   "b.yaml:2: shards: found a list, expected a whole number "
                   "from 1 to 1024");
}

Test(config, not_yaml)
{
    static struct config config;
    struct config_error error;
    cr_assert_eq(parse(&config, "node: 1\n\tshards: 2\n", &error), -EINVAL);
    cr_assert_eq(strncmp(error.text, "b.yaml:2: not YAML: ", 20), 0, "%s", error.text);
    cr_assert_eq(parse(&config, "node: \"1\n", &error), -EINVAL);
    cr_assert_eq(strncmp(error.text, "b.yaml:", 7), 0, "%s", error.text);
    cr_assert_eq(parse(&config, "node: \xff\xfe\n", &error), -EINVAL);
    cr_assert_eq(strncmp(error.text, "b.yaml:1: not YAML: ", 20), 0, "%s", error.text);
}

Test(config, what_is_not_given)
{
    assert_refused("", "b.yaml: members: not given; expected a list, each entry with node, client "
                       "and peer");
    assert_refused("data_directory: /d\n"
                   "members: [{node: 1, client: '127.0.0.1:1', peer: '127.0.0.1:2'}]\n",
                   "b.yaml: node: not given; expected which of the members this is");
    assert_refused("node: 1\nmembers: [{node: 1, client: '127.0.0.1:1', peer: '127.0.0.1:2'}]\n",
                   "b.yaml: data_directory: not given; expected a path");
    assert_refused(THREE_NODES, "b.yaml: cluster_key_file: not given; members know each other by "
                                "it (head -c 16 /dev/urandom makes one)");
}

Test(config, the_whole_is_judged_at_its_line)
{
    assert_refused(ONE_NODE "workers: 4\nshards: 3\n",
                   "b.yaml:4: workers: 4 are more than the 3 shards there are to share out");
    assert_refused(ONE_NODE "heartbeat: 50ms\n",
                   "b.yaml: election_timeout: 40000us is less than three heartbeats of 50000us");
    assert_refused(ONE_NODE "log_ring:\n  bytes: 3MiB\n",
                   "b.yaml:5: log_ring.bytes: 3145728 bytes is not a power of two between 262144 "
                   "bytes and 1073741824 bytes");
    assert_refused(ONE_NODE "log_ring:\n  ship_window: 2MiB\n",
                   "b.yaml:5: log_ring.ship_window: 2097152 bytes is not between 1400 bytes and "
                   "1048576 bytes");
    assert_refused(ONE_NODE "wal:\n  segment: 8388609B\n",
                   "b.yaml:5: wal.segment: 8388609 bytes are not a multiple of 4096");
    assert_refused(ONE_NODE "limits: {ttl_min: 2h, ttl_max: 1h}\n",
                   "b.yaml: limits: ttl_ms_min must not exceed ttl_ms_max");
    assert_refused("node: 2\ndata_directory: /d\n"
                   "members: [{node: 1, client: '127.0.0.1:1', peer: '127.0.0.1:2'}]\n",
                   "b.yaml:1: node: 2 is not between 1 and 1, the number of members");
}

#define MEMBERS(first, second) "node: 1\ndata_directory: /d\nmembers:\n  - " first "\n" second

Test(config, members_are_judged)
{
    assert_refused(MEMBERS("{node: 1, client: '127.0.0.1', peer: '127.0.0.1:2'}", ""),
                   "b.yaml:4: members.client: found '127.0.0.1', expected an address with its "
                   "port, such as 10.0.0.1:7400");
    assert_refused(MEMBERS("{node: 1, client: '127.0.0.1:1', peer: '127.0.0.1:1'}", ""),
                   "b.yaml:3: members: client of node 1 (127.0.0.1:1) and peer of node 1 "
                   "(127.0.0.1:1) want the same port: each takes 1, one per worker");
    assert_refused(
        MEMBERS("{node: 1, client: '127.0.0.1:7400', peer: '127.0.0.1:7401'}", "workers: 2\n"),
        "b.yaml:3: members: client of node 1 (127.0.0.1:7400) and peer of node 1 "
        "(127.0.0.1:7401) want the same port: each takes 2, one per worker");
    assert_refused(
        MEMBERS("{node: 1, client: '127.0.0.1:65535', peer: '127.0.0.1:1'}", "workers: 2\n"),
        "b.yaml:3: members: node 1: client: 127.0.0.1:65535: the port must be between 1 "
        "and 65534, so that each of 2 workers has its own");
    assert_refused(MEMBERS("{node: 1, client: '127.0.0.1:0', peer: '127.0.0.1:1'}", ""),
                   "b.yaml:3: members: node 1: client: 127.0.0.1:0: the port must be between 1 and "
                   "65535, so that each of 1 workers has its own");
    assert_refused(MEMBERS("{node: 1, client: '0.0.0.0:7400', peer: '127.0.0.1:1'}", ""),
                   "b.yaml:3: members: node 1: client: 0.0.0.0:7400 is not an address that others "
                   "can send to");
    assert_refused(MEMBERS("{node: 2, client: '127.0.0.1:7400', peer: '127.0.0.1:1'}", ""),
                   "b.yaml:3: members: node 2 is not between 1 and 1, the number of members");
}

static void write_key(const char *path, const char *bytes, size_t length, mode_t mode)
{
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert_eq(write(descriptor, bytes, length), (ssize_t)length);
    cr_assert_eq(fchmod(descriptor, mode), 0);
    close(descriptor);
}

Test(config, two_members_are_not_a_cluster)
{
    static struct config config;
    struct config_error error;
    char path[] = "/tmp/belay-key-XXXXXX";
    close(mkstemp(path));
    write_key(path, "0123456789abcdef", 16, 0600);
    cr_assert_eq(parse(&config,
                       MEMBERS("{node: 1, client: '127.0.0.1:1', peer: '127.0.0.1:2'}",
                               "  - {node: 2, client: '127.0.0.1:3', peer: '127.0.0.1:4'}\n"),
                       &error),
                 0);
    cr_assert_eq(config_set(&config, "--set", "cluster_key_file", path, &error), 0);
    cr_assert_eq(config_resolve(&config, &error), 0, "%s", error.text);
    cr_assert_eq(config_judge(&config, &error), -EINVAL);
    cr_assert_str_eq(error.text, "b.yaml:3: members: there are 2, but a cluster has 1, 3 or 5");
    unlink(path);
}

/* One run of the key file's checks: NULL = taken. */
static void assert_key(const char *bytes, size_t length, mode_t mode, const char *wrong)
{
    static struct config config;
    struct config_error error = {""};
    char path[] = "/tmp/belay-key-XXXXXX", expected[512];
    close(mkstemp(path));
    write_key(path, bytes, length, mode);
    cr_assert_eq(parse(&config, THREE_NODES, &error), 0, "%s", error.text);
    cr_assert_eq(config_set(&config, "--set", "cluster_key_file", path, &error), 0);
    int result = config_resolve(&config, &error);
    unlink(path);
    if (wrong == NULL) {
        cr_assert_eq(result, 0, "%s", error.text);
        cr_assert_eq(config.options.cluster_key[0], 0xa5);
        cr_assert_eq(config.options.cluster_key[15], 0x5a);
    } else {
        snprintf(expected, sizeof expected, "command line: cluster_key_file: %s: %s", path, wrong);
        cr_assert_str_eq(error.text, expected);
        cr_assert_lt(result, 0);
    }
}

Test(config, cluster_key)
{
    const char *content = "expected 32 hex digits or 16 bytes, not all zero";
    assert_key("A5000000000000000000000000aaff5a\n", 33, 0640, NULL);
    assert_key("a5000000000000000000000000aaff5a", 32, 0400, NULL);
    assert_key("\xa5\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x5a", 16, 0600, NULL);
    assert_key("a5000000000000000000000000aaff5a", 32, 0644,
               "open to every user (mode 0644), expected 0600 or 0640");
    assert_key("a5000000000000000000000000aaff5g", 32, 0600, content);
    assert_key("a5000000000000000000000000aaff5", 31, 0600, content);
    assert_key("00000000000000000000000000000000", 32, 0600, content);
    assert_key("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16, 0600, content);
    assert_key("a5000000000000000000000000aaff5aa5000000000000000000000000aaff5a5a5a", 68, 0600,
               content);
    assert_key("", 0, 0600, content);
}

Test(config, cluster_key_that_is_not_there)
{
    static struct config config;
    struct config_error error;
    cr_assert_eq(parse(&config, THREE_NODES "cluster_key_file: /nowhere/key\n", &error), 0);
    cr_assert_lt(config_resolve(&config, &error), 0);
    cr_assert_str_eq(error.text,
                     "b.yaml:7: cluster_key_file: /nowhere/key: No such file or directory");
}

Test(config, listeners_beyond_loopback_need_insecure)
{
    const char *open_to_all =
        MEMBERS("{node: 1, client: '10.1.2.3:7400', peer: '10.1.2.3:7500'}", "");
    assert_refused(open_to_all,
                   "b.yaml:4: members.client: 10.1.2.3:7400 is open to the network and clients "
                   "have no credentials yet; expected a loopback address, or 'insecure: true'");
    static struct config config;
    assert_taken(&config, MEMBERS("{node: 1, client: '10.1.2.3:7400', peer: '10.1.2.3:7500'}",
                                  "insecure: true\n"));
    /* Peers have a key. */
    assert_taken(&config, MEMBERS("{node: 1, client: '[::1]:7400', peer: '10.1.2.3:7500'}", ""));
}

Test(config, http_is_off_unless_it_listens_and_is_as_exposed_as_clients_are)
{
    static struct config config;
    assert_taken(&config, ONE_NODE);
    cr_assert(!config.http_on);
    assert_taken(&config, ONE_NODE "http: {listen: '127.0.0.1:7480'}\n");
    cr_assert(config.http_on);
    cr_assert_eq(config.http.port, 7480);
    assert_refused(
        ONE_NODE "http: {listen: '7480'}\n",
        "b.yaml:4: http.listen: found '7480', expected an address with its port, such as "
        "127.0.0.1:7480");
    assert_refused(ONE_NODE "http: {listen: '0.0.0.0:7480'}\n",
                   "b.yaml:4: http.listen: 0.0.0.0:7480 is open to the network and HTTP has no "
                   "credentials yet; expected a loopback address, or 'insecure: true'");
    assert_taken(&config, ONE_NODE "http: {listen: '0.0.0.0:7480'}\ninsecure: true\n");
}

Test(config, environment_is_later_than_the_file)
{
    static struct config config;
    struct config_error error;
    cr_assert_eq(parse(&config, ONE_NODE "workers: 2\nlimits: {leases: 10}\n", &error), 0);
    char *good[] = {"PATH=/bin",
                    "BELAYD_WORKERS=3",
                    "BELAYD_LIMITS_LEASES=77",
                    "BELAYD_LOG_RING_BYTES=1MiB",
                    "BELAYD_CONFIG=/x",
                    "BELAYD_SERVICE_HOST=10.0.0.1",
                    "BELAYD_PORT_7400_UDP=udp://10.0.0.1:7400",
                    NULL};
    cr_assert_eq(config_environment(&config, good, &error), 0, "%s", error.text);
    cr_assert_eq(config_resolve(&config, &error), 0);
    cr_assert_eq(config_judge(&config, &error), 0, "%s", error.text);
    cr_assert_eq(config.options.workers, 3);
    cr_assert_eq(config.options.limits.leases_max, 77);
    cr_assert_eq(config.options.ring_bytes, 1 << 20);

    char *misspelt[] = {"BELAYD_WORKER=3", NULL};
    cr_assert_eq(config_environment(&config, misspelt, &error), -EINVAL);
    cr_assert_str_eq(error.text, "BELAYD_WORKER: unknown variable; did you mean BELAYD_WORKERS?");
    char *wrong[] = {"BELAYD_SPIN=5", NULL};
    cr_assert_eq(config_environment(&config, wrong, &error), -EINVAL);
    cr_assert_str_eq(error.text, "BELAYD_SPIN: spin: found '5', expected a duration from 0ns to 1s "
                                 "with its unit, such as 250ms");
    char *too_many[] = {"BELAYD_WORKERS=40", NULL};
    cr_assert_eq(config_environment(&config, too_many, &error), 0);
    cr_assert_eq(config_judge(&config, &error), -EINVAL);
    cr_assert_str_eq(error.text, "BELAYD_WORKERS: workers: 40 are more than the 16 shards there "
                                 "are to share out");
}

Test(config, flags_are_later_than_the_environment)
{
    static struct config config;
    struct config_error error;
    cr_assert_eq(parse(&config, ONE_NODE "workers: 2\n", &error), 0);
    char *environment[] = {"BELAYD_WORKERS=3", NULL};
    cr_assert_eq(config_environment(&config, environment, &error), 0);
    cr_assert_eq(config_set(&config, "--workers", "workers", "4", &error), 0);
    cr_assert_eq(config.options.workers, 4);
    cr_assert_eq(config_set(&config, "--set", "limits.leases", "x", &error), -EINVAL);
    cr_assert_str_eq(error.text, "--set: limits.leases: found 'x', expected a whole number from 1 "
                                 "to 268435456");
    cr_assert_eq(config_set(&config, "--set", "leases", "1", &error), -EINVAL);
    cr_assert_str_eq(error.text, "--set: leases: unknown key; did you mean 'limits.leases'?");
}

Test(config, files)
{
    static struct config config;
    struct config_error error;
    config_defaults(&config);
    cr_assert_eq(config_load(&config, "/nowhere/b.yaml", &error), -ENOENT);
    cr_assert_str_eq(error.text, "/nowhere/b.yaml: No such file or directory");
    cr_assert_eq(config_load(&config, "/tmp", &error), -EISDIR);
    cr_assert_eq(config_load(&config, "/dev/zero", &error), -EINVAL);
    char path[] = "/tmp/belay-config-XXXXXX";
    int descriptor = mkstemp(path);
    cr_assert_eq(write(descriptor, ONE_NODE, strlen(ONE_NODE)), (ssize_t)strlen(ONE_NODE));
    cr_assert_eq(config_load(&config, path, &error), 0, "%s", error.text);
    cr_assert_eq(config.members_count, 1);
    cr_assert_eq(ftruncate(descriptor, CONFIG_FILE_BYTES_MAX + 1), 0);
    cr_assert_eq(config_load(&config, path, &error), -EFBIG);
    close(descriptor);
    unlink(path);
}

Test(config, long_words_are_cut_in_messages)
{
    static struct config config;
    struct config_error error;
    char text[4096] = "workers: '";
    memset(text + 10, 'x', sizeof text - 13);
    memcpy(text + sizeof text - 3, "'\n", 3);
    cr_assert_eq(parse(&config, text, &error), -EINVAL);
    cr_assert_lt(strlen(error.text), 256);
    cr_assert_not_null(strstr(error.text, "...', expected a whole number"));
    memset(text, 'k', sizeof text - 4);
    memcpy(text + 900, ": 1", 4);
    cr_assert_eq(parse(&config, text, &error), -EINVAL);
    cr_assert_not_null(strstr(error.text, "kk...: unknown key"), "%s", error.text);
}

Test(config, distance_of_words)
{
    cr_assert_eq(word_distance("", ""), 0);
    cr_assert_eq(word_distance("abc", "abc"), 0);
    cr_assert_eq(word_distance("abc", "acb"), 1);
    cr_assert_eq(word_distance("abc", "ab"), 1);
    cr_assert_eq(word_distance("abc", "xabc"), 1);
    cr_assert_eq(word_distance("abc", "axc"), 1);
    cr_assert_eq(word_distance("kitten", "sitting"), 3);
    cr_assert_eq(word_distance("a", "0123456789012345678901234567890123"), UINT32_MAX);
}

/* ---- the examples in docs/ ------------------------------------------------------------------- */

static void take_example(struct config *config, const char *name)
{
    char path[1024], key[] = "/tmp/belay-key-XXXXXX";
    struct config_error error = {""};
    close(mkstemp(key));
    write_key(key, "0123456789abcdef", 16, 0600);
    snprintf(path, sizeof path, "%s/docs/examples/%s", BELAY_SOURCE_DIRECTORY, name);
    config_defaults(config);
    cr_assert_eq(config_load(config, path, &error), 0, "%s", error.text);
    for (int node = 1; node <= config->members_count; node++) {
        char text[2] = {(char)('0' + node), 0};
        cr_assert_eq(config_set(config, "--node", "node", text, &error), 0);
        cr_assert_eq(config_set(config, "--data", "data_directory", "/d", &error), 0);
        cr_assert_eq(config_set(config, "--set", "cluster_key_file", key, &error), 0);
        cr_assert_eq(config_resolve(config, &error), 0, "%s", error.text);
        cr_assert_eq(config_judge(config, &error), 0, "%s", error.text);
    }
    unlink(key);
}

Test(config, examples)
{
    static struct config config;
    take_example(&config, "three-nodes.yaml");
    cr_assert_eq(config.options.members_count, 3);
    take_example(&config, "three-on-one-machine.yaml");
    cr_assert_eq(config.options.members_count, 3);
}

/* The reference example names every setting, with its default. */
static bool is_of_device(const struct setting *setting)
{
    return strncmp(setting->key, "dpdk.", 5) == 0;
}

Test(config, the_example_with_a_device)
{
    static struct config config;
    take_example(&config, "dpdk.yaml");
    for (uint32_t i = 0; i < settings_count(); i++)
        cr_assert(!is_of_device(setting_at(i)) || config.sources[i].kind != CONFIG_DEFAULT, "%s",
                  setting_at(i)->key);
}

Test(config, the_example_with_all_settings)
{
    static struct config config, defaults;
    take_example(&config, "all-settings.yaml");
    for (uint32_t i = 0; i < settings_count(); i++)
        cr_assert(is_of_device(setting_at(i)) || config.sources[i].kind != CONFIG_DEFAULT, "%s",
                  setting_at(i)->key);
    config_defaults(&defaults);
    node_options_complete(&defaults.options);
    const struct node_options *options = &defaults.options;
    cr_assert_eq(memcmp(&config.options.limits, &options->limits, sizeof options->limits), 0);
    for (uint32_t i = 0; i < settings_count(); i++) {
        const struct setting *setting = setting_at(i);
        if (strncmp(setting->key, "limits.", 7) == 0 || setting->kind == SETTING_PATH ||
            setting->kind == SETTING_TEXT || is_of_device(setting) ||
            strcmp(setting->key, "node") == 0)
            continue;
        cr_assert_eq(memcmp((char *)&config + setting->offset, (char *)&defaults + setting->offset,
                            setting->bytes),
                     0, "%s", setting->key);
    }
}

/* ---- a device past the kernel ---------------------------------------------------------------- */

#define ON_DEVICE(dpdk)                                                                            \
    "node: 1\ninsecure: true\ndata_directory: /var/lib/belay\n"                                    \
    "members: [{node: 1, client: '10.9.0.1:7400', peer: '10.9.0.1:7500'}]\n" dpdk

Test(config, a_device)
{
    static struct config config;
    const uint8_t gateway6[16] = {0xfd, 9, [15] = 0xfe};
    assert_taken(&config,
                 ON_DEVICE("dpdk: {device: 'net_vhost0,iface=/run/port', "
                           "address: 10.9.0.1/24, gateway: 10.9.0.254, address6: fd09::1/64, "
                           "gateway6: 'fd09::fe', mtu: 1400, memory: 64MiB}\n"));
    const struct node_dpdk *dpdk = &config.options.dpdk;
    cr_assert_str_eq(dpdk->device, "net_vhost0,iface=/run/port");
    cr_assert_eq(dpdk->traffic, NODE_TRAFFIC_ALL);
    cr_assert_eq(dpdk->net.ipv4[3], 1);
    cr_assert_eq(dpdk->net.ipv4_prefix, 24);
    cr_assert_eq(dpdk->net.ipv4_gateway[3], 254);
    cr_assert_eq(dpdk->net.ipv6_prefix, 64);
    cr_assert_arr_eq(dpdk->net.ipv6_gateway, gateway6, 16);
    cr_assert_eq(dpdk->net.mtu, 1400);
    cr_assert_eq(dpdk->memory_bytes, 64 << 20);
    cr_assert(dpdk->hugepages);
    /* Without one the rest has no use. */
    assert_refused(ON_DEVICE("dpdk: {mtu: 1400}\n"),
                   "b.yaml:5: dpdk.mtu: given without dpdk.device, and so without a use");
}

Test(config, addresses_of_a_device)
{
    assert_refused(ON_DEVICE("dpdk: {device: x, address: 10.9.0.1}\n"),
                   "b.yaml:5: dpdk.address: expected an IPv4 address and its prefix, such as "
                   "10.0.0.1/24");
    assert_refused(ON_DEVICE("dpdk: {device: x, address: 10.9.0.1/33}\n"),
                   "b.yaml:5: dpdk.address: expected an IPv4 address and its prefix, such as "
                   "10.0.0.1/24");
    assert_refused(ON_DEVICE("dpdk: {device: x, address: 'fd09::1/64'}\n"),
                   "b.yaml:5: dpdk.address: expected an IPv4 address and its prefix, such as "
                   "10.0.0.1/24");
    assert_refused(ON_DEVICE("dpdk: {device: x, address6: 10.9.0.1/24}\n"),
                   "b.yaml:5: dpdk.address6: expected an IPv6 address and its prefix, such as "
                   "fd00::1/64");
    assert_refused(
        ON_DEVICE("dpdk: {device: x, address: 10.9.0.1/24, gateway: 10.8.0.1}\n"),
        "b.yaml:5: dpdk.address: the IPv4 gateway is not another host inside the prefix");
    assert_refused(ON_DEVICE("dpdk: {device: x}\n"),
                   "b.yaml: dpdk.address: neither an IPv4 nor an IPv6 address is given");
    assert_refused(ON_DEVICE("dpdk: {device: x, address: 10.9.0.2/24}\n"),
                   "b.yaml:4: members.client: 10.9.0.1:7400 is not an address of the DPDK device; "
                   "expected that of dpdk.address or dpdk.address6");
    assert_refused(ON_DEVICE("dpdk: {device: x, address: 10.9.0.2/24, traffic: peers}\n"),
                   "b.yaml:4: members.peer: 10.9.0.1:7500 is not an address of the DPDK device; "
                   "expected that of dpdk.address or dpdk.address6, or 'traffic: clients'");
}

/* Three nodes with all their traffic on devices; what node 1's management is. */
static int take_three(struct config *config, const char *management, struct config_error *error)
{
    char path[] = "/tmp/belay-key-XXXXXX", text[1024];
    close(mkstemp(path));
    write_key(path, "0123456789abcdef", 16, 0600);
    snprintf(text, sizeof text,
             "node: 1\ninsecure: true\ndata_directory: /d\nmembers:\n"
             "  - {node: 1, client: '10.9.0.1:7400', peer: '10.9.0.1:7500'%s}\n"
             "  - {node: 2, client: '10.9.0.2:7400', peer: '10.9.0.2:7500'}\n"
             "  - {node: 3, client: '10.9.0.3:7400', peer: '10.9.0.3:7500'}\n"
             "dpdk: {device: x, address: 10.9.0.1/24}\n",
             management);
    int result = parse(config, text, error);
    if (result == 0)
        result = config_set(config, "--set", "cluster_key_file", path, error);
    if (result == 0)
        result = config_resolve(config, error);
    unlink(path);
    return result == 0 ? config_judge(config, error) : result;
}

Test(config, management_is_the_kernels)
{
    static struct config config;
    struct config_error error = {""};
    cr_assert_eq(take_three(&config, ", management: '192.0.2.1:7500'", &error), 0, "%s",
                 error.text);
    cr_assert_eq(config.options.members[0].management.ip[PORT_IPV4_AT], 192);
    cr_assert_eq(config.options.members[1].management.ip[PORT_IPV4_AT], 10);
    cr_assert_eq(take_three(&config, "", &error), -EINVAL);
    cr_assert_str_eq(
        error.text, "b.yaml:5: members.management: snapshots are sent by TCP and the kernel, which "
                    "does not have the DPDK device's address; expected an address of another "
                    "interface");
}
