/* SPDX-License-Identifier: Apache-2.0
 *
 * Many acquires at once from one thread: start them all, then poll one descriptor.
 *
 *     BELAY_ENDPOINTS=127.0.0.1:7400 ./many
 */
#include <belay/belay.h>
#include <poll.h>
#include <stdio.h>

enum { LOCKS = 32, TAKE_MAX = 8 };

static size_t start_all(belay_client *client, belay_lock **locks)
{
    size_t started = 0;
    for (size_t i = 0; i < LOCKS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "many/%zu", i);
        belay_acquire_options wanted;
        belay_acquire_options_init(&wanted, name);
        wanted.try_only = true;
        belay_request *request = NULL;
        /* `user` comes back with the completion: here, where to put the lock. */
        if (belay_acquire_start(client, &wanted, &locks[i], &request) == BELAY_OK)
            started++;
    }
    return started;
}

static size_t finish_all(belay_client *client, size_t outstanding)
{
    size_t held = 0;
    struct pollfd waiting = {.fd = belay_client_fd(client), .events = POLLIN};
    while (outstanding > 0) {
        if (poll(&waiting, 1, -1) < 0)
            continue;
        belay_completion done[TAKE_MAX];
        size_t count = belay_client_take(client, done, TAKE_MAX);
        for (size_t i = 0; i < count; i++) {
            if (done[i].status == BELAY_OK) {
                belay_lock **place = done[i].user;
                *place = done[i].lock;
                held++;
            }
        }
        outstanding -= count;
    }
    return held;
}

int main(void)
{
    belay_client_options options;
    belay_client_options_init(&options);
    belay_client *client = NULL;
    belay_status status = belay_client_open(&options, &client);
    if (status != BELAY_OK) {
        fprintf(stderr, "no client: %s (%s)\n", belay_status_name(status), belay_error_text());
        return 1;
    }
    belay_lock *locks[LOCKS] = {0};
    size_t held = finish_all(client, start_all(client, locks));
    printf("held %zu of %d\n", held, (int)LOCKS);
    for (size_t i = 0; i < LOCKS; i++) {
        if (locks[i] != NULL)
            belay_release(locks[i]);
    }
    belay_client_close(client, 1000);
    return held == LOCKS ? 0 : 1;
}
