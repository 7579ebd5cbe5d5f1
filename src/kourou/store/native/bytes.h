/* Bytes: spans of what is read, numbers that are written, buffers that grow. */

#pragma once

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

/* Read a field of a layout that begins at `begin` as an unsigned number; write a number, or bytes, to it. */
#define GET(begin, FIELD) get_be((const unsigned char *)(begin) + FIELD##_AT, FIELD##_BYTES)
#define PUT(begin, FIELD, number) put_be((begin) + FIELD##_AT, (uint64_t)(number), FIELD##_BYTES)
#define PUT_SPAN(begin, FIELD, span) memcpy((begin) + FIELD##_AT, (span).at, FIELD##_BYTES)

struct span {
    const char *at;
    Py_ssize_t size;
};

/* The contents of a bytes object; sets an error for any other object. */
static struct span span_of(PyObject *bytes)
{
    char *at = NULL;
    Py_ssize_t size = 0;
    PyBytes_AsStringAndSize(bytes, &at, &size);
    return (struct span){at, size};
}

/* The contents of bytes or a memoryview, which hold them in their place; sets an error for any other object. */
static struct span held_by(PyObject *holder)
{
    Py_buffer buffer;
    if (!PyMemoryView_Check(holder))
        return span_of(holder);
    if (PyObject_GetBuffer(holder, &buffer, PyBUF_SIMPLE) < 0)
        return (struct span){NULL, 0};
    const struct span held = {buffer.buf, buffer.len};
    PyBuffer_Release(&buffer);
    return held;
}

static int is_text(struct span span, const char *text)
{
    return span.size == (Py_ssize_t)strlen(text) && memcmp(span.at, text, (size_t)span.size) == 0;
}

static char *put_be(char *out, uint64_t value, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--, value >>= 8)
        out[i] = (char)value;
    return out + bytes;
}

static char *put_span(char *out, struct span span)
{
    memcpy(out, span.at, (size_t)span.size);
    return out + span.size;
}

enum { MAX_DECIMAL_BYTES = 20 };

static char *put_decimal(char *out, int64_t number)
{
    char digits[MAX_DECIMAL_BYTES], *at = digits + sizeof digits;
    uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do {
        *--at = (char)('0' + rest % 10);
    } while (rest /= 10);
    if (number < 0)
        *out++ = '-';
    memcpy(out, at, (size_t)(digits + sizeof digits - at));
    return out + (digits + sizeof digits - at);
}

static char *put_hex(char *out, uint64_t number, int digits)
{
    for (int i = digits - 1; i >= 0; i--, number >>= 4)
        out[i] = "0123456789ABCDEF"[number & 15];
    return out + digits;
}

static uint64_t get_be(const unsigned char *in, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | in[i];
    return value;
}

static int is_ascii(struct span span)
{
    uint64_t eight, found = 0;
    Py_ssize_t i = 0;
    for (; i + 8 <= span.size; i += 8) {
        memcpy(&eight, span.at + i, 8);
        found |= eight;
    }
    for (; i < span.size; i++)
        found |= (unsigned char)span.at[i];
    return !(found & 0x8080808080808080u);
}

/* Buffers grow to twice their size, except under the address sanitizer, which finds every byte beyond the end. */
#ifdef __SANITIZE_ADDRESS__
#define GROWN(bytes) (bytes)
#else
#define GROWN(bytes) (2 * (bytes))
#endif

/* A growing buffer. Its memory is C's, since it may grow while the interpreter lock is released. */
struct buf {
    char *at;
    size_t size, room;
};

/* Extend the buffer by `more` bytes; returns their start, or NULL with an error set. */
static char *reserve(struct buf *buf, size_t more)
{
    if (buf->room - buf->size < more) {
        size_t room = GROWN(buf->size + more);
        char *at = realloc(buf->at, room);
        if (at == NULL) {
            PyGILState_STATE state = PyGILState_Ensure();
            PyErr_NoMemory();
            PyGILState_Release(state);
            return NULL;
        }
        buf->at = at;
        buf->room = room;
    }
    char *begin = buf->at + buf->size;
    buf->size += more;
    return begin;
}

/* Discard the contents of the buffer, then reserve `size` bytes. */
static char *reserve_fresh(struct buf *buf, size_t size)
{
    buf->size = 0;
    return reserve(buf, size);
}

static PyObject *bytes_of(const struct buf *buf)
{
    return PyBytes_FromStringAndSize(buf->at, (Py_ssize_t)buf->size);
}
