/* SPDX-License-Identifier: Apache-2.0
 *
 * The journal: structured log lines on standard error, one write(2) each, whole even with several
 * threads. Text for people ("12.345678 info event=role worker=0 shard=3 role=leader term=7"), JSON
 * for machines. Never on the request path; a line costs a system call.
 */
#ifndef BELAY_HW_JOURNAL_H
#define BELAY_HW_JOURNAL_H

#include <stdbool.h>

enum journal_level { JOURNAL_DEBUG, JOURNAL_INFO, JOURNAL_WARN, JOURNAL_ERROR };
enum journal_format { JOURNAL_TEXT, JOURNAL_JSON };

/* Once, before threads start. */
void journal_setup(enum journal_level least, enum journal_format format);

bool journal_enabled(enum journal_level level);

/* `event`: a fixed lower-case word. `format`: printf-style "key=value key=value" pairs; values with
 * spaces are put in double quotes by the caller (key=\"%s\"). The JSON form splits the same pairs.
 * Lines beyond 1,024 bytes are cut. Any thread. */
__attribute__((format(printf, 3, 4))) void
journal_write(enum journal_level level, const char *event, const char *format, ...);

#endif
