/* SPDX-License-Identifier: Apache-2.0
 *
 * See mgmt/config_settings.h.
 */
#include "mgmt/config_settings.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FIELD(field)                                                                               \
    .offset = offsetof(struct config, field), .bytes = sizeof(((struct config *)0)->field)

#define MILLISECOND UINT64_C(1000000) /* in nanoseconds */
#define SECOND      (1000 * MILLISECOND)
#define KIB         UINT64_C(1024)
#define MIB         (1024 * KIB)
#define GIB         (1024 * MIB)
#define HOUR_MS     UINT64_C(3600000)

/* Beyond these no table of records fits a machine; what is right together is judged later. */
#define RECORDS_MAX (UINT64_C(1) << 28)

static const char *const durability_words[] = {"disk", "memory", NULL};
static const char *const polling_words[] = {"busy", "adaptive", NULL};
static const char *const traffic_words[] = {"all", "clients", "peers", NULL};
static const char *const level_words[] = {"debug", "info", "warn", "error", NULL};
static const char *const format_words[] = {"text", "json", NULL};

/* clang-format off */
static const struct setting settings[] = {
    {"node", SETTING_COUNT, FIELD(options.node), 1, NODE_MEMBERS_MAX, NULL},
    {"shards", SETTING_COUNT, FIELD(options.shards), 1, WIRE_SHARDS_MAX, NULL},
    {"workers", SETTING_COUNT, FIELD(options.workers), 1, NODE_WORKERS_MAX, NULL},
    {"durability", SETTING_CHOICE, FIELD(options.durability), 0, 0, durability_words},
    {"data_directory", SETTING_PATH, FIELD(options.data_directory), 0, 0, NULL},
    {"cluster_key_file", SETTING_PATH, FIELD(cluster_key_file), 0, 0, NULL},
    {"insecure", SETTING_BOOL, FIELD(insecure), 0, 0, NULL},

    {"limits.leases", SETTING_COUNT, FIELD(limits_given.leases_max), 1, RECORDS_MAX, NULL},
    {"limits.resources", SETTING_COUNT, FIELD(limits_given.resources_max), 1, RECORDS_MAX, NULL},
    {"limits.sessions", SETTING_COUNT, FIELD(limits_given.sessions_max), 1, RECORDS_MAX, NULL},
    {"limits.waiters", SETTING_COUNT, FIELD(limits_given.waiters_max), 1, RECORDS_MAX, NULL},
    {"limits.answers", SETTING_COUNT, FIELD(limits_given.answers_max), 1, RECORDS_MAX, NULL},
    {"limits.long_names", SETTING_COUNT, FIELD(limits_given.long_names_max), 1, RECORDS_MAX, NULL},
    {"limits.extras", SETTING_COUNT, FIELD(limits_given.extras_max), 1, RECORDS_MAX, NULL},
    {"limits.window", SETTING_COUNT, FIELD(limits_given.window), 1, 1024, NULL},
    {"limits.queue", SETTING_COUNT, FIELD(limits_given.queue_max), 1, RECORDS_MAX, NULL},
    {"limits.ttl_min", SETTING_MS, FIELD(limits_given.ttl_ms_min), 1, 24 * HOUR_MS, NULL},
    {"limits.ttl_max", SETTING_MS, FIELD(limits_given.ttl_ms_max), 1, 24 * 30 * HOUR_MS, NULL},
    {"limits.session_ttl_min", SETTING_MS, FIELD(limits_given.session_ttl_ms_min),
     1, 24 * HOUR_MS, NULL},
    {"limits.session_ttl_max", SETTING_MS, FIELD(limits_given.session_ttl_ms_max),
     1, 24 * 30 * HOUR_MS, NULL},
    {"limits.wait_max", SETTING_MS, FIELD(limits_given.wait_ms_max), 1, 24 * 30 * HOUR_MS, NULL},
    {"limits.lock_delay_max", SETTING_MS, FIELD(limits_given.lock_delay_ms_max),
     0, 24 * HOUR_MS, NULL},
    {"limits.grace_max", SETTING_MS, FIELD(limits_given.grace_ms_max), 0, 24 * HOUR_MS, NULL},

    {"polling", SETTING_CHOICE, FIELD(options.polling), 0, 0, polling_words},
    {"spin", SETTING_NS, FIELD(options.spin_ns), 0, SECOND, NULL},
    {"pin_first_core", SETTING_CORE, FIELD(options.first_core), 0, 1023, NULL},
    {"hugepages", SETTING_BOOL, FIELD(options.hugepages), 0, 0, NULL},

    {"heartbeat", SETTING_NS, FIELD(options.heartbeat_ns), MILLISECOND, 10 * SECOND, NULL},
    {"election_timeout", SETTING_NS, FIELD(options.election_timeout_ns),
     3 * MILLISECOND, 60 * SECOND, NULL},
    {"stamp_interval", SETTING_NS, FIELD(options.stamp_interval_ns),
     MILLISECOND, 10 * SECOND, NULL},
    {"lease_reads", SETTING_BOOL, FIELD(options.lease_reads), 0, 0, NULL},
    {"lease_drift_ppm", SETTING_COUNT, FIELD(options.lease_drift_ppm), 1, 100000, NULL},

    {"log_ring.bytes", SETTING_BYTES, FIELD(options.ring_bytes), 256 * KIB, GIB, NULL},
    {"log_ring.entries", SETTING_COUNT, FIELD(options.entries_max), 1024, 1 << 24, NULL},
    {"log_ring.ship_window", SETTING_BYTES, FIELD(options.ship_window_bytes),
     2 * KIB, 256 * MIB, NULL},
    {"wal.segment", SETTING_BYTES, FIELD(options.wal_segment_bytes), 2 * MIB, 4 * GIB, NULL},
    {"wal.segments", SETTING_COUNT, FIELD(options.wal_segments), 3, 256, NULL},
    {"socket_buffer", SETTING_BYTES, FIELD(options.socket_buffer_bytes), 0, GIB, NULL},

    {"dpdk.device", SETTING_TEXT, FIELD(options.dpdk.device), 0, 0, NULL},
    {"dpdk.traffic", SETTING_CHOICE, FIELD(options.dpdk.traffic), 0, 0, traffic_words},
    {"dpdk.address", SETTING_TEXT, FIELD(dpdk_address), 0, 0, NULL},
    {"dpdk.gateway", SETTING_TEXT, FIELD(dpdk_gateway), 0, 0, NULL},
    {"dpdk.address6", SETTING_TEXT, FIELD(dpdk_address6), 0, 0, NULL},
    {"dpdk.gateway6", SETTING_TEXT, FIELD(dpdk_gateway6), 0, 0, NULL},
    {"dpdk.mtu", SETTING_COUNT, FIELD(options.dpdk.net.mtu), NET_MTU_MIN, NET_MTU_MAX, NULL},
    {"dpdk.memory", SETTING_BYTES, FIELD(options.dpdk.memory_bytes), 16 * MIB, 64 * GIB, NULL},
    {"dpdk.hugepages", SETTING_BOOL, FIELD(options.dpdk.hugepages), 0, 0, NULL},

    {"http.listen", SETTING_TEXT, FIELD(http_listen), 0, 0, NULL},

    {"log.level", SETTING_CHOICE, FIELD(log_level), 0, 0, level_words},
    {"log.format", SETTING_CHOICE, FIELD(log_format), 0, 0, format_words},
};
/* clang-format on */

