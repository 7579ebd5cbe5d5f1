/* The head of a pull: its fields. */

#pragma once

#include "request_head.h"

struct pull {
    int64_t opaque, queue_id, queue_offset, max_messages, sys_flag, commit_offset, suspend_ms, sub_version, max_bytes;
    int64_t source;
    /* the target depends on these, on sys_flag and on sub_version */
    struct span group, topic, subscription, expression_type;
    struct span client_id;
    int is_large; /* more than Apache's limits is negotiated */
    unsigned seen; /* one bit per field */
};

enum pull_kind { PULL_TEXT, PULL_INT32, PULL_INT64, PULL_BOOL };

#define NEEDED_PULL_FIELDS 9 /* the first ones */

static const struct pull_field {
    const char *name;
    size_t at;
    enum pull_kind kind;
} pull_fields[] = {
    {"consumerGroup", offsetof(struct pull, group), PULL_TEXT},
    {"topic", offsetof(struct pull, topic), PULL_TEXT},
    {"queueId", offsetof(struct pull, queue_id), PULL_INT32},
    {"queueOffset", offsetof(struct pull, queue_offset), PULL_INT64},
    {"maxMsgNums", offsetof(struct pull, max_messages), PULL_INT32},
    {"sysFlag", offsetof(struct pull, sys_flag), PULL_INT32},
    {"commitOffset", offsetof(struct pull, commit_offset), PULL_INT64},
    {"suspendTimeoutMillis", offsetof(struct pull, suspend_ms), PULL_INT64},
    {"subVersion", offsetof(struct pull, sub_version), PULL_INT64},
    {"subscription", offsetof(struct pull, subscription), PULL_TEXT},
    {"expressionType", offsetof(struct pull, expression_type), PULL_TEXT},
    {"maxMsgBytes", offsetof(struct pull, max_bytes), PULL_INT32},
    {"requestSource", offsetof(struct pull, source), PULL_INT32},
    {"proxyFrowardClientId", offsetof(struct pull, client_id), PULL_TEXT},
    {"kourouLargePull", offsetof(struct pull, is_large), PULL_BOOL},
};

static int read_pull_field(const struct pull_field *field, const struct value *value, struct pull *pull)
{
    void *place = (char *)pull + field->at;
    switch (field->kind) {
    case PULL_TEXT:
        *(struct span *)place = value->span;
        return is_plain_text(value);
    case PULL_INT32:
        return is_number(value, INT32_MIN, INT32_MAX, place);
    case PULL_INT64:
        return is_number(value, INT64_MIN, INT64_MAX, place);
    default:
        return is_bool(value, place);
    }
}

/* A duplicate field is not accepted: the slow path decides which one counts. A field without a meaning is text. */
static int take_pull_field(struct span name, const struct value *value, void *request)
{
    struct pull *pull = request;
    for (size_t i = 0; i < sizeof pull_fields / sizeof pull_fields[0]; i++) {
        if (!is_text(name, pull_fields[i].name))
            continue;
        if (pull->seen & 1u << i)
            return 0;
        pull->seen |= 1u << i;
        return read_pull_field(&pull_fields[i], value, pull);
    }
    return is_plain_text(value);
}

/* Read the head of a pull; false if it needs the slow path, as does one without an answer. */
static int read_pull(const struct frame *frame, struct pull *pull)
{
    const unsigned needed = (1u << NEEDED_PULL_FIELDS) - 1;
    struct head head;
    memset(pull, 0, sizeof *pull);
    if (!read_head(frame, &head, take_pull_field, pull) || head.code != PULL_MESSAGE || head.flag != 0)
        return 0;
    pull->opaque = head.opaque;
    return (pull->seen & needed) == needed;
}
