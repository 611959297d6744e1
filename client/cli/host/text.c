/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/host/text.h"

#include <stdio.h>
#include <string.h>

/* ---- pieces ---------------------------------------------------------------------------------- */

struct host_text host_text_of(const char *text)
{
    return (struct host_text){text, strlen(text)};
}

bool host_text_is(struct host_text text, const char *word)
{
    return text.count == strlen(word) && memcmp(text.bytes, word, text.count) == 0;
}

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

static struct host_text skip(struct host_text text, size_t count)
{
    return (struct host_text){text.bytes + count, text.count - count};
}

struct host_text host_text_trim(struct host_text text)
{
    while (text.count > 0 && is_blank(text.bytes[0]))
        text = skip(text, 1);
    while (text.count > 0 && is_blank(text.bytes[text.count - 1]))
        text.count--;
    return text;
}

/* What stands before the first `separator`, which is taken off *rest with it. */
static struct host_text cut(struct host_text *rest, char separator)
{
    const char *end = rest->count > 0 ? memchr(rest->bytes, separator, rest->count) : NULL;
    size_t count = end ? (size_t)(end - rest->bytes) : rest->count;
    struct host_text piece = {rest->bytes, count};
    *rest = skip(*rest, end ? count + 1 : count);
    return piece;
}

bool host_next_line(struct host_text *rest, struct host_text *line)
{
    if (rest->count == 0)
        return false;
    *line = cut(rest, '\n');
    return true;
}

bool host_next_word(struct host_text *rest, struct host_text *word)
{
    while (rest->count > 0 && is_blank(rest->bytes[0]))
        *rest = skip(*rest, 1);
    if (rest->count == 0)
        return false;
    size_t count = 0;
    while (count < rest->count && !is_blank(rest->bytes[count]))
        count++;
    *word = (struct host_text){rest->bytes, count};
    *rest = skip(*rest, count);
    return true;
}

/* ---- single values --------------------------------------------------------------------------- */

