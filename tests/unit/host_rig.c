/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/host_rig.h"

#include <string.h>

static bool same(struct host_text path, const char *wanted)
{
    return host_text_is(path, wanted);
}

/* Later files hide earlier ones of the same path. */
static struct host_rig_file *find(struct host_rig *rig, const char *path)
{
    for (size_t i = rig->count; i > 0; i--)
        if (same(rig->files[i - 1].path, path))
            return &rig->files[i - 1];
    return NULL;
}

static struct host_rig_file *add(struct host_rig *rig, struct host_text path, uint8_t kind)
{
    static struct host_rig_file left_out;
    struct host_rig_file *file =
        rig->count < HOST_RIG_FILES_MAX ? &rig->files[rig->count++] : &left_out;
    *file = (struct host_rig_file){.path = path, .text = {"", 0}, .kind = kind};
    file->state = HOST_KNOWN;
    return file;
}

static bool starts(struct host_text line, const char *mark)
{
    return line.count > 3 && memcmp(line.bytes, mark, 3) == 0;
}

void host_rig_load(struct host_rig *rig, struct host_text text)
{
    static const char *const marks[] = {"== ", "-> ", "// ", "!! ", "~~ ", "** ", "%% ", "? -"};
    struct host_text line, target;
    struct host_rig_file *file = NULL;
    rig->count = 0;
    while (host_next_line(&text, &line)) {
        size_t mark = 0;
        while (mark < 8 && !starts(line, marks[mark]))
            mark++;
        if (mark == 8) {
            if (file && file->kind == '=' && file->state == HOST_KNOWN) {
                /* Lines of one file lie one behind the other: its text only grows. */
                file->text.bytes = file->text.count == 0 ? line.bytes : file->text.bytes;
                file->text.count = (size_t)(line.bytes + line.count - file->text.bytes);
            }
            continue;
        }
        struct host_text rest = {line.bytes + 3, line.count - 3}, path;
        file = NULL;
        if (!host_next_word(&rest, &path) || mark > 3)
            continue;
        file = add(rig, path, (uint8_t)(mark == 3 ? '=' : marks[mark][0]));
        if (mark == 1 && host_next_word(&rest, &target))
            file->text = target;
        if (mark == 3)
            file->state = HOST_FAILED;
    }
}

void host_rig_set(struct host_rig *rig, const char *path, const char *text)
{
    struct host_rig_file *file = find(rig, path);
    if (!file)
        file = add(rig, host_text_of(path), '=');
    file->text = host_text_of(text);
    file->state = HOST_KNOWN;
}

void host_rig_break(struct host_rig *rig, const char *path, enum host_state state)
{
    struct host_rig_file *file = find(rig, path);
    if (!file)
        file = add(rig, host_text_of(path), '/');
    file->state = (uint8_t)state;
}

static enum host_state rig_read(void *context, const char *path, struct host_text *text)
{
    struct host_rig_file *file = find(context, path);
    if (!file || file->kind != '=')
        return file ? HOST_FAILED : HOST_MISSING;
    *text = file->text;
    return (enum host_state)file->state;
}

static enum host_state rig_link(void *context, const char *path, char name[HOST_WORD_BYTES])
{
    struct host_rig_file *file = find(context, path);
    if (!file || file->state != HOST_KNOWN || file->kind != '-')
        return !file ? HOST_MISSING : file->state != HOST_KNOWN ? file->state : HOST_GARBLED;
    struct host_text last = file->text;
    for (size_t i = 0; i < file->text.count; i++)
        if (file->text.bytes[i] == '/')
            last = (struct host_text){file->text.bytes + i + 1, file->text.count - i - 1};
    struct host_word word = host_parse_word(last);
    if (word.state == HOST_KNOWN)
        memcpy(name, word.text, sizeof word.text);
    return (enum host_state)word.state;
}

/* The part of a path that follows "DIRECTORY/", up to the next slash; empty = it is not below. */
static struct host_text child_of(struct host_text path, const char *directory)
{
    size_t length = strlen(directory), end = length + 1;
    if (path.count <= length + 1 || memcmp(path.bytes, directory, length) != 0 ||
        path.bytes[length] != '/')
        return (struct host_text){"", 0};
    while (end < path.count && path.bytes[end] != '/')
        end++;
    return (struct host_text){path.bytes + length + 1, end - length - 1};
}

static enum host_state rig_list(void *context, const char *path,
                                void (*each)(void *taker, const char *name), void *taker)
{
    struct host_rig *rig = context;
    struct host_rig_file *self = find(rig, path);
    bool any = self && self->kind == '/';
    char name[256];
    if (self && self->state != HOST_KNOWN)
        return (enum host_state)self->state;
    for (size_t i = 0; i < rig->count; i++) {
        struct host_text child = child_of(rig->files[i].path, path);
        bool seen =
            child.count == 0 || child.count >= sizeof name || rig->files[i].state == HOST_MISSING;
        for (size_t j = 0; j < i && !seen; j++) {
            struct host_text before = child_of(rig->files[j].path, path);
            seen = rig->files[j].state != HOST_MISSING && before.count == child.count &&
                   memcmp(before.bytes, child.bytes, child.count) == 0;
        }
        if (seen)
            continue;
        any = true;
        memcpy(name, child.bytes, child.count);
        name[child.count] = '\0';
        each(taker, name);
    }
    return any ? HOST_KNOWN : HOST_MISSING;
}

struct host_source host_rig_source(struct host_rig *rig)
{
    return (struct host_source){rig, rig_read, rig_link, rig_list};
}
