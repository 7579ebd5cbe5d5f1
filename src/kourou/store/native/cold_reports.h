/* What is reported to the event loop of the jobs that a thread has done. */

#pragma once

#include "cold_job.h"

struct cold_reports {
    PyObject *noted, *others; /* lists; the first is the caller's */
    int64_t now_ms;
    Py_ssize_t sent;
    int64_t decided_ns; /* of the first that was sent */
};

/* Record that the units of a job were verified: of each chunk those that follow the ones that were before. */
static void record_verified(const struct cold_job *job)
{
    const struct doubt *doubt = &job->doubt;
    if (doubt->unverified == NULL || job->outcome == UNREAD)
        return;
    char *left = PyByteArray_AsString(doubt->unverified);
    const int64_t size = doubt->chunk_units, chunks = (int64_t)PyByteArray_Size(doubt->unverified);
    const int64_t end = doubt->queue_offset + job->note.messages;
    for (int64_t at = doubt->queue_offset, next; at < end && at / size < chunks; at = next) {
        const int64_t chunk_end = (at / size + 1) * size;
        next = end < chunk_end ? end : chunk_end;
        const int64_t first_left = chunk_end - left[at / size];
        if (at <= first_left && first_left < next)
            left[at / size] = (char)(chunk_end - next);
    }
}

/* Note an answer that was sent; false with an error set. */
static int add_sent(struct cold_reports *reports, const struct cold_job *job)
{
    char *out = more_notes(reports->noted, job->target, 1);
    if (out == NULL)
        return 0;
    put_note(out, &job->note, reports->now_ms);
    if (reports->sent++ == 0)
        reports->decided_ns = job->decided_ns;
    return 1;
}

/* Report one that the loop has to finish; false with an error set. */
static int add_other(struct cold_reports *reports, const struct cold_job *job)
{
    char note[PULL_NOTE_BYTES];
    const int has_rest = job->answer != NULL;
    put_note(note, &job->note, reports->now_ms);
    PyObject *report = Py_BuildValue(
        "(iOOy#OLy#)", (int)job->outcome, job->token, job->frame, has_rest ? job->answer + job->rest_at : "",
        has_rest ? (Py_ssize_t)(job->size - job->rest_at) : (Py_ssize_t)0, job->target, (long long)job->note.queue_id,
        note, (Py_ssize_t)PULL_NOTE_BYTES);
    const int is_added = report != NULL && PyList_Append(reports->others, report) == 0;
    Py_XDECREF(report);
    return is_added;
}