static bool digits(struct host_text text, uint64_t max, uint64_t *number)
{
    uint64_t value = 0;
    for (size_t i = 0; i < text.count; i++) {
        if (!is_digit(text.bytes[i]))
            return false;
        uint64_t digit = (uint64_t)(text.bytes[i] - '0');
        if (value > (max - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *number = value;
    return text.count > 0;
}

struct host_number host_parse_number(struct host_text text)
{
    text = host_text_trim(text);
    bool negative = text.count > 0 && text.bytes[0] == '-';
    uint64_t value = 0;
    /* One below the type's largest: that one says "unlimited". */
    if (!digits(negative ? skip(text, 1) : text, (uint64_t)HOST_UNLIMITED - 1, &value))
        return (struct host_number){.state = HOST_GARBLED};
    return (struct host_number){HOST_KNOWN, negative ? -(int64_t)value : (int64_t)value};
}

struct host_number host_parse_release(struct host_text text)
{
    uint64_t major = 0, minor = 0;
    text = host_text_trim(text);
    struct host_text first = cut(&text, '.');
    size_t count = 0;
    while (count < text.count && is_digit(text.bytes[count]))
        count++;
    if (!digits(first, 999, &major) || !digits((struct host_text){text.bytes, count}, 9999, &minor))
        return (struct host_number){.state = HOST_GARBLED};
    return (struct host_number){HOST_KNOWN, HOST_RELEASE(major, minor)};
}

struct host_word host_parse_word(struct host_text text)
{
    struct host_word word = {.state = HOST_GARBLED};
    text = host_text_trim(text);
    if (text.count == 0 || text.count >= sizeof word.text)
        return word;
    for (size_t i = 0; i < text.count; i++)
        if (text.bytes[i] <= ' ' || text.bytes[i] > '~')
            return word;
    memcpy(word.text, text.bytes, text.count);
    word.state = HOST_KNOWN;
    return word;
}

struct host_word host_parse_choice(struct host_text text)
{
    struct host_text before = cut(&text, '[');
    if (text.count == 0 || before.count > HOST_WORD_BYTES * 4)
        return (struct host_word){.state = HOST_GARBLED};
    struct host_word word = host_parse_word(cut(&text, ']'));
    if (word.state == HOST_KNOWN && strpbrk(word.text, "[]"))
        return (struct host_word){.state = HOST_GARBLED};
    return word;
}

/* ---- sets of CPUs ---------------------------------------------------------------------------- */

static bool cpu_number(struct host_text text, uint64_t *cpu)
{
    if (host_text_is(text, "N")) {
        *cpu = HOST_CPUS_MAX - 1;
        return true;
    }
    return digits(text, HOST_CPUS_MAX - 1, cpu);
}

/* "4", "0-3" or "0-31:2/4". */
static bool add_range(struct host_text text, struct host_cpus *cpus)
{
    uint64_t first = 0, last = 0, used = 1, group = 1;
    struct host_text groups = text, range = cut(&groups, ':');
    bool grouped = range.count < text.count;
    struct host_text to = range, from = cut(&to, '-');
    bool ranged = from.count < range.count;
    if (host_text_is(text, "all")) {
        last = HOST_CPUS_MAX - 1;
    } else {
        if (!cpu_number(from, &first) || (ranged && !cpu_number(to, &last)))
            return false;
        last = ranged ? last : first;
    }
    if (grouped) {
        struct host_text of = groups, part = cut(&of, '/');
        if (!digits(part, HOST_CPUS_MAX, &used) || !digits(of, HOST_CPUS_MAX, &group))
            return false;
    }
    if (first > last || used == 0 || used > group)
        return false;
    for (uint64_t cpu = first; cpu <= last; cpu++)
        if ((cpu - first) % group < used)
            host_cpus_add(cpus, cpu);
    return true;
}

struct host_set host_parse_cpus(struct host_text text)
{
    struct host_set set = {.state = HOST_KNOWN};
    text = host_text_trim(text);
    while (text.count > 0) {
        size_t before = text.count;
        struct host_text range = cut(&text, ',');
        bool comma_at_end = text.count == 0 && range.count < before;
        if (comma_at_end || !add_range(range, &set.cpus))
            return (struct host_set){.state = HOST_GARBLED};
    }
    return set;
}

static int hex_digit(char byte)
{
    if (is_digit(byte))
        return byte - '0';
    char lower = (char)(byte | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

struct host_set host_parse_mask(struct host_text text)
{
    struct host_set set = {.state = HOST_KNOWN};
    text = host_text_trim(text);
    size_t bit = 0, in_word = 0;
    /* From the lowest digit up; words are 32 bits, but for the highest, which may be shorter. */
    for (size_t i = text.count; i > 0; i--) {
        if (text.bytes[i - 1] == ',' && in_word == 8) {
            in_word = 0;
            continue;
        }
        int digit = hex_digit(text.bytes[i - 1]);
        if (digit < 0 || in_word == 8)
            return (struct host_set){.state = HOST_GARBLED};
        for (size_t one = 0; one < 4; one++) {
            if ((digit >> one & 1) == 0)
                continue;
            if (bit + one >= HOST_CPUS_MAX)
                return (struct host_set){.state = HOST_GARBLED};
            host_cpus_add(&set.cpus, bit + one);
        }
        bit += 4;
        in_word++;
    }
    if (in_word == 0)
        set.state = HOST_GARBLED;
    return set;
}

size_t host_cpus_count(const struct host_cpus *set)
{
    size_t count = 0;
    for (size_t i = 0; i < HOST_CPUS_MAX / 64; i++)
        count += (size_t)__builtin_popcountll(set->words[i]);
    return count;
}

bool host_cpus_meet(const struct host_cpus *one, const struct host_cpus *other)
{
    for (size_t i = 0; i < HOST_CPUS_MAX / 64; i++)
        if ((one->words[i] & other->words[i]) != 0)
            return true;
    return false;
}

struct host_cpus host_cpus_without(const struct host_cpus *one, const struct host_cpus *other)
{
    struct host_cpus left;
    for (size_t i = 0; i < HOST_CPUS_MAX / 64; i++)
        left.words[i] = one->words[i] & ~other->words[i];
    return left;
}

const char *host_cpus_text(const struct host_cpus *set, char *text, size_t text_bytes)
{
    size_t used = 0;
    snprintf(text, text_bytes, "none");
    for (size_t cpu = 0; cpu < HOST_CPUS_MAX; cpu++) {
        if (!host_cpus_has(set, cpu))
            continue;
        size_t last = cpu;
        while (host_cpus_has(set, last + 1))
            last++;
        char range[24];
        size_t count =
            (size_t)(last > cpu
                         ? snprintf(range, sizeof range, "%s%zu-%zu", used ? "," : "", cpu, last)
                         : snprintf(range, sizeof range, "%s%zu", used ? "," : "", cpu));
        /* Room for ",..." stays until the end. */
        if (used + count + 5 > text_bytes) {
            snprintf(text + used, text_bytes - used, ",...");
            return text;
        }
        memcpy(text + used, range, count + 1);
        used += count;
        cpu = last;
    }
    return text;
}
