/* JSON: one object of strings, numbers and words. */

#pragma once

#include "bytes.h"

struct cursor {
    const char *at, *end;
};

struct value {
    struct span span;
    int is_string, has_escape, is_ascii;
};

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r'))
        c->at++;
}

static int accept_char(struct cursor *c, char wanted)
{
    skip_blanks(c);
    if (c->at >= c->end || *c->at != wanted)
        return 0;
    c->at++;
    return 1;
}

static int read_string(struct cursor *c, struct value *value)
{
    if (!accept_char(c, '"'))
        return 0;
    const unsigned char *at = (const unsigned char *)c->at, *end = (const unsigned char *)c->end;
    value->span.at = c->at;
    value->is_string = value->is_ascii = 1;
    value->has_escape = 0;
    for (;; at++) {
        while (at < end && *at != '"' && *at != '\\' && *at >= 0x20 && *at < 0x80)
            at++;
        if (at >= end || *at < 0x20)
            return 0;
        if (*at == '"')
            break;
        if (*at >= 0x80) {
            value->is_ascii = 0;
        } else {
            value->has_escape = 1;
            at++; /* `unescape` checks what follows */
        }
    }
    value->span.size = (const char *)at - value->span.at;
    c->at = (const char *)at + 1;
    return 1;
}

/* A string, number or bare word; no object, no array. */
static int read_value(struct cursor *c, struct value *value)
{
    skip_blanks(c);
    if (c->at < c->end && *c->at == '"')
        return read_string(c, value);
    value->span.at = c->at;
    value->is_string = value->has_escape = 0;
    value->is_ascii = 1;
    while (c->at < c->end && ((*c->at >= '0' && *c->at <= '9') || (*c->at >= 'a' && *c->at <= 'z') || *c->at == '-'))
        c->at++;
    value->span.size = c->at - value->span.at;
    return value->span.size > 0;
}

static int is_number(const struct value *value, int64_t low, int64_t high, int64_t *number)
{
    const char *at = value->span.at, *end = at + value->span.size;
    int is_negative = at < end && *at == '-';
    if (is_negative)
        at++;
    /* Any 18 digits fit. JSON has no leading zeros. */
    if (at >= end || end - at > 18 || (*at == '0' && (end - at > 1 || is_negative)))
        return 0;
    int64_t found = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return 0;
        found = found * 10 + (*at - '0');
    }
    *number = is_negative ? -found : found;
    return *number >= low && *number <= high;
}

static int is_plain_text(const struct value *value)
{
    return value->is_string && !value->has_escape && value->is_ascii;
}

static int is_bool(const struct value *value, int *flag)
{
    *flag = is_text(value->span, "true");
    return !value->has_escape && (*flag || is_text(value->span, "false"));
}

static int hex_digit(char sign)
{
    if (sign >= '0' && sign <= '9')
        return sign - '0';
    sign |= 0x20;
    return sign >= 'a' && sign <= 'f' ? sign - 'a' + 10 : -1;
}

/* Write the text of a string value, which is no longer than the value; returns its length, or -1. */
static Py_ssize_t unescape(const struct value *value, char *out)
{
    const char *at = value->span.at, *end = at + value->span.size;
    char *begin = out;
    while (at < end) {
        const char *plain = value->has_escape ? memchr(at, '\\', (size_t)(end - at)) : NULL;
        out = put_span(out, (struct span){at, (plain ? plain : end) - at});
        if (plain == NULL)
            break;
        at = plain + 1;
        if (at >= end)
            return -1;
        char sign = *at++;
        if (sign == 'u') {
            int code = 0;
            for (int i = 0; i < 4; i++, at++) {
                int digit = at < end ? hex_digit(*at) : -1;
                if (digit < 0)
                    return -1;
                code = code << 4 | digit;
            }
            if (code == 0 || code >= 0x80)
                return -1;
            *out++ = (char)code;
        } else {
            static const char signs[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
            const char *known = sign ? strchr(signs, sign) : NULL;
            if (known == NULL)
                return -1;
            *out++ = meant[known - signs];
        }
    }
    return out - begin;
}
