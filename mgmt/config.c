/* SPDX-License-Identifier: Apache-2.0
 *
 * See mgmt/config.h.
 */
#include "mgmt/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mgmt/config_settings.h"

static_assert((int)NODE_PATH_BYTES_MAX < (int)CONFIG_ERROR_BYTES, "a path fits into a message");

void config_defaults(struct config *config)
{
    memset(config, 0, sizeof *config);
    node_options_defaults(&config->options);
    config->log_level = JOURNAL_INFO;
    config->log_format = JOURNAL_TEXT;
}

/* ---- file ------------------------------------------------------------------------------------ */

/* A regular file's bytes; a FIFO or device would block or never end. Its length or negative errno.
 */
static long read_regular(const char *path, uint8_t *bytes, size_t capacity, struct stat *status)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return -errno;
    long result = 0;
    if (fstat(descriptor, status) < 0)
        result = -errno;
    else if (!S_ISREG(status->st_mode))
        result = S_ISDIR(status->st_mode) ? -EISDIR : -EINVAL;
    while (result >= 0) {
        ssize_t got = read(descriptor, bytes + result, capacity - (size_t)result);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            result = -errno;
        else if (got > 0)
            result += got;
        if (result == (long)capacity)
            result = -EFBIG;
    }
    close(descriptor);
    return result;
}

int config_load(struct config *config, const char *path, struct config_error *error)
{
    if (strlen(path) >= NODE_PATH_BYTES_MAX)
        return config_fail(error, "the configuration file's path is too long");
    uint8_t *text = malloc(CONFIG_FILE_BYTES_MAX + 1);
    if (text == NULL) {
        config_fail(error, "out of memory");
        return -ENOMEM;
    }
    struct stat status;
    long length = read_regular(path, text, CONFIG_FILE_BYTES_MAX + 1, &status);
    int result = (int)length;
    if (length < 0)
        config_fail(error, "%s: %s", path,
                    length == -EFBIG ? "longer than 256 KiB" : strerrordesc_np((int)-length));
    else
        result = config_parse(config, path, text, (size_t)length, error);
    free(text);
    return result;
}

/* ---- environment and flags ------------------------------------------------------------------- */

static int set_from(struct config *config, enum config_source_kind kind, const char *where,
                    int ordinal, const char *value, struct config_error *error)
{
    const struct setting *setting = setting_at((uint32_t)ordinal);
    char expected[160];
    if (!setting_store(setting, config, value, expected, sizeof expected))
        return config_fail(error, "%s: %s: found '%.80s', expected %s", where, setting->key, value,
                           expected);
    config->sources[ordinal] = (struct config_source){.kind = (uint8_t)kind};
    return 0;
}

/* The variable of a setting: "limits.leases" is BELAYD_LIMITS_LEASES. */
static void variable_of(const char *key, char *name, size_t bytes)
{
    size_t used = (size_t)snprintf(name, bytes, "BELAYD_");
    for (; *key != '\0' && used < bytes - 1; key++)
        name[used++] = *key == '.' ? '_' : (char)toupper((unsigned char)*key);
    name[used] = '\0';
}

/* A Kubernetes service called belayd puts these into every container beside it. */
static bool foreign_variable(const char *name)
{
    return strncmp(name, "BELAYD_SERVICE_", strlen("BELAYD_SERVICE_")) == 0 ||
           strcmp(name, "BELAYD_PORT") == 0 ||
           strncmp(name, "BELAYD_PORT_", strlen("BELAYD_PORT_")) == 0;
}

static int unknown_variable(const char *name, struct config_error *error)
{
    char best[96] = "", known[96];
    uint32_t best_distance = 5;
    for (uint32_t i = 0; i < settings_count(); i++) {
        variable_of(setting_at(i)->key, known, sizeof known);
        uint32_t distance = word_distance(name, known);
        if (distance < best_distance) {
            best_distance = distance;
            memcpy(best, known, sizeof best);
        }
    }
    if (best[0] != '\0')
        return config_fail(error, "%.80s: unknown variable; did you mean %s?", name, best);
    return config_fail(error, "%.80s: unknown variable", name);
}

