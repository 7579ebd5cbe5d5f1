/* The queue of a pull, and its units, which the broker has in memory (store/queue/consume_queue.py): in the queue's
   tail, or in blocks of those that are flushed. A block is there only as long as its units may be read as they are;
   there are others with units that have to be verified yet. */

#pragma once

#include "pull_run.h"

static PyObject *name_min_queue_offset, *name_max_queue_offset, *name_flushed_queue_offset, *name_tail, *name_blocks,
    *name_read_units_nowait, *name_doubted, *name_unverified, *name_load_doubted_nowait;

struct pulled_queue {
    PyObject *queue; /* held */
    PyObject *unverified; /* what there is of them in each chunk, held; NULL: none of those that are used here */
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
    found->unverified = NULL;
    return 1;
}

/* Add units to those of the run; false with an error set. */
static int append_units(struct pull_run *run, const char *units, int64_t count)
{
    char *out = reserve(&run->units, (size_t)count * CQ_UNIT_BYTES);
    if (out != NULL)
        memcpy(out, units, (size_t)count * CQ_UNIT_BYTES);
    return out != NULL;
}

/* Add those that are in the tail, which begins at `flushed`; false, with or without an error set, if there are none. */
static int append_from_tail(struct pull_run *run, PyObject *queue, int64_t flushed, int64_t from, int64_t wanted)
{
    PyObject *tail = PyObject_GetAttr(queue, name_tail);
    int is_added = 0;
    if (tail != NULL && PyByteArray_Check(tail)) {
        const int64_t left = (int64_t)PyByteArray_Size(tail) / CQ_UNIT_BYTES - (from - flushed);
        if (left > 0)
            is_added = append_units(
                run, PyByteArray_AsString(tail) + (from - flushed) * CQ_UNIT_BYTES, left < wanted ? left : wanted);
    }
    Py_XDECREF(tail);
    return is_added;
}

/* Add all of the wanted ones from blocks; false, with or without an error set, if one of these is not there: then
   nothing is to be used of what was added. */
static int append_from_blocks(struct pull_run *run, PyObject *queue, PyObject *name, int64_t from, int64_t wanted)
{
    PyObject *blocks = PyObject_GetAttr(queue, name);
    while (wanted > 0 && blocks != NULL && PyDict_Check(blocks)) {
        PyObject *number = PyLong_FromLongLong(from / run->block_units);
        PyObject *block = number == NULL ? NULL : PyDict_GetItemWithError(blocks, number);
        Py_XDECREF(number);
        const int64_t first = from % run->block_units, left = run->block_units - first;
        const int64_t count = left < wanted ? left : wanted;
        if (block == NULL || !PyBytes_Check(block) || PyBytes_Size(block) != run->block_units * CQ_UNIT_BYTES
            || !append_units(run, PyBytes_AsString(block) + first * CQ_UNIT_BYTES, count))
            break;
        from += count;
        wanted -= count;
    }
    Py_XDECREF(blocks);
    return wanted == 0;
}

/* Add what the queue itself reads, without waiting for the disk; false, with or without an error set, if it cannot,
   or there are none. */
static int append_from_queue(struct pull_run *run, PyObject *queue, int64_t from, int64_t wanted)
{
    PyObject *number = PyLong_FromLongLong(from), *count = PyLong_FromLongLong(wanted), *units = NULL;
    if (number != NULL && count != NULL)
        units = PyObject_CallMethodObjArgs(queue, name_read_units_nowait, number, count, NULL);
    Py_XDECREF(number);
    Py_XDECREF(count);
    int is_added = units != NULL && PyBytes_Check(units) && PyBytes_Size(units) >= CQ_UNIT_BYTES
                   && append_units(run, PyBytes_AsString(units), (int64_t)PyBytes_Size(units) / CQ_UNIT_BYTES);
    Py_XDECREF(units);
    return is_added;
}

/* Whether a thread may verify units: all of them belong to the answer, and CRCs need no Python. */
static int may_verify(const struct pull_run *run)
{
    return run->reader != NULL && run->target.code_count < 0 && can_fold;
}

/* Have the queue load the block with this unit, which has to be verified, without waiting for the disk; false, with or
   without an error set, if it cannot. */
static int load_doubted(PyObject *queue, int64_t from)
{
    PyObject *number = PyLong_FromLongLong(from), *answer = NULL;
    if (number != NULL)
        answer = PyObject_CallMethodObjArgs(queue, name_load_doubted_nowait, number, NULL);
    Py_XDECREF(number);
    const int is_loaded = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return is_loaded > 0;
}

/* Find out whether the units that were added from doubted blocks are verified already; false, with or without an error
   set, if it is not known. */
static int look_at_chunks(struct pull_run *run, struct pulled_queue *queue, int64_t from, int64_t wanted)
{
    PyObject *unverified = PyObject_GetAttr(queue->queue, name_unverified);
    if (unverified == NULL || !PyByteArray_Check(unverified)) {
        Py_XDECREF(unverified);
        return 0;
    }
    const char *left = PyByteArray_AsString(unverified);
    const int64_t chunks = (int64_t)PyByteArray_Size(unverified), last = (from + wanted - 1) / run->chunk_units;
    int is_doubted = 0;
    for (int64_t chunk = from / run->chunk_units; chunk <= last && chunk < chunks; chunk++)
        is_doubted |= left[chunk];
    if (is_doubted)
        queue->unverified = Py_NewRef(unverified);
    Py_DECREF(unverified);
    return 1;
}

/* Add all of the wanted ones from blocks with units that have to be verified; false, with or without an error set, if
   one of these is not there: then nothing is to be used of what was added. */
static int append_doubted(struct pull_run *run, struct pulled_queue *queue, int64_t from, int64_t wanted)
{
    return append_from_blocks(run, queue->queue, name_doubted, from, wanted)
           && look_at_chunks(run, queue, from, wanted);
}

/* Add the units that a pull gets at most to those of the run. False, with or without an error set, if they are not in
   memory, or there are none. */
static int append_pulled_units(struct pull_run *run, struct pulled_queue *queue, int64_t from, int64_t wanted)
{
    const size_t before = run->units.size;
    const int64_t flushed = int_attribute(queue->queue, name_flushed_queue_offset);
    if (PyErr_Occurred())
        return 0;
    if (from >= flushed)
        return append_from_tail(run, queue->queue, flushed, from, wanted);
    if (append_from_blocks(run, queue->queue, name_blocks, from, wanted))
        return 1;
    run->units.size = before;
    if (!PyErr_Occurred() && may_verify(run) && append_doubted(run, queue, from, wanted))
        return 1;
    run->units.size = before;
    if (PyErr_Occurred() || append_from_queue(run, queue->queue, from, wanted))
        return !PyErr_Occurred();
    if (PyErr_Occurred() || !may_verify(run) || !load_doubted(queue->queue, from)
        || !load_doubted(queue->queue, from + wanted - 1))
        return 0;
    run->units.size = before;
    return append_doubted(run, queue, from, wanted);
}
