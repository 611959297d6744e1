/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator: a cluster and its clients in one thread, on one virtual clock, from one seed.
 *
 * Real: Raft core, log, shipping, shards, lock machine, WAL and snapshot formats, recovery, client
 * core. Simulated: network, RDMA memory, disks, clocks, processes, snapshot threads
 * (tests/sim/snapshots.c), the datagram side of a worker (node.c), the file side of recovery
 * (recover.c). Whatever decides anything comes from the seed: no address, no wall clock, no
 * uninitialised memory.
 *
 * Time that nobody sees is `sim->now_ns`; nodes and clients read clocks of their own, with an
 * offset and a rate (sim_clock_read).
 */
#ifndef BELAY_TESTS_SIM_H
#define BELAY_TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/core.h"
#include "consensus/manifest.h"
#include "consensus/snapshot.h"
#include "dataplane/shard.h"

#define SIM_US     UINT64_C(1000)
#define SIM_MS     UINT64_C(1000000)
#define SIM_SECOND UINT64_C(1000000000)

enum {
    SIM_NODES_MAX = 5,
    SIM_SHARDS_MAX = 3,
    SIM_WORKERS_MAX = 3, /* of a node, each with a WAL */
    SIM_CORES_MAX = 3,   /* client processes */
    SIM_AGENTS_MAX = 3,  /* virtual clients of each */
    SIM_NAMES = 6,       /* resources that are fought for */
    SIM_LOCKS_MAX = 64,  /* beliefs and requests of one client process */
    SIM_INBOX_MAX = 512, /* datagrams that wait at one paused process */
    SIM_SNAPSHOTS_KEPT = 2,
    SIM_CLUSTER_ID = 77,
    SIM_FAULTS_MAX = 32, /* kinds of faults */
};

/* ---- choices --------------------------------------------------------------------------------- */

enum sim_profile {
    SIM_CALM,
    SIM_FAULTS,
    SIM_STORAGE,
    SIM_MEMBERSHIP,
    SIM_ELECTIONS,
    SIM_MEMORY,
    SIM_RDMA,
    SIM_ALL,
    SIM_PROFILES
};

/* Percentages and bounds that one seed lives under; drawn once. */
struct sim_weather {
    uint32_t loss_permille, double_permille, spike_permille;
    uint64_t delay_ns, delay_spread_ns, spike_ns;
    uint64_t disk_ns, disk_spread_ns;
    uint32_t stale_permille; /* an old datagram is delivered again, late */
    int32_t rate_ppm;        /* clocks run at 1 +- this */
    uint64_t fault_gap_ns;   /* mean time between faults; 0 = none */
    uint64_t think_ns;       /* a client's mean time between two ideas */
    uint32_t reads_permille;
    bool ousting;   /* some releases are forced `now` */
    bool memory;    /* durability: whoever restarts comes back under a new replica id */
    bool workers;   /* nodes start with one to three of them */
    bool storage;   /* starts are interrupted */
    bool elections; /* leaders fall all the time */
    bool rdma;      /* logs are shipped by one-sided writes (rdma.c) */
    uint32_t rdma_error_permille; /* of writes end with an error, whatever became of them */
    uint32_t rdma_late_permille;  /* land, complete, open, close late */
};

/* ---- clocks ---------------------------------------------------------------------------------- */

struct sim_clock {
    uint64_t base_ns;      /* what it showed ... */
    uint64_t base_true_ns; /* ... at this true time */
    int32_t rate_ppm;
};

/* ---- events ---------------------------------------------------------------------------------- */

enum sim_event_kind {
    SIM_EV_NODE_TURN,
    SIM_EV_NODE_PACKET,
    SIM_EV_NODE_DISK,
    SIM_EV_NODE_SNAPSHOTS,
    SIM_EV_NODE_RESUME,
    SIM_EV_NODE_START,
    SIM_EV_CORE_PACKET,
    SIM_EV_CORE_TICK,
    SIM_EV_CORE_RESUME,
    SIM_EV_AGENT,
    SIM_EV_FAULT,
    SIM_EV_STORM,
    SIM_EV_HEAL_LINK,
    SIM_EV_RDMA_RING,
    SIM_EV_RDMA_LAND,
    SIM_EV_RDMA_DONE,
};

