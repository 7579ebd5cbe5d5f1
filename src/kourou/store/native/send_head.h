/* The head of a send: its fields, from a header in JSON or a binary one. */

#pragma once

#include "frames.h"
#include "json.h"

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

static int read_fields(struct cursor *c, struct send *send)
{
    struct value key, value;
    if (send->seen || (send->fields != NULL && send->fields->count) || !accept(c, '{'))
        return 0; /* the slow path decides which of two counts */
    do {
        if (!read_string(c, &key) || !is_plain_text(&key) || !accept(c, ':') || !read_value(c, &value))
            return 0;
        if (!set_field(key.span, &value, send))
            return 0;
    } while (accept(c, ','));
    return accept(c, '}');
}

static int read_json_send(struct span header, struct send *send)
{
    struct cursor c = {header.at, header.at + header.size};
    struct value key, value;
    int64_t code = 0, version;
    if (!accept(&c, '{'))
        return 0;
    do {
        if (!read_string(&c, &key) || !is_plain_text(&key) || !accept(&c, ':'))
            return 0;
        int is_fine;
        if (is_text(key.span, "extFields"))
            is_fine = read_fields(&c, send);
        else if (!read_value(&c, &value) || (value.is_string && !is_plain_text(&value)))
            is_fine = 0;
        else if (is_text(key.span, "code"))
            is_fine = !value.is_string && is_number(&value, 0, INT16_MAX, &code);
        else if (is_text(key.span, "flag"))
            is_fine = !value.is_string && is_number(&value, 0, ONEWAY, &send->flag) && send->flag != 1;
        else if (is_text(key.span, "opaque"))
            is_fine = !value.is_string && is_number(&value, INT64_MIN, INT64_MAX, &send->opaque);
        else if (is_text(key.span, "version"))
            is_fine = !value.is_string && is_number(&value, INT64_MIN, INT64_MAX, &version);
        else if (is_text(key.span, "remark"))
            is_fine = 0;
        else
            is_fine = value.is_string;
        if (!is_fine)
            return 0;
    } while (accept(&c, ','));
    if (!accept(&c, '}'))
        return 0;
    skip_blanks(&c);
    return c.at == c.end && is_send(code) && (send->seen & SEND_NEEDED) == SEND_NEEDED;
}

/* -- the same with a binary header -- */

/* The fields follow the head: length of the name, name, length of the value, value. */

/* Read a length and a text from the start of `rest`; false if it does not fit, is empty, or contains a zero,
   which a text in JSON cannot contain either. */
static int next_text(struct span *rest, int length_bytes, struct value *text)
{
    if (rest->size < length_bytes)
        return 0;
    /* Read as unsigned, a negative length exceeds any header. */
    uint64_t size = get_be((const unsigned char *)rest->at, length_bytes);
    if (size == 0 || size > (uint64_t)(rest->size - length_bytes))
        return 0;
    struct span span = {rest->at + length_bytes, (Py_ssize_t)size};
    rest->at += length_bytes + size;
    rest->size -= length_bytes + (Py_ssize_t)size;
    *text = (struct value){.span = span, .is_string = 1, .is_ascii = is_ascii(span)};
    return memchr(span.at, 0, size) == NULL;
}

static int read_binary_send(struct span header, struct send *send)
{
    const char *head = header.at;
    struct value name, value;
    if (header.size < BINARY_COMMAND_BYTES)
        return 0;
    struct span rest = {header.at + BINARY_COMMAND_BYTES, header.size - BINARY_COMMAND_BYTES};
    if (!is_send((int64_t)GET(head, BINARY_COMMAND_CODE)) || GET(head, BINARY_COMMAND_REMARK_LENGTH) != 0
        || GET(head, BINARY_COMMAND_FIELDS_LENGTH) != (uint64_t)rest.size)
        return 0;
    send->opaque = (int32_t)GET(head, BINARY_COMMAND_OPAQUE);
    send->flag = (int32_t)GET(head, BINARY_COMMAND_FLAG);
    if (send->flag != 0 && send->flag != ONEWAY)
        return 0;
    while (rest.size > 0) {
        if (!next_text(&rest, BINARY_NAME_LENGTH_BYTES, &name) || name.span.size > INT16_MAX || !is_plain_text(&name)
            || !next_text(&rest, BINARY_VALUE_LENGTH_BYTES, &value) || !set_field(name.span, &value, send))
            return 0;
    }
    return (send->seen & SEND_NEEDED) == SEND_NEEDED;
}

/* Read the head of a send, and keep its fields unless `fields` is NULL; false if it needs the slow path. */
static int read_send(const struct frame *frame, struct send *send, struct fields *fields)
{
    memset(send, 0, sizeof *send);
    send->fields = fields;
    if (fields != NULL)
        fields->count = 0;
    return frame->type == BINARY ? read_binary_send(frame->header, send)
           : frame->type == JSON ? read_json_send(frame->header, send)
                                 : 0;
}
