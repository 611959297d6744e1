/* SPDX-License-Identifier: Apache-2.0
 *
 * Formation over real sockets, one thread per node: a plain program, for ThreadSanitizer too.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mgmt/formation.h"

enum { NODES = 3 };

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct forming_node {
    struct node_options options;
    struct port *port;
    uint64_t nonce;
    uint32_t epoch;
    _Atomic bool stop;
    struct formation formation;
    int result;
    pthread_t thread;
};

static void *run(void *context)
{
    struct forming_node *node = context;

    node->result = formation_run(&node->options, &node->port, 1, node->nonce, node->epoch,
                                 &node->stop, &node->formation);
    return NULL;
}

static void open_nodes(struct forming_node *nodes)
{
    memset(nodes, 0, NODES * sizeof *nodes);
    for (int i = 0; i < NODES; i++) {
        struct port_kernel_options port_options = {0};

        CHECK(port_address_parse("127.0.0.1:0", &port_options.bind) == 0);
        CHECK(port_kernel_open(&port_options, &nodes[i].port) == 0);
        nodes[i].nonce = UINT64_C(0x1000) + (uint64_t)i;
        nodes[i].epoch = (uint32_t)i * 3;
    }
    for (int i = 0; i < NODES; i++) {
        node_options_defaults(&nodes[i].options);
        nodes[i].options.node = (uint16_t)(i + 1);
        nodes[i].options.members_count = NODES;
        for (int k = 0; k < NODES; k++) {
            nodes[i].options.members[k].node = (uint16_t)(k + 1);
            port_local_address(nodes[k].port, &nodes[i].options.members[k].peer);
        }
    }
}

static void close_nodes(struct forming_node *nodes)
{
    for (int i = 0; i < NODES; i++)
        port_close(nodes[i].port);
}

static void start(struct forming_node *node)
{
    CHECK(pthread_create(&node->thread, NULL, run, node) == 0);
}

static void join(struct forming_node *node)
{
    CHECK(pthread_join(node->thread, NULL) == 0);
}

static void all_present_form_one_cluster(void)
{
    struct forming_node *nodes = calloc(NODES, sizeof *nodes);

    open_nodes(nodes);
    for (int i = 0; i < NODES; i++)
        start(&nodes[i]);
    /* The last to hear everybody may be left alone by those that formed already; a worker would
     * answer it then. Here nobody does, but each tells the others before it forms. */
    for (int i = 0; i < NODES; i++)
        join(&nodes[i]);
    for (int i = 0; i < NODES; i++) {
        CHECK(nodes[i].result == 0);
        CHECK(!nodes[i].formation.joins);
        CHECK(nodes[i].formation.cluster_id == nodes[0].formation.cluster_id);
        CHECK(nodes[i].formation.epoch_max == 6);
        for (int k = 0; k < NODES; k++)
            CHECK(nodes[i].formation.nonces[k] == nodes[k].nonce);
    }
    close_nodes(nodes);
    free(nodes);
}

/* Nodes 1 and 2 ask until the third's port, where nobody answers, has heard them over and over:
 * they have had their chance. */
static void try_two(struct forming_node *nodes)
{
    struct port_packet packets[PORT_BURST_MAX];
    int hellos = 0;

    start(&nodes[0]);
    start(&nodes[1]);
    while (hellos < 20)
        hellos += (int)port_rx_burst(nodes[2].port, packets, PORT_BURST_MAX);
    atomic_store(&nodes[0].stop, true);
    atomic_store(&nodes[1].stop, true);
    join(&nodes[0]);
    join(&nodes[1]);
}

static void nobody_forms_while_one_is_missing(void)
{
    struct forming_node *nodes = calloc(NODES, sizeof *nodes);

    open_nodes(nodes);
    try_two(nodes);
    CHECK(nodes[0].result == -ECANCELED);
    CHECK(nodes[1].result == -ECANCELED);
    close_nodes(nodes);
    free(nodes);
}

static void other_configurations_do_not_form(void)
{
    struct forming_node *nodes = calloc(NODES, sizeof *nodes);

    open_nodes(nodes);
    nodes[1].options.shards = 32;
    nodes[2].options.limits.window = 8;
    try_two(nodes);
    CHECK(nodes[0].result == -ECANCELED && nodes[1].result == -ECANCELED);
    CHECK(nodes[0].formation.nonces[1] == 0);
    close_nodes(nodes);
    free(nodes);
}

static void replica_ids_differ(void)
{
    CHECK(formation_replica_id(7, 1) != formation_replica_id(7, 2));
    CHECK(formation_replica_id(7, 1) != formation_replica_id(8, 1));
    CHECK(formation_replica_id(7, 1) == formation_replica_id(7, 1));
}

int main(void)
{
    all_present_form_one_cluster();
    nobody_forms_while_one_is_missing();
    other_configurations_do_not_form();
    replica_ids_differ();
    return 0;
}
