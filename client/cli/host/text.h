/* SPDX-License-Identifier: Apache-2.0
 *
 * Parsers of what the kernel writes into /proc and /sys. Every one is total: any bytes, with or
 * without an end, NULs among them, give a fact or HOST_GARBLED. None allocates or keeps state.
 */
#ifndef BELAY_CLI_HOST_TEXT_H
#define BELAY_CLI_HOST_TEXT_H

#include "client/cli/host/facts.h"

/* Bytes without an end, a piece of a file. */
struct host_text {
    const char *bytes;
    size_t count;
};

struct host_text host_text_of(const char *text); /* of a string */
bool host_text_is(struct host_text text, const char *word);
struct host_text host_text_trim(struct host_text text);

/* Takes the first line off *rest, without its end; false when there is none left. */
bool host_next_line(struct host_text *rest, struct host_text *line);

/* Takes the first word (what blanks and tabs part) off *rest; false when there is none left. */
bool host_next_word(struct host_text *rest, struct host_text *word);

/* Decimal with an optional minus, and nothing else but white space around it. */
struct host_number host_parse_number(struct host_text text);

/* "6.1.0-18-amd64": HOST_RELEASE(6, 1). */
struct host_number host_parse_release(struct host_text text);

/* One word of printable ASCII that fits; longer ones and others are garbled. */
struct host_word host_parse_word(struct host_text text);

/* "always [madvise] never": the word in brackets. */
struct host_word host_parse_choice(struct host_text text);

/* "0-3,8", also "all", "N" for the last and "0-31:2/4" for 2 of every 4, as the kernel's command
 * line has them. An empty list is an empty set. */
struct host_set host_parse_cpus(struct host_text text);

/* "ff,00000003": hexadecimal words, the highest first. */
struct host_set host_parse_mask(struct host_text text);

/* /proc/cmdline. Of a parameter that is given twice the last counts, as for the kernel. */
void host_parse_cmdline(struct host_text text, struct host_cmdline *cmdline);

/* /proc/meminfo's lines that facts.h names. A line that is missing leaves HOST_GARBLED. */
void host_parse_meminfo(struct host_text text, struct host_memory *memory);

/* /proc/PID/limits: the soft limits of locked memory and open files. */
void host_parse_limits(struct host_text text, struct host_memory *memory);

/* One row of /proc/interrupts, of a table of `cpus_count` columns: the number and the name of an
 * interrupt that a device has; false for the others ("LOC:" and such) and for anything else. */
bool host_parse_interrupt(struct host_text line, size_t cpus_count, uint32_t *number,
                          struct host_text *name);

/* The heading of /proc/interrupts: how many columns there are, 0 = this is no heading. */
size_t host_parse_interrupts_heading(struct host_text line);

/* One line of /proc/PID/mountinfo. The texts point into the line; the mount point may have escapes
 * (\040), which host_mount_covers() understands. False: it is none. */
struct host_mount {
    struct host_text device; /* "259:2" */
    struct host_text point;
    struct host_text filesystem;
    struct host_text source;
};
bool host_parse_mount(struct host_text line, struct host_mount *mount);

/* How many bytes of the absolute `path` the mount point covers, 0 = it is not below it. */
size_t host_mount_covers(struct host_text point, const char *path);

#endif