int config_environment(struct config *config, char *const environment[], struct config_error *error)
{
    for (; *environment != NULL; environment++) {
        const char *equals = strchr(*environment, '=');
        if (strncmp(*environment, "BELAYD_", strlen("BELAYD_")) != 0 || equals == NULL)
            continue;
        char name[96], known[96];
        snprintf(name, sizeof name, "%.*s", (int)(equals - *environment), *environment);
        if (strcmp(name, "BELAYD_CONFIG") == 0 || foreign_variable(name))
            continue;
        int ordinal = -1;
        for (uint32_t i = 0; i < settings_count() && ordinal < 0; i++) {
            variable_of(setting_at(i)->key, known, sizeof known);
            if (strcmp(known, name) == 0)
                ordinal = (int)i;
        }
        int result = ordinal < 0
                         ? unknown_variable(name, error)
                         : set_from(config, CONFIG_ENVIRONMENT, name, ordinal, equals + 1, error);
        if (result < 0)
            return result;
    }
    return 0;
}

int config_set(struct config *config, const char *flag, const char *key, const char *value,
               struct config_error *error)
{
    int ordinal = setting_find(key);
    if (ordinal >= 0)
        return set_from(config, CONFIG_FLAG, flag, ordinal, value, error);
    char suggestion[64];
    if (setting_suggest("", key, suggestion, sizeof suggestion))
        return config_fail(error, "%s: %.80s: unknown key; did you mean '%s'?", flag, key,
                           suggestion);
    return config_fail(error, "%s: %.80s: unknown key", flag, key);
}

/* ---- the cluster key ------------------------------------------------------------------------- */

static int hex_digit(uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    if (byte >= 'a' && byte <= 'f')
        return byte - 'a' + 10;
    return byte >= 'A' && byte <= 'F' ? byte - 'A' + 10 : -1;
}

bool config_key_decode(const uint8_t *bytes, size_t length, uint8_t key[WIRE_MAC_KEY_BYTES])
{
    if (length == 2 * WIRE_MAC_KEY_BYTES + 1 && bytes[length - 1] == '\n')
        length--;
    if (length == WIRE_MAC_KEY_BYTES) {
        memcpy(key, bytes, WIRE_MAC_KEY_BYTES);
    } else if (length == 2 * WIRE_MAC_KEY_BYTES) {
        for (size_t i = 0; i < WIRE_MAC_KEY_BYTES; i++) {
            int high = hex_digit(bytes[2 * i]), low = hex_digit(bytes[2 * i + 1]);
            if (high < 0 || low < 0)
                return false;
            key[i] = (uint8_t)(high << 4 | low);
        }
    } else {
        return false;
    }
    uint8_t any = 0;
    for (size_t i = 0; i < WIRE_MAC_KEY_BYTES; i++)
        any |= key[i];
    return any != 0;
}

/* "file:line" of a setting, or the variable or flag it came from. */
void config_describe_source(const struct config *config, int ordinal, char *text, size_t bytes)
{
    const struct config_source *source = &config->sources[ordinal];
    const char *key = setting_at((uint32_t)ordinal)->key;
    if (source->kind == CONFIG_FILE)
        snprintf(text, bytes, "%.400s:%u", config->file, (unsigned)source->line);
    else if (source->kind == CONFIG_ENVIRONMENT)
        variable_of(key, text, bytes);
    else if (source->kind == CONFIG_FLAG)
        snprintf(text, bytes, "command line");
    else
        snprintf(text, bytes, "%.400s", config->file[0] != '\0' ? config->file : "configuration");
}

