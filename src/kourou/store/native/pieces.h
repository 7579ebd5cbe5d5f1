/* What connections have sent: groups of pieces, and how far they are encoded. */

#pragma once

#include "bytes.h"

/* The end of the encoded sends: the number of complete groups, of complete pieces of the next group, and the position
   in the next piece. */
struct end {
    Py_ssize_t groups, pieces, position;
};

/* The bytes of a piece, and their position in its data; false with an error set. */
static int read_piece(PyObject *pieces, Py_ssize_t at, struct span *bytes, Py_ssize_t *position)
{
    PyObject *piece = PyList_GetItem(pieces, at);
    if (piece == NULL || PyTuple_Size(piece) != 3)
        goto wrong;
    Py_ssize_t end = PyLong_AsSsize_t(PyTuple_GetItem(piece, 2));
    *position = PyLong_AsSsize_t(PyTuple_GetItem(piece, 1));
    *bytes = held_by(PyTuple_GetItem(piece, 0));
    if (bytes->at == NULL || *position < 0 || end < *position || end > bytes->size)
        goto wrong;
    *bytes = (struct span){bytes->at + *position, end - *position};
    return 1;
wrong:
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "a piece must be (bytes, start, end), with start and end within the bytes");
    return 0;
}

/* The pieces and the host of a connection; false with an error set. */
static int read_group(PyObject *groups, Py_ssize_t at, PyObject **pieces, struct span *born_host)
{
    PyObject *group = PyList_GetItem(groups, at);
    if (group == NULL || PyTuple_Size(group) != 3)
        goto wrong;
    *pieces = PyTuple_GetItem(group, 1);
    *born_host = span_of(PyTuple_GetItem(group, 2));
    if (born_host->size == HOST_V4_BYTES)
        return 1;
wrong:
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "a group must be (owner, pieces, host), with an IPv4 host");
    return 0;
}
