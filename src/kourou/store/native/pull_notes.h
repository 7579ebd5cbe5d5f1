/* What is recorded of the pulls of a run: one note for all in a row that have the same target. */

#pragma once

#include "pull_run.h"

/* Complete the current note, if there is one, and begin another; false with an error set. */
static int begin_note(struct pull_run *run, PyObject *target)
{
    struct pull_note *note = &run->note;
    PyObject *entry = note->target == NULL
                          ? NULL
                          : Py_BuildValue(
                                "(OnLLOOO)", note->target, note->pulls, (long long)note->messages,
                                (long long)note->bytes, note->next_offsets, note->commits, note->stored);
    int is_added = note->target == NULL || (entry != NULL && PyList_Append(run->notes, entry) == 0);
    Py_XDECREF(entry);
    Py_CLEAR(note->target);
    Py_CLEAR(note->next_offsets);
    Py_CLEAR(note->commits);
    Py_CLEAR(note->stored);
    memset(note, 0, sizeof *note);
    if (!is_added || target == NULL)
        return is_added;
    note->target = Py_NewRef(target);
    return (note->next_offsets = PyDict_New()) != NULL && (note->commits = PyList_New(0)) != NULL
           && (note->stored = PyList_New(0)) != NULL;
}

static int append_pair(PyObject *list, int64_t first, int64_t second)
{
    PyObject *pair = Py_BuildValue("(LL)", (long long)first, (long long)second);
    int is_added = pair != NULL && PyList_Append(list, pair) == 0;
    Py_XDECREF(pair);
    return is_added;
}

/* Note that a pull is answered; false with an error set. */
static int add_note(
    struct pull_run *run, const struct pull *pull, int64_t next_offset, int64_t count, int64_t bytes, int64_t stored_ms)
{
    struct pull_note *note = &run->note;
    if (note->target != run->target.tuple && !begin_note(run, run->target.tuple))
        return 0;
    note->pulls++;
    note->messages += count;
    note->bytes += bytes;
    PyObject *queue_id = PyLong_FromLongLong(pull->queue_id), *next = PyLong_FromLongLong(next_offset);
    int is_set = queue_id != NULL && next != NULL && PyDict_SetItem(note->next_offsets, queue_id, next) == 0;
    Py_XDECREF(queue_id);
    Py_XDECREF(next);
    return is_set && append_pair(note->stored, stored_ms, count)
           && (!(pull->sys_flag & PULL_COMMITS_OFFSET)
               || append_pair(note->commits, pull->queue_id, pull->commit_offset));
}