static int resolve_key(struct config *config, struct config_error *error)
{
    const char *path = config->cluster_key_file;
    if (path[0] == '\0') {
        if (config->members_count > 1)
            return config_fail(error,
                               "%.400s: cluster_key_file: not given; members know each other by it "
                               "(head -c 16 /dev/urandom makes one)",
                               config->file);
        /* One member talks to nobody; a key that nobody knows keeps it so. */
        return getrandom(config->options.cluster_key, WIRE_MAC_KEY_BYTES, 0) == WIRE_MAC_KEY_BYTES
                   ? 0
                   : config_fail(error, "no random numbers");
    }
    char where[NODE_PATH_BYTES_MAX];
    config_describe_source(config, setting_find("cluster_key_file"), where, sizeof where);
    uint8_t bytes[64];
    struct stat status;
    long length = read_regular(path, bytes, sizeof bytes, &status);
    if (length < 0 && length != -EFBIG)
        return config_fail(error, "%.400s: cluster_key_file: %.300s: %s", where, path,
                           strerrordesc_np((int)-length));
    if (status.st_mode & S_IRWXO)
        return config_fail(error,
                           "%.400s: cluster_key_file: %.300s: open to every user (mode %04o), "
                           "expected 0600 or 0640",
                           where, path, (unsigned)(status.st_mode & 07777));
    if (length < 0 || !config_key_decode(bytes, (size_t)length, config->options.cluster_key))
        return config_fail(error,
                           "%.400s: cluster_key_file: %.300s: expected 32 hex digits or 16 bytes, "
                           "not all zero",
                           where, path);
    explicit_bzero(bytes, sizeof bytes);
    return 0;
}

/* ---- members --------------------------------------------------------------------------------- */

static int resolve_address(const struct config *config, const char *key, const char *text,
                           uint32_t line, struct port_address *address, struct config_error *error)
{
    int result = port_address_parse(text, address);
    if (result == -EINVAL)
        return config_fail(error,
                           "%.400s:%u: members.%s: found '%.80s', expected an address with its "
                           "port, such as 10.0.0.1:7400",
                           config->file, (unsigned)line, key, text);
    if (result < 0)
        return config_fail(error, "%.400s:%u: members.%s: '%.80s' cannot be looked up: %s",
                           config->file, (unsigned)line, key, text,
                           result == -ENOENT ? "no such host" : strerrordesc_np(-result));
    return 0;
}

int config_resolve_http(struct config *config, struct config_error *error)
{
    char where[NODE_PATH_BYTES_MAX];
    if (config->http_listen[0] == '\0')
        return 0;
    config_describe_source(config, setting_find("http.listen"), where, sizeof where);
    int result = port_address_parse(config->http_listen, &config->http);
    if (result == -EINVAL)
        return config_fail(error,
                           "%.400s: http.listen: found '%.80s', expected an address with its port, "
                           "such as 127.0.0.1:7480",
                           where, config->http_listen);
    if (result < 0)
        return config_fail(error, "%.400s: http.listen: '%.80s' cannot be looked up: %s", where,
                           config->http_listen,
                           result == -ENOENT ? "no such host" : strerrordesc_np(-result));
    config->http_on = true;
    return 0;
}

