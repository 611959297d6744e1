/* SPDX-License-Identifier: Apache-2.0
 *
 * Files with lines: the kernel's command line, memory, limits, interrupts, mounts.
 */
#include <string.h>

#include "client/cli/host/text.h"

/* ---- /proc/cmdline --------------------------------------------------------------------------- */

/* Takes one parameter off *rest, which ends at a blank outside of double quotes. */
static bool next_parameter(struct host_text *rest, struct host_text *parameter)
{
    *rest = host_text_trim(*rest);
    size_t count = 0;
    bool quoted = false;
    for (; count < rest->count; count++) {
        char byte = rest->bytes[count];
        quoted = quoted != (byte == '"');
        if (!quoted && (byte == ' ' || byte == '\t' || byte == '\n'))
            break;
    }
    *parameter = (struct host_text){rest->bytes, count};
    *rest = (struct host_text){rest->bytes + count, rest->count - count};
    return count > 0;
}

/* For the kernel "-" and "_" are one in the name of a parameter. */
static bool is_parameter(struct host_text parameter, const char *name, struct host_text *value)
{
    size_t length = strlen(name);
    if (parameter.count <= length || parameter.bytes[length] != '=')
        return false;
    for (size_t i = 0; i < length; i++) {
        char byte = parameter.bytes[i] == '-' ? '_' : parameter.bytes[i];
        if (byte != name[i])
            return false;
    }
    *value = (struct host_text){parameter.bytes + length + 1, parameter.count - length - 1};
    if (value->count >= 2 && value->bytes[0] == '"' && value->bytes[value->count - 1] == '"')
        *value = (struct host_text){value->bytes + 1, value->count - 2};
    return true;
}

/* The flags in front of isolcpus' list; none at all mean `domain`. */
static void parse_isolcpus(struct host_text value, struct host_cmdline *cmdline)
{
    bool any = false, domain = false, managed = false;
    for (;;) {
        const char *comma = value.count > 0 ? memchr(value.bytes, ',', value.count) : NULL;
        struct host_text flag = {value.bytes, comma ? (size_t)(comma - value.bytes) : 0};
        bool is_domain = host_text_is(flag, "domain");
        bool is_managed = host_text_is(flag, "managed_irq");
        if (!is_domain && !is_managed && !host_text_is(flag, "nohz"))
            break;
        any = true;
        domain = domain || is_domain;
        managed = managed || is_managed;
        value = (struct host_text){value.bytes + flag.count + 1, value.count - flag.count - 1};
    }
    struct host_set set = host_parse_cpus(value);
    if (set.state != HOST_KNOWN) /* the kernel ignores it too */
        return;
    cmdline->managed_irq = managed;
    cmdline->isolated = domain || !any ? set.cpus : (struct host_cpus){{0}};
}

static void parse_set(struct host_text value, struct host_cpus *cpus)
{
    struct host_set set = host_parse_cpus(value);
    if (set.state == HOST_KNOWN)
        *cpus = set.cpus;
}

/* Several words may stand in one value: "intel_iommu=on,sm_on". */
static bool has_word(struct host_text value, const char *word)
{
    size_t length = strlen(word), from = 0;
    for (size_t i = 0; i <= value.count; i++) {
        if (i < value.count && value.bytes[i] != ',')
            continue;
        if (i - from == length && memcmp(value.bytes + from, word, length) == 0)
            return true;
        from = i + 1;
    }
    return false;
}

static void parse_parameter(struct host_text parameter, struct host_cmdline *cmdline)
{
    struct host_text value;
    if (is_parameter(parameter, "isolcpus", &value))
        parse_isolcpus(value, cmdline);
    else if (is_parameter(parameter, "nohz_full", &value))
        parse_set(value, &cmdline->nohz_full);
    else if (is_parameter(parameter, "rcu_nocbs", &value))
        parse_set(value, &cmdline->rcu_nocbs);
    else if (is_parameter(parameter, "intel_iommu", &value) ||
             is_parameter(parameter, "amd_iommu", &value)) {
        cmdline->iommu_on = has_word(value, "on") || (cmdline->iommu_on && !has_word(value, "off"));
        cmdline->iommu_off = has_word(value, "off");
    } else if (is_parameter(parameter, "iommu", &value)) {
        cmdline->iommu_passthrough = has_word(value, "pt");
        cmdline->iommu_off = cmdline->iommu_off || has_word(value, "off");
    } else if (is_parameter(parameter, "iommu.passthrough", &value))
        cmdline->iommu_passthrough = host_text_is(value, "1");
    else if (is_parameter(parameter, "hugepages", &value))
        cmdline->hugepages = true;
    else if (is_parameter(parameter, "mce", &value))
        cmdline->machine_checks_quiet = has_word(value, "ignore_ce");
}

void host_parse_cmdline(struct host_text text, struct host_cmdline *cmdline)
{
    struct host_text parameter;
    *cmdline = (struct host_cmdline){.state = HOST_KNOWN};
    if (text.count > 0 && memchr(text.bytes, '\0', text.count)) {
        cmdline->state = HOST_GARBLED;
        return;
    }
    /* What follows "--" is for init. */
    while (next_parameter(&text, &parameter) && !host_text_is(parameter, "--"))
        parse_parameter(parameter, cmdline);
    for (size_t i = 0; i < HOST_CPUS_MAX / 64; i++)
        cmdline->rcu_nocbs.words[i] |= cmdline->nohz_full.words[i];
}