enum { SETTINGS_COUNT = sizeof settings / sizeof *settings };
static_assert((int)SETTINGS_COUNT <= (int)CONFIG_SETTINGS_MAX, "sources[] holds every setting");
static_assert(sizeof(struct config) <= UINT16_MAX, "offsets fit");
static_assert(NODE_DISK == 0 && NODE_MEMORY == 1, "order of durability_words");
static_assert(POLLER_BUSY == 0 && POLLER_ADAPTIVE == 1, "order of polling_words");
static_assert(NODE_TRAFFIC_ALL == 0 && NODE_TRAFFIC_PEERS == 2, "order of traffic_words");
static_assert(JOURNAL_DEBUG == 0 && JOURNAL_ERROR == 3, "order of level_words");
static_assert(JOURNAL_TEXT == 0 && JOURNAL_JSON == 1, "order of format_words");

int config_fail(struct config_error *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return -EINVAL;
}

uint32_t settings_count(void)
{
    return SETTINGS_COUNT;
}

const struct setting *setting_at(uint32_t ordinal)
{
    return &settings[ordinal];
}

int setting_find(const char *key)
{
    for (int i = 0; i < SETTINGS_COUNT; i++)
        if (strcmp(settings[i].key, key) == 0)
            return i;
    return -1;
}

