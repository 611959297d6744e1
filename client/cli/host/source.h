/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the facts of a machine come from: its files, by paths relative to a root ("proc/cmdline").
 * The collector reads only through this, so a test or a fuzzer can be a machine.
 */
#ifndef BELAY_CLI_HOST_SOURCE_H
#define BELAY_CLI_HOST_SOURCE_H

#include "client/cli/host/facts.h"
#include "client/cli/host/text.h"

struct host_source {
    void *context;
    /* The whole file, valid until the next call of any of these. */
    enum host_state (*read)(void *context, const char *path, struct host_text *text);
    /* The last part of what a symbolic link points to ("vfio-pci"). HOST_MISSING: no such link. */
    enum host_state (*link)(void *context, const char *path, char name[HOST_WORD_BYTES]);
    /* Calls `each` with every name in a directory, but for "." and "..". `each` may use the other
     * functions. */
    enum host_state (*list)(void *context, const char *path,
                            void (*each)(void *taker, const char *name), void *taker);
};

struct host_request {
    bool cores_given;
    struct host_cpus cores;
    const char *device;   /* PCI address or interface, NULL = none */
    const char *data_dir; /* absolute, NULL = none */
};

/* Fills in *facts, whatever the files hold. */
void host_collect(const struct host_source *source, const struct host_request *request,
                  struct host_facts *facts);

/* The files below the directory `root` ("/" for this machine). Links do not lead out of it; what
 * is no regular file is not read. False: there is no such directory (errno). */
struct host_root;
struct host_root *host_root_open(const char *root, struct host_source *source);
void host_root_close(struct host_root *root);

#endif
