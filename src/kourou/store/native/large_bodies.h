/* Large bodies of sends: not copied into the records, but written to the log from where they were received. */

#pragma once

#include "bytes.h"

/* For smaller bodies two more parts of a write cost more than a copy. */
enum { MIN_LARGE_BODY_BYTES = 8 * 1024 };

/* A body that is missing in the records: the place where it belongs, and where in `data` it was received. */
struct large_body {
    Py_ssize_t position, start, size;
    PyObject *data; /* borrowed: the caller holds what was received */
};

/* The large bodies of a run, in the order of the log, and the piece that is being encoded, if its bodies may be left
   where they are. */
struct large_bodies {
    struct buf all;
    PyObject *data;
    const char *begin;
};

static int is_large(const struct large_bodies *large, struct span body)
{
    return large->data != NULL && body.size >= MIN_LARGE_BODY_BYTES;
}

/* Leave out a body of the current piece at this position of the records; false with an error set. */
static int leave_out(struct large_bodies *large, Py_ssize_t position, struct span body)
{
    const struct large_body left_out = {position, body.at - large->begin, body.size, large->data};
    char *out = reserve(&large->all, sizeof left_out);
    if (out == NULL)
        return 0;
    memcpy(out, &left_out, sizeof left_out);
    return 1;
}

/* Add a view of some bytes of `data` to `parts`; false with an error set. */
static int add_part(PyObject *parts, PyObject *data, Py_ssize_t start, Py_ssize_t end)
{
    PyObject *view = PyMemoryView_FromObject(data);
    PyObject *part = view == NULL ? NULL : PySequence_GetSlice(view, start, end);
    int is_added = part != NULL && PyList_Append(parts, part) == 0;
    Py_XDECREF(part);
    Py_XDECREF(view);
    return is_added;
}

/* The records as parts: the bytes of `records`, the large bodies between them; NULL with an error set. */
static PyObject *parts_of(const struct large_bodies *large, PyObject *records)
{
    PyObject *parts = PyList_New(0);
    Py_ssize_t position = 0;
    if (parts != NULL && large->all.size == 0 && PyList_Append(parts, records) == 0)
        return parts;
    int is_fine = parts != NULL && large->all.size > 0;
    for (size_t at = 0; is_fine && at < large->all.size; at += sizeof(struct large_body)) {
        struct large_body body;
        memcpy(&body, large->all.at + at, sizeof body);
        is_fine = add_part(parts, records, position, body.position)
                  && add_part(parts, body.data, body.start, body.start + body.size);
        position = body.position;
    }
    if (is_fine && add_part(parts, records, position, PyByteArray_Size(records)))
        return parts;
    Py_XDECREF(parts);
    return NULL;
}
