/* What is recorded of answered pulls: rows (PULL_NOTE) in the bytearray of their target, which the broker counts later
   (broker/pull/pull_notes.py); and the offsets that they commit. */

#pragma once

#include "pull_target.h"

/* Room for more rows in the notes of a target, which is listed when it has its first; NULL with an error set. */
static char *more_notes(const struct pull_run *run, PyObject *fields, Py_ssize_t count)
{
    PyObject *notes = PyTuple_GetItem(fields, TARGET_NOTES);
    if (notes == NULL || !PyByteArray_Check(notes)) {
        PyErr_SetString(PyExc_TypeError, "a target has no notes");
        return NULL;
    }
    const Py_ssize_t before = PyByteArray_Size(notes);
    if ((before == 0 && PyList_Append(run->noted, fields) < 0)
        || PyByteArray_Resize(notes, before + count * PULL_NOTE_BYTES) < 0)
        return NULL;
    return PyByteArray_AsString(notes) + before;
}

static char *put_note(char *out, const struct answer *answer, int64_t now_ms)
{
    PUT(out, PULL_NOTE_QUEUE_ID, answer->queue_id);
    PUT(out, PULL_NOTE_MESSAGES, answer->count);
    PUT(out, PULL_NOTE_SIZE_BYTES, answer->bytes);
    PUT(out, PULL_NOTE_NEXT_QUEUE_OFFSET, answer->next_offset);
    PUT(out, PULL_NOTE_STORE_TIMESTAMP, answer->stored_ms);
    PUT(out, PULL_NOTE_ANSWERED_MS, now_ms);
    return out + PULL_NOTE_BYTES;
}

/* Note all answers of a run; false with an error set. */
static int add_notes(const struct pull_run *run)
{
    for (int i = 0, end; i < run->count; i = end) {
        PyObject *fields = run->answers[i].fields;
        for (end = i + 1; end < run->count && run->answers[end].fields == fields;)
            end++;
        char *out = more_notes(run, fields, end - i);
        if (out == NULL)
            return 0;
        for (int k = i; k < end; k++)
            out = put_note(out, &run->answers[k], run->now_ms);
    }
    return 1;
}

/* (target, queue id, offset) for each pull that commits one, or None if none does; NULL with an error set. */
static PyObject *commits_of(const struct pull_run *run)
{
    PyObject *commits = NULL;
    for (int i = 0; i < run->count; i++) {
        const struct answer *answer = &run->answers[i];
        if (!answer->commits)
            continue;
        if (commits == NULL && (commits = PyList_New(0)) == NULL)
            return NULL;
        PyObject *commit = Py_BuildValue(
            "(OLL)", answer->fields, (long long)answer->queue_id, (long long)answer->commit_offset);
        int is_added = commit != NULL && PyList_Append(commits, commit) == 0;
        Py_XDECREF(commit);
        if (!is_added)
            Py_CLEAR(commits);
        if (commits == NULL)
            return NULL;
    }
    return commits == NULL ? Py_NewRef(Py_None) : commits;
}
