/* SPDX-License-Identifier: Apache-2.0
 *
 * The write-access fence: why a deposed leader's one-sided write can do no harm.
 *
 * In message Raft a follower protects itself: it compares a message's term with its own and throws
 * the stale one away. With one-sided writes nobody is there to compare anything. The leader's
 * adapter puts bytes into the follower's log ring, and a completion tells the leader that they are
 * there; in memory durability that alone is a vote for the entry. The follower's processor sleeps
 * through all of it. So what stands between a leader that does not know yet that it was deposed and
 * the log of its former followers is one bit in the adapter: *may this queue pair write here?*
 *
 * The rules that are checked here (ARCHITECTURE.md; consensus/raft_election.c, raft_follower.c):
 *
 *   fence      before a replica accepts a higher term, votes or stands, it takes the write access
 *              back and WAITS until that is done. Done means: nothing lands any more, and all that
 *              the writer saw complete lies in the ring.
 *   takeover   then every valid entry found in the ring joins the log, and only then are logs
 *              compared. (The old leader may have counted such an entry, and nobody else knows it.)
 *   grant      access is given anew by an attach, to one leader, for one term, under one number.
 *              Both ends start with fresh queue pairs: a write posted under an older grant lands
 *              nowhere, its completion counts nowhere.
 *   attach     finds the highest common entry, cuts what conflicts above it, zeroes the window.
 *   checksum   bytes in the ring are an entry if they are whole and their chain fits the log's end.
 *
 * Each can be left out with -D (see the list below): then the search must find a way to lose what a
 * leader has counted as committed. tests/spin/check.py runs them all; docs/fence-model.md tells
 * what is left out of the model, and what was seen.
 *
 * Adapter and processor are separate processes. A write under way lands at any later moment, torn
 * first and whole afterwards, and completes at any moment after that, or never. Messages between
 * processors are never removed once sent: they come late, twice, in any order, or not at all.
 */

/* ---- bounds ---------------------------------------------------------------------------------- */

#define REPLICAS   3
#define CANDIDATES 2 /* replicas 0 and 1 stand; 2 only votes and stores */
#define LENGTH     2 /* entries of a log */
#ifndef TERMS
#define TERMS 3 /* a leader, one that deposes it, and the first one again */
#endif
#ifndef GRANTS
#define GRANTS 1 /* attaches of one leader to one follower within one term */
#endif
#define NEXT(l)   (((l) + 1) % REPLICAS) /* the other two */
#define BEYOND(l) (((l) + 2) % REPLICAS)
#define MAJORITY(bits) ((bits) == 3 || (bits) == 5 || (bits) == 6 || (bits) == 7)

/* ---- what can be left out -------------------------------------------------------------------- */

/* NO_FENCE        the term is accepted while the revocation is still on its way
 * NO_STAND_FENCE  the same for standing alone: the candidate's own ring stays open
 * KEEP_GRANT      a higher term closes nothing; the grant lives on until the next attach
 * NO_TAKEOVER     what the follower had not polled out of its ring before is not looked at
 * NO_RESET        an access right names a leader, not a grant: old writes fit the new one
 * NO_ZERO         the window keeps the bytes of entries that were cut
 * NO_CHECKSUM     a header that looks right will do
 * COUNT_POSTED    the leader counts a write when it has posted it
 */

/* With this, only an entry that is lost or changed is an error, and not yet what leads to it: a
 * write behind the fence, a count of what is not there. */
#ifdef LOSS_ONLY
#define EARLY(condition) skip
#else
#define EARLY(condition) assert(condition)
#endif

/* Is the model about anything? Each of these moments must be reachable: with -DREACH_... that is
 * denied, and the search must prove it wrong.
 *
 * REACH_TAKEOVER  closing a ring takes over an entry that the old leader has counted already
 * REACH_LATE      a leader counts a write to a follower that has gone on to a higher term
 * REACH_AGAIN     the first leader commits again two terms later, and another led in between
 */
