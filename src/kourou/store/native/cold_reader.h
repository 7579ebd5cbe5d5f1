/* ColdReader: a thread that answers pulls of old messages, and never takes the interpreter lock.

   The loop hands jobs over and collects them when they are done, both through rings without locks: a thread that does
   not run, on a machine with few cores, cannot hold up the loop. A byte in a pipe wakes the thread, and another one
   the loop, but only where it waits. Jobs are done one after the other, in the order in which they were handed
   over; an answer that is left to the loop may be overtaken. */

#pragma once

#include "cold_reports.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

enum { MAX_JOBS = 1024, STACK_BYTES = 256 * 1024 };
/* Where nothing is left to send, the loop is notified when so many are done, or after a pause: to record what was
   sent can wait, and costs less together. */
enum { COLLECTED_TOGETHER = 64, PAUSE_MS = 5 };

/* Of jobs, from one thread to another. There are never more than MAX_JOBS in both rings. */
struct ring {
    struct cold_job *jobs[MAX_JOBS];
    atomic_size_t first, end;
};

struct cold_reader {
    PyObject_HEAD
    struct ring asked, done;
    Py_ssize_t under_way; /* handed over and not collected */
    int64_t max_age_ns;
    pthread_t thread;
    pid_t process; /* that has the thread: not one that was forked off */
    int is_running, is_stopped, niceness;
    int to_thread[2], to_loop[2]; /* pipes */
    atomic_int is_asleep, is_stopping, is_ready;
};

static PyTypeObject *cold_reader_type;

static void push_job(struct ring *ring, struct cold_job *job)
{
    const size_t end = atomic_load_explicit(&ring->end, memory_order_relaxed);
    ring->jobs[end % MAX_JOBS] = job;
    atomic_store(&ring->end, end + 1);
}

/* NULL: there is none. */
static struct cold_job *pop_job(struct ring *ring)
{
    const size_t first = atomic_load_explicit(&ring->first, memory_order_relaxed);
    if (first == atomic_load(&ring->end))
        return NULL;
    struct cold_job *job = ring->jobs[first % MAX_JOBS];
    atomic_store_explicit(&ring->first, first + 1, memory_order_release);
    return job;
}

static int is_ring_empty(struct ring *ring)
{
    return atomic_load_explicit(&ring->first, memory_order_relaxed) == atomic_load(&ring->end);
}

/* -- in the thread ------------------------------------------------------------------------------------------------ */

/* A pipe that is full wakes as well. */
static void write_byte(int fd)
{
    while (write(fd, "", 1) < 0 && errno == EINTR)
        ;
}

static void read_byte(int fd)
{
    char byte;
    while (read(fd, &byte, 1) < 0 && errno == EINTR)
        ;
}

static void notify_loop(struct cold_reader *reader)
{
    if (!atomic_exchange(&reader->is_ready, 1))
        write_byte(reader->to_loop[1]);
}

/* Wait for a byte; false after a pause without one. */
static int wait_byte(int fd, int timeout_ms)
{
    struct pollfd one = {fd, POLLIN, 0};
    int found;
    while ((found = poll(&one, 1, timeout_ms)) < 0 && errno == EINTR)
        ;
    return found != 0;
}

/* The next job, as soon as there is one; NULL: there are none any more. `unreported`: how many the loop was not
   notified of. */
static struct cold_job *next_job(struct cold_reader *reader, int *unreported)
{
    struct cold_job *job;
    while ((job = pop_job(&reader->asked)) == NULL) {
        if (atomic_load(&reader->is_stopping))
            return NULL;
        atomic_store(&reader->is_asleep, 1);
        const int may_sleep = is_ring_empty(&reader->asked) && !atomic_load(&reader->is_stopping);
        /* The one that resets it writes the byte. */
        if (may_sleep && *unreported && !wait_byte(reader->to_thread[0], PAUSE_MS)) {
            notify_loop(reader);
            *unreported = 0;
        }
        if (may_sleep || !atomic_exchange(&reader->is_asleep, 0))
            read_byte(reader->to_thread[0]);
    }
    return job;
}

