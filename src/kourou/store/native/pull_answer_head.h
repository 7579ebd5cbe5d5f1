/* The header of an answer to a pull. */

#pragma once

#include "pull_run.h"

/* Fill in a template: numbers in place of `%d`. In a binary header the length precedes each. */
static char *put_numbers(char *out, struct span template, const int64_t *numbers, int length_bytes)
{
    const char *at = template.at, *end = at + template.size;
    for (;;) {
        const char *placeholder = memchr(at, '%', (size_t)(end - at));
        out = put_span(out, (struct span){at, (placeholder ? placeholder : end) - at});
        if (placeholder == NULL)
            return out;
        char *text = out + length_bytes;
        out = put_decimal(text, *numbers++);
        put_be(text - length_bytes, (uint64_t)(out - text), length_bytes);
        at = placeholder + 2;
    }
}

/* Which broker a client is to ask next that got messages up to this one. */
static int64_t broker_to_ask(const struct pull_run *run, int64_t last_phy_offset)
{
    const int is_slow = last_phy_offset && run->max_phy_offset - last_phy_offset > run->limits[0].memory_bytes;
    return is_slow ? run->target.slow_broker_id : run->target.broker_id;
}

/* Add the header of an answer, with what precedes it; false with an error set. */
static int add_answer_header(
    struct pull_run *run, unsigned type, const struct pull *pull, const int64_t offsets[3], int64_t broker_id,
    int64_t body_bytes)
{
    const struct span template = run->templates[type];
    const int64_t sys_flag = run->target.topic_sys_flag, next = offsets[0], low = offsets[1], high = offsets[2];
    const int64_t json[] = {high, low, next, broker_id, sys_flag, pull->opaque};
    const int64_t binary[] = {broker_id, next, low, high, sys_flag};
    char *begin = reserve(&run->headers, FRAME_BYTES + (size_t)template.size + MAX_PULL_NUMBERS * 24);
    if (begin == NULL)
        return 0;
    char *header = begin + FRAME_BYTES, *end;
    if (type == BINARY) {
        end = put_numbers(header, template, binary, BINARY_VALUE_LENGTH_BYTES);
        int64_t fields_at = BINARY_COMMAND_BYTES + (int64_t)GET(header, BINARY_COMMAND_REMARK_LENGTH);
        PUT(header, BINARY_COMMAND_OPAQUE, pull->opaque);
        put_be(
            header + fields_at - BINARY_COMMAND_FIELDS_LENGTH_BYTES, (uint64_t)(end - header - fields_at),
            BINARY_COMMAND_FIELDS_LENGTH_BYTES);
    } else
        end = put_numbers(header, template, json, 0);
    PUT(begin, FRAME_LENGTH, FRAME_BYTES - FRAME_LENGTH_BYTES + (end - header) + body_bytes);
    PUT(begin, FRAME_MARK, (uint64_t)type << 24 | (uint64_t)(end - header));
    run->headers.size = (size_t)(end - run->headers.at);
    return 1;
}

/* Whether a template has so many placeholders, and no others. */
static int has_numbers(struct span template, int count)
{
    const char *end = template.at + template.size;
    for (const char *at = template.at; at < end; at++)
        if (*at == '%' && (++at == end || *at != 'd' || --count < 0))
            return 0;
    return count == 0;
}