#ifdef REACH_TAKEOVER
#define REACHED_TAKEOVER(condition) assert(!(condition))
#else
#define REACHED_TAKEOVER(condition) skip
#endif
#ifdef REACH_LATE
#define REACHED_LATE(condition) assert(!(condition))
#else
#define REACHED_LATE(condition) skip
#endif
#ifdef REACH_AGAIN
#define REACHED_AGAIN(condition) assert(!(condition))
#else
#define REACHED_AGAIN(condition) skip
#endif

/* ---- entries --------------------------------------------------------------------------------- */

/* A cell of the ring holds an entry as term and predecessor's term. That is what the checksum chain
 * comes to: index, term and everything before. An index and a term name an entry, for a term has
 * one leader and a leader writes an index once. */
#define BLANK               0
#define TORN                16 /* header and a part of the rest */
#define ENTRY(term, before) ((term) * 4 + (before))
#define TERM_OF(cell)       (((cell) % TORN) / 4)
#define BEFORE(cell)        ((cell) % 4)
#define WHOLE(cell)         ((cell) / TORN == 0)

/* ---- processors ------------------------------------------------------------------------------ */

#define FOLLOWER  0
#define CANDIDATE 1
#define LEADER    2

#define CLOSED   0
#define OPEN     1
#define REVOKING 2 /* asked for; writes land until it is done */

#define STAND 7 /* `pending`: otherwise the term to accept, 0 = nothing */

typedef Replica {
    unsigned term : 2;
    unsigned vote : 2; /* replica + 1; 0 = none */
    unsigned role : 2;
    unsigned votes : 3; /* candidate: bits of those that gave theirs */
    unsigned length : 2;
    unsigned access : 2;     /* to this ring */
    unsigned grant_term : 2; /* of the last grant; its leader is that term's */
    unsigned grant_number : 2;
    unsigned pending : 3; /* REVOKING: what waits for it */
    byte cell[LENGTH];    /* the ring; below `length` it is the log */
};
Replica replica[REPLICAS];

#define LAST_TERM(r) \
    (replica[r].length == 0 -> 0 : TERM_OF(replica[r].cell[replica[r].length - 1]))

/* What a vote compares (3.6.1): the term of the last entry, then the length. */
#define RANK(r) (LAST_TERM(r) * 4 + replica[r].length)

/* A vote request of r's term, of a candidate that is up to date. */
#define ASKED_BY(candidate, r) (said[replica[r].term].request[candidate] > RANK(r))

/* ---- messages -------------------------------------------------------------------------------- */

/* All that was said in a term. Said once, it can be heard for ever after. */
typedef Term {
    unsigned leader : 2;      /* replica + 1 */
    unsigned length : 2;      /* of the leader's log, which in its term only grows ... */
    unsigned commit : 2;      /* what heartbeats announce */
    byte cell[LENGTH];        /* ... and stays as it was when the term is over */
    byte request[CANDIDATES]; /* vote requests: the candidate's rank + 1 */
    byte attach[REPLICAS];    /* highest grant number asked of that follower */
    byte attached[REPLICAS];  /* its answer: number * 4 + entries in common */
};
Term said[TERMS + 1];

/* ---- adapters -------------------------------------------------------------------------------- */

/* The queue pair of a leader and a follower, as the leader set it up last. */
typedef Pair {
    unsigned term : 2;
    unsigned number : 2;
    unsigned posted : 2;    /* entries up to here were posted ... */
    unsigned landed : 2;    /* ... lie in the follower's ring ... */
    unsigned completed : 2; /* ... and are known to */
    unsigned bytes : 5;     /* of the write under way, as they were when it was posted */
    bit torn;               /* it has landed in part */
};
Pair pair[CANDIDATES * REPLICAS];

#define PAIR(leader, follower) pair[(leader) * REPLICAS + (follower)]

/* ---- what must hold -------------------------------------------------------------------------- */

byte final[LENGTH];    /* entries that some replica took for committed; BLANK = none yet */
byte final_term[LENGTH]; /* in which a leader counted them */