int config_resolve(struct config *config, struct config_error *error)
{
    for (uint16_t i = 0; i < config->members_count; i++) {
        const struct config_member *member = &config->members[i];
        struct node_member *resolved = &config->options.members[i];
        resolved->node = member->node;
        int result = resolve_address(config, "client", member->client, member->client_line,
                                     &resolved->client, error);
        if (result == 0)
            result = resolve_address(config, "peer", member->peer, member->peer_line,
                                     &resolved->peer, error);
        if (result == 0 && member->management[0] != '\0')
            result = resolve_address(config, "management", member->management,
                                     member->management_line, &resolved->management, error);
        if (result < 0)
            return result;
    }
    config->options.members_count = config->members_count;
    int result = config_resolve_http(config, error);
    return result < 0 ? result : resolve_key(config, error);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* What is not given follows the number of leases. */
static void complete_limits(struct config *config)
{
    int leases = setting_find("limits.leases");
    if (config->sources[leases].kind != CONFIG_DEFAULT)
        config->options.limits = lock_limits_for(config->limits_given.leases_max);
    const size_t given_at = offsetof(struct config, limits_given);
    for (uint32_t i = 0; i < settings_count(); i++) {
        const struct setting *setting = setting_at(i);
        if (config->sources[i].kind == CONFIG_DEFAULT || strncmp(setting->key, "limits.", 7) != 0)
            continue;
        const unsigned char *from = (const unsigned char *)config + setting->offset;
        unsigned char *to = (unsigned char *)&config->options.limits + setting->offset - given_at;
        memcpy(to, from, setting->bytes);
    }
    struct lock_limits *limits = &config->options.limits;
    if (config->sources[setting_find("limits.queue")].kind == CONFIG_DEFAULT &&
        limits->queue_max > limits->waiters_max)
        limits->queue_max = limits->waiters_max; /* follows a smaller number of waiters, too */
}

static bool is_loopback(const struct port_address *address)
{
    static const uint8_t mapped[13] = {[10] = 0xff, [11] = 0xff, [12] = 127};
    static const uint8_t ipv6[16] = {[15] = 1};
    return memcmp(address->ip, mapped, sizeof mapped) == 0 ||
           memcmp(address->ip, ipv6, sizeof ipv6) == 0;
}

static int judge_exposure(const struct config *config, struct config_error *error)
{
    for (uint16_t i = 0; i < config->options.members_count; i++) {
        const struct node_member *member = &config->options.members[i];
        if (member->node != config->options.node || is_loopback(&member->client) ||
            config->insecure)
            continue;
        char text[PORT_ADDRESS_TEXT_BYTES];
        port_address_format(&member->client, text);
        return config_fail(error,
                           "%.400s:%u: members.client: %s is open to the network and clients have "
                           "no credentials yet; expected a loopback address, or 'insecure: true'",
                           config->file, (unsigned)config->members[i].client_line, text);
    }
    if (config->http_on && !is_loopback(&config->http) && !config->insecure) {
        char where[NODE_PATH_BYTES_MAX];
        config_describe_source(config, setting_find("http.listen"), where, sizeof where);
        return config_fail(error,
                           "%.400s: http.listen: %.80s is open to the network and HTTP has no "
                           "credentials yet; expected a loopback address, or 'insecure: true'",
                           where, config->http_listen);
    }
    return 0;
}

/* node_options_check() says "<key>: <what is wrong>"; the key leads to the place. */
static int fail_at_key(const struct config *config, const char *wrong, struct config_error *error)
{
    char key[64] = "", where[NODE_PATH_BYTES_MAX];
    const char *colon = strchr(wrong, ':');
    if (colon != NULL && (size_t)(colon - wrong) < sizeof key)
        memcpy(key, wrong, (size_t)(colon - wrong));
    int ordinal = setting_find(key);
    if (ordinal >= 0)
        config_describe_source(config, ordinal, where, sizeof where);
    else if (strcmp(key, "members") == 0 && config->members_line > 0)
        snprintf(where, sizeof where, "%.400s:%u", config->file, (unsigned)config->members_line);
    else
        snprintf(where, sizeof where, "%.400s",
                 config->file[0] != '\0' ? config->file : "configuration");
    return config_fail(error, "%.400s: %.500s", where, wrong);
}

/* Settings without a default; asked for by name, each with an example. */
static int judge_given(const struct config *config, struct config_error *error)
{
    const char *file = config->file[0] != '\0' ? config->file : "configuration";
    if (config->options.members_count == 0)
        return config_fail(error,
                           "%.400s: members: not given; expected a list, each entry with node, "
                           "client and peer",
                           file);
    if (config->options.node == 0)
        return config_fail(error, "%.400s: node: not given; expected which of the members this is",
                           file);
    if (config->options.data_directory[0] == '\0')
        return config_fail(error, "%.400s: data_directory: not given; expected a path", file);
    return 0;
}

int config_judge(struct config *config, struct config_error *error)
{
    complete_limits(config);
    node_options_complete(&config->options);
    int result = judge_given(config, error);
    if (result < 0)
        return result;
    const char *wrong = node_options_check(&config->options);
    if (wrong != NULL)
        return fail_at_key(config, wrong, error);
    result = judge_exposure(config, error);
    return result < 0 ? result : config_judge_dpdk(config, error);
}
