/* The answer to one pull of old messages: a job that a thread does without the interpreter lock.

   The header was made by the loop, which knows the sizes of the records. The thread reads them out of one file, in
   which each has to be what its unit says. Units from before the broker's start have to be verified, as
   store/recovery/queue_verifier.py does it: here with the very bytes that are sent. Nothing here uses Python but for
   what `free_job` lets go of. */

#pragma once

#include "pull_note.h"
#include "shared_socket.h"
#include "units.h"

#include <time.h>

enum outcome {
    UNREAD,  /* not done, or a record is not what its unit says, or cannot be read, or the connection takes no answer */
    SENT,    /* all of it */
    PARTIAL, /* the rest is for the loop, before anything else that it writes */
    BUILT    /* nothing was sent: the loop writes, or the decision is old */
};

/* Units that have to be verified, from `queue_offset` on. */
struct doubt {
    PyObject *unverified; /* of each chunk of the queue how many are, those at its end; held; NULL: no doubt */
    struct queue_place queue; /* its topic is in the frame of the pull */
    int64_t queue_offset, chunk_units;
};

struct cold_job {
    /* made by the loop, which alone uses the objects; they are held */
    struct shared_socket *socket;
    PyObject *token, *target, *frame;
    struct pull_note note; /* but for the time that the thread finds */
    struct doubt doubt;    /* of the units */
    int commits;           /* whether the pull commits the following offset */
    int64_t commit_offset, decided_ns;
    struct log_part log;  /* a descriptor of its own: the log may close and delete the file */
    size_t head_bytes;    /* of the answer, in front of the units */
    char *head;           /* and the units */
    /* made by the thread */
    enum outcome outcome; /* UNREAD at first */
    char *answer;         /* what was not sent of it; NULL: all was */
    size_t rest_at, size;
};

/* From here on, or no longer, a connection has this answer under way. */
static void begin_job(const struct cold_job *job)
{
    atomic_fetch_add(&job->socket->under_way, 1);
    atomic_fetch_add(&job->socket->bytes, job->note.bytes);
}

static void end_job(const struct cold_job *job)
{
    atomic_fetch_sub(&job->socket->under_way, 1);
    atomic_fetch_sub(&job->socket->bytes, job->note.bytes);
}

/* Regions of the log that the system was asked to read, so that it is not asked for each pull. */
enum { REGION_BYTES = 4 * 1024 * 1024, KNOWN_REGIONS = 64 };
enum { FETCHED_AGAIN_NS = 2 * 1000 * 1000 * 1000 };
struct fetched {
    int64_t region, until_ns;
};

/* What a thread keeps from job to job. */
struct worker {
    char *answer;
    size_t room;
    struct fetched fetched[KNOWN_REGIONS];
};

/* Memory of one answer is kept up to this size. */
enum { KEPT_BYTES = 1024 * 1024 };

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The last descriptor of a file that was deleted frees its blocks, which takes its time. */
static void close_log(struct cold_job *job)
{
    if (job->log.fd >= 0)
        close(job->log.fd);
    job->log.fd = -1;
}

static void free_job(struct cold_job *job)
{
    if (job == NULL)
        return;
    Py_XDECREF((PyObject *)job->socket);
    Py_XDECREF(job->token);
    Py_XDECREF(job->target);
    Py_XDECREF(job->frame);
    Py_XDECREF(job->doubt.unverified);
    close_log(job);
    free(job->head);
    free(job->answer);
    free(job);
}

/* When a record was stored. */
static int64_t stored_ms_of(const char *record)
{
    if (GET(record, RECORD_SYS_FLAG) & BORN_V6)
        record += HOST_V6_EXTRA_BYTES;
    return (int64_t)GET(record, RECORD_STORE_TIMESTAMP);
}

static int64_t unit_phy_offset(const char *unit)
{
    return (int64_t)GET(unit, CQ_UNIT_PHY_OFFSET);
}

static int64_t unit_size(const char *unit)
{
    return (int32_t)GET(unit, CQ_UNIT_SIZE);
}

/* Have the system read a region of the log, if it was not asked for it lately. */
static void fetch_region(struct worker *worker, const struct log_part *log, int64_t region, int64_t now)
{
    struct fetched *fetched = &worker->fetched[region % KNOWN_REGIONS];
    int64_t low = region * REGION_BYTES, high = low + REGION_BYTES;
    if ((fetched->region == region && now < fetched->until_ns) || low >= log->end)
        return;
    *fetched = (struct fetched){region, now + FETCHED_AGAIN_NS};
#ifdef POSIX_FADV_WILLNEED
    if (low < log->start)
        low = log->start;
    if (high > log->end)
        high = log->end;
    (void)posix_fadvise(log->fd, (off_t)(low - log->start), (off_t)(high - low), POSIX_FADV_WILLNEED);
#endif
}