/* For use inside of one step: no part of the state. (A breadth-first search wants that, too.) */
#ifdef SHORTEST
byte k, n;
#else
hidden byte k, n;
#endif

/* State machine safety (3.6.3): an entry is committed once and stays what it was. */
inline settle(cell_, index_, term_)
{
    assert(final[index_] == BLANK || final[index_] == cell_); /* state machine safety */
    if
    :: final[index_] == BLANK -> final_term[index_] = term_
    :: else
    fi;
    final[index_] = cell_
}

/* A follower that was attached in this term may hear at any moment what its leader has committed,
 * and applies as much of it as its log is long. So that much must be right at every moment. */
#define APPLIES(r, i) \
    (replica[r].role != LEADER && replica[r].term != 0 && \
     replica[r].grant_term == replica[r].term && \
     (i) < replica[r].length && (i) < said[replica[r].term].commit)

#define IS_RIGHT(r) \
    ((!APPLIES(r, 0) || replica[r].cell[0] == final[0]) && \
     (!APPLIES(r, 1) || replica[r].cell[1] == final[1]))

#define CHECK_APPLIED assert(IS_RIGHT(0) && IS_RIGHT(1) && IS_RIGHT(2)) /* what followers apply */

/* What was committed in a term is not cut in it, nor in a later one. */
#define MAY_CUT(r, i) \
    ((i) >= replica[r].length || final[i] == BLANK || final_term[i] > replica[r].term || \
     final[i] != replica[r].cell[i])

/* Leader completeness: whoever is elected holds all that was counted in terms before its own. (The
 * election of an older term may be known late, by a winner that was overtaken meanwhile.) */
#define KEEPS(r, i) \
    (final[i] == BLANK || final_term[i] >= replica[r].term || \
     (i < replica[r].length && replica[r].cell[i] == final[i]))

/* ---- the log and the ring -------------------------------------------------------------------- */

#ifdef NO_CHECKSUM
#define FITS(r, c) (TERM_OF(c) != 0)
#else
#define FITS(r, c) (TERM_OF(c) != 0 && WHOLE(c) && BEFORE(c) == LAST_TERM(r))
#endif

#define LANDED(r) \
    (replica[r].length < LENGTH && FITS(r, replica[r].cell[replica[r].length % LENGTH]))

inline take_over(r)
{
    do
    :: LANDED(r) ->
        REACHED_TAKEOVER(final[replica[r].length] == replica[r].cell[replica[r].length]);
        printf("%d: takes over entry %d of term %d\n", r, replica[r].length,
               TERM_OF(replica[r].cell[replica[r].length]));
        replica[r].length++
    :: else -> break
    od
}

inline zero_window(r)
{
    k = replica[r].length;
    do
    :: k < LENGTH -> replica[r].cell[k] = BLANK; k++
    :: else -> break
    od
}

inline append(r)
{
    printf("%d: appends entry %d of term %d\n", r, replica[r].length, replica[r].term);
    replica[r].cell[replica[r].length] = ENTRY(replica[r].term, LAST_TERM(r));
    said[replica[r].term].cell[replica[r].length] = replica[r].cell[replica[r].length];
    replica[r].length++;
    said[replica[r].term].length = replica[r].length
}

/* ---- commit ---------------------------------------------------------------------------------- */

#if defined(COUNT_POSTED)
#define COUNTED(l, f) (PAIR(l, f).term == replica[l].term -> PAIR(l, f).posted : 0)
#else
#define COUNTED(l, f) (PAIR(l, f).term == replica[l].term -> PAIR(l, f).completed : 0)
#endif

#define HOLDS(f, l, i) (replica[f].cell[i] == replica[l].cell[i])

/* The leader itself and one completed write are a majority. Only entries of its own term are
 * committed by counting, older ones with them (3.6.2). */
