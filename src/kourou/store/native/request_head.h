/* The head of a request, in JSON or binary: what all requests have, and their fields, one by one. */

#pragma once

#include "frames.h"
#include "json.h"

struct head {
    int64_t code, opaque, flag;
};

/* Takes a field of a request; false if the request needs the slow path. */
typedef int take_field(struct span name, const struct value *value, void *request);

static int read_json_fields(struct cursor *c, take_field *take, void *request)
{
    struct value key, value;
    if (!accept_char(c, '{'))
        return 0;
    do {
        if (!read_string(c, &key) || !is_plain_text(&key) || !accept_char(c, ':') || !read_value(c, &value)
            || !take(key.span, &value, request))
            return 0;
    } while (accept_char(c, ','));
    return accept_char(c, '}');
}

static int read_json_head(struct span header, struct head *head, take_field *take, void *request)
{
    struct cursor c = {header.at, header.at + header.size};
    struct value key, value;
    int64_t version;
    int has_fields = 0;
    if (!accept_char(&c, '{'))
        return 0;
    do {
        if (!read_string(&c, &key) || !is_plain_text(&key) || !accept_char(&c, ':'))
            return 0;
        int is_fine;
        if (is_text(key.span, "extFields")) {
            /* The slow path decides which of two counts. */
            is_fine = !has_fields && read_json_fields(&c, take, request);
            has_fields = 1;
        } else if (!read_value(&c, &value) || (value.is_string && !is_plain_text(&value)))
            is_fine = 0;
        else if (is_text(key.span, "code"))
            is_fine = !value.is_string && is_number(&value, 0, INT16_MAX, &head->code);
        else if (is_text(key.span, "flag"))
            is_fine = !value.is_string && is_number(&value, 0, ONEWAY, &head->flag) && head->flag != 1;
        else if (is_text(key.span, "opaque"))
            is_fine = !value.is_string && is_number(&value, INT64_MIN, INT64_MAX, &head->opaque);
        else if (is_text(key.span, "version"))
            is_fine = !value.is_string && is_number(&value, INT64_MIN, INT64_MAX, &version);
        else if (is_text(key.span, "remark"))
            is_fine = 0;
        else
            is_fine = value.is_string;
        if (!is_fine)
            return 0;
    } while (accept_char(&c, ','));
    if (!accept_char(&c, '}'))
        return 0;
    skip_blanks(&c);
    return c.at == c.end;
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

static int read_binary_head(struct span header, struct head *head, take_field *take, void *request)
{
    struct value name, value;
    if (header.size < BINARY_COMMAND_BYTES)
        return 0;
    struct span rest = {header.at + BINARY_COMMAND_BYTES, header.size - BINARY_COMMAND_BYTES};
    if (GET(header.at, BINARY_COMMAND_REMARK_LENGTH) != 0
        || GET(header.at, BINARY_COMMAND_FIELDS_LENGTH) != (uint64_t)rest.size)
        return 0;
    head->code = (int64_t)GET(header.at, BINARY_COMMAND_CODE);
    head->opaque = (int32_t)GET(header.at, BINARY_COMMAND_OPAQUE);
    head->flag = (int32_t)GET(header.at, BINARY_COMMAND_FLAG);
    if (head->flag != 0 && head->flag != ONEWAY)
        return 0;
    while (rest.size > 0) {
        if (!next_text(&rest, BINARY_NAME_LENGTH_BYTES, &name) || name.span.size > INT16_MAX || !is_plain_text(&name)
            || !next_text(&rest, BINARY_VALUE_LENGTH_BYTES, &value) || !take(name.span, &value, request))
            return 0;
    }
    return 1;
}

/* Read the head of a request, and have its fields taken; false if it needs the slow path. */
static int read_head(const struct frame *frame, struct head *head, take_field *take, void *request)
{
    memset(head, 0, sizeof *head);
    return frame->type == BINARY ? read_binary_head(frame->header, head, take, request)
           : frame->type == JSON ? read_json_head(frame->header, head, take, request)
                                 : 0;
}
