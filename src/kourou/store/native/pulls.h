/* The records of a pull. */

#pragma once

#include "bytes.h"

/* Bytes of the log from `start` on, which may be read from `low` to `end`. */
struct window {
    const char *at;
    int64_t start, low, end;
};

struct room {
    int64_t messages, bytes, copied;
};

/* How many of the records that `units` point to fit into the room, but at least one; 0 if one lies outside of the
   window, or if they are better not copied. Their size and the phy_offset of the last one too. */
static Py_ssize_t count_records(
    struct span units, const struct window *window, struct room room, int64_t *total, int64_t *last)
{
    Py_ssize_t count = 0;
    const char *unit = units.at;
    *total = 0;
    for (; count < room.messages && count < units.size / CQ_UNIT_BYTES; count++, unit += CQ_UNIT_BYTES) {
        int64_t at = (int64_t)GET(unit, CQ_UNIT_PHY_OFFSET);
        int32_t size = (int32_t)GET(unit, CQ_UNIT_SIZE);
        if (count && *total + size > room.bytes)
            break;
        if (at < window->low || size <= 0 || at > window->end - size || *total + size > room.copied)
            return 0;
        *total += size;
        *last = at;
    }
    return count;
}

static struct span record_of(const char *unit, const struct window *window)
{
    return (struct span){
        window->at + ((int64_t)GET(unit, CQ_UNIT_PHY_OFFSET) - window->start), (Py_ssize_t)GET(unit, CQ_UNIT_SIZE)};
}

enum { CACHE_LINE_BYTES = 64, MAX_PREFETCHED_BYTES = 2048 };

/* Have the processor fetch a record that is copied next: records of a queue lie apart, which it does not expect. */
static void prefetch(struct span record)
{
    for (Py_ssize_t at = 0; at < record.size && at < MAX_PREFETCHED_BYTES; at += CACHE_LINE_BYTES)
        __builtin_prefetch(record.at + at, 0, 0);
}

/* Copy as many records out of the window. */
static char *put_records(char *out, struct span units, Py_ssize_t count, const struct window *window)
{
    const char *unit = units.at;
    for (; count > 0; count--, unit += CQ_UNIT_BYTES) {
        if (count > 1)
            prefetch(record_of(unit + CQ_UNIT_BYTES, window));
        out = put_span(out, record_of(unit, window));
    }
    return out;
}

/* Have the bounds of a window within those of its view. */
static void set_view(struct window *window, const Py_buffer *view)
{
    window->at = view->buf;
    if (window->low < window->start)
        window->low = window->start;
    if (window->end > window->start + view->len)
        window->end = window->start + view->len;
}

PyDoc_STRVAR(gather_doc,
"gather(view, start, low, end, units, max_messages, max_bytes, max_copied)\n"
"\n"
"The records that `units` point to, concatenated: their number, the phy_offset of the last, and their bytes.\n"
"At most `max_messages` and `max_bytes`, but at least one. `view` has the log from `start` on; it may be read\n"
"from `low` to `end`. None if a record lies elsewhere, or if more than `max_copied` bytes would be copied.");

static PyObject *gather(PyObject *module, PyObject *const *args, Py_ssize_t args_count)
{
    Py_buffer view, units;
    PyObject *records = NULL;
    (void)module;
    if (args_count != 8) {
        PyErr_SetString(PyExc_TypeError, "gather takes 8 arguments");
        return NULL;
    }
    struct window window = {
        NULL, PyLong_AsLongLong(args[1]), PyLong_AsLongLong(args[2]), PyLong_AsLongLong(args[3])};
    struct room room = {PyLong_AsLongLong(args[5]), PyLong_AsLongLong(args[6]), PyLong_AsLongLong(args[7])};
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[4], &units, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    set_view(&window, &view);
    int64_t total = 0, last = 0;
    const struct span all = {units.buf, units.len};
    Py_ssize_t count = count_records(all, &window, room, &total, &last);
    if (count && (records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total)) != NULL)
        put_records(PyBytes_AsString(records), all, count, &window);
    PyBuffer_Release(&view);
    PyBuffer_Release(&units);
    if (records == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    return Py_BuildValue("(nLN)", count, (long long)last, records);
}