inline advance(l)
{
    n = 0; /* the highest index that somebody else holds */
    k = 0;
    do
    :: k < REPLICAS ->
        if
        :: k != l && COUNTED(l, k) > n -> n = COUNTED(l, k)
        :: else
        fi;
        k++
    :: else -> break
    od;
    if
    :: n > said[replica[l].term].commit && n <= replica[l].length &&
       TERM_OF(replica[l].cell[n - 1]) == replica[l].term ->
        REACHED_AGAIN(replica[l].term == 3 && said[1].leader == l + 1 && said[2].leader != 0 &&
                      said[2].leader != l + 1);
        EARLY(HOLDS(NEXT(l), l, n - 1) || HOLDS(BEYOND(l), l, n - 1)); /* counted: is there */
        do
        :: said[replica[l].term].commit < n ->
            settle(replica[l].cell[said[replica[l].term].commit], said[replica[l].term].commit,
                   replica[l].term);
            printf("%d: COMMITS entry %d\n", l, said[replica[l].term].commit);
            said[replica[l].term].commit++
        :: else -> break
        od;
        CHECK_APPLIED
    :: else
    fi;
    n = 0;
    k = 0
}

/* ---- terms ----------------------------------------------------------------------------------- */

/* What nobody can act on any more is forgotten: it would only multiply the states. */
inline forget()
{
    n = replica[0].term;
    if :: replica[1].term < n -> n = replica[1].term :: else fi;
    if :: replica[2].term < n -> n = replica[2].term :: else fi;
    do
    :: n > 1 ->
        n--;
        k = 0;
        do
        :: k < REPLICAS ->
            if :: k < CANDIDATES -> said[n].request[k] = 0 :: else fi;
            said[n].attach[k] = 0;
            said[n].attached[k] = 0;
            k++
        :: else -> break
        od;
        k = 0;
        do
        :: k < LENGTH -> said[n].cell[k] = BLANK; k++
        :: else -> break
        od;
        said[n].length = 0;
        said[n].commit = 0
    :: else -> break
    od;
    n = 0;
    k = 0
}

/* A queue pair with nothing under way, of a leadership that is over. */
inline forget_pair(l, f)
{
    if
    :: (replica[l].role != LEADER || PAIR(l, f).term != replica[l].term) &&
       PAIR(l, f).posted == PAIR(l, f).landed ->
        PAIR(l, f).term = 0;
        PAIR(l, f).number = 0;
        PAIR(l, f).posted = 0;
        PAIR(l, f).landed = 0;
        PAIR(l, f).completed = 0
    :: else
    fi
}

inline forget_pairs(l)
{
    if
    :: l < CANDIDATES ->
        k = 0;
        do
        :: k < REPLICAS ->
            if :: k != l -> forget_pair(l, k) :: else fi;
            k++
        :: else -> break
        od;
        k = 0
    :: else
    fi
}

inline forget_grant(r)
{
    if
    :: replica[r].access == CLOSED ->
        replica[r].grant_term = 0;
        replica[r].grant_number = 0
    :: else
    fi
}

inline accept(r, term_)
{
    forget_grant(r);
    replica[r].term = term_;
    replica[r].vote = 0;
    replica[r].votes = 0;
    replica[r].role = FOLLOWER;
    printf("%d: accepts term %d\n", r, replica[r].term);
    forget_pairs(r);
    forget()
}

inline stand(r)
{
    forget_grant(r);
    replica[r].term++;
    replica[r].vote = r + 1;
    replica[r].votes = 1 << r;
    replica[r].role = CANDIDATE;
    said[replica[r].term].request[r] = RANK(r) + 1;
    printf("%d: stands in term %d with a log of %d\n", r, replica[r].term, replica[r].length);
    forget_pairs(r);
    forget()
}

inline revoke(r, why)
{
    printf("%d: begins to close its ring\n", r);
    replica[r].access = REVOKING;
    replica[r].pending = why
}

/* ---- a leader and its followers -------------------------------------------------------------- */

#define IS_CONNECTED(l, f) \
    (PAIR(l, f).term == replica[l].term && \
     PAIR(l, f).number == said[replica[l].term].attach[f])