struct sim_packet {
    struct wire_address from, to;
    uint32_t length;
    uint64_t bytes[WIRE_DATAGRAM_BYTES_MAX / 8];
};

struct sim_event {
    uint64_t at_ns;
    uint64_t order; /* ties break by the order of making */
    enum sim_event_kind kind;
    uint32_t who;
    uint64_t epoch; /* of the process it is for; another one ignores it */
    uint64_t detail;
    struct sim_packet *packet; /* owned */
};

/* ---- disks ----------------------------------------------------------------------------------- */

struct sim_wal {
    uint64_t incarnation; /* 0 = no such directory */
    uint8_t *bytes;
    uint32_t bad_segment, bad_bytes; /* sectors that cannot be read; 0 bytes = none */
    uint64_t bad_offset;
};

/* One worker's WAL: its directories, the write in flight, and where completed ones of this
 * incarnation lie (newest first). */
struct sim_device {
    struct sim_wal wals[2];
    bool in_flight, in_flight_done;
    uint64_t sequence;
    uint32_t segment;
    uint64_t offset;
    uint32_t bytes;
    uint8_t *copy;
    struct {
        uint32_t segment, bytes;
        uint64_t offset;
    } written[16];
    uint32_t written_count;
    uint64_t due_order; /* of the event that completes the write in flight */
};

struct sim_file {
    uint64_t replica, index;
    uint16_t shard;
    bool used, damaged;
    uint8_t *bytes;
    size_t length;
};

enum { SIM_FILES_MAX = 24 };

/* What survives a node's process. */
struct sim_disk {
    uint8_t manifest[MANIFEST_BYTES_MAX];
    size_t manifest_length; /* 0 = blank directory */
    struct sim_device devices[SIM_WORKERS_MAX];
    struct sim_file files[SIM_FILES_MAX];
    uint64_t stalled_until_ns; /* completions wait */
    bool fail_next;            /* the next write ends with an error */
    bool full;                 /* no room for snapshots */
};

/* ---- nodes ----------------------------------------------------------------------------------- */

enum sim_crash_point {
    SIM_CRASH_NOT,
    SIM_CRASH_BEFORE_WRITE,
    SIM_CRASH_BEFORE_SEND,
    SIM_CRASH_AFTER_SEND,
    SIM_CRASH_AFTER_WRITE,
    SIM_CRASH_AFTER_VOTE
};

enum sim_job_stage { SIM_JOB_IDLE, SIM_JOB_FETCH, SIM_JOB_BEGIN, SIM_JOB_BLOCKS, SIM_JOB_END };

/* The simulated snapshot thread: one save and one fetch at a time, as the real one. */
struct sim_snapshots {
    struct snapshot_mail *mails; /* SNAPSHOT_MAILS, from the worker */
    uint32_t head, count;
    struct sim_file save; /* being written */
    struct snapshot_encoder encoder;
    struct snapshot_meta save_meta;
    uint64_t save_due_ns; /* 0 = none is being made durable */
    uint64_t save_digest;
    enum sim_job_stage stage;
    uint16_t shard, peer_node;
    uint64_t replica, index_least, give_up_at_ns;
    uint64_t job_due_ns; /* other wake-ups must not hurry it */
    struct sim_file job; /* what was fetched */
    struct snapshot_decoder *decoder;
    struct snapshot_mail *mail;  /* to the worker */
    struct snapshot_mail *loads; /* decoded blocks */
    uint32_t loads_count, loads_next;
};

struct sim_node {
    struct sim *sim;
    uint16_t id; /* 1.. */
    bool up, paused, stepped_down;
    uint64_t epoch; /* of its process: counts up at every start */
    struct sim_clock clock;
    struct sim_disk disk;
    struct manifest *manifest; /* as in force in the process */
    struct node_options options;
    struct board *board;
    void *memory[SIM_SHARDS_MAX];
    struct shard shards[SIM_SHARDS_MAX];
    struct shard_host host;
    struct shard_turnstile turnstile;
    struct raft_effects *effects;
    uint16_t workers; /* of this process; all of them run in its one turn */
    struct wal_writer *wals[SIM_WORKERS_MAX];
    void *wal_memory[SIM_WORKERS_MAX];
    struct sim_snapshots snapshots;
    struct sim_packet *inbox[SIM_INBOX_MAX];
    uint32_t inbox_count;
    uint64_t turn_at_ns; /* of the one turn event that counts; UINT64_MAX = none */
    uint64_t turn_order;
    enum sim_crash_point crash_point;
    bool rebuilding; /* lost its replicas; the atlas spares everybody else meanwhile */
    uint64_t drawn;
    struct wire_builder out[SIM_NODES_MAX + 2 * SIM_CORES_MAX];
    struct wire_address out_to[SIM_NODES_MAX + 2 * SIM_CORES_MAX];
    uint64_t (*out_bytes)[WIRE_DATAGRAM_BYTES_MAX / 8];
};

