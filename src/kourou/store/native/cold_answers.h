/* Pulls of old messages, which are handed over to a thread (cold_reader.h): all that the loop does for them. */

#pragma once

#include "pull_answer_head.h"
#include "pull_filter.h"
#include "pull_units.h"

/* Of one connection; the pulls beyond wait as others that cannot be answered at once. */
enum { MAX_JOBS_OF_ONE = 64, MAX_BYTES_OF_ONE = 4 * 1024 * 1024 };

/* Whether a connection may have another answer under way. */
static int has_room(const struct pull_run *run, struct shared_socket *socket)
{
    int count = atomic_load(&socket->under_way);
    int64_t bytes = atomic_load(&socket->bytes);
    for (int i = 0; i < run->handed_over; i++, count++)
        bytes += run->jobs[i]->note.bytes;
    return count < MAX_JOBS_OF_ONE && bytes < MAX_BYTES_OF_ONE;
}

/* The header of the answer, and the units of its records behind it; NULL with an error set. */
static char *copy_of_head(struct pull_run *run, size_t begin, struct span units)
{
    const struct span header = {run->headers.at + begin, (Py_ssize_t)(run->headers.size - begin)};
    char *copy = malloc((size_t)(header.size + units.size));
    run->headers.size = begin;
    if (copy == NULL)
        PyErr_NoMemory();
    else
        put_span(put_span(copy, header), units);
    return copy;
}

/* The doubt of the units of a pull. */
static struct doubt doubt_of(
    const struct pull_run *run, const struct frame *frame, const struct pull *pull, const struct pulled_queue *queue,
    const struct cold_job *job)
{
    const Py_ssize_t topic_at = pull->topic.at - (frame->header.at - FRAME_BYTES);
    const struct span topic = {PyBytes_AsString(job->frame) + topic_at, pull->topic.size};
    return (struct doubt){
        Py_NewRef(queue->unverified), {topic, (int32_t)pull->queue_id, 1}, pull->queue_offset, run->chunk_units};
}

/* A job for the thread; NULL with an error set. */
static struct cold_job *make_job(
    struct pull_run *run, const struct frame *frame, const struct pull *pull, const struct pulled_queue *queue,
    struct span units, int64_t next_offset, int64_t total, int64_t broker_id)
{
    const struct cold_place *place = &run->cold;
    const size_t begin = run->headers.size;
    const int64_t offsets[] = {next_offset, queue->min_offset, queue->max_offset};
    struct cold_job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return (struct cold_job *)PyErr_NoMemory();
    job->socket = (struct shared_socket *)Py_NewRef((PyObject *)place->socket);
    job->token = Py_NewRef(place->token);
    job->target = Py_NewRef(run->target.fields);
    job->frame = PyBytes_FromStringAndSize(frame->header.at - FRAME_BYTES, frame->size);
    job->note = (struct pull_note){pull->queue_id, units.size / CQ_UNIT_BYTES, total, next_offset, 0};
    job->commits = (pull->sys_flag & PULL_COMMITS_OFFSET) != 0;
    job->commit_offset = pull->commit_offset;
    job->decided_ns = now_ns();
    job->log = place->log;
    job->log.fd = fcntl(place->log.fd, F_DUPFD_CLOEXEC, 0);
    if (job->log.fd < 0)
        PyErr_SetFromErrno(PyExc_OSError);
    if (job->frame != NULL && queue->unverified != NULL)
        job->doubt = doubt_of(run, frame, pull, queue, job);
    if (job->log.fd >= 0 && job->frame != NULL
        && add_answer_header(run, frame->type, pull, offsets, broker_id, total)) {
        job->head_bytes = run->headers.size - begin;
        job->head = copy_of_head(run, begin, units);
    }
    if (job->head == NULL) {
        free_job(job);
        return NULL;
    }
    return job;
}

/* Have the thread answer a pull from the place of the run, as far as there is room: 1, 0 if it needs the slow path, -1
   with an error set. The jobs of a run are handed over at its end: an error before that must not leave a pull that is
   answered twice. What the pull commits is recorded with the run, the rest when it is answered. */
static int add_cold_answer(
    struct pull_run *run, const struct frame *frame, const struct pull *pull, const struct pulled_queue *queue,
    struct room room, struct span units, int64_t next_offset)
{
    const struct log_part *log = &run->cold.log;
    const struct window part = {NULL, log->start, log->start, log->end};
    if (run->handed_over >= room_for_jobs(run->reader))
        return 0;
    int64_t total, last_phy_offset;
    room.copied = INT64_MAX;
    units.size = count_records(units, &part, room, &total, &last_phy_offset) * CQ_UNIT_BYTES;
    int is_answered = 0;
    /* A size in doubt is not to take the thread's time and memory. */
    const int is_huge = total > (queue->unverified == NULL ? MAX_RECORD_BYTES : MAX_LONE_BYTES);
    if (units.size && !is_huge && has_room(run, run->cold.socket)) {
        if (next_offset < 0)
            next_offset = pull->queue_offset + units.size / CQ_UNIT_BYTES;
        struct cold_job *job = make_job(
            run, frame, pull, queue, units, next_offset, total, broker_to_ask(run, last_phy_offset));
        is_answered = job == NULL ? -1 : 1;
        if (job != NULL)
            run->jobs[run->handed_over++] = job;
    }
    return is_answered;
}