#define IS_GRANTED(l, f) \
    (replica[l].role == LEADER && \
     said[replica[l].term].attached[f] / 4 == said[replica[l].term].attach[f])

#define HAS_ANSWERED(l, f) (IS_GRANTED(l, f) && !IS_CONNECTED(l, f))
#define MAY_ATTACH(l, f)   (IS_GRANTED(l, f) && said[replica[l].term].attach[f] < GRANTS)

inline connect(l, f)
{
    printf("%d: may write to %d\n", l, f);
    PAIR(l, f).term = replica[l].term;
    PAIR(l, f).number = said[replica[l].term].attach[f];
    PAIR(l, f).posted = said[replica[l].term].attached[f] % 4;
    PAIR(l, f).landed = PAIR(l, f).posted;
    PAIR(l, f).completed = PAIR(l, f).posted;
    PAIR(l, f).bytes = BLANK;
    PAIR(l, f).torn = false;
    advance(l)
}

/* One under way at a time to each follower: queue pairs keep their order. */
#define MAY_POST(l, f) \
    (replica[l].role == LEADER && IS_CONNECTED(l, f) && \
     PAIR(l, f).posted == PAIR(l, f).landed && PAIR(l, f).posted < replica[l].length)

inline post(l, f)
{
    printf("%d: posts entry %d to %d\n", l, PAIR(l, f).posted, f);
    PAIR(l, f).bytes = replica[l].cell[PAIR(l, f).posted];
    PAIR(l, f).posted++;
#ifdef COUNT_POSTED
    advance(l)
#else
    skip
#endif
}

/* ---- a processor ----------------------------------------------------------------------------- */

#define me _pid

