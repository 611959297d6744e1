/* SPDX-License-Identifier: Apache-2.0
 *
 * See targets.h. BELAY_BENCH_ETCD, _ZOOKEEPER and _REDIS come with the library of the drivers that
 * could be built.
 */
#include "bench/load/targets.h"

#include <string.h>

struct known {
    const char *name;
    const struct target_class *class; /* NULL = not built */
    const char *packages;
};

#ifdef BELAY_BENCH_ETCD
#define ETCD(class) (&(class))
#else
#define ETCD(class) NULL
#endif
#ifdef BELAY_BENCH_ZOOKEEPER
#define ZOOKEEPER(class) (&(class))
#else
#define ZOOKEEPER(class) NULL
#endif
#ifdef BELAY_BENCH_REDIS
#define REDIS(class) (&(class))
#else
#define REDIS(class) NULL
#endif

#define ETCD_PACKAGES "libgrpc-dev libprotobuf-c-dev protobuf-c-compiler"

static const struct known known[] = {
    {"belay", &target_belay, ""},
    {"etcd", ETCD(target_etcd), ETCD_PACKAGES},
    {"etcd-lock", ETCD(target_etcd_lock), ETCD_PACKAGES},
    {"zookeeper", ZOOKEEPER(target_zookeeper), "libzookeeper-mt-dev"},
    {"redis", REDIS(target_redis), "libhiredis-dev"},
    {"redlock", REDIS(target_redlock), "libhiredis-dev"},
};

enum { KNOWN = sizeof known / sizeof known[0] };

static void fail(const struct known *one, const char *text, char *error, size_t error_bytes)
{
    size_t used;

    if (one) {
        (void)snprintf(error, error_bytes,
                       "this belay-bench was built without its driver for %s: install %s "
                       "(script/packages lists them), configure and build again",
                       one->name, one->packages);
        return;
    }
    used = (size_t)snprintf(error, error_bytes,
                            "--target: expected SYSTEM:HOST:PORT,..., found \"%.60s\"; systems are",
                            text);
    for (unsigned i = 0; i < KNOWN && used < error_bytes; i++)
        used += (size_t)snprintf(error + used, error_bytes - used, "%s %s", i ? "," : "",
                                 known[i].name);
}

const struct target_class *targets_find(const char *text, const char **endpoints, char *error,
                                        size_t error_bytes)
{
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;

    for (unsigned i = 0; i < KNOWN; i++) {
        if (length == 0 || strlen(known[i].name) != length ||
            memcmp(known[i].name, text, length) != 0)
            continue;
        if (!known[i].class)
            fail(&known[i], text, error, error_bytes);
        *endpoints = colon + 1;
        return known[i].class;
    }
    fail(NULL, text, error, error_bytes);
    return NULL;
}

void targets_list(FILE *out)
{
    for (unsigned i = 0; i < KNOWN; i++) {
        if (known[i].class)
            fprintf(out, "  %-12s %s\n", known[i].name, known[i].class->what);
        else
            fprintf(out, "  %-12s not built in: needs %s\n", known[i].name, known[i].packages);
    }
}
