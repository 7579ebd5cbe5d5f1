/* What is recorded of answered pulls: their notes, and the offsets that they commit. */

#pragma once

#include "pull_target.h"

/* Note all answers of a run; false with an error set. */
static int add_notes(const struct pull_run *run)
{
    for (int i = 0, end; i < run->count; i = end) {
        PyObject *fields = run->answers[i].fields;
        for (end = i + 1; end < run->count && run->answers[end].fields == fields;)
            end++;
        char *out = more_notes(run->noted, fields, end - i);
        if (out == NULL)
            return 0;
        for (int k = i; k < end; k++)
            out = put_note(out, &run->answers[k].note, run->now_ms);
    }
    return 1;
}

/* Add what one pull commits to a list, which is made with the first; false with an error set. */
static int add_commit(PyObject **commits, PyObject *fields, int64_t queue_id, int64_t offset)
{
    if (*commits == NULL && (*commits = PyList_New(0)) == NULL)
        return 0;
    PyObject *commit = Py_BuildValue("(OLL)", fields, (long long)queue_id, (long long)offset);
    const int is_added = commit != NULL && PyList_Append(*commits, commit) == 0;
    Py_XDECREF(commit);
    return is_added;
}

/* (target, queue id, offset) for each pull that commits one, or None if none does; NULL with an error set. */
static PyObject *commits_of(const struct pull_run *run)
{
    PyObject *commits = NULL;
    int is_fine = 1;
    for (int i = 0; is_fine && i < run->count; i++) {
        const struct answer *answer = &run->answers[i];
        is_fine = !answer->commits || add_commit(&commits, answer->fields, answer->note.queue_id, answer->commit_offset);
    }
    for (int i = 0; is_fine && i < run->handed_over; i++) {
        const struct cold_job *job = run->jobs[i];
        is_fine = !job->commits || add_commit(&commits, job->target, job->note.queue_id, job->commit_offset);
    }
    if (!is_fine)
        Py_CLEAR(commits);
    return commits == NULL && is_fine ? Py_NewRef(Py_None) : commits;
}
