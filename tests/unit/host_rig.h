/* SPDX-License-Identifier: Apache-2.0
 *
 * A machine in memory, from the text of tests/golden/host/NAME.root (tests/system/test_host.py says
 * what its lines are). A test changes it file by file. Of the lines only "==", "->", "//" and "!!"
 * are understood; what the others make is not there.
 */
#ifndef TESTS_HOST_RIG_H
#define TESTS_HOST_RIG_H

#include "client/cli/host/source.h"

enum { HOST_RIG_FILES_MAX = 512 };

struct host_rig_file {
    struct host_text path;
    struct host_text text; /* of a link: where it leads */
    uint8_t kind;          /* '=' file, '-' link, '/' directory */
    uint8_t state;         /* enum host_state, what reading it gives */
};

struct host_rig {
    size_t count;
    struct host_rig_file files[HOST_RIG_FILES_MAX];
};

/* The bytes stay the caller's and must outlive the rig. Further files are left out. */
void host_rig_load(struct host_rig *rig, struct host_text text);

/* Replaces the file or link, or adds a file. */
void host_rig_set(struct host_rig *rig, const char *path, const char *text);

/* What reading it gives from now on: HOST_MISSING, HOST_DENIED and so on; of a directory that holds
 * files, what listing it gives. */
void host_rig_break(struct host_rig *rig, const char *path, enum host_state state);

struct host_source host_rig_source(struct host_rig *rig);

#endif
