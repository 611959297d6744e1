/* SPDX-License-Identifier: Apache-2.0
 *
 * What must be true of any lock service, as far as this process sees it: while it holds a name
 * exclusively nobody else here holds it, and fencing tokens of a name rise.
 *
 * A lock counts as held from its grant's completion until its release is begun or its loss is
 * told. An exclusive grant must have a token above every earlier one's of that name; a shared one,
 * whose answer may be overtaken by another reader's, above every earlier exclusive one's.
 */
#ifndef BELAY_BENCH_CHECKS_H
#define BELAY_BENCH_CHECKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHECKS_TEXT_BYTES = 160 };

struct check_name {
    uint64_t token;           /* highest of any grant; 0 = none yet, or a system without tokens */
    uint64_t token_exclusive; /* highest of an exclusive one */
    uint32_t exclusive;       /* holders */
    uint32_t shared;
};

struct checks {
    struct check_name *names;
    uint64_t names_count;
    uint64_t doubled;              /* grants beside another holder that excludes them */
    uint64_t tokens_back;          /* tokens that did not rise */
    uint64_t empty_reads;          /* a linearizable query showed no holder of what is held here */
    char first[CHECKS_TEXT_BYTES]; /* the first violation, as a sentence */
};

/* Pages come into use as names do. False: no memory. */
bool checks_init(struct checks *checks, uint64_t names_count);
void checks_free(struct checks *checks);

void checks_granted(struct checks *checks, uint64_t name, bool shared, uint64_t token);
/* The release is begun, or the lock was lost. */
void checks_given_up(struct checks *checks, uint64_t name, bool shared);
/* A linearizable query, begun and answered while the name was held here all the time. */
void checks_read(struct checks *checks, uint64_t name, uint32_t holders);
uint64_t checks_violations(const struct checks *checks);

#endif
