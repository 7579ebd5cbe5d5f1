/* Hash slots of an index file in memory: new entries are chained to the newest one of their slot. */

#pragma once

#include "bytes.h"

/* Slots as index_slots.py has them: the newest entry of each, and whether a block of slots has changed. */
struct slots {
    Py_buffer values, dirty; /* native int32; bytes */
    Py_ssize_t count, shift, block;
};

/* Whether the arrays are as long as their contents need, and the indexes of the new entries fit. */
static int are_slots(const struct slots *slots, const Py_buffer *hashes, long long first_index)
{
    return slots->count > 0 && slots->values.len % 4 == 0 && hashes->len % 4 == 0 && slots->shift >= 0
           && slots->block > 0 && slots->shift <= PY_SSIZE_T_MAX - slots->count
           && (slots->count - 1 + slots->shift) / slots->block < slots->dirty.len && first_index > 0
           && first_index <= INT32_MAX - hashes->len / 4;
}

/* Chain entries in their order; `prev` gets the predecessor of each, 0 for none. */
static void link_all(struct slots *slots, const Py_buffer *hashes, int32_t index, char *prev)
{
    int32_t *newest = slots->values.buf;
    char *dirty = slots->dirty.buf;
    for (Py_ssize_t at = 0; at < hashes->len; at += 4, index++) {
        int32_t hash;
        memcpy(&hash, (const char *)hashes->buf + at, 4);
        Py_ssize_t slot = hash % slots->count;
        if (slot < 0)
            slot += slots->count;
        memcpy(prev + at, &newest[slot], 4);
        newest[slot] = index;
        dirty[(slot + slots->shift) / slots->block] = 1;
    }
}

PyDoc_STRVAR(link_entries_doc,
"link_entries(hashes, values, dirty, first_index, shift, block)\n"
"\n"
"Chain new index entries, the first of which gets `first_index`, by the hashes of their keys (native int32).\n"
"values: the newest entry of each slot (native int32); dirty: a byte for each `block` slots, `shift` more before\n"
"the first. Both are changed. Returns the predecessor of each entry, as bytes of native int32.");

static PyObject *link_entries(PyObject *module, PyObject *args)
{
    struct slots slots;
    Py_buffer hashes;
    long long first_index;
    PyObject *prev = NULL;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "y*w*w*Lnn", &hashes, &slots.values, &slots.dirty, &first_index, &slots.shift, &slots.block))
        return NULL;
    slots.count = slots.values.len / 4;
    if (!are_slots(&slots, &hashes, first_index))
        PyErr_SetString(PyExc_ValueError, "the slots, or the indexes of new entries, do not fit their arrays");
    else if ((prev = PyBytes_FromStringAndSize(NULL, hashes.len)) != NULL)
        link_all(&slots, &hashes, (int32_t)first_index, PyBytes_AsString(prev));
    PyBuffer_Release(&hashes);
    PyBuffer_Release(&slots.values);
    PyBuffer_Release(&slots.dirty);
    return prev;
}