active [REPLICAS] proctype Processor()
{
end:
    do
    /* The election timeout, or a leader's order: not before the own ring is closed. A leader that
     * nobody answers steps down and may stand again, too. The first to stand is 0 (candidates are
     * alike); 1 stands only after it has heard of that. */
    :: atomic {
        me < CANDIDATES && replica[me].access != REVOKING && replica[me].term < TERMS &&
        (me == 0 || replica[me].term > 0) ->
        if
#if !defined(NO_FENCE) && !defined(NO_STAND_FENCE) && !defined(KEEP_GRANT)
        :: replica[me].access == OPEN -> revoke(me, STAND)
        :: else -> stand(me)
#elif defined(KEEP_GRANT)
        :: stand(me)
#else
        :: replica[me].access == OPEN -> revoke(me, 0); stand(me)
        :: else -> stand(me)
#endif
        fi
    }

    /* Any message of a higher term (a vote request, an attach, a heartbeat, a refusal). */
    :: atomic {
        replica[me].access != REVOKING &&
        (replica[0].term > replica[me].term || replica[1].term > replica[me].term) ->
        if
        :: replica[0].term > replica[me].term -> n = replica[0].term
        :: replica[1].term > replica[me].term -> n = replica[1].term
        fi;
        if
#if defined(KEEP_GRANT)
        :: accept(me, n)
#elif defined(NO_FENCE)
        :: replica[me].access == OPEN -> revoke(me, 0); accept(me, n)
        :: else -> accept(me, n)
#else
        :: replica[me].access == OPEN -> revoke(me, n)
        :: else -> accept(me, n)
#endif
        fi;
        n = 0
    }

    /* The adapter reports: closed. Whatever waited for it goes on. */
    :: atomic {
        replica[me].access == REVOKING ->
        printf("%d: its ring is closed\n", me);
        replica[me].access = CLOSED;
#ifndef NO_TAKEOVER
        take_over(me);
        CHECK_APPLIED;
#endif
        n = replica[me].pending;
        replica[me].pending = 0;
        if
        :: n == STAND -> stand(me)
        :: n != STAND && n > replica[me].term -> accept(me, n)
        :: else
        fi;
        n = 0
    }

    /* A vote, of the own term by now. */
    :: atomic {
#if !defined(NO_FENCE) && !defined(KEEP_GRANT)
        replica[me].access == CLOSED &&
#endif
        replica[me].vote == 0 && (ASKED_BY(0, me) || ASKED_BY(1, me)) ->
        if
        :: ASKED_BY(0, me) -> n = 0
        :: ASKED_BY(1, me) -> n = 1
        fi;
        replica[me].vote = n + 1;
        printf("%d: votes for %d in term %d\n", me, n, replica[me].term);
        if
        :: replica[n].role == CANDIDATE && replica[n].term == replica[me].term ->
            replica[n].votes = replica[n].votes | (1 << me)
        :: else
        fi;
        n = 0
    }

    /* Elected. The log is completed by an entry of the new term where there is room, and every
     * other replica is asked to open its ring. */
    :: atomic {
        replica[me].role == CANDIDATE && MAJORITY(replica[me].votes) ->
        printf("%d: LEADS term %d\n", me, replica[me].term);
        replica[me].role = LEADER;
        replica[me].votes = 0;
        assert(said[replica[me].term].leader == 0); /* election safety */
        said[replica[me].term].leader = me + 1;
        assert(KEEPS(me, 0) && KEEPS(me, 1)); /* leader completeness */
        k = 0;
        do
        :: k < LENGTH && k < replica[me].length ->
            said[replica[me].term].cell[k] = replica[me].cell[k];
            k++
        :: else -> break
        od;
        said[replica[me].term].length = replica[me].length;
        if
        :: replica[me].length < LENGTH -> append(me)
        :: else
        fi;
        k = 0;
        do
        :: k < REPLICAS ->
            if :: k != me -> said[replica[me].term].attach[k] = 1 :: else fi;
            k++
        :: else -> break
        od;
        k = 0
    }

    /* A proposal. */
    :: atomic {
        replica[me].role == LEADER && replica[me].length < LENGTH -> append(me)
    }

    /* An attach of this term's leader, once per number. */
    :: atomic {
#ifdef KEEP_GRANT
        replica[me].access != REVOKING &&
#else
        replica[me].access == CLOSED &&
#endif
        said[replica[me].term].leader != 0 && said[replica[me].term].leader != me + 1 &&
        said[replica[me].term].attach[me] >
            (replica[me].grant_term == replica[me].term -> replica[me].grant_number : 0) ->
        replica[me].role = FOLLOWER;
        replica[me].votes = 0;
        n = replica[me].length;
        if
        :: n > said[replica[me].term].length -> n = said[replica[me].term].length
        :: else
        fi;
        do
        :: n > 0 && TERM_OF(replica[me].cell[n - 1]) !=
                        TERM_OF(said[replica[me].term].cell[n - 1]) ->
            n--
        :: else -> break
        od;
        do
        :: n < replica[me].length ->
            assert(MAY_CUT(me, replica[me].length - 1)); /* nothing committed is cut */
            replica[me].length--
        :: else -> break
        od;
#ifndef NO_ZERO
        zero_window(me);
#endif
        printf("%d: keeps %d entries and opens its ring to %d\n", me, n,
               said[replica[me].term].leader - 1);
        replica[me].access = OPEN;
        replica[me].grant_term = replica[me].term;
        replica[me].grant_number = said[replica[me].term].attach[me];
        said[replica[me].term].attached[me] = replica[me].grant_number * 4 + n;
        n = 0;
        k = 0
    }

    /* A newer attach of the same leader: the old grant is closed first, like any other. */
    :: atomic {
        replica[me].access == OPEN && replica[me].grant_term == replica[me].term &&
        said[replica[me].term].attach[me] > replica[me].grant_number ->
        revoke(me, 0)
    }

    /* The leader hears that its attach was granted: the queue pair starts anew, and what is in
     * common is acknowledged with it. */
    :: atomic { HAS_ANSWERED(me, NEXT(me)) -> connect(me, NEXT(me)) }
    :: atomic { HAS_ANSWERED(me, BEYOND(me)) -> connect(me, BEYOND(me)) }

    /* A write. */
    :: atomic { MAY_POST(me, NEXT(me)) -> post(me, NEXT(me)) }
    :: atomic { MAY_POST(me, BEYOND(me)) -> post(me, BEYOND(me)) }

#if GRANTS > 1
    /* A follower that is not counted any more is attached anew: its writes failed, or seemed to. */
    :: atomic { MAY_ATTACH(me, NEXT(me)) -> said[replica[me].term].attach[NEXT(me)]++ }
    :: atomic { MAY_ATTACH(me, BEYOND(me)) -> said[replica[me].term].attach[BEYOND(me)]++ }
#endif

    /* A follower looks at its ring now and then, so that it has less to take over. */
    :: atomic { replica[me].access == OPEN && LANDED(me) ->
        printf("%d: takes entry %d out of its ring\n", me, replica[me].length);
        replica[me].length++;
        CHECK_APPLIED
    }
    od
}

