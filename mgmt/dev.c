/* SPDX-License-Identifier: Apache-2.0
 *
 * See mgmt/dev.h.
 */
#include "mgmt/dev.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hw/port_socket.h"
#include "mgmt/config_settings.h"

enum {
    DEV_LEASES = 16384,
    DEV_CLIENT_PORT = 7400, /* what a client tries first */
    DEV_PEER_DISTANCE = 100,
    DEV_PORT_STEP = 200,
    DEV_PORT_TRIES = 200,
};

void dev_defaults(struct config *config)
{
    struct node_options *options = &config->options;
    options->node = 1;
    options->members_count = 1;
    options->limits = lock_limits_for(DEV_LEASES);
    options->hugepages = false;
    options->ring_bytes = 1 << 20;
    options->entries_max = 8192;
    options->ship_window_bytes = 256 * 1024;
    /* The WAL follows the rings; filling it is most of the time that starting takes. */
    options->socket_buffer_bytes = 1 << 20;
    snprintf(config->file, sizeof config->file, "--dev");
}

static struct port_address loopback(uint16_t port)
{
    return (struct port_address){.ip = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1},
                                 .port = port};
}

static bool port_free(uint16_t number, int type)
{
    struct port_address address = loopback(number);
    struct sockaddr_storage storage = {0};
    uint32_t length = port_address_to_socket(&address, true, &storage);
    int descriptor = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        return false;
    const int yes = 1;
    /* A listener that ended just now leaves its port in TIME_WAIT; that is free enough. */
    if (type == SOCK_STREAM)
        (void)setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    bool bound = bind(descriptor, (struct sockaddr *)&storage, length) == 0;
    close(descriptor);
    return bound;
}

/* Client and peer ports of every worker, and the TCP ports of HTTP and of snapshots. */
static bool ports_free(uint16_t client_port, uint16_t workers)
{
    uint16_t peer_port = (uint16_t)(client_port + DEV_PEER_DISTANCE);
    for (uint16_t i = 0; i < workers; i++)
        if (!port_free((uint16_t)(client_port + i), SOCK_DGRAM) ||
            !port_free((uint16_t)(peer_port + i), SOCK_DGRAM))
            return false;
    return port_free(peer_port, SOCK_STREAM) && port_free(client_port, SOCK_STREAM);
}

static int choose_ports(struct config *config, struct config_error *error)
{
    for (uint32_t i = 0; i < DEV_PORT_TRIES; i++) {
        uint16_t port = (uint16_t)(DEV_CLIENT_PORT + i * DEV_PORT_STEP);
        if (!ports_free(port, config->options.workers))
            continue;
        config->options.members[0] =
            (struct node_member){.node = 1,
                                 .client = loopback(port),
                                 .peer = loopback((uint16_t)(port + DEV_PEER_DISTANCE))};
        if (config->http_listen[0] != '\0')
            return config_resolve_http(config, error);
        config->http = loopback(port); /* TCP: the same number is the clients' in UDP */
        config->http_on = true;
        return 0;
    }
    return config_fail(error, "--dev: no free ports on 127.0.0.1 from %u on",
                       (unsigned)DEV_CLIENT_PORT);
}

static int make_directory(struct config *config, bool *temporary, struct config_error *error)
{
    if (config->options.data_directory[0] != '\0')
        return 0;
    const char *parent = getenv("TMPDIR");
    if (parent == NULL || parent[0] == '\0')
        parent = "/tmp";
    char path[NODE_PATH_BYTES_MAX];
    if (snprintf(path, sizeof path, "%s/belay-dev-XXXXXX", parent) >= (int)sizeof path)
        return config_fail(error, "--dev: TMPDIR is too long");
    if (mkdtemp(path) == NULL)
        return config_fail(error, "--dev: %.300s: %s", path, strerrordesc_np(errno));
    memcpy(config->options.data_directory, path, sizeof path);
    *temporary = true;
    return 0;
}

int dev_resolve(struct config *config, bool *temporary, struct config_error *error)
{
    *temporary = false;
    int result = choose_ports(config, error);
    if (result == 0 &&
        getrandom(config->options.cluster_key, WIRE_MAC_KEY_BYTES, 0) != WIRE_MAC_KEY_BYTES)
        result = config_fail(error, "--dev: no random numbers");
    if (result == 0)
        result = make_directory(config, temporary, error);
    return result;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

void dev_remove(const char *directory)
{
    (void)nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}
