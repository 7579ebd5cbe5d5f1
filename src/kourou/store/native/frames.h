/* Frames of the remoting protocol, and which of them are sends or pulls. */

#pragma once

#include "bytes.h"

enum { JSON = SERIALIZE_JSON, BINARY = SERIALIZE_ROCKETMQ, ONEWAY = 2 };

/* Header and body follow the prefix. The mark holds the serialization type and, in the lower 24 bits, the length of
   the header. */
enum { MAX_NUMBERS_BYTES = 4 * 24 }; /* in a response: three of them, with their lengths */

struct frame {
    unsigned type;
    struct span header, body;
    Py_ssize_t size;
};

/* Read the frame at the start of `rest`; false if it is incomplete or malformed. */
static int read_frame(struct span rest, struct frame *frame)
{
    if (rest.size < FRAME_BYTES)
        return 0;
    uint64_t length = GET(rest.at, FRAME_LENGTH), mark = GET(rest.at, FRAME_MARK);
    uint64_t header = mark & MAX_HEADER_BYTES;
    if (length > (uint64_t)(rest.size - FRAME_LENGTH_BYTES) || header + FRAME_LENGTH_BYTES > length)
        return 0;
    frame->type = (unsigned)(mark >> 24);
    frame->size = FRAME_LENGTH_BYTES + (Py_ssize_t)length;
    frame->header = (struct span){rest.at + FRAME_BYTES, (Py_ssize_t)header};
    frame->body = (struct span){frame->header.at + header, frame->size - FRAME_BYTES - (Py_ssize_t)header};
    return 1;
}

/* Both codes may carry a batch: the field `m` decides. */
static int is_send(int64_t code)
{
    return code == SEND_MESSAGE_V2 || code == SEND_BATCH_MESSAGE;
}

PyDoc_STRVAR(room_doc,
"room(size)\n"
"\n"
"A bytearray for bytes that are to be received; what is in it is undefined.");

static PyObject *room(PyObject *module, PyObject *size)
{
    (void)module;
    Py_ssize_t bytes = PyLong_AsSsize_t(size);
    if (bytes < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "the size of a room is negative");
        return NULL;
    }
    return PyByteArray_FromStringAndSize(NULL, bytes);
}

#define TEXT_OF(number) #number
#define JSON_CODE(code) "{\"code\":" TEXT_OF(code) ","

static int starts_with(struct span span, const char *start)
{
    return span.size >= (Py_ssize_t)strlen(start) && memcmp(span.at, start, strlen(start)) == 0;
}

/* Whether a frame is a send, by its first bytes. Clients write the code first; in a binary header it is always
   first. */
static int looks_like_send(const struct frame *frame)
{
    struct span header = frame->header;
    if (frame->type == BINARY)
        return header.size >= BINARY_COMMAND_CODE_BYTES && is_send((int64_t)GET(header.at, BINARY_COMMAND_CODE));
    return frame->type == JSON
           && (starts_with(header, JSON_CODE(SEND_MESSAGE_V2)) || starts_with(header, JSON_CODE(SEND_BATCH_MESSAGE)));
}

/* The same for a pull. */
static int looks_like_pull(const struct frame *frame)
{
    struct span header = frame->header;
    if (frame->type == BINARY)
        return header.size >= BINARY_COMMAND_CODE_BYTES && GET(header.at, BINARY_COMMAND_CODE) == PULL_MESSAGE;
    return frame->type == JSON && starts_with(header, JSON_CODE(PULL_MESSAGE));
}

/* The end of the requests of one kind in args: data, position, max_frame_bytes. */
static PyObject *kind_end(PyObject *const *args, Py_ssize_t count, int (*is_kind)(const struct frame *))
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "takes bytes and two numbers");
        return NULL;
    }
    const struct span data = held_by(args[0]);
    struct span rest = data;
    struct frame frame;
    Py_ssize_t position = PyLong_AsSsize_t(args[1]), max_bytes = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (position < 0 || position > rest.size) {
        PyErr_SetString(PyExc_ValueError, "the position is outside the data");
        return NULL;
    }
    rest = (struct span){rest.at + position, rest.size - position};
    while (read_frame(rest, &frame) && frame.size <= max_bytes && is_kind(&frame))
        rest = (struct span){rest.at + frame.size, rest.size - frame.size};
    return PyLong_FromSsize_t(data.size - rest.size);
}

PyDoc_STRVAR(sends_end_doc,
"sends_end(data, position, max_frame_bytes)\n"
"\n"
"The end of the sends in `data` from `position` on, as complete frames without a gap.");

static PyObject *sends_end(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return kind_end(args, count, looks_like_send);
}

PyDoc_STRVAR(pulls_end_doc,
"pulls_end(data, position, max_frame_bytes)\n"
"\n"
"The same for pulls.");

static PyObject *pulls_end(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return kind_end(args, count, looks_like_pull);
}

PyDoc_STRVAR(pull_is_next_doc,
"pull_is_next(data, position)\n"
"\n"
"Whether what `data` has at `position` is a complete frame with a pull.");

static PyObject *pull_is_next(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct frame frame;
    (void)module;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "takes bytes and a number");
        return NULL;
    }
    const struct span data = held_by(args[0]);
    const Py_ssize_t position = PyLong_AsSsize_t(args[1]);
    if (PyErr_Occurred())
        return NULL;
    const int is_inside = position >= 0 && position <= data.size;
    return PyBool_FromLong(
        is_inside && read_frame((struct span){data.at + position, data.size - position}, &frame)
        && looks_like_pull(&frame));
}
