/* SPDX-License-Identifier: Apache-2.0
 *
 * Majorities against a dumb twin that sorts, and against published cases when they are at hand.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "consensus/raft.h"

enum { VOTERS_MAX = 9 };

static uint64_t random_state = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Sorted, the entry that a majority (itself and all above) has reached. */
static uint64_t twin_commit(const uint64_t *match, size_t voters)
{
    uint64_t sorted[VOTERS_MAX];

    if (voters == 0)
        return UINT64_MAX;
    memcpy(sorted, match, voters * sizeof(sorted[0]));
    qsort(sorted, voters, sizeof(sorted[0]), ascending);
    return sorted[voters - (voters / 2 + 1)];
}

/* Tries every way in which the missing votes could turn out. */
static enum raft_vote_result twin_vote(const uint8_t *votes, size_t voters)
{
    bool can_win = false, can_lose = false;

    for (unsigned fill = 0; fill < 1u << voters; fill++) {
        size_t yes = 0;
        for (size_t i = 0; i < voters; i++)
            yes += votes[i] == 1 || (votes[i] == 0 && (fill >> i & 1) != 0);
        if (2 * yes > voters || voters == 0)
            can_win = true;
        else
            can_lose = true;
    }
    return !can_lose ? RAFT_VOTE_WON : can_win ? RAFT_VOTE_PENDING : RAFT_VOTE_LOST;
}

Test(raft_quorum, commit_equals_the_twins)
{
    for (int round = 0; round < 200000; round++) {
        uint64_t match[VOTERS_MAX];
        size_t voters = draw(VOTERS_MAX + 1);
        uint64_t span = round % 3 == 0 ? 4 : round % 3 == 1 ? 1000 : UINT64_MAX;
        for (size_t i = 0; i < voters; i++)
            match[i] = draw(span);
        cr_assert_eq(raft_quorum_commit(match, voters), twin_commit(match, voters));
    }
}

Test(raft_quorum, vote_equals_the_twins)
{
    uint8_t votes[VOTERS_MAX];

    for (size_t voters = 0; voters <= VOTERS_MAX; voters++) {
        unsigned cases = 1;
        for (size_t i = 0; i < voters; i++)
            cases *= 3;
        for (unsigned number = 0; number < cases; number++) {
            unsigned rest = number;
            for (size_t i = 0; i < voters; i++, rest /= 3)
                votes[i] = (uint8_t)(rest % 3);
            cr_assert_eq(raft_quorum_vote(votes, voters), twin_vote(votes, voters));
        }
    }
}

Test(raft_quorum, edges)
{
    uint64_t edges[] = {UINT64_MAX, UINT64_MAX - 1, UINT32_MAX};

    cr_assert_eq(raft_quorum_commit(NULL, 0), UINT64_MAX);
    cr_assert_eq(raft_quorum_commit(edges, 3), UINT64_MAX - 1);
    cr_assert_eq(raft_quorum_commit(edges, 2), UINT64_MAX - 1);
    cr_assert_eq(raft_quorum_commit(edges, 1), UINT64_MAX);
    cr_assert_eq(raft_quorum_vote(NULL, 0), RAFT_VOTE_WON);
}

/* ---- published cases ------------------------------------------------------------------------- */

struct published {
    bool vote;
    size_t voters;
    uint64_t match[VOTERS_MAX];
    uint8_t votes[VOTERS_MAX];
};

/* "name=(a, b, _)": the words between the parentheses. */
static size_t words_of(const char *line, const char *name, char words[VOTERS_MAX][24])
{
    const char *at = strstr(line, name);
    size_t count = 0;

    if (at == NULL)
        return 0;
    for (at += strlen(name); *at != '\0' && *at != ')' && count < VOTERS_MAX; count++) {
        size_t bytes = strcspn(at += strspn(at, " ,("), " ,)");
        snprintf(words[count], sizeof(words[count]), "%.*s", (int)bytes, at);
        at += bytes;
        at += strspn(at, " ");
    }
    return count;
}

static bool parse_command(const char *line, struct published *published)
{
    char words[VOTERS_MAX][24];

    bool vote = strncmp(line, "vote", 4) == 0;

    if (!vote && strncmp(line, "committed", 9) != 0)
        return false;
    memset(published, 0, sizeof(*published));
    published->vote = vote;
    published->voters = words_of(line, published->vote ? "votes=(" : "idx=(", words);
    for (size_t i = 0; i < published->voters; i++) {
        published->match[i] = strtoull(words[i], NULL, 10); /* "_": 0 */
        published->votes[i] = words[i][0] == 'y' ? 1 : words[i][0] == 'n' ? 2 : 0;
    }
    return true;
}

static bool is_result(const char *line, bool vote)
{
    return vote ? strncmp(line, "Vote", 4) == 0
                : (line[0] >= '0' && line[0] <= '9') || strstr(line, "∞") != NULL;
}

static void check_result(const char *line, const struct published *published)
{
    static const char *const names[] = {"VotePending", "VoteWon", "VoteLost"};

    if (published->vote) {
        enum raft_vote_result result = raft_quorum_vote(published->votes, published->voters);
        cr_assert_eq(strncmp(line, names[result], strlen(names[result])), 0, "%s", line);
        return;
    }
    uint64_t expected = strstr(line, "∞") != NULL ? UINT64_MAX : strtoull(line, NULL, 10);
    cr_assert_eq(raft_quorum_commit(published->match, published->voters), expected,
                 "%s of %zu voters", line, published->voters);
}

static int check_published(const char *name)
{
    char path[512], line[512];
    struct published published;
    bool waiting = false;
    int checked = 0;

    snprintf(path, sizeof(path), "%s/%s", BELAY_QUORUM_CASES, name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fprintf(stderr, "SKIPPED: %s is not there\n", name);
        return -1;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        if (parse_command(line, &published)) {
            waiting = true;
        } else if (waiting && is_result(line, published.vote)) {
            check_result(line, &published);
            waiting = false;
            checked++;
        }
    }
    fclose(file);
    return checked;
}

Test(raft_quorum, published_cases)
{
    int commits = check_published("majority_commit.txt");
    int votes = check_published("majority_vote.txt");

    cr_assert(commits == -1 || commits >= 14, "%d", commits);
    cr_assert(votes == -1 || votes >= 20, "%d", votes);
}
