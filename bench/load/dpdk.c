/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/dpdk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 512, MEMORY_MIB_MAX = 65536 };

/* The value of one of our words; NULL = it is another. */
static const char *value_of(const char *word, const char *key)
{
    size_t length = strlen(key);

    return strncmp(word, key, length) == 0 && word[length] == '=' ? word + length + 1 : NULL;
}

/* False: the value makes no sense. *ours: it was one of our words. */
static bool take_word(const char *word, belay_dpdk_options *options, bool *ours)
{
    const char *value;
    char *end;

    *ours = true;
    if ((value = value_of(word, "address")) != NULL) {
        options->address = value;
    } else if ((value = value_of(word, "gateway")) != NULL) {
        options->gateway = value;
    } else if ((value = value_of(word, "memory")) != NULL) {
        unsigned long mib = strtoul(value, &end, 10);
        options->memory_mib = (uint32_t)mib;
        return *value >= '0' && *value <= '9' && *end == '\0' && mib > 0 && mib <= MEMORY_MIB_MAX;
    } else if ((value = value_of(word, "hugepages")) != NULL) {
        options->no_hugepages = strcmp(value, "no") == 0;
        return options->no_hugepages || strcmp(value, "yes") == 0;
    } else {
        *ours = false;
    }
    return true;
}

bool dpdk_port(const char *text, belay_dpdk_port **port, char *error, size_t error_bytes)
{
    char copy[TEXT_BYTES_MAX], device[TEXT_BYTES_MAX] = "", why[BELAY_DPDK_ERROR_BYTES] = "";
    char *rest = copy, *word;
    belay_dpdk_options options;
    size_t used = 0;

    belay_dpdk_options_init(&options);
    options.device = device;
    options.no_hugepages = true;
    if (strncmp(text, "dpdk:", 5) != 0 || strlen(text) >= sizeof copy) {
        (void)snprintf(error, error_bytes,
                       "--port: expected dpdk:DEVICE,address=IP/PREFIX, found \"%.60s\"", text);
        return false;
    }
    (void)snprintf(copy, sizeof copy, "%s", text + 5);
    while ((word = strsep(&rest, ",")) != NULL) {
        bool ours;
        if (!take_word(word, &options, &ours)) {
            (void)snprintf(error, error_bytes,
                           "--port: \"%.60s\": memory is a number of MiB, hugepages yes or no",
                           word);
            return false;
        }
        if (!ours)
            used += (size_t)snprintf(device + used, sizeof device - used, "%s%s",
                                     used > 0 ? "," : "", word);
    }
    if (belay_dpdk_port_open(&options, port, why) == BELAY_OK)
        return true;
    (void)snprintf(error, error_bytes, "--port: %s", why);
    return false;
}