/* ---- an adapter ------------------------------------------------------------------------------ */

/* The follower's adapter lets a write pass if its queue pair has the right to. */
#ifdef NO_RESET
#define MAY_LAND(l, f) \
    (replica[f].access != CLOSED && said[replica[f].grant_term].leader == (l) + 1)
#else
#define MAY_LAND(l, f) \
    (replica[f].access != CLOSED && replica[f].grant_term == PAIR(l, f).term && \
     replica[f].grant_number == PAIR(l, f).number)
#endif

#define from ((_pid - REPLICAS) / 2)
#define to   ((_pid - REPLICAS) % 2 == 0 -> 1 - from : 2)

/* From a leader to a follower. It knows neither roles nor terms nor logs. */
active [CANDIDATES * (REPLICAS - 1)] proctype Adapter()
{
end:
    do
    :: atomic {
        PAIR(from, to).posted > PAIR(from, to).landed && MAY_LAND(from, to) ->
        EARLY(replica[to].term <= PAIR(from, to).term); /* nothing lands behind the fence */
        /* Short writes carry their bytes; longer ones are read from the leader's ring only when
         * they are sent, and who knows what is there by then. */
        if
        :: !PAIR(from, to).torn ->
            if
            :: true
            :: PAIR(from, to).bytes = replica[from].cell[PAIR(from, to).landed]
            fi;
            printf("    entry %d of term %d lands in part in %d\n", PAIR(from, to).landed,
                   TERM_OF(PAIR(from, to).bytes), to);
            PAIR(from, to).torn = true;
            replica[to].cell[PAIR(from, to).landed] = TORN + PAIR(from, to).bytes % TORN
        :: PAIR(from, to).torn ->
            printf("    entry %d of term %d has landed in %d\n", PAIR(from, to).landed,
                   TERM_OF(PAIR(from, to).bytes), to);
            PAIR(from, to).torn = false;
            replica[to].cell[PAIR(from, to).landed] = PAIR(from, to).bytes;
            PAIR(from, to).bytes = BLANK;
            PAIR(from, to).landed++;
            forget_pair(from, to)
        fi
    }

    /* The completion. It counts if the leader still believes that it leads. */
    :: atomic {
        PAIR(from, to).landed > PAIR(from, to).completed && replica[from].role == LEADER &&
        PAIR(from, to).term == replica[from].term ->
        REACHED_LATE(replica[to].term > replica[from].term);
        printf("%d: entry %d of %d is there\n", from, PAIR(from, to).completed, to);
        PAIR(from, to).completed++;
        advance(from)
    }

    /* It bounced, or the network gave up: unknown to the leader, and nothing more will land. */
    :: atomic {
        PAIR(from, to).posted > PAIR(from, to).landed && !MAY_LAND(from, to) ->
        printf("    entry %d bounces off %d\n", PAIR(from, to).landed, to);
        PAIR(from, to).posted = PAIR(from, to).landed;
        PAIR(from, to).bytes = BLANK;
        PAIR(from, to).torn = false;
        forget_pair(from, to)
    }
    od
}