static void *serve_jobs(void *context)
{
    struct cold_reader *reader = context;
    struct worker worker = {NULL, 0, {{0, 0}}};
    struct cold_job *job;
    int unreported = 0;
#ifdef __linux__
    /* Of this thread: where cores are short, the loop goes first. */
    (void)setpriority(PRIO_PROCESS, 0, reader->niceness);
#endif
    while ((job = next_job(reader, &unreported)) != NULL) {
        if (!atomic_load(&reader->is_stopping))
            do_job(&worker, job, reader->max_age_ns);
        if (job->outcome == SENT)
            end_job(job);
        const int is_for_loop = job->outcome != SENT;
        push_job(&reader->done, job);
        if (is_for_loop || ++unreported >= COLLECTED_TOGETHER) {
            notify_loop(reader);
            unreported = 0;
        }
    }
    free(worker.answer);
    return NULL;
}

/* -- in the loop -------------------------------------------------------------------------------------------------- */

static void wake_thread(struct cold_reader *reader)
{
    if (atomic_exchange(&reader->is_asleep, 0))
        write_byte(reader->to_thread[1]);
}

/* Hand jobs over, which belong to the reader from here on. */
static void hand_over(struct cold_reader *reader, struct cold_job **jobs, int count)
{
    if (!count)
        return;
    for (int i = 0; i < count; i++) {
        begin_job(jobs[i]);
        push_job(&reader->asked, jobs[i]);
    }
    reader->under_way += count;
    wake_thread(reader);
}

static int make_pipe(int fds[2])
{
    if (pipe(fds) < 0) {
        fds[0] = fds[1] = -1;
        return 0;
    }
    for (int i = 0; i < 2; i++)
        (void)fcntl(fds[i], F_SETFD, FD_CLOEXEC);
    return 1;
}

static int set_nonblocking(int fd)
{
    return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0;
}

/* The loop must not wait, whichever end it has. False with errno set. */
static int make_pipes(struct cold_reader *reader)
{
    return make_pipe(reader->to_thread) && make_pipe(reader->to_loop) && set_nonblocking(reader->to_thread[1])
           && set_nonblocking(reader->to_loop[0]) && set_nonblocking(reader->to_loop[1]);
}

/* Whether there is a thread; it is begun with the first job. */
static int has_thread(struct cold_reader *reader)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    if (reader->is_running || reader->is_stopped)
        return !reader->is_stopped;
    pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    /* Signals are for Python's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    reader->process = getpid();
    reader->is_running = pthread_create(&reader->thread, &attributes, serve_jobs, reader) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return reader->is_running;
}

/* How many more jobs there may be. */
static Py_ssize_t room_for_jobs(struct cold_reader *reader)
{
    return has_thread(reader) ? MAX_JOBS - reader->under_way : 0;
}

PyDoc_STRVAR(cold_reader_doc,
"ColdReader(max_age_ms, niceness)\n"
"\n"
"A thread that reads old messages and sends them as answers to pulls. An answer whose pull was decided longer ago is\n"
"left to the loop, which decides again.");

static PyObject *new_cold_reader(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    long long max_age_ms;
    int niceness;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "Li", &max_age_ms, &niceness))
        return NULL;
    struct cold_reader *reader = (struct cold_reader *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (reader == NULL)
        return NULL;
    reader->to_thread[0] = reader->to_thread[1] = reader->to_loop[0] = reader->to_loop[1] = -1;
    reader->max_age_ns = max_age_ms * 1000000;
    reader->niceness = niceness;
    if (!make_pipes(reader)) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_CLEAR(reader);
    }
    return (PyObject *)reader;
}

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Have the thread end after the job that it does; others stay undone. */
static void stop_thread(struct cold_reader *reader)
{
    if (reader->is_stopped)
        return;
    reader->is_stopped = 1;
    if (reader->is_running && reader->process == getpid()) {
        atomic_store(&reader->is_stopping, 1);
        Py_BEGIN_ALLOW_THREADS
        wake_thread(reader);
        pthread_join(reader->thread, NULL);
        Py_END_ALLOW_THREADS
    }
    reader->is_running = 0;
    for (int i = 0; i < 2; i++) {
        close_end(&reader->to_thread[i]);
        close_end(&reader->to_loop[i]);
    }
}