bool setting_is_section(const char *key)
{
    size_t length = strlen(key);
    for (int i = 0; i < SETTINGS_COUNT; i++)
        if (strncmp(settings[i].key, key, length) == 0 && settings[i].key[length] == '.')
            return true;
    return false;
}

/* ---- values ---------------------------------------------------------------------------------- */

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit durations[] = {
    {"h", 3600 * SECOND}, {"m", 60 * SECOND}, {"s", SECOND}, {"ms", MILLISECOND},
    {"us", 1000},         {"ns", 1},          {NULL, 0}};
static const struct unit sizes[] = {{"GiB", GIB}, {"MiB", MIB}, {"KiB", KIB}, {"B", 1}, {NULL, 0}};

/* Digits at *text into *value; false: none, or too many. Moves *text behind them. */
static bool take_number(const char **text, uint64_t *value)
{
    const char *at = *text;
    uint64_t number = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (number > (UINT64_MAX - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    if (at == *text)
        return false;
    *text = at;
    *value = number;
    return true;
}

/* "250ms", "64KiB". A bare number is taken only if `bare`, or if it is 0. */
static bool parse_with_unit(const char *text, const struct unit *units, bool bare, uint64_t *value)
{
    uint64_t number;
    if (!take_number(&text, &number))
        return false;
    while (*text == ' ')
        text++;
    *value = number;
    if (*text == '\0')
        return bare || number == 0;
    for (; units->name != NULL; units++)
        if (strcmp(text, units->name) == 0)
            return !__builtin_mul_overflow(number, units->factor, value);
    return false;
}

/* The largest unit that leaves no remainder. */
static void format_with_unit(uint64_t value, const struct unit *units, char *text, size_t bytes)
{
    while (units[1].name != NULL && (value == 0 || value % units->factor != 0))
        units++;
    snprintf(text, bytes, "%llu%s", (unsigned long long)(value / units->factor), units->name);
}

static void expect(const struct setting *setting, char *text, size_t bytes)
{
    uint64_t factor = setting->kind == SETTING_MS ? MILLISECOND : 1;
    const struct unit *units = setting->kind == SETTING_BYTES ? sizes : durations;
    char least[32], most[32];
    format_with_unit(setting->least * factor, units, least, sizeof least);
    format_with_unit(setting->most * factor, units, most, sizeof most);
    size_t used = 0;
    switch (setting->kind) {
    case SETTING_COUNT:
        snprintf(text, bytes, "a whole number from %llu to %llu",
                 (unsigned long long)setting->least, (unsigned long long)setting->most);
        break;
    case SETTING_CORE:
        snprintf(text, bytes, "the number of a core from 0 to %llu, or none",
                 (unsigned long long)setting->most);
        break;
    case SETTING_BOOL:
        snprintf(text, bytes, "true or false");
        break;
    case SETTING_NS:
    case SETTING_MS:
        snprintf(text, bytes, "a duration from %s to %s with its unit, such as 250ms", least, most);
        break;
    case SETTING_BYTES:
        snprintf(text, bytes, "a size from %s to %s, such as 64KiB", least, most);
        break;
    case SETTING_CHOICE:
        for (const char *const *word = setting->words; *word != NULL && used < bytes; word++)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s",
                                     word == setting->words ? "" : " or ", *word);
        break;
    case SETTING_PATH:
        snprintf(text, bytes, "a path of 1 to %u bytes", (unsigned)setting->bytes - 1);
        break;
    case SETTING_TEXT:
        snprintf(text, bytes, "1 to %u bytes", (unsigned)setting->bytes - 1);
        break;
    }
}

static bool choose(const struct setting *setting, const char *value, uint64_t *number)
{
    for (*number = 0; setting->words[*number] != NULL; ++*number)
        if (strcmp(setting->words[*number], value) == 0)
            return true;
    return false;
}

static bool judge_number(const struct setting *setting, const char *value, uint64_t *number)
{
    switch (setting->kind) {
    case SETTING_BOOL:
        *number = strcmp(value, "true") == 0;
        return *number != 0 || strcmp(value, "false") == 0;
    case SETTING_CHOICE:
        return choose(setting, value, number);
    case SETTING_CORE:
        if (strcmp(value, "none") == 0) {
            *number = UINT64_MAX; /* -1 in a field of any width */
            return true;
        }
        break;
    case SETTING_NS:
    case SETTING_MS:
        if (!parse_with_unit(value, durations, false, number))
            return false;
        if (setting->kind == SETTING_MS && *number % MILLISECOND != 0)
            return false;
        *number /= setting->kind == SETTING_MS ? MILLISECOND : 1;
        return *number >= setting->least && *number <= setting->most;
    case SETTING_BYTES:
        return parse_with_unit(value, sizes, true, number) && *number >= setting->least &&
               *number <= setting->most;
    case SETTING_COUNT:
    case SETTING_PATH:
    case SETTING_TEXT:
        break;
    }
    return take_number(&value, number) && *value == '\0' && *number >= setting->least &&
           *number <= setting->most;
}

bool setting_store(const struct setting *setting, struct config *config, const char *value,
                   char *expected, size_t expected_bytes)
{
    unsigned char *field = (unsigned char *)config + setting->offset;
    expect(setting, expected, expected_bytes);
    if (setting->kind == SETTING_PATH || setting->kind == SETTING_TEXT) {
        size_t length = strlen(value);
        if (length == 0 || length >= setting->bytes)
            return false;
        memcpy(field, value, length + 1);
        return true;
    }
    uint64_t number;
    if (!judge_number(setting, value, &number))
        return false;
    /* Little-endian, as the whole wire format is: the low bytes come first. */
    memcpy(field, &number, setting->bytes);
    return true;
}
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "setting_store");

