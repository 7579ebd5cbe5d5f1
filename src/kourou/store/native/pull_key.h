/* The key of a pull: what decides, of a request, which messages it may get. */

#pragma once

#include "pull_head.h"

enum { MAX_KEY_BYTES = 1024, KEY_NUMBERS = 6 };

struct pull_key {
    Py_ssize_t size;
    char at[MAX_KEY_BYTES];
};

/* -1: the request has no such field. */
static int64_t key_length(struct span text)
{
    return text.at == NULL ? -1 : (int64_t)text.size;
}

/* Make the key of a pull; false if it is too long: such requests are not remembered. */
static int make_key(const struct pull *pull, struct pull_key *key)
{
    const struct span texts[] = {pull->topic, pull->group, pull->subscription, pull->expression_type};
    const int64_t numbers[KEY_NUMBERS] = {
        pull->sys_flag, pull->sub_version, key_length(pull->topic), key_length(pull->group),
        key_length(pull->subscription), key_length(pull->expression_type)};
    char *out = key->at + sizeof numbers;
    memcpy(key->at, numbers, sizeof numbers);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].size > key->at + MAX_KEY_BYTES - out)
            return 0;
        if (texts[i].size)
            out = put_span(out, texts[i]);
    }
    key->size = out - key->at;
    return 1;
}

static int is_same_key(const struct pull_key *one, const struct pull_key *other)
{
    return one->size == other->size && memcmp(one->at, other->at, (size_t)one->size) == 0;
}
