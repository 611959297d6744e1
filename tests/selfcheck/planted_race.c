/* SPDX-License-Identifier: Apache-2.0
 *
 * Two threads add to one plain counter: script/test wants ThreadSanitizer to name the race.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

static uint64_t counter;

static void *add(void *unused)
{
    (void)unused;
    for (int i = 0; i < 100000; i++)
        counter++;
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, add, NULL) != 0)
            return 0; /* counts as "not found": the self-check then fails */
    }
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