/* ---- clients --------------------------------------------------------------------------------- */

enum sim_ask_kind {
    SIM_ASK_NONE,
    SIM_ASK_ACQUIRE,
    SIM_ASK_RELEASE,
    SIM_ASK_RENEW,
    SIM_ASK_CONVERT,
    SIM_ASK_QUERY,
    SIM_ASK_LIST,
    SIM_ASK_FORCE
};

/* A command under way. */
struct sim_ask {
    enum sim_ask_kind kind;
    uint64_t user;
    core_ref request;
    uint32_t agent, name;
    uint8_t mode;
    bool stale, cancelled, reentrant;
    int belief;    /* release, renew, convert: which lock ... */
    core_ref lock; /* ... if it still is this one */
    uint64_t token;
    uint64_t asked_ns;    /* true time */
    uint64_t token_floor; /* highest token whose grant was known then */
    uint64_t index_floor; /* highest index acknowledged in its shard then */
    uint32_t ttl_ms;
};

/* A lock that a client takes for held. */
struct sim_belief {
    bool used, lost;
    uint64_t user;
    core_ref lock;
    uint32_t agent, name;
    uint8_t mode;
    bool converting, released;
    bool unsure; /* a convert failed: the server may have it in the other mode */
    uint32_t uses;
    struct wire_lease_id lease;
    uint64_t token;
    uint64_t deadline_ns; /* the core's word, client clock; 0 = lost */
    uint64_t until_ns;    /* the same in true time */
    uint64_t since_ns;
};

enum { SIM_SAID_MAX = 256 };
enum sim_said_kind { SIM_SAID_COMPLETE, SIM_SAID_LOST, SIM_SAID_REVOKE, SIM_SAID_RENEWED };

/* What the core said during a call: looked at after it. */
struct sim_said {
    enum sim_said_kind kind;
    struct core_completion completion;
    core_ref lock;
    uint64_t user, deadline_ns;
    belay_lost_reason reason;
    _Alignas(8) uint8_t item[SHARD_REPLY_BYTES_MAX];
    bool has_item;
};

struct sim_core {
    struct sim *sim;
    uint32_t id;
    bool up, paused;
    uint64_t epoch;
    struct sim_clock clock;
    struct wire_address address;
    struct core *core;
    void *memory;
    struct sim_packet *inbox[SIM_INBOX_MAX];
    uint32_t inbox_count;
    uint64_t tick_at_ns;
    uint64_t tick_order;
    struct sim_ask asks[SIM_LOCKS_MAX];
    struct sim_belief beliefs[SIM_LOCKS_MAX];
    uint64_t users;
    bool closing[SIM_AGENTS_MAX];
    struct sim_said *said;
    uint32_t said_count;
};

/* ---- figure 8 of the Raft paper (figure8.c) ---------------------------------------------------
 */

enum sim_figure8_stage {
    FIGURE8_NOT,
    FIGURE8_LONELY,   /* b: the first leader appends what nobody else gets */
    FIGURE8_SECOND,   /* c: another one leads, appends its own, and falls */
    FIGURE8_RETURNED, /* d: the first leads again and ships its old entries, not its new one */
    FIGURE8_JUDGED,   /* e: it falls; the second, back, must win and replace them */
};

struct sim_figure8 {
    enum sim_figure8_stage stage;
    uint16_t shard;
    uint16_t first, second; /* nodes; second 0 = not yet */
    uint64_t index;         /* last entry that the first one appended alone */
    uint64_t seen_ns;       /* when a majority had that entry; 0 = not yet */
    uint64_t until_ns;
};

