/* SPDX-License-Identifier: Apache-2.0
 *
 * The section "dpdk": a network device that the workers drive without the kernel.
 */
#include <string.h>

#include "mgmt/config_settings.h"

static int fail_setting(const struct config *config, const char *key, const char *what,
                        struct config_error *error)
{
    char where[NODE_PATH_BYTES_MAX];
    config_describe_source(config, setting_find(key), where, sizeof where);
    return config_fail(error, "%.400s: %s: %.400s", where, key, what);
}

static int judge_unused(const struct config *config, struct config_error *error)
{
    for (uint32_t i = 0; i < settings_count(); i++) {
        const char *key = setting_at(i)->key;
        if (strncmp(key, "dpdk.", strlen("dpdk.")) == 0 &&
            config->sources[i].kind != CONFIG_DEFAULT)
            return fail_setting(config, key, "given without dpdk.device, and so without a use",
                                error);
    }
    return 0;
}

static int take_addresses(struct config *config, struct config_error *error)
{
    struct net_options *net = &config->options.dpdk.net;
    const struct {
        const char *key, *text, *expected;
        bool (*set)(struct net_options *options, const char *text);
        bool ipv6;
    } texts[] = {
        {"dpdk.address", config->dpdk_address,
         "expected an IPv4 address and its prefix, such as 10.0.0.1/24", net_options_set_address,
         false},
        {"dpdk.gateway", config->dpdk_gateway, "expected an IPv4 address, such as 10.0.0.254",
         net_options_set_gateway, false},
        {"dpdk.address6", config->dpdk_address6,
         "expected an IPv6 address and its prefix, such as fd00::1/64", net_options_set_address,
         true},
        {"dpdk.gateway6", config->dpdk_gateway6, "expected an IPv6 address, such as fd00::fe",
         net_options_set_gateway, true},
    };
    for (uint32_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        bool ipv6 = strchr(texts[i].text, ':') != NULL;
        if (texts[i].text[0] != '\0' &&
            (ipv6 != texts[i].ipv6 || !texts[i].set(net, texts[i].text)))
            return fail_setting(config, texts[i].key, texts[i].expected, error);
    }
    /* The hardware address is not known yet; any host's does for this. */
    struct net_options judged = *net;
    judged.mac[0] = 2;
    const char *wrong = net_options_check(&judged);
    return wrong == NULL ? 0 : fail_setting(config, "dpdk.address", wrong, error);
}

static bool is_of_device(const struct net_options *net, const struct port_address *address)
{
    if (port_ip_is_ipv4(address->ip))
        return memcmp(address->ip + PORT_IPV4_AT, net->ipv4, sizeof net->ipv4) == 0;
    return memcmp(address->ip, net->ipv6, sizeof net->ipv6) == 0;
}

static int judge_member(const struct config *config, const struct node_member *member,
                        const struct config_member *written, struct config_error *error)
{
    const struct node_dpdk *dpdk = &config->options.dpdk;
    bool clients = dpdk->traffic != NODE_TRAFFIC_PEERS,
         peers = dpdk->traffic != NODE_TRAFFIC_CLIENTS;
    if (clients && !is_of_device(&dpdk->net, &member->client))
        return config_fail(error,
                           "%.400s:%u: members.client: %.80s is not an address of the DPDK device; "
                           "expected that of dpdk.address or dpdk.address6",
                           config->file, (unsigned)written->client_line, written->client);
    if (peers && !is_of_device(&dpdk->net, &member->peer))
        return config_fail(error,
                           "%.400s:%u: members.peer: %.80s is not an address of the DPDK device; "
                           "expected that of dpdk.address or dpdk.address6, or 'traffic: clients'",
                           config->file, (unsigned)written->peer_line, written->peer);
    if (config->options.members_count > 1 && is_of_device(&dpdk->net, &member->management))
        return config_fail(error,
                           "%.400s:%u: members.management: snapshots are sent by TCP and the "
                           "kernel, which does not have the DPDK device's address; expected an "
                           "address of another interface",
                           config->file, (unsigned)written->line);
    return 0;
}

int config_judge_dpdk(struct config *config, struct config_error *error)
{
    if (config->options.dpdk.device[0] == '\0')
        return judge_unused(config, error);
    int result = take_addresses(config, error);
    for (uint16_t i = 0; i < config->options.members_count && result == 0; i++) {
        const struct node_member *member = &config->options.members[i];
        if (member->node == config->options.node)
            result = judge_member(config, member, &config->members[i], error);
    }
    return result;
}
