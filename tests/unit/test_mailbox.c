/* SPDX-License-Identifier: Apache-2.0
 *
 * A plain program: mailboxes alone and between two threads (to be run under ThreadSanitizer too).
 */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "hw/mailbox.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { CAPACITY = 8, MESSAGES = 300000 };

struct message {
    uint64_t number;
    uint64_t copies[10]; /* each equals number: a torn message shows */
};

static struct mailbox *make(uint32_t capacity, uint32_t message_bytes, void **memory)
{
    size_t bytes = (mailbox_memory_bytes(capacity, message_bytes) + 63) / 64 * 64;
    *memory = aligned_alloc(64, bytes);
    CHECK(*memory != NULL);
    return mailbox_init(*memory, capacity, message_bytes);
}

static void test_alone(void)
{
    void *memory;
    struct mailbox *mailbox = make(4, 5, &memory);
    CHECK(mailbox_peek(mailbox) == NULL);
    for (uint8_t lap = 0; lap < 5; lap++) {
        for (uint8_t i = 0; i < 4; i++) {
            uint8_t *space = mailbox_claim(mailbox);
            CHECK(space != NULL && (uintptr_t)space % 64 == 0);
            CHECK(space + 5 <= (uint8_t *)memory + mailbox_memory_bytes(4, 5));
            CHECK(mailbox_claim(mailbox) == space); /* claiming again changes nothing */
            space[4] = (uint8_t)(lap * 4 + i);
            mailbox_publish(mailbox);
        }
        CHECK(mailbox_claim(mailbox) == NULL);
        for (uint8_t i = 0; i < 4; i++) {
            const uint8_t *oldest = mailbox_peek(mailbox);
            CHECK(oldest != NULL && oldest[4] == lap * 4 + i);
            CHECK(mailbox_peek(mailbox) == oldest);
            mailbox_drop(mailbox);
            CHECK(mailbox_claim(mailbox) != NULL);
        }
        CHECK(mailbox_peek(mailbox) == NULL);
    }
    free(memory);
}

static void *produce(void *argument)
{
    struct mailbox *mailbox = argument;
    for (uint64_t number = 1; number <= MESSAGES;) {
        struct message *message = mailbox_claim(mailbox);
        if (message == NULL) {
            sched_yield();
            continue;
        }
        message->number = number;
        for (int i = 0; i < 10; i++)
            message->copies[i] = number;
        mailbox_publish(mailbox);
        number++;
    }
    return NULL;
}

static void test_between_threads(void)
{
    void *memory;
    struct mailbox *mailbox = make(CAPACITY, sizeof(struct message), &memory);
    pthread_t producer;
    CHECK(pthread_create(&producer, NULL, produce, mailbox) == 0);
    for (uint64_t number = 1; number <= MESSAGES;) {
        const struct message *message = mailbox_peek(mailbox);
        if (message == NULL) {
            sched_yield();
            continue;
        }
        CHECK(message->number == number);
        for (int i = 0; i < 10; i++)
            CHECK(message->copies[i] == number);
        mailbox_drop(mailbox);
        number++;
    }
    pthread_join(producer, NULL);
    CHECK(mailbox_peek(mailbox) == NULL);
    free(memory);
}

int main(void)
{
    test_alone();
    test_between_threads();
    return 0;
}
