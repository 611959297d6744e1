/* SPDX-License-Identifier: Apache-2.0
 *
 * A bounded single-producer single-consumer ring of fixed-size messages between two threads: how
 * workers hand datagrams to each other, and how the management plane talks to workers.
 */
#ifndef BELAY_HW_MAILBOX_H
#define BELAY_HW_MAILBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mailbox;

/* capacity: a power of two. memory: 64-byte aligned, mailbox_memory_bytes() long. */
size_t mailbox_memory_bytes(uint32_t capacity, uint32_t message_bytes);
struct mailbox *mailbox_init(void *memory, uint32_t capacity, uint32_t message_bytes);

/* Producer: space for one message or NULL (full); then publish it. */
void *mailbox_claim(struct mailbox *mailbox);
void mailbox_publish(struct mailbox *mailbox);

/* Consumer: the oldest message or NULL; then give its space back. */
const void *mailbox_peek(struct mailbox *mailbox);
void mailbox_drop(struct mailbox *mailbox);

#endif
