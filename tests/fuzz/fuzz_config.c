/* SPDX-License-Identifier: Apache-2.0
 *
 * The configuration parser is total: any bytes give a configuration that can be judged, or one
 * error with a sentence. Seeds: tests/fuzz/corpus/fuzz_config.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mgmt/config.h"

/* Names are not looked up here: every member gets a loopback address of its own. */
static void place_members(struct config *config)
{
    for (uint16_t i = 0; i < config->members_count; i++) {
        struct node_member *member = &config->options.members[i];
        member->node = config->members[i].node;
        member->client = (struct port_address){
            .ip = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}, .port = (uint16_t)(1000 + i)};
        member->peer = member->client;
        member->peer.port = (uint16_t)(2000 + i);
    }
    config->options.members_count = config->members_count;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static struct config config;
    struct config_error error;
    config_defaults(&config);
    memset(&error, 'x', sizeof error);
    int result = config_parse(&config, "fuzz.yaml", bytes, length, &error);
    if (result == 0) {
        place_members(&config);
        error.text[0] = '\0';
        result = config_judge(&config, &error);
    }
    /* An error has a sentence that ends inside its buffer; success has judged options. */
    if (memchr(error.text, '\0', sizeof error.text) == NULL ||
        (result < 0) != (error.text[0] != '\0'))
        abort();
    if (result == 0 && (node_options_check(&config.options) != NULL ||
                        config.options.node > config.options.members_count))
        abort();
    uint8_t key[WIRE_MAC_KEY_BYTES];
    (void)config_key_decode(bytes, length, key);
    return 0;
}