/* ---- the world ------------------------------------------------------------------------------- */

struct sim_rdma;
struct check_raft;
struct check_state;
struct check_locks;
struct check_reads;

struct sim {
    uint64_t seed, now_ns, end_ns, random, order;
    enum sim_profile profile;
    bool trace;
    struct sim_weather weather;
    uint16_t nodes_count, shards;
    uint32_t cores_count, agents_count;
    struct sim_node nodes[SIM_NODES_MAX];
    struct sim_core cores[SIM_CORES_MAX];
    char names[SIM_NAMES][40];
    uint64_t name_hash[SIM_NAMES];
    uint16_t name_shard[SIM_NAMES];
    struct sim_event *events;
    uint32_t events_count, events_max;
    bool cut[SIM_NODES_MAX + SIM_CORES_MAX][SIM_NODES_MAX + SIM_CORES_MAX]; /* [from][to] */
    struct sim_packet *old[32]; /* to be delivered again */
    uint32_t old_next;
    uint64_t clogged_until_ns[SIM_NODES_MAX][SIM_NODES_MAX];
    uint64_t storm_until_ns, storm_delay_ns;
    struct sim_figure8 figure8;
    uint32_t fault_weights[SIM_FAULTS_MAX], fault_weights_sum;
    uint64_t healed_ns;
    bool healed;   /* the last part: no more faults, everything must settle */
    bool draining; /* agents start nothing new */
    bool failed;
    const char *promise;
    char failure[512];
    uint64_t settle_index[SIM_SHARDS_MAX]; /* committed when the clients were done; 0 = not yet */
    uint64_t steps, packets, grants, completions, faults_done, crashes, snapshots_done;
    struct sim_rdma *rdma; /* NULL without */
    struct check_raft *raft;
    struct check_state *state;
    struct check_locks *locks;
    struct check_reads *reads;
};

/* ---- world.c --------------------------------------------------------------------------------- */

uint64_t sim_draw(struct sim *sim);
uint64_t sim_below(struct sim *sim, uint64_t bound); /* 0 .. bound - 1 */
bool sim_chance(struct sim *sim, uint32_t permille);
uint64_t sim_clock_read(const struct sim *sim, const struct sim_clock *clock);
/* True time at which the clock will show `at_ns`; not before now. */
uint64_t sim_clock_true(const struct sim *sim, const struct sim_clock *clock, uint64_t at_ns);
uint64_t sim_post(struct sim *sim, uint64_t at_ns, enum sim_event_kind kind, uint32_t who,
                  uint64_t epoch, uint64_t detail, struct sim_packet *packet);
bool sim_next(struct sim *sim, struct sim_event *event);
__attribute__((format(printf, 2, 3))) void sim_trace(struct sim *sim, const char *format, ...);
/* A promise is broken: the first one is kept and the run ends. */
__attribute__((format(printf, 3, 4))) void sim_fail(struct sim *sim, const char *promise,
                                                    const char *format, ...);
const char *sim_name_of(const struct sim *sim, uint64_t key_hash);

/* Open addressing, grows, nothing is ever removed. Key 0 is not used. */
struct sim_map {
    uint64_t *keys, *values;
    size_t count, slots;
};
uint64_t *sim_map_at(struct sim_map *map, uint64_t key); /* made with value 0 if it is not there */
uint64_t sim_map_get(const struct sim_map *map, uint64_t key); /* 0 = not there */
void sim_map_free(struct sim_map *map);
uint64_t sim_mix(uint64_t a, uint64_t b);

/* ---- net.c ----------------------------------------------------------------------------------- */

struct wire_address sim_node_address(uint16_t node, bool peer);
struct wire_address sim_core_address(uint32_t core, uint64_t epoch);
/* Takes the packet's bytes; delivers them, or not, some time. */
void sim_net_send(struct sim *sim, const struct wire_address *from, const struct wire_address *to,
                  const void *bytes, size_t length);
void sim_net_heal(struct sim *sim);
bool sim_net_open(const struct sim *sim, uint16_t node, uint16_t other_node); /* both ways */

/* ---- rdma.c ---------------------------------------------------------------------------------- */

