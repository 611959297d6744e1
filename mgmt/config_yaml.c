/* SPDX-License-Identifier: Apache-2.0
 *
 * The configuration file: YAML events from libyaml, taken by a grammar of two levels. Whatever the
 * grammar does not know (other documents, anchors, tags, deeper nesting) is an error at its line,
 * so nothing in a file is ever ignored.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "mgmt/config_settings.h"

enum { SECTION_NAMES_MAX = 16, KEY_BYTES_MAX = 64, VALUE_SHOWN_BYTES = 80, MEMBER_KEYS = 4 };

struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the one being looked at; valid while `holding` */
    bool holding;
    const char *name;
    struct config *config;
    struct config_error *error;
    /* Sections seen, for duplicates. Names point into the settings' table or are "members". */
    uint32_t section_lines[SECTION_NAMES_MAX];
    char section_names[SECTION_NAMES_MAX][KEY_BYTES_MAX];
    uint32_t sections_count;
};

static uint32_t event_line(const struct reader *reader)
{
    return (uint32_t)reader->event.start_mark.line + 1;
}

__attribute__((format(printf, 3, 4))) static int fail_at(struct reader *reader, uint32_t line,
                                                         const char *format, ...)
{
    char text[CONFIG_ERROR_BYTES - NODE_PATH_BYTES_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return config_fail(reader->error, "%.400s:%u: %s", reader->name, (unsigned)line, text);
}

static void release(struct reader *reader)
{
    if (reader->holding)
        yaml_event_delete(&reader->event);
    reader->holding = false;
}

/* Moves to the next event. Aliases, tags and anchors end here. */
static int advance(struct reader *reader)
{
    release(reader);
    if (!yaml_parser_parse(&reader->parser, &reader->event)) {
        const yaml_parser_t *parser = &reader->parser;
        size_t line =
            parser->problem_mark.line > 0 ? parser->problem_mark.line : parser->context_mark.line;
        return fail_at(reader, (uint32_t)line + 1, "not YAML: %s%s%s",
                       parser->problem != NULL ? parser->problem : "out of memory",
                       parser->context != NULL ? ", " : "",
                       parser->context != NULL ? parser->context : "");
    }
    reader->holding = true;
    const yaml_event_t *event = &reader->event;
    bool anchored =
        event->type == YAML_ALIAS_EVENT ||
        (event->type == YAML_SCALAR_EVENT && event->data.scalar.anchor != NULL) ||
        (event->type == YAML_MAPPING_START_EVENT && event->data.mapping_start.anchor != NULL) ||
        (event->type == YAML_SEQUENCE_START_EVENT && event->data.sequence_start.anchor != NULL);
    if (anchored)
        return fail_at(reader, event_line(reader), "anchors and aliases are not used here");
    if (event->type == YAML_SCALAR_EVENT && event->data.scalar.tag != NULL)
        return fail_at(reader, event_line(reader), "tags are not used here");
    return 0;
}

/* The scalar's text in printable form and not too long, for a message. */
static void show(const struct reader *reader, char shown[VALUE_SHOWN_BYTES])
{
    const unsigned char *value = reader->event.data.scalar.value;
    size_t length = reader->event.data.scalar.length;
    size_t used = 0;
    for (size_t i = 0; i < length && used < VALUE_SHOWN_BYTES - 4; i++)
        shown[used++] = value[i] < 0x20 || value[i] == 0x7f ? '?' : (char)value[i];
    memcpy(shown + used, used < length ? "..." : "", used < length ? 4 : 1);
}

static const char *event_word(const struct reader *reader)
{
    switch (reader->event.type) {
    case YAML_SEQUENCE_START_EVENT:
        return "a list";
    case YAML_MAPPING_START_EVENT:
        return "a mapping";
    default:
        return "nothing";
    }
}

/* The scalar under the reader as a C string; NULL after an error (not a scalar, a zero inside). */
static const char *scalar(struct reader *reader, const char *key, const char *expected)
{
    if (reader->event.type != YAML_SCALAR_EVENT) {
        fail_at(reader, event_line(reader), "%s: found %s, expected %s", key, event_word(reader),
                expected);
        return NULL;
    }
    const char *value = (const char *)reader->event.data.scalar.value;
    if (strlen(value) != reader->event.data.scalar.length) {
        fail_at(reader, event_line(reader), "%s: a zero byte in a value", key);
        return NULL;
    }
    return value;
}

static int unknown_key(struct reader *reader, const char *section, const char *key)
{
    char suggestion[KEY_BYTES_MAX], shown[VALUE_SHOWN_BYTES];
    show(reader, shown);
    const char *dot = section[0] == '\0' ? "" : ".";
    if (setting_suggest(section, key, suggestion, sizeof suggestion))
        return fail_at(reader, event_line(reader), "%s%s%s: unknown key; did you mean '%s'?",
                       section, dot, shown, suggestion);
    return fail_at(reader, event_line(reader), "%s%s%s: unknown key", section, dot, shown);
}

static int note_section(struct reader *reader, const char *name)
{
    for (uint32_t i = 0; i < reader->sections_count; i++)
        if (strcmp(reader->section_names[i], name) == 0)
            return fail_at(reader, event_line(reader), "%s: given twice; first on line %u", name,
                           (unsigned)reader->section_lines[i]);
    uint32_t at = reader->sections_count++;
    snprintf(reader->section_names[at], KEY_BYTES_MAX, "%s", name);
    reader->section_lines[at] = event_line(reader);
    return 0;
}

/* ---- settings -------------------------------------------------------------------------------- */

/* The key is under the reader; the value is taken. */
static int take_setting(struct reader *reader, int ordinal)
{
    const struct setting *setting = setting_at((uint32_t)ordinal);
    struct config_source *source = &reader->config->sources[ordinal];
    if (source->kind == CONFIG_FILE)
        return fail_at(reader, event_line(reader), "%s: given twice; first on line %u",
                       setting->key, (unsigned)source->line);
    int result = advance(reader);
    if (result < 0)
        return result;
    char expected[160], shown[VALUE_SHOWN_BYTES];
    (void)setting_store(setting, reader->config, "", expected, sizeof expected);
    uint32_t line = event_line(reader);
    const char *value = scalar(reader, setting->key, expected);
    if (value == NULL)
        return -EINVAL;
    show(reader, shown);
    if (!setting_store(setting, reader->config, value, expected, sizeof expected))
        return fail_at(reader, line, "%s: found '%s', expected %s", setting->key, shown, expected);
    *source = (struct config_source){.kind = CONFIG_FILE, .line = line};
    return 0;
}

static int take_section(struct reader *reader, const char *section)
{
    int result = advance(reader);
    if (result < 0)
        return result;
    if (reader->event.type != YAML_MAPPING_START_EVENT)
        return fail_at(reader, event_line(reader), "%s: expected keys of its own, indented below",
                       section);
    for (;;) {
        result = advance(reader);
        if (result < 0)
            return result;
        if (reader->event.type == YAML_MAPPING_END_EVENT)
            return 0;
        const char *key = scalar(reader, section, "a key");
        if (key == NULL)
            return -EINVAL;
        char full[2 * KEY_BYTES_MAX];
        int length = snprintf(full, sizeof full, "%s.%s", section, key);
        int ordinal = length < (int)sizeof full ? setting_find(full) : -1;
        result = ordinal < 0 ? unknown_key(reader, section, key) : take_setting(reader, ordinal);
        if (result < 0)
            return result;
    }
}

/* ---- members --------------------------------------------------------------------------------- */

static int take_member_node(struct reader *reader, struct config_member *member)
{
    const char *expected = "a whole number from 1 to 5";
    const char *value = scalar(reader, "members.node", expected);
    if (value == NULL)
        return -EINVAL;
    if (value[0] < '1' || value[0] > '0' + NODE_MEMBERS_MAX || value[1] != '\0') {
        char shown[VALUE_SHOWN_BYTES];
        show(reader, shown);
        return fail_at(reader, event_line(reader), "members.node: found '%s', expected %s", shown,
                       expected);
    }
    member->node = (uint16_t)(value[0] - '0');
    return 0;
}

static int take_member_address(struct reader *reader, const char *key, char *address,
                               uint32_t *line)
{
    const char *expected = "an address with its port, such as 10.0.0.1:7400";
    const char *value = scalar(reader, key, expected);
    if (value == NULL)
        return -EINVAL;
    size_t length = strlen(value);
    if (length == 0 || length >= CONFIG_ADDRESS_BYTES_MAX) {
        char shown[VALUE_SHOWN_BYTES];
        show(reader, shown);
        return fail_at(reader, event_line(reader), "%s: found '%s', expected %s", key, shown,
                       expected);
    }
    memcpy(address, value, length + 1);
    *line = event_line(reader);
    return 0;
}

/* One "key: value" of a member; the key is under the reader. `seen`: bit per key. */
static int take_member_pair(struct reader *reader, struct config_member *member, unsigned *seen)
{
    static const char *const keys[MEMBER_KEYS] = {"node", "client", "peer", "management"};
    const char *key = scalar(reader, "members", "a key");
    if (key == NULL)
        return -EINVAL;
    unsigned which = 0;
    while (which < MEMBER_KEYS && strcmp(keys[which], key) != 0)
        which++;
    if (which == MEMBER_KEYS) {
        char shown[VALUE_SHOWN_BYTES];
        show(reader, shown);
        for (which = 0; which < MEMBER_KEYS; which++)
            if (word_distance(key, keys[which]) <= 2)
                return fail_at(reader, event_line(reader),
                               "members.%s: unknown key; did you mean '%s'?", shown, keys[which]);
        return fail_at(reader, event_line(reader),
                       "members.%s: unknown key; a member has node, client, peer and perhaps "
                       "management",
                       shown);
    }
    if (*seen & 1u << which)
        return fail_at(reader, event_line(reader), "members.%s: given twice in one member",
                       keys[which]);
    *seen |= 1u << which;
    int result = advance(reader);
    if (result < 0)
        return result;
    switch (which) {
    case 0:
        return take_member_node(reader, member);
    case 1:
        return take_member_address(reader, "members.client", member->client, &member->client_line);
    case 2:
        return take_member_address(reader, "members.peer", member->peer, &member->peer_line);
    default:
        return take_member_address(reader, "members.management", member->management,
                                   &member->management_line);
    }
}

static int take_member(struct reader *reader)
{
    struct config *config = reader->config;
    if (reader->event.type != YAML_MAPPING_START_EVENT)
        return fail_at(reader, event_line(reader),
                       "members: each entry needs the keys node, client and peer");
    if (config->members_count == NODE_MEMBERS_MAX)
        return fail_at(reader, event_line(reader), "members: more than %u", NODE_MEMBERS_MAX);
    struct config_member *member = &config->members[config->members_count];
    *member = (struct config_member){.line = event_line(reader)};
    unsigned seen = 0;
    for (;;) {
        int result = advance(reader);
        if (result < 0)
            return result;
        if (reader->event.type == YAML_MAPPING_END_EVENT)
            break;
        result = take_member_pair(reader, member, &seen);
        if (result < 0)
            return result;
    }
    if ((seen & 7) != 7) /* all but management */
        return fail_at(reader, member->line, "members: this entry lacks '%s'",
                       !(seen & 1)   ? "node"
                       : !(seen & 2) ? "client"
                                     : "peer");
    config->members_count++;
    return 0;
}

static int take_members(struct reader *reader)
{
    reader->config->members_line = event_line(reader);
    reader->config->members_count = 0;
    int result = advance(reader);
    if (result < 0)
        return result;
    if (reader->event.type != YAML_SEQUENCE_START_EVENT)
        return fail_at(reader, event_line(reader),
                       "members: expected a list, each entry with node, client and peer");
    for (;;) {
        result = advance(reader);
        if (result < 0)
            return result;
        if (reader->event.type == YAML_SEQUENCE_END_EVENT)
            return 0;
        result = take_member(reader);
        if (result < 0)
            return result;
    }
}

/* ---- the document ---------------------------------------------------------------------------- */

static int take_top_key(struct reader *reader)
{
    const char *value = scalar(reader, "top level", "a key");
    if (value == NULL)
        return -EINVAL;
    char key[KEY_BYTES_MAX];
    if (strlen(value) >= sizeof key)
        return unknown_key(reader, "", "");
    snprintf(key, sizeof key, "%s", value);
    bool members = strcmp(key, "members") == 0;
    if (members || setting_is_section(key)) {
        int result = note_section(reader, key);
        if (result < 0)
            return result;
        return members ? take_members(reader) : take_section(reader, key);
    }
    int ordinal = strchr(key, '.') == NULL ? setting_find(key) : -1;
    return ordinal < 0 ? unknown_key(reader, "", key) : take_setting(reader, ordinal);
}

static int take_document(struct reader *reader)
{
    for (;;) {
        int result = advance(reader);
        if (result < 0)
            return result;
        if (reader->event.type == YAML_MAPPING_END_EVENT)
            return 0;
        result = take_top_key(reader);
        if (result < 0)
            return result;
    }
}

static int take_stream(struct reader *reader)
{
    static const yaml_event_type_t opening[] = {YAML_STREAM_START_EVENT, YAML_DOCUMENT_START_EVENT,
                                                YAML_MAPPING_START_EVENT};
    for (size_t i = 0; i < sizeof opening / sizeof *opening; i++) {
        int result = advance(reader);
        if (result < 0)
            return result;
        if (reader->event.type == YAML_STREAM_END_EVENT)
            return 0; /* an empty file: everything by environment and flags */
        if (reader->event.type != opening[i])
            return fail_at(reader, event_line(reader), "expected 'key: value' lines");
    }
    int result = take_document(reader);
    if (result == 0)
        result = advance(reader); /* the document's end */
    if (result == 0)
        result = advance(reader);
    if (result == 0 && reader->event.type != YAML_STREAM_END_EVENT)
        return fail_at(reader, event_line(reader), "a second document; expected one");
    return result;
}

int config_parse(struct config *config, const char *name, const uint8_t *text, size_t length,
                 struct config_error *error)
{
    struct reader reader = {.name = name, .config = config, .error = error};
    error->text[0] = '\0';
    snprintf(config->file, sizeof config->file, "%s", name);
    if (!yaml_parser_initialize(&reader.parser)) {
        config_fail(error, "%.400s: out of memory", name);
        return -ENOMEM;
    }
    yaml_parser_set_input_string(&reader.parser, text, length);
    int result = take_stream(&reader);
    release(&reader);
    yaml_parser_delete(&reader.parser);
    return result;
}