/* The same for the regions of a job's records and the one behind, if the records make up a good part of them. */
static void fetch_regions(struct worker *worker, const struct cold_job *job, int64_t now)
{
    const char *units = job->head + job->head_bytes, *last = units + (job->note.messages - 1) * CQ_UNIT_BYTES;
    const int64_t low = unit_phy_offset(units), high = unit_phy_offset(last);
    if (high < low || (high - low) / DENSE >= job->note.bytes)
        return;
    for (int64_t region = low / REGION_BYTES; region <= high / REGION_BYTES + 1; region++)
        fetch_region(worker, &job->log, region, now);
}

/* Whether a record is the one that a unit points to. One in doubt is verified. */
static int is_record_of(const struct cold_job *job, const char *record, const char *unit)
{
    if (unit_size(unit) <= RECORD_BYTES)
        return 0;
    if (job->doubt.unverified != NULL) {
        const int64_t number = (unit - job->head - (ptrdiff_t)job->head_bytes) / CQ_UNIT_BYTES;
        return unit_fits(
            (const unsigned char *)record, (const unsigned char *)unit, job->doubt.queue_offset + number,
            &job->doubt.queue);
    }
    return (int64_t)GET(record, RECORD_TOTAL_SIZE) == unit_size(unit)
           && (GET(record, RECORD_MAGIC) == MESSAGE_MAGIC_CODE || GET(record, RECORD_MAGIC) == MESSAGE_MAGIC_CODE_V2)
           && (int64_t)GET(record, RECORD_PHY_OFFSET) == unit_phy_offset(unit);
}

/* Read the records behind each other; those that are neighbours in the log by one call. */
static int read_records_of(const struct cold_job *job, char *out)
{
    const char *unit = job->head + job->head_bytes, *end = unit + job->note.messages * CQ_UNIT_BYTES;
    while (unit < end) {
        const char *first = unit;
        const int64_t low = unit_phy_offset(unit);
        int64_t high = low;
        for (; unit < end && unit_phy_offset(unit) == high; unit += CQ_UNIT_BYTES)
            high += unit_size(unit);
        if (!read_log(&job->log, out, high - low, low))
            return 0;
        for (; first < unit; first += CQ_UNIT_BYTES) {
            if (!is_record_of(job, out, first))
                return 0;
            out += unit_size(first);
        }
    }
    return 1;
}

/* Have the whole answer in the worker's memory; false if it cannot be made. */
static int build_answer(struct worker *worker, struct cold_job *job)
{
    job->size = job->head_bytes + (size_t)job->note.bytes;
    if (worker->room < job->size) {
        free(worker->answer);
        worker->room = job->size;
        worker->answer = malloc(worker->room);
        if (worker->answer == NULL)
            worker->room = 0;
    }
    if (worker->answer == NULL)
        return 0;
    fetch_regions(worker, job, now_ns());
    memcpy(worker->answer, job->head, job->head_bytes);
    char *records = worker->answer + job->head_bytes;
    if (!read_records_of(job, records))
        return 0;
    job->note.stored_ms = stored_ms_of(records);
    return 1;
}

/* Free the memory of an answer that was large, or that belongs to the job from here on. */
static void drop_answer(struct worker *worker, int is_given)
{
    if (!is_given && worker->room <= KEPT_BYTES)
        return;
    if (!is_given)
        free(worker->answer);
    worker->answer = NULL;
    worker->room = 0;
}

/* Read, build and send an answer. Not sent is one whose decision is older than `max_age_ns`. */
static void do_job(struct worker *worker, struct cold_job *job, int64_t max_age_ns)
{
    const int is_built = takes_answers(job->socket) && build_answer(worker, job);
    close_log(job);
    if (!is_built) {
        drop_answer(worker, 0);
        return;
    }
    const int is_old = now_ns() - job->decided_ns > max_age_ns;
    if (is_old || !send_in_turn(job->socket, worker->answer, job->size, &job->rest_at))
        job->outcome = BUILT;
    else
        job->outcome = job->rest_at == job->size ? SENT : PARTIAL;
    if (job->outcome != SENT)
        job->answer = worker->answer;
    drop_answer(worker, job->outcome != SENT);
}