struct sim_rdma *sim_rdma_new(void);
void sim_rdma_free(struct sim *sim);
void sim_rdma_host(struct shard_host *host);
void sim_rdma_event(struct sim *sim, const struct sim_event *event);
/* Gives the shards what was reported since the last turn. */
void sim_rdma_turn(struct sim_node *node, uint64_t now_ns);
void sim_rdma_crash(struct sim_node *node); /* its memory is gone, its queue pairs too */
/* Nothing lands before that, and rings open and close slowly. */
void sim_rdma_hold(struct sim *sim, uint16_t from, uint16_t to, uint64_t until_ns);
void sim_rdma_break(struct sim *sim, uint16_t from, uint16_t to); /* queue pairs to a node fail */

/* ---- disk.c ---------------------------------------------------------------------------------- */

struct wal_options sim_wal_options(const struct sim *sim, uint64_t identity);
struct sim_wal *sim_wal_of(struct sim_device *device, uint64_t incarnation);
struct sim_wal *sim_wal_create(struct sim_device *device, uint64_t incarnation);
void sim_wal_remove_others(struct sim_disk *disk, uint64_t keep);
void sim_disk_submit(struct sim_node *node, uint16_t worker, const struct wal_write *write);
void sim_disk_due(struct sim_node *node, uint16_t worker, uint64_t at_ns);
void sim_disk_unstall(struct sim_node *node);
/* At once: only while the node starts. */
void sim_disk_write_now(struct sim_device *device, struct sim_wal *wal,
                        const struct wal_write *write);
void sim_disk_complete(struct sim_node *node, uint16_t worker);
/* The process is gone: what was in flight is lost, torn, or there. */
void sim_disk_crash(struct sim_node *node);
void sim_disk_wipe(struct sim_disk *disk);
/* Flips bits where a frame lies that is not the last one. False: there is no such place. */
bool sim_disk_rot(struct sim_node *node);
int sim_disk_read(void *context, uint32_t segment, uint64_t offset, void *buffer, size_t bytes);
struct sim_file *sim_file_newest(struct sim_disk *disk, uint64_t replica, uint64_t below);
/* Files of replicas that the manifest does not name are gone. */
void sim_file_sweep(struct sim_disk *disk, struct manifest *manifest);
void sim_file_keep(struct sim_disk *disk, struct sim_file *file);
void sim_manifest_save(struct sim_node *node);

/* ---- node.c, recover.c, snapshots.c ---------------------------------------------------------- */

void sim_node_form(struct sim *sim); /* first start of all */
void sim_node_start(struct sim_node *node);
void sim_node_crash(struct sim_node *node, const char *why);
void sim_node_turn(struct sim_node *node);
void sim_node_wake(struct sim_node *node, uint64_t at_ns);
void sim_node_packet(struct sim_node *node, struct sim_packet *packet);
void sim_node_free(struct sim_node *node);
uint64_t sim_node_draw(struct sim_node *node);
void sim_node_memory(struct sim_node *node);
void sim_node_begin(struct sim_node *node, struct shard_start starts[]);
void sim_node_recover(struct sim_node *node, struct shard_start starts[]);
bool sim_node_renew(struct sim_node *node, struct shard_start starts[]);
void sim_node_join(struct sim_node *node, struct shard_start starts[]);
void sim_snapshots_init(struct sim_node *node);
void sim_snapshots_free(struct sim_node *node);
void sim_snapshots_turn(struct sim_node *node);
struct snapshot_mail *sim_mail_claim(struct sim_node *node);
void sim_mail_publish(struct sim_node *node);

/* ---- client.c, workload.c -------------------------------------------------------------------- */

void sim_core_start(struct sim *sim, uint32_t id);
void sim_core_crash(struct sim_core *core);
void sim_core_packet(struct sim_core *core, struct sim_packet *packet);
void sim_core_tick(struct sim_core *core);
void sim_core_pause(struct sim_core *core, uint64_t for_ns);
void sim_core_resume(struct sim_core *core);
void sim_core_after(struct sim_core *core); /* looks at what was said, sends, sets the timer */
void sim_core_free(struct sim_core *core);
void sim_agent_step(struct sim_core *core, uint32_t agent);
void sim_agents_said(struct sim_core *core, const struct sim_said *said);
bool sim_agents_idle(const struct sim_core *core);

