/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes a lock, works under it, gives it back.
 *
 *     BELAY_ENDPOINTS=127.0.0.1:7400 ./lock invoice/7
 */
#include <belay/belay.h>
#include <stdatomic.h>
#include <stdio.h>

static void lost(void *context, belay_lock *lock, belay_lost_reason reason)
{
    /* Runs on the client's thread: only say it, let the working thread stop itself. */
    atomic_bool *stop = context;
    (void)lock;
    (void)reason;
    atomic_store(stop, true);
}

static int work(belay_client *client, const char *name, const atomic_bool *stop)
{
    belay_acquire_options wanted;
    belay_acquire_options_init(&wanted, name);
    wanted.ttl_ms = 10000;  /* renewed in the background at a third of it */
    wanted.wait_ms = 30000; /* stand in the queue for at most so long */

    belay_lock *lock = NULL;
    belay_holder_info holder;
    belay_status status = belay_acquire(client, &wanted, &lock, &holder);
    if (status != BELAY_OK) {
        fprintf(stderr, "no lock: %s (%s)\n", belay_status_name(status), belay_error_text());
        return 1;
    }
    printf("holding %s under token %llu\n", belay_lock_name(lock),
           (unsigned long long)belay_lock_token(lock));

    for (int step = 0; step < 3; step++) {
        /* Before each step that matters; and send the token along with it. */
        if (atomic_load(stop) || !belay_lock_is_valid(lock))
            break;
        printf("step %d\n", step);
    }

    status = belay_release(lock); /* frees the handle whatever the result */
    if (status == BELAY_LOST) {
        fprintf(stderr, "the lock was over before the work was\n");
        return 1;
    }
    return status == BELAY_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    atomic_bool stop = false;
    belay_client_options options;
    belay_client_options_init(&options);
    options.on_lost = lost;
    options.context = &stop;

    belay_client *client = NULL;
    belay_status status = belay_client_open(&options, &client);
    if (status != BELAY_OK) {
        fprintf(stderr, "no client: %s (%s)\n", belay_status_name(status), belay_error_text());
        return 1;
    }
    int result = work(client, argc > 1 ? argv[1] : "example", &stop);
    belay_client_close(client, 1000);
    return result;
}
