/* Pulls of old messages, which are handed over to a thread (cold_reader.h): all that the loop does for them. */

#pragma once

#include "pull_answer_head.h"
#include "pull_filter.h"
#include "pull_units.h"

/* Of one connection; the pulls beyond wait as others that cannot be answered at once. */
enum { MAX_JOBS_OF_ONE = 64, MAX_BYTES_OF_ONE = 4 * 1024 * 1024 };

/* Where the records of a pull are. */
struct cold_place {
    PyObject *tuple, *token; /* the first is held, the others are in it */
    struct shared_socket *socket;
    struct log_part log;
};

/* Whether a connection may have another answer under way. */
static int has_room(const struct pull_run *run, struct shared_socket *socket)
{
    int count = atomic_load(&socket->under_way);
    int64_t bytes = atomic_load(&socket->bytes);
    for (int i = 0; i < run->handed_over; i++, count++)
        bytes += run->jobs[i]->note.bytes;
    return count < MAX_JOBS_OF_ONE && bytes < MAX_BYTES_OF_ONE;
}

/* Ask for the file with the log from one phy_offset to another: 1, 0 if the thread is not to read it, -1 with an error
   set. */
static int find_place(const struct pull_run *run, int64_t low, int64_t end, struct cold_place *place)
{
    long long start, last;
    place->tuple = PyObject_CallFunction(
        run->find_file, "OLL", run->connection, (long long)low, (long long)end);
    if (place->tuple == NULL)
        return -1;
    int is_found = place->tuple == Py_None ? 0 : -1;
    if (is_found
        && PyArg_ParseTuple(
            place->tuple, "O!iLLO", shared_socket_type, &place->socket, &place->log.fd, &start, &last, &place->token)) {
        place->log.start = start;
        place->log.end = last < run->max_phy_offset ? last : run->max_phy_offset;
        return 1;
    }
    Py_CLEAR(place->tuple);
    return is_found;
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

/* A job for the thread; NULL with an error set. */
static struct cold_job *make_job(
    struct pull_run *run, const struct frame *frame, const struct pull *pull, const struct pulled_queue *queue,
    const struct cold_place *place, struct span units, int64_t next_offset, int64_t total, int64_t broker_id)
{
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
    else if (job->frame != NULL && add_answer_header(run, frame->type, pull, offsets, broker_id, total)) {
        job->head_bytes = run->headers.size - begin;
        job->head = copy_of_head(run, begin, units);
    }
    if (job->head == NULL) {
        free_job(job);
        return NULL;
    }
    return job;
}

/* Have the thread answer a pull of old messages, as far as there is room: 1, 0 if it needs the slow path, -1 with an
   error set. The jobs of a run are handed over at its end: an error before that must not leave a pull that is answered
   twice. What the pull commits is recorded with the run, the rest when it is answered. */
static int add_cold_answer(
    struct pull_run *run, const struct frame *frame, const struct pull *pull, const struct pulled_queue *queue,
    struct room room, struct span units, int64_t next_offset)
{
    struct cold_place place;
    const Py_ssize_t last = units.size / CQ_UNIT_BYTES - 1;
    const int64_t end = phy_offset_of(units, last) + size_of(units, last);
    if (run->handed_over >= room_for_jobs(run->reader))
        return 0;
    const int is_found = find_place(run, phy_offset_of(units, 0), end, &place);
    if (is_found <= 0)
        return is_found;
    run->is_shared = 1;
    const struct window part = {NULL, place.log.start, place.log.start, place.log.end};
    int64_t total, last_phy_offset;
    room.copied = INT64_MAX;
    units.size = count_records(units, &part, room, &total, &last_phy_offset) * CQ_UNIT_BYTES;
    int is_answered = 0;
    if (units.size && total <= MAX_RECORD_BYTES && has_room(run, place.socket)) {
        if (next_offset < 0)
            next_offset = pull->queue_offset + units.size / CQ_UNIT_BYTES;
        struct cold_job *job = make_job(
            run, frame, pull, queue, &place, units, next_offset, total, broker_to_ask(run, last_phy_offset));
        is_answered = job == NULL ? -1 : 1;
        if (job != NULL)
            run->jobs[run->handed_over++] = job;
    }
    Py_DECREF(place.tuple);
    return is_answered;
}
