/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a lock needs a token, without a cluster: two holders, one of them late, and a store that
 * remembers the highest token it has seen. Exits 0 if the late write was refused.
 *
 *     ./fenced_write /tmp/some-directory
 */
#include <belay/belay.h>
#include <stdio.h>
#include <string.h>

static belay_status put(belay_store *store, const char *who, const char *value, uint64_t token)
{
    belay_status status = belay_store_put(store, "invoice/7", value, strlen(value), token);
    printf("%s writes \"%s\" under token %llu: %s\n", who, value, (unsigned long long)token,
           belay_status_name(status));
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: fenced_write DIRECTORY\n");
        return 2;
    }
    belay_store *store = NULL;
    belay_status status = belay_store_open(argv[1], &store);
    if (status != BELAY_OK) {
        fprintf(stderr, "no store: %s (%s)\n", belay_status_name(status), belay_error_text());
        return 1;
    }

    /* A got token 41 and was suspended; its lease ended; B got token 42. */
    bool good = put(store, "B", "from B", 42) == BELAY_OK;
    good = good && put(store, "B", "from B again", 42) == BELAY_OK; /* equal is right */
    good = good && put(store, "A", "from A, late", 41) == BELAY_REFUSED;

    char value[64];
    size_t value_bytes = sizeof(value);
    uint64_t token = 0;
    good = good && belay_store_get(store, "invoice/7", value, &value_bytes, &token) == BELAY_OK;
    if (good)
        printf("stored: \"%.*s\" under token %llu\n", (int)value_bytes, value,
               (unsigned long long)token);
    belay_store_close(store);

    /* The same rule for a number that lives in your own row or record. */
    uint64_t highest = 0;
    good = good && belay_fence_accept(&highest, 42) && !belay_fence_accept(&highest, 41);
    return good ? 0 : 1;
}
