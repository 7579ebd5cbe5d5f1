/* The queue of a pull, and its units, which the broker has in memory (store/queue/consume_queue.py): in the queue's
   tail, or in blocks of those that are flushed. A block is there only as long as its units may be read as they are. */

#pragma once

#include "pull_run.h"

static PyObject *name_min_queue_offset, *name_max_queue_offset, *name_flushed_queue_offset, *name_tail, *name_blocks,
    *name_read_units_nowait;

struct pulled_queue {
    PyObject *queue; /* held */
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
static int append_from_blocks(struct pull_run *run, PyObject *queue, int64_t from, int64_t wanted)
{
    PyObject *blocks = PyObject_GetAttr(queue, name_blocks);
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

/* Add the units that a pull gets at most to those of the run. False, with or without an error set, if they are not in
   memory, or there are none. */
static int append_pulled_units(struct pull_run *run, PyObject *queue, int64_t from, int64_t wanted)
{
    const size_t before = run->units.size;
    const int64_t flushed = int_attribute(queue, name_flushed_queue_offset);
    if (PyErr_Occurred())
        return 0;
    if (from >= flushed)
        return append_from_tail(run, queue, flushed, from, wanted);
    if (append_from_blocks(run, queue, from, wanted))
        return 1;
    run->units.size = before;
    return !PyErr_Occurred() && append_from_queue(run, queue, from, wanted);
}
