/* Rows of answered pulls (PULL_NOTE), in the bytearray of their target, which the broker counts later
   (broker/pull/pull_notes.py). */

#pragma once

#include "bytes.h"

enum { TARGET_NOTES = 7 }; /* in the fields of a target (KnownPull) */

struct pull_note {
    int64_t queue_id, messages, bytes, next_offset, stored_ms;
};

/* Room for more rows in the notes of a target, which is listed when it has its first; NULL with an error set. */
static char *more_notes(PyObject *noted, PyObject *fields, Py_ssize_t count)
{
    PyObject *notes = PyTuple_GetItem(fields, TARGET_NOTES);
    if (notes == NULL || !PyByteArray_Check(notes)) {
        PyErr_SetString(PyExc_TypeError, "a target has no notes");
        return NULL;
    }
    const Py_ssize_t before = PyByteArray_Size(notes);
    if ((before == 0 && PyList_Append(noted, fields) < 0)
        || PyByteArray_Resize(notes, before + count * PULL_NOTE_BYTES) < 0)
        return NULL;
    return PyByteArray_AsString(notes) + before;
}

static char *put_note(char *out, const struct pull_note *note, int64_t now_ms)
{
    PUT(out, PULL_NOTE_QUEUE_ID, note->queue_id);
    PUT(out, PULL_NOTE_MESSAGES, note->messages);
    PUT(out, PULL_NOTE_SIZE_BYTES, note->bytes);
    PUT(out, PULL_NOTE_NEXT_QUEUE_OFFSET, note->next_offset);
    PUT(out, PULL_NOTE_STORE_TIMESTAMP, note->stored_ms);
    PUT(out, PULL_NOTE_ANSWERED_MS, now_ms);
    return out + PULL_NOTE_BYTES;
}