/* ---- suggestions ----------------------------------------------------------------------------- */

enum { WORD_BYTES_MAX = 32 };

static uint32_t least_of(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Optimal string alignment: three rows of the usual table are enough. */
uint32_t word_distance(const char *a, const char *b)
{
    size_t a_bytes = strlen(a), b_bytes = strlen(b);
    if (a_bytes > WORD_BYTES_MAX || b_bytes > WORD_BYTES_MAX)
        return UINT32_MAX;
    uint32_t rows[3][WORD_BYTES_MAX + 1];
    uint32_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (uint32_t k = 0; k <= b_bytes; k++)
        above[k] = k;
    for (uint32_t i = 1; i <= a_bytes; i++) {
        row[0] = i;
        for (uint32_t k = 1; k <= b_bytes; k++) {
            row[k] = least_of(above[k], row[k - 1]) + 1;
            row[k] = least_of(row[k], above[k - 1] + (a[i - 1] != b[k - 1]));
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                row[k] = least_of(row[k], before[k - 2] + 1);
        }
        uint32_t *free_row = before;
        before = above;
        above = row;
        row = free_row;
    }
    return above[b_bytes];
}

struct candidate {
    uint32_t distance;
    char word[2 * WORD_BYTES_MAX];
};

static void consider(struct candidate *best, const char *key, const char *word, size_t word_bytes,
                     uint32_t handicap)
{
    char text[2 * WORD_BYTES_MAX];
    if (word_bytes >= sizeof text)
        return;
    memcpy(text, word, word_bytes);
    text[word_bytes] = '\0';
    uint32_t distance = word_distance(key, text);
    if (distance == UINT32_MAX || distance + handicap >= best->distance)
        return;
    best->distance = distance + handicap;
    memcpy(best->word, text, word_bytes + 1);
}

bool setting_suggest(const char *section, const char *key, char *suggestion, size_t bytes)
{
    /* Up to a third of the letters may be wrong; more is another word. */
    struct candidate best = {.distance = 2 + (uint32_t)strlen(key) / 3};
    size_t section_bytes = strlen(section);
    if (section_bytes == 0)
        consider(&best, key, "members", strlen("members"), 0);
    const char *elsewhere = NULL;
    for (int i = 0; i < SETTINGS_COUNT; i++) {
        const char *full = settings[i].key;
        const char *dot = strchr(full, '.');
        size_t in_bytes = dot == NULL ? 0 : (size_t)(dot - full);
        const char *last = dot == NULL ? full : dot + 1;
        if (in_bytes == section_bytes && strncmp(full, section, section_bytes) == 0)
            consider(&best, key, last, strlen(last), 0);
        else if (strcmp(last, key) == 0)
            elsewhere = full; /* the right word in the wrong place */
        if (section_bytes == 0 && dot != NULL)
            consider(&best, key, full, in_bytes, 0);
    }
    if (elsewhere != NULL)
        snprintf(suggestion, bytes, "%s", elsewhere);
    else if (best.word[0] != '\0')
        snprintf(suggestion, bytes, "%s", best.word);
    return elsewhere != NULL || best.word[0] != '\0';
}
