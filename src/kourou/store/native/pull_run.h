/* A run of pulls that a connection has sent: what is looked up for them. */

#pragma once

#include "pull_head.h"
#include "pulls.h"
#include "run.h"

enum { MAX_PULLS = 256, MAX_WINDOWS = 8, MAX_PULL_NUMBERS = 6, MAX_TAG_CODES = 8 };

static PyObject *name_min_queue_offset, *name_max_queue_offset, *name_read_units_nowait;

struct pull_limits {
    struct room in_memory, on_disk;
    int64_t memory_bytes, max_messages;
};

struct answer {
    PyObject *units;       /* held */
    struct span unit_span; /* their contents */
    Py_ssize_t count;      /* of its records */
    const struct window *window;
    size_t header_end;
};

/* What the broker knows of a topic and a group: texts and numbers of a tuple, which is held. */
struct pull_target {
    PyObject *tuple, *queues; /* by their ids; NULL: none */
    struct pull asked;        /* the pull that it was looked up for */
    int64_t queue_nums, topic_sys_flag, broker_id, slow_broker_id;
    int code_count; /* of wanted tags; -1: all messages are wanted */
    int64_t codes[MAX_TAG_CODES];
};

/* Of pulls in a row that have the same target: the next offset by queue id, (queue id, offset) of each commit, (store
   time of the first, number of messages) of each pull. */
struct pull_note {
    PyObject *target; /* NULL: there is none */
    Py_ssize_t pulls;
    int64_t messages, bytes;
    PyObject *next_offsets, *commits, *stored;
};

struct pull_run {
    /* input */
    PyObject *topics, *find_target, *find_window;
    struct span templates[2];
    struct pull_limits limits[2]; /* Apache's, and those that are negotiated */
    int64_t max_phy_offset, max_filter_units;
    struct pull_target target; /* of the last pull: usually that of the next one, too */
    int window_count, count;
    /* output */
    struct buf headers, wanted; /* wanted: units of one pull by tags */
    int64_t records_bytes;
    PyObject *notes;
    struct pull_note note;
    struct answer answers[MAX_PULLS]; /* this and what follows: valid as far as the counts say */
    struct window windows[MAX_WINDOWS];
    Py_buffer views[MAX_WINDOWS];
};

static int is_same(struct span one, struct span other)
{
    return one.size == other.size && (one.size == 0 || memcmp(one.at, other.at, (size_t)one.size) == 0);
}

/* Whether what is known of one pull holds for another; their queues are looked at anyway. */
static int asks_the_same(const struct pull *one, const struct pull *other)
{
    return is_same(one->topic, other->topic) && is_same(one->group, other->group) && one->sys_flag == other->sys_flag
           && one->sub_version == other->sub_version && is_same(one->subscription, other->subscription)
           && (one->subscription.at == NULL) == (other->subscription.at == NULL)
           && is_same(one->expression_type, other->expression_type)
           && (one->expression_type.at == NULL) == (other->expression_type.at == NULL);
}

/* Read the codes of tags, a tuple, or None; false with an error set. */
static int read_codes(struct pull_target *target, PyObject *codes)
{
    target->code_count = -1;
    if (codes == Py_None)
        return 1;
    const Py_ssize_t count = PyTuple_Size(codes);
    if (count > MAX_TAG_CODES)
        PyErr_SetString(PyExc_ValueError, "too many codes of tags");
    for (Py_ssize_t i = 0; !PyErr_Occurred() && i < count; i++)
        target->codes[i] = PyLong_AsLongLong(PyTuple_GetItem(codes, i));
    target->code_count = (int)count;
    return !PyErr_Occurred();
}

