/* The records of a pull. */

#pragma once

#include "bytes.h"

PyDoc_STRVAR(gather_doc,
"gather(view, start, low, end, units, max_messages, max_bytes, max_copied)\n"
"\n"
"The records that `units` point to, concatenated: their number, the phy_offset of the last, and their bytes.\n"
"At most `max_messages` and `max_bytes`, but at least one. `view` has the log from `start` on; it may be read\n"
"from `low` to `end`. None if a record lies elsewhere, or if more than `max_copied` bytes would be copied.");

static PyObject *gather(PyObject *module, PyObject *const *args, Py_ssize_t args_count)
{
    Py_buffer view, units;
    Py_ssize_t count = 0;
    PyObject *records = NULL;
    (void)module;
    if (args_count != 8) {
        PyErr_SetString(PyExc_TypeError, "gather takes 8 arguments");
        return NULL;
    }
    int64_t start = PyLong_AsLongLong(args[1]), low = PyLong_AsLongLong(args[2]), end = PyLong_AsLongLong(args[3]);
    Py_ssize_t max_messages = PyLong_AsSsize_t(args[5]);
    int64_t max_bytes = PyLong_AsLongLong(args[6]), max_copied = PyLong_AsLongLong(args[7]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[4], &units, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    if (low < start)
        low = start;
    if (end > start + view.len)
        end = start + view.len;
    if (max_messages > units.len / CQ_UNIT_BYTES)
        max_messages = units.len / CQ_UNIT_BYTES;
    int64_t total = 0, last = 0;
    const unsigned char *unit = units.buf;
    for (; count < max_messages; count++, unit += CQ_UNIT_BYTES) {
        int64_t at = (int64_t)GET(unit, CQ_UNIT_PHY_OFFSET);
        int32_t size = (int32_t)GET(unit, CQ_UNIT_SIZE);
        if (count && total + size > max_bytes)
            break;
        if (at < low || size <= 0 || at > end - size || total + size > max_copied) {
            count = 0;
            break;
        }
        total += size;
        last = at;
    }
    if (count && (records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total)) != NULL) {
        char *out = PyBytes_AsString(records);
        unit = units.buf;
        for (Py_ssize_t i = 0; i < count; i++, unit += CQ_UNIT_BYTES)
            out = put_span(
                out, (struct span){(const char *)view.buf + ((int64_t)GET(unit, CQ_UNIT_PHY_OFFSET) - start),
                                   (Py_ssize_t)GET(unit, CQ_UNIT_SIZE)});
    }
    PyBuffer_Release(&view);
    PyBuffer_Release(&units);
    if (records == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    return Py_BuildValue("(nLN)", count, (long long)last, records);
}