/* ---- faults.c -------------------------------------------------------------------------------- */

void sim_weather_draw(struct sim *sim);
void sim_faults_draw(struct sim *sim);
void sim_fault(struct sim *sim);
void sim_storm(struct sim *sim);
void sim_voted(struct sim_node *node);
/* After a node's turn. */
void sim_figure8_turn(struct sim *sim, struct sim_node *node);
bool sim_figure8_blocks(const struct sim *sim, uint32_t from, uint32_t to);
/* How many of these shipped bytes get through. */
size_t sim_figure8_ship(const struct sim *sim, const struct sim_node *node, uint16_t shard,
                        uint64_t position, size_t length);
void sim_heal(struct sim *sim);

/* ---- run.c ----------------------------------------------------------------------------------- */

const char *sim_profile_name(enum sim_profile profile);
bool sim_profile_choose(const char *name, enum sim_profile *profile); /* false: no such profile */
/* One seed from beginning to end; sim->failed says how. */
struct sim *sim_run(uint64_t seed, enum sim_profile profile, bool trace);
void sim_free(struct sim *sim);

/* ---- checkers -------------------------------------------------------------------------------- */

struct check_raft *check_raft_new(struct sim *sim);
void check_raft_free(struct check_raft *check);
/* After a node's turn. */
void check_raft_turn(struct sim *sim, struct sim_node *node);
/* A message leaves: a replica votes once in a term. */
void check_raft_sent(struct sim *sim, uint16_t shard, const struct raft_message *message);
/* After a start: what was durable before is there. */
void check_raft_started(struct sim *sim, struct sim_node *node);
/* Index of the entry that holds this command first; 0 = none is committed. */
uint64_t check_raft_index_of(const struct sim *sim, uint16_t shard, uint64_t session,
                             uint64_t number);
uint64_t check_raft_committed(const struct sim *sim, uint16_t shard);

struct check_state *check_state_new(struct sim *sim);
void check_state_free(struct check_state *check);
void check_state_committed(struct sim *sim, uint16_t shard, const struct log_entry *entry);
void check_state_dump(struct sim *sim); /* what is held and waited for */
void check_state_turn(struct sim *sim, struct sim_node *node);
/* What a node says to a client, before it leaves. */
void check_state_reply(struct sim *sim, const struct sim_node *node, uint16_t shard,
                       const struct wire_item *item);

struct check_locks *check_locks_new(struct sim *sim);
void check_locks_free(struct check_locks *check);
void check_locks_granted(struct sim *sim, struct sim_core *core, struct sim_belief *belief,
                         const struct sim_ask *ask, bool shared);
/* It may count on its lock now. */
bool check_locks_live(const struct sim *sim, const struct sim_belief *belief);
void check_locks_extended(struct sim *sim, struct sim_core *core, struct sim_belief *belief);
void check_locks_released(struct sim *sim, const struct sim_belief *belief);
void check_locks_lost(struct sim *sim, const struct sim_core *core, const struct sim_belief *belief,
                      belay_lost_reason reason);
void check_locks_told(struct sim *sim, const struct sim_core *core);
/* A node said that this lease is over. */
void check_locks_ended(struct sim *sim, const struct wire_lost *lost);
void check_locks_forced(struct sim *sim, uint32_t name, bool at_once);
uint64_t check_locks_token_floor(const struct sim *sim, uint32_t name);
/* The fenced store behind the locks. */
void check_locks_used(struct sim *sim, const struct sim_belief *belief);

struct check_reads *check_reads_new(struct sim *sim);
void check_reads_free(struct check_reads *check);
uint64_t check_reads_floor(const struct sim *sim, uint32_t name);
void check_reads_done(struct sim *sim, const struct sim_ask *ask, belay_status status,
                      const struct wire_item *item);

/* After healing: true once everything has settled; `last` = it must have by now. */
bool check_live_settled(struct sim *sim, bool last);

/* ---- plants.c -------------------------------------------------------------------------------- */

/* False: no such plant. `profile`: where it is looked for. */
bool sim_plant_choose(const char *name, enum sim_profile *profile);
void sim_plants_list(void);
uint64_t sim_plant_hits(void);

#endif
