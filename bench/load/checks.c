/* SPDX-License-Identifier: Apache-2.0
 *
 * See checks.h.
 */
#include "bench/load/checks.h"

#include <assert.h>
#include <stdio.h>
#include <sys/mman.h>

bool checks_init(struct checks *checks, uint64_t names_count)
{
    void *names = mmap(NULL, names_count * sizeof(struct check_name), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    *checks = (struct checks){0};
    if (names == MAP_FAILED)
        return false;
    checks->names = names;
    checks->names_count = names_count;
    return true;
}

void checks_free(struct checks *checks)
{
    if (checks->names)
        (void)munmap(checks->names, checks->names_count * sizeof(struct check_name));
    checks->names = NULL;
}

static bool is_first(const struct checks *checks)
{
    return checks->first[0] == 0;
}

static void check_token(struct checks *checks, uint64_t number, bool shared, uint64_t token)
{
    struct check_name *name = &checks->names[number];
    uint64_t above = shared ? name->token_exclusive : name->token;

    if (token != 0 && token <= above) {
        checks->tokens_back++;
        if (is_first(checks))
            (void)snprintf(checks->first, sizeof checks->first,
                           "name %llu: token %llu was granted after token %llu",
                           (unsigned long long)number, (unsigned long long)token,
                           (unsigned long long)above);
    }
    if (token > name->token)
        name->token = token;
    if (!shared && token > name->token_exclusive)
        name->token_exclusive = token;
}

void checks_granted(struct checks *checks, uint64_t number, bool shared, uint64_t token)
{
    struct check_name *name = &checks->names[number];

    assert(number < checks->names_count);
    if (name->exclusive > 0 || (!shared && name->shared > 0)) {
        checks->doubled++;
        if (is_first(checks))
            (void)snprintf(checks->first, sizeof checks->first,
                           "name %llu: granted %s (token %llu) while held here by %u exclusive "
                           "and %u shared holders",
                           (unsigned long long)number, shared ? "shared" : "exclusively",
                           (unsigned long long)token, name->exclusive, name->shared);
    }
    check_token(checks, number, shared, token);
    if (shared)
        name->shared++;
    else
        name->exclusive++;
}

void checks_given_up(struct checks *checks, uint64_t number, bool shared)
{
    struct check_name *name = &checks->names[number];
    uint32_t *holders = shared ? &name->shared : &name->exclusive;

    assert(number<checks->names_count && * holders> 0);
    --*holders;
}

void checks_read(struct checks *checks, uint64_t number, uint32_t holders)
{
    if (holders > 0)
        return;
    checks->empty_reads++;
    if (is_first(checks))
        (void)snprintf(checks->first, sizeof checks->first,
                       "name %llu: held here, and a linearizable query showed no holder",
                       (unsigned long long)number);
}

uint64_t checks_violations(const struct checks *checks)
{
    return checks->doubled + checks->tokens_back + checks->empty_reads;
}
