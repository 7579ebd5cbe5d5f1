/* Properties of a message: which need the slow path, and the hash of the tags. */

#pragma once

#include "json.h"

enum { MAX_SLOW_PATH_NAMES = 64 };

/* The property of a message that keeps the sequence of an idempotent producer. */
#define SEQUENCE_PROPERTY "__KOUROU_SEQ"

struct properties {
    struct span text, own; /* stored one after the other: as sent, and added by the broker */
    struct span uniq_key, tags, keys, sequence;
};

/* Read the next pair of `rest`; false at the end. Without a separator the value is empty. */
static int next_pair(struct span *rest, struct span *name, struct span *value)
{
    const char *at = rest->at, *end = at + rest->size;
    if (at >= end)
        return 0;
    const char *stop = memchr(at, PROPERTY_SEPARATOR, (size_t)(end - at));
    if (stop == NULL)
        stop = end;
    const char *mark = memchr(at, NAME_VALUE_SEPARATOR, (size_t)(stop - at));
    *name = (struct span){at, (mark ? mark : stop) - at};
    *value = (struct span){mark ? mark + 1 : stop, mark ? stop - mark - 1 : 0};
    rest->at = stop < end ? stop + 1 : end;
    rest->size = end - rest->at;
    return 1;
}

/* Names of properties that need the slow path. `source` is a tuple of bytes, read when the first property is
   compared. */
struct names {
    PyObject *source;
    Py_ssize_t count;
    struct span all[MAX_SLOW_PATH_NAMES];
};
enum { NAMES_UNREAD = -1 };

/* False with an error set. */
static int read_names(struct names *names)
{
    Py_ssize_t count = PyTuple_Size(names->source);
    if (count > MAX_SLOW_PATH_NAMES) {
        PyErr_SetString(PyExc_ValueError, "too many names of properties that need the slow path");
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        names->all[i] = span_of(PyTuple_GetItem(names->source, i));
    names->count = count;
    return !PyErr_Occurred();
}

/* Whether a property of this name needs the slow path; true with an error set if the names cannot be read. */
static int needs_slow_path(struct span name, struct names *names)
{
    if (names->count == NAMES_UNREAD && !read_names(names))
        return 1;
    for (const struct span *other = names->all, *end = other + names->count; other < end; other++)
        if (other->size == name.size && memcmp(other->at, name.at, (size_t)name.size) == 0)
            return 1;
    return 0;
}

static int is_alphanumeric(struct span span)
{
    for (Py_ssize_t i = 0; i < span.size; i++) {
        char sign = span.at[i];
        if (!((sign >= '0' && sign <= '9') || (sign >= 'A' && sign <= 'Z') || (sign >= 'a' && sign <= 'z')))
            return 0;
    }
    return span.size > 0;
}

/* Whether Python decodes the text as UTF-8: 1, 0, or -1 with an error set. */
static int is_utf8(struct span span)
{
    PyObject *text = PyUnicode_DecodeUTF8(span.at, span.size, NULL);
    if (text != NULL) {
        Py_DECREF(text);
        return 1;
    }
    if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        return -1;
    PyErr_Clear();
    return 0;
}

/* Keep the sequence of an idempotent producer; false for a second one, or an empty one. */
static int keep_sequence(struct span value, struct properties *found)
{
    int is_first = found->sequence.size == 0;
    found->sequence = value;
    return is_first && value.size > 0;
}

/* False for a message that needs the slow path: an unusual id, a delay, or no wait for the flush. Tags and keys are
   hashed, and must be ASCII. */
static int read_properties(struct span text, struct span own, struct names *slow_path_names, struct properties *found)
{
    struct span rest = text, name, value;
    *found = (struct properties){.text = text, .own = own};
    while (next_pair(&rest, &name, &value)) {
        if (is_text(name, "UNIQ_KEY")) {
            if (value.size)
                found->uniq_key = value;
        } else if (is_text(name, "TAGS")) {
            if (value.size)
                found->tags = value;
        } else if (is_text(name, "KEYS")) {
            if (value.size)
                found->keys = value;
        } else if (is_text(name, "WAIT")) {
            if (is_text(value, "false"))
                return 0;
        } else if (is_text(name, SEQUENCE_PROPERTY)) {
            if (!keep_sequence(value, found))
                return 0;
        } else if (needs_slow_path(name, slow_path_names)) {
            return 0;
        }
    }
    int is_fine_id = found->uniq_key.size == 0 || is_alphanumeric(found->uniq_key);
    return is_fine_id && is_ascii(found->tags) && is_ascii(found->keys);
}

/* Keep the value of a pair if it is the id, tags or keys: of two pairs with the same name the later wins. False for one
   of them without a value, before which an earlier one would count, and for a value that is not ASCII. */
static int keep_word(struct span name, struct span value, struct properties *found)
{
    struct span *wanted = is_text(name, "UNIQ_KEY") ? &found->uniq_key
                          : is_text(name, "TAGS")   ? &found->tags
                          : is_text(name, "KEYS")   ? &found->keys
                                                    : NULL;
    if (wanted == NULL)
        return 1;
    *wanted = value;
    return value.size > 0 && is_ascii(value);
}

/* Java's hash code of a text that ends with `span`; `code` is that of the text before it. */
static uint32_t java_hash(uint32_t code, struct span span)
{
    for (Py_ssize_t i = 0; i < span.size; i++)
        code = 31 * code + (unsigned char)span.at[i];
    return code;
}

static int64_t tags_code(const struct properties *found)
{
    return (int32_t)java_hash(0, found->tags);
}