/* A job that is done; when the thread has ended, also one that is not. */
static struct cold_job *collected_job(struct cold_reader *reader)
{
    struct cold_job *job = pop_job(&reader->done);
    return job == NULL && !reader->is_running ? pop_job(&reader->asked) : job;
}

static void free_cold_reader(PyObject *self)
{
    struct cold_reader *reader = (struct cold_reader *)self;
    PyTypeObject *type = Py_TYPE(self);
    struct cold_job *job;
    stop_thread(reader);
    while ((job = collected_job(reader)) != NULL)
        free_job(job);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(collect_doc,
"collect(noted, now_ms)\n"
"\n"
"What was done. Answers that were sent are noted as those of answer_pulls. Returns their number, when the first of\n"
"these pulls was decided (ns of the monotonic clock), and the others; each: what came of it (UNREAD, PARTIAL, BUILT),\n"
"the token that came with it, the frame of the pull, what is to be sent of the answer, its target, its queue id, and\n"
"its row (PULL_NOTE), which counts if it is sent.");

static PyObject *collect(PyObject *self, PyObject *args)
{
    struct cold_reader *reader = (struct cold_reader *)self;
    struct cold_reports reports = {NULL, NULL, 0, 0, 0};
    struct cold_job *job;
    long long now_ms;
    char bytes[16];
    if (!PyArg_ParseTuple(args, "O!L", &PyList_Type, &reports.noted, &now_ms)
        || (reports.others = PyList_New(0)) == NULL)
        return NULL;
    reports.now_ms = now_ms;
    /* The bytes first, then the mark: a job that is done from here on notifies the loop again. */
    while (read(reader->to_loop[0], bytes, sizeof bytes) == (ssize_t)sizeof bytes)
        ;
    atomic_store(&reader->is_ready, 0);
    int is_reported = 1;
    while (is_reported && (job = collected_job(reader)) != NULL) {
        record_verified(job);
        is_reported = job->outcome == SENT ? add_sent(&reports, job) : add_other(&reports, job);
        if (job->outcome != SENT)
            end_job(job);
        free_job(job);
        reader->under_way--;
    }
    PyObject *result = NULL;
    if (is_reported)
        result = Py_BuildValue("(nLO)", reports.sent, (long long)reports.decided_ns, reports.others);
    Py_DECREF(reports.others);
    return result;
}

PyDoc_STRVAR(stop_doc,
"stop()\n"
"\n"
"End the thread; what is not done stays undone, and can be collected. Waits for a read that is under way. Closes the\n"
"descriptor.");

static PyObject *stop(PyObject *self, PyObject *args)
{
    (void)args;
    stop_thread((struct cold_reader *)self);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(fileno_doc,
"fileno()\n"
"\n"
"A descriptor that is readable when there is something to collect.");

static PyObject *fileno_of(PyObject *self, PyObject *args)
{
    (void)args;
    return PyLong_FromLong(((struct cold_reader *)self)->to_loop[0]);
}

PyDoc_STRVAR(under_way_doc,
"under_way()\n"
"\n"
"How many jobs are not collected.");

static PyObject *under_way(PyObject *self, PyObject *args)
{
    (void)args;
    return PyLong_FromSsize_t(((struct cold_reader *)self)->under_way);
}

static PyMethodDef cold_reader_methods[] = {
    {"collect", collect, METH_VARARGS, collect_doc},
    {"stop", stop, METH_NOARGS, stop_doc},
    {"fileno", fileno_of, METH_NOARGS, fileno_doc},
    {"under_way", under_way, METH_NOARGS, under_way_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot cold_reader_slots[] = {
    {Py_tp_doc, (void *)cold_reader_doc},
    {Py_tp_new, (void *)new_cold_reader},
    {Py_tp_dealloc, (void *)free_cold_reader},
    {Py_tp_methods, cold_reader_methods},
    {0, NULL},
};

static PyType_Spec cold_reader_spec = {
    "kourou.store._kernel.ColdReader", sizeof(struct cold_reader), 0, Py_TPFLAGS_DEFAULT, cold_reader_slots};
