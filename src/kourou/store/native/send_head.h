/* The head of a send: its fields. */

#pragma once

#include "request_head.h"

/* The field of a send whose sequence counts. */
#define SEQUENCED_FIELD "kourouSequenced"

/* The fields of a send, in the order of their names: in that order their values are signed. */
enum { MAX_SIGNED_FIELDS = 32 };
struct field {
    struct span name;
    struct value value;
};
struct fields {
    int count;
    struct field all[MAX_SIGNED_FIELDS];
};

struct send {
    struct fields *fields; /* to be kept; NULL: nothing is signed */
    int64_t opaque, flag, queue_id, sys_flag, born_timestamp, message_flag, reconsume_times;
    struct span topic;
    struct value properties;
    PyObject *producers; /* borrowed: identities that the account may send as; NULL: any */
    int is_batch, is_sequenced;
    unsigned seen; /* one bit per field, the lowest for the first letter */
};

#define FIELD(letter) (1u << ((letter) - SEND_FIRST))
#define SEEN_SEQUENCED (1u << 31)
#define IN_RANGE(value, FIELD, number) is_number(value, FIELD##_MIN, FIELD##_MAX, number)

static int read_field(char letter, const struct value *value, struct send *send)
{
    int64_t number;
    int flag;
    switch (letter) {
    case SEND_TOPIC:
        send->topic = value->span;
        return is_plain_text(value) && value->span.size >= SEND_TOPIC_MIN && value->span.size <= SEND_TOPIC_MAX;
    case SEND_DEFAULT_TOPIC_QUEUE_NUMS:
        return IN_RANGE(value, SEND_DEFAULT_TOPIC_QUEUE_NUMS, &number);
    case SEND_QUEUE_ID:
        return IN_RANGE(value, SEND_QUEUE_ID, &send->queue_id);
    case SEND_SYS_FLAG:
        return IN_RANGE(value, SEND_SYS_FLAG, &send->sys_flag) && !(send->sys_flag & TRANSACTION_MASK);
    case SEND_BORN_TIMESTAMP:
        return IN_RANGE(value, SEND_BORN_TIMESTAMP, &send->born_timestamp);
    case SEND_FLAG:
        return IN_RANGE(value, SEND_FLAG, &send->message_flag);
    case SEND_PROPERTIES:
        send->properties = *value;
        return value->is_string;
    case SEND_RECONSUME_TIMES:
        return IN_RANGE(value, SEND_RECONSUME_TIMES, &send->reconsume_times);
    case SEND_UNIT_MODE:
        return is_bool(value, &flag);
    case SEND_MAX_RECONSUME_TIMES:
        return IN_RANGE(value, SEND_MAX_RECONSUME_TIMES, &number);
    case SEND_BATCH:
        return is_bool(value, &send->is_batch);
    default:
        return is_plain_text(value);
    }
}

/* Less than 0, 0 or more: names of fields are ASCII, and Java compares them so. */
static int compare_names(struct span one, struct span other)
{
    int order = memcmp(one.at, other.at, (size_t)(one.size < other.size ? one.size : other.size));
    return order ? order : (one.size > other.size) - (one.size < other.size);
}

/* Keep a field, in order; false for a second one of that name, and for too many. */
static int keep_field(struct span name, const struct value *value, struct fields *fields)
{
    int at = fields->count, order = 1;
    if (at == MAX_SIGNED_FIELDS)
        return 0;
    while (at > 0 && (order = compare_names(fields->all[at - 1].name, name)) > 0)
        at--;
    if (at > 0 && order == 0)
        return 0;
    memmove(&fields->all[at + 1], &fields->all[at], (size_t)(fields->count - at) * sizeof fields->all[0]);
    fields->all[at] = (struct field){name, *value};
    fields->count++;
    return 1;
}

/* A duplicate field is not accepted: the slow path decides which one counts. */
static int set_field(struct span name, const struct value *value, struct send *send)
{
    char letter = name.size == 1 ? *name.at : 0;
    if (send->fields != NULL && !keep_field(name, value, send->fields))
        return 0;
    if (letter == 0 && is_text(name, SEQUENCED_FIELD)) {
        int is_first = !(send->seen & SEEN_SEQUENCED);
        send->seen |= SEEN_SEQUENCED;
        return is_first && is_bool(value, &send->is_sequenced);
    }
    if (!read_field(letter, value, send))
        return 0;
    if (letter < SEND_FIRST || letter > SEND_LAST)
        return 1;
    if (send->seen & FIELD(letter))
        return 0;
    send->seen |= FIELD(letter);
    return 1;
}

static int take_send_field(struct span name, const struct value *value, void *send)
{
    return set_field(name, value, send);
}

/* Read the head of a send, and keep its fields unless `fields` is NULL; false if it needs the slow path. */
static int read_send(const struct frame *frame, struct send *send, struct fields *fields)
{
    memset(send, 0, sizeof *send);
    send->fields = fields;
    if (fields != NULL)
        fields->count = 0;
    struct head head;
    if (!read_head(frame, &head, take_send_field, send) || !is_send(head.code))
        return 0;
    send->opaque = head.opaque;
    send->flag = head.flag;
    return (send->seen & SEND_NEEDED) == SEND_NEEDED;
}
