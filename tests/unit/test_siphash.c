/* SPDX-License-Identifier: Apache-2.0
 *
 * The SipHash that tags and cookies rest on, against the Wycheproof vectors. The vectors are not
 * part of the project: without them this says so and passes on the one vector of the SipHash paper.
 */
#include <criterion/criterion.h>

#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char vectors_path[] =
    BELAY_SOURCE_DIR "/../shared/data/wycheproof/siphash_2_4_test.json";

static size_t unhex(const char *text, uint8_t *bytes, size_t capacity)
{
    size_t length = 0;

    cr_assert_eq(sodium_hex2bin(bytes, capacity, text, strlen(text), NULL, &length, NULL), 0);
    return length;
}

static void check_vector(const json_t *vector)
{
    uint8_t key[16], message[4096], tag[8], made[8];

    cr_assert_eq(unhex(json_string_value(json_object_get(vector, "key")), key, sizeof(key)), 16);
    size_t bytes =
        unhex(json_string_value(json_object_get(vector, "msg")), message, sizeof(message));
    cr_assert_eq(unhex(json_string_value(json_object_get(vector, "tag")), tag, sizeof(tag)), 8);
    crypto_shorthash_siphash24(made, message, bytes, key);
    bool valid = strcmp(json_string_value(json_object_get(vector, "result")), "valid") == 0;
    cr_assert_eq(memcmp(made, tag, 8) == 0, valid, "vector %lld",
                 (long long)json_integer_value(json_object_get(vector, "tcId")));
}

Test(siphash, wycheproof)
{
    if (access(vectors_path, R_OK) != 0) {
        /* Not cr_log_warn(): a warning makes Criterion's runner exit with 1. */
        fprintf(stderr, "SKIPPED: no vectors at %s\n", vectors_path);
        return;
    }
    json_error_t error;
    json_t *root = json_load_file(vectors_path, 0, &error);
    cr_assert_not_null(root, "%s", error.text);
    size_t checked = 0, group_at, at;
    json_t *group, *vector;
    json_array_foreach(json_object_get(root, "testGroups"), group_at, group)
    {
        cr_assert_eq(json_integer_value(json_object_get(group, "tagSize")), 64);
        json_array_foreach(json_object_get(group, "tests"), at, vector)
        {
            check_vector(vector);
            checked++;
        }
    }
    cr_assert_eq((json_int_t)checked, json_integer_value(json_object_get(root, "numberOfTests")));
    cr_assert_gt(checked, 20);
    json_decref(root);
}

/* Appendix A of "SipHash: a fast short-input PRF": key 00..0f, message 00..0e. */
Test(siphash, paper)
{
    uint8_t key[16], message[15];
    uint64_t made;

    for (uint8_t i = 0; i < 16; i++)
        key[i] = i;
    for (uint8_t i = 0; i < 15; i++)
        message[i] = i;
    crypto_shorthash_siphash24((uint8_t *)&made, message, sizeof(message), key);
    cr_assert_eq(made, UINT64_C(0xa129ca6149be45e5));
}
