/* SPDX-License-Identifier: Apache-2.0
 *
 * A history: what clients asked for and were told, as operations with a place where they begin and
 * one where they end. Made from files of several formats; docs/lincheck.md describes them.
 */
#ifndef TESTS_LINCHECK_HISTORY_H
#define TESTS_LINCHECK_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/lincheck/datum.h"
#include "tests/lincheck/intern.h"

enum history_format { FORMAT_AUTO, FORMAT_JEPSEN, FORMAT_EDN, FORMAT_JSON };

enum model_kind {
    MODEL_REGISTER,
    MODEL_KV,
    MODEL_MUTEX,
    MODEL_REENTRANT_MUTEX,
    MODEL_FENCED_MUTEX,
    MODEL_SHARED_LOCK,
    MODEL_SEMAPHORE,
};

enum op_kind { OP_NONE, OP_READ, OP_WRITE, OP_APPEND, OP_CAS, OP_ACQUIRE, OP_RELEASE, OP_CONVERT };
enum op_mode { OP_MODE_NONE, OP_SHARED, OP_EXCLUSIVE };

/* By whom an operation on a lock counts as made. */
enum owner_rule {
    OWNER_AUTO, /* OWNER_ANY for a mutex in EDN or Jepsen's text (Knossos' mutex), else PROCESS */
    OWNER_PROCESS, /* the event's owner if it names one, else its process */
    OWNER_ANY,     /* anybody may release what anybody acquired */
};

/* What a compare-and-set that ended as :fail says. */
enum failed_cas_rule {
    FAILED_CAS_AUTO,    /* as Knossos does for EDN: IGNORE; else OBSERVE */
    FAILED_CAS_OBSERVE, /* the comparison was made and did not match, unless it bears an error */
    FAILED_CAS_IGNORE,  /* nothing */
};

#define POSITION_NEVER UINT32_MAX

/* Values, keys and owners are references into the history's table of canonical texts. */
struct history_op {
    int64_t process;
    uint64_t token;                  /* meaningful if token_known */
    uint32_t call_at, return_at;     /* places in the order of events; return_at may be NEVER */
    uint32_t call_line, return_line; /* return_line: 0 if no answer is in the file */
    uint32_t key, owner;
    uint32_t value; /* read: what came back; write, append: what went in; cas: what must be there */
    uint32_t value_to; /* cas: what is there afterwards */
    uint32_t permits;  /* semaphore: how many, at least 1 */
    uint32_t holders;  /* query of a lock: how many there were */
    uint8_t kind;      /* enum op_kind */
    uint8_t mode;      /* enum op_mode */
    bool token_known;
    bool mismatch; /* cas: seen not to match; changes nothing */
};

struct history_options {
    enum history_format format;
    enum model_kind model;
    enum owner_rule owners;
    enum failed_cas_rule failed_cas;
    bool independent; /* each value is [key value], as jepsen.independent writes them */
};

struct history {
    struct budget *budget;
    struct intern texts;
    struct history_op *ops; /* by key in order of first appearance, then by call_at */
    size_t ops_count, ops_capacity;
    size_t failed_count;  /* operations that ended as :fail and therefore had no effect */
    size_t skipped_count; /* events of no client: nemesis, log lines of other kinds */
    enum history_format format;
    uint32_t nil, empty; /* the texts nil and "" */
};

void history_init(struct history *history, struct budget *budget);
void history_free(struct history *history);

/* 0; -EBADMSG: the bytes are no history of this model, error says why; -ENOMEM: over budget. */
int history_read(struct history *history, const struct history_options *options, const char *bytes,
                 size_t length_bytes, struct parse_error *error);

/* FORMAT_AUTO if the beginning looks like no format. */
enum history_format history_detect(const char *bytes, size_t length_bytes);

const char *model_name(enum model_kind model);
/* 0 or -EINVAL. */
int model_by_name(const char *name, enum model_kind *model);
bool model_is_lock(enum model_kind model);

#endif