/* ---- /proc/meminfo, /proc/PID/limits --------------------------------------------------------- */

void host_parse_meminfo(struct host_text text, struct host_memory *memory)
{
    const struct {
        const char *name;
        struct host_number *number;
        bool in_kib; /* "kB" follows */
    } lines[] = {
        {"HugePages_Total:", &memory->hugepages_total, false},
        {"HugePages_Free:", &memory->hugepages_free, false},
        {"Hugepagesize:", &memory->hugepage_kib, true},
        {"SwapTotal:", &memory->swap_total_kib, true},
        {"SwapFree:", &memory->swap_free_kib, true},
    };
    enum { LINES = sizeof lines / sizeof lines[0] };
    for (size_t i = 0; i < LINES; i++)
        *lines[i].number = (struct host_number){.state = HOST_GARBLED};
    struct host_text line, name, value, unit = {"", 0};
    while (host_next_line(&text, &line)) {
        if (!host_next_word(&line, &name) || !host_next_word(&line, &value))
            continue;
        bool has_unit = host_next_word(&line, &unit);
        for (size_t i = 0; i < LINES; i++) {
            if (!host_text_is(name, lines[i].name))
                continue;
            struct host_number number = host_parse_number(value);
            if (number.value < 0 || has_unit != lines[i].in_kib ||
                (has_unit && !host_text_is(unit, "kB")))
                number = (struct host_number){.state = HOST_GARBLED};
            *lines[i].number = number;
        }
    }
}

static bool takes_off(struct host_text *line, const char *start)
{
    size_t length = strlen(start);
    if (line->count < length || memcmp(line->bytes, start, length) != 0)
        return false;
    *line = (struct host_text){line->bytes + length, line->count - length};
    return true;
}

static struct host_number limit_of(struct host_text line)
{
    struct host_text soft;
    if (!host_next_word(&line, &soft))
        return (struct host_number){.state = HOST_GARBLED};
    if (host_text_is(soft, "unlimited"))
        return (struct host_number){HOST_KNOWN, HOST_UNLIMITED};
    struct host_number number = host_parse_number(soft);
    return number.value < 0 ? (struct host_number){.state = HOST_GARBLED} : number;
}

void host_parse_limits(struct host_text text, struct host_memory *memory)
{
    struct host_text line;
    memory->locked_bytes = memory->files = (struct host_number){.state = HOST_GARBLED};
    while (host_next_line(&text, &line)) {
        if (takes_off(&line, "Max locked memory "))
            memory->locked_bytes = limit_of(line);
        else if (takes_off(&line, "Max open files "))
            memory->files = limit_of(line);
    }
}

/* ---- /proc/interrupts ------------------------------------------------------------------------ */

size_t host_parse_interrupts_heading(struct host_text line)
{
    struct host_text word;
    size_t count = 0;
    while (host_next_word(&line, &word)) {
        if (!takes_off(&word, "CPU") || host_parse_number(word).state != HOST_KNOWN)
            return 0;
        count++;
    }
    return count <= HOST_CPUS_MAX ? count : 0;
}

bool host_parse_interrupt(struct host_text line, size_t cpus_count, uint32_t *number,
                          struct host_text *name)
{
    struct host_text word;
    if (!host_next_word(&line, &word) || word.count < 2 || word.bytes[word.count - 1] != ':')
        return false;
    word.count--;
    struct host_number value = host_parse_number(word);
    if (value.state != HOST_KNOWN || value.value < 0 || value.value > INT32_MAX)
        return false;
    for (size_t i = 0; i < cpus_count; i++)
        if (!host_next_word(&line, &word) || host_parse_number(word).state != HOST_KNOWN)
            return false;
    /* The controller, its own number of the line, then who handles it: nobody, and it is idle. */
    *number = (uint32_t)value.value;
    *name = (struct host_text){"", 0};
    size_t words = 0;
    while (host_next_word(&line, &word)) {
        *name = word;
        words++;
    }
    return words >= 3;
}

/* ---- /proc/PID/mountinfo --------------------------------------------------------------------- */

bool host_parse_mount(struct host_text line, struct host_mount *mount)
{
    struct host_text word;
    *mount = (struct host_mount){{NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}};
    /* id parent major:minor root point options [optional...] - filesystem source options */
    for (size_t i = 0; i < 6; i++) {
        if (!host_next_word(&line, &word))
            return false;
        if (i == 2)
            mount->device = word;
        if (i == 4)
            mount->point = word;
    }
    while (host_next_word(&line, &word) && !host_text_is(word, "-")) {
    }
    return host_next_word(&line, &mount->filesystem) && host_next_word(&line, &mount->source) &&
           mount->point.bytes[0] == '/';
}

/* One byte of a mount point; blanks and backslashes are written as three octal digits. */
static char point_byte(struct host_text *point)
{
    const char *at = point->bytes;
    size_t taken = 1;
    char byte = at[0];
    if (byte == '\\' && point->count >= 4 && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' &&
        at[2] <= '7' && at[3] >= '0' && at[3] <= '7') {
        byte = (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0'));
        taken = 4;
    }
    *point = (struct host_text){at + taken, point->count - taken};
    return byte;
}

size_t host_mount_covers(struct host_text point, const char *path)
{
    size_t length = 0;
    if (host_text_is(point, "/"))
        return path[0] == '/';
    while (point.count > 0) {
        if (path[length] == '\0' || point_byte(&point) != path[length])
            return 0;
        length++;
    }
    return path[length] == '/' || path[length] == '\0' ? length : 0;
}
