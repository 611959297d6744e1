/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts allocations by thread, for a program that this is preloaded into (LD_PRELOAD). The counts
 * are in the file that BELAY_ALLOCATIONS names: pairs of 8 bytes, thread id and calls, in the order
 * in which threads first allocated.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS_MAX = 256, EARLY_BYTES = 65536 };

struct count {
    _Atomic uint64_t thread, calls;
};

static struct count unseen[THREADS_MAX]; /* until the file is there */
static struct count *counts = unseen;
static _Atomic uint32_t threads;
static _Thread_local uint32_t own; /* place + 1 */

static void count(void)
{
    if (own == 0) {
        uint32_t place = atomic_fetch_add(&threads, 1);
        own = (place < THREADS_MAX ? place : THREADS_MAX - 1) + 1;
        atomic_store(&counts[own - 1].thread, (uint64_t)syscall(SYS_gettid));
    }
    atomic_fetch_add_explicit(&counts[own - 1].calls, 1, memory_order_relaxed);
}

__attribute__((constructor)) static void open_file(void)
{
    const char *path = getenv("BELAY_ALLOCATIONS");
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof unseen) < 0)
        return;
    void *memory = mmap(NULL, sizeof unseen, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) {
        memcpy(memory, unseen, sizeof unseen);
        counts = memory;
    }
    (void)close(file);
}

/* dlsym() may allocate by itself before there is anything to hand on to. */
static void *early(size_t bytes)
{
    static _Alignas(16) uint8_t memory[EARLY_BYTES];
    static size_t used;
    size_t at = used;
    used += (bytes + 15) & ~(size_t)15;
    return used <= sizeof memory ? memory + at : NULL;
}

static void *next(const char *name)
{
    static _Thread_local int inside;
    if (inside)
        return NULL;
    inside = 1;
    void *found = dlsym(RTLD_NEXT, name);
    inside = 0;
    return found;
}

#define NEXT(name, type)                                                                           \
    static _Atomic(void *) cached;                                                                 \
    void *found = atomic_load_explicit(&cached, memory_order_relaxed);                             \
    if (found == NULL)                                                                             \
        atomic_store(&cached, found = next(#name));                                                \
    type function;                                                                                 \
    memcpy(&function, &found, sizeof function)

typedef void *allocate(size_t bytes);
typedef void *allocate_many(size_t number, size_t bytes);
typedef void *change(void *memory, size_t bytes);
typedef int allocate_at(void **memory, size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    NEXT(malloc, allocate *);
    count();
    return function == NULL ? early(bytes) : function(bytes);
}

void *calloc(size_t number, size_t bytes)
{
    NEXT(calloc, allocate_many *);
    count();
    return function == NULL ? early(number * bytes) : function(number, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    NEXT(realloc, change *);
    count();
    return function(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    NEXT(aligned_alloc, allocate_many *);
    count();
    return function(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    NEXT(posix_memalign, allocate_at *);
    count();
    return function(memory, alignment, bytes);
}