/* Have the target of a pull in `run->target`: 1, 0 if the slow path has to decide, -1 with an error set. */
static int find_pull_target(struct pull_run *run, const struct pull *pull)
{
    struct pull_target *target = &run->target;
    if (target->tuple != NULL && asks_the_same(&target->asked, pull))
        return 1;
    Py_CLEAR(target->tuple);
    const struct span type = pull->expression_type, text = pull->subscription;
    PyObject *found = PyObject_CallFunction(
        run->find_target, "s#s#LLz#z#L", pull->topic.at, pull->topic.size, pull->group.at, pull->group.size,
        (long long)pull->queue_id, (long long)pull->sys_flag, text.at, text.size, type.at, type.size,
        (long long)pull->sub_version);
    if (found == NULL || found == Py_None) {
        Py_XDECREF(found);
        return found == NULL ? -1 : 0;
    }
    PyObject *group, *topic, *codes;
    long long queue_nums, topic_sys_flag, broker_id, slow_broker_id;
    target->tuple = found;
    if (!PyArg_ParseTuple(
            found, "OOLLLLO", &group, &topic, &queue_nums, &topic_sys_flag, &broker_id, &slow_broker_id, &codes)
        || !read_codes(target, codes))
        return -1;
    Py_XDECREF(target->queues);
    target->queues = Py_XNewRef(PyDict_GetItemWithError(run->topics, topic));
    target->queue_nums = queue_nums;
    target->topic_sys_flag = topic_sys_flag;
    target->broker_id = broker_id;
    target->slow_broker_id = slow_broker_id;
    target->asked = *pull;
    return PyErr_Occurred() ? -1 : 1;
}

struct pulled_queue {
    PyObject *queue;
    int64_t min_offset, max_offset;
};

/* The queue of a pull, with a reference; false, with or without an error set, if it has nothing for it. */
static int find_pulled_queue(const struct pull_run *run, const struct pull *pull, struct pulled_queue *found)
{
    const struct pull_target *target = &run->target;
    if (pull->queue_id < 0 || pull->queue_id >= target->queue_nums || target->queues == NULL)
        return 0;
    PyObject *number = PyLong_FromLongLong(pull->queue_id);
    PyObject *queue = number == NULL ? NULL : PyDict_GetItemWithError(target->queues, number);
    Py_XDECREF(number);
    if (queue == NULL)
        return 0;
    found->min_offset = int_attribute(queue, name_min_queue_offset);
    found->max_offset = int_attribute(queue, name_max_queue_offset);
    if (PyErr_Occurred() || pull->queue_offset < found->min_offset || pull->queue_offset >= found->max_offset)
        return 0;
    found->queue = Py_NewRef(queue);
    return 1;
}

/* The units that a pull gets at most. NULL, with or without an error set, if they are not in memory, or none. */
static PyObject *pulled_units(PyObject *queue, const struct pull *pull, int64_t wanted)
{
    PyObject *from = PyLong_FromLongLong(pull->queue_offset), *count = PyLong_FromLongLong(wanted);
    PyObject *units = NULL;
    if (from != NULL && count != NULL)
        units = PyObject_CallMethodObjArgs(queue, name_read_units_nowait, from, count, NULL);
    Py_XDECREF(from);
    Py_XDECREF(count);
    if (units != NULL && (!PyBytes_Check(units) || PyBytes_Size(units) < CQ_UNIT_BYTES))
        Py_CLEAR(units);
    return units;
}

/* A window with the log from one phy_offset to another; NULL, with or without an error set, if there is none. */
static const struct window *log_window(struct pull_run *run, int64_t low, int64_t end, int64_t wanted_bytes)
{
    for (int i = run->window_count - 1; i >= 0; i--)
        if (run->windows[i].low <= low && end <= run->windows[i].end)
            return &run->windows[i];
    if (run->window_count == MAX_WINDOWS)
        return NULL;
    PyObject *view, *found = PyObject_CallFunction(
        run->find_window, "LLL", (long long)low, (long long)end, (long long)wanted_bytes);
    long long start, first, last;
    struct window *window = NULL;
    if (found != NULL && found != Py_None && PyArg_ParseTuple(found, "OLLL", &view, &start, &first, &last)
        && PyObject_GetBuffer(view, &run->views[run->window_count], PyBUF_SIMPLE) == 0) {
        window = &run->windows[run->window_count];
        *window = (struct window){NULL, start, first, last};
        set_view(window, &run->views[run->window_count]);
        run->window_count++;
    }
    Py_XDECREF(found);
    return window;
}
