/* The answers to a run of pulls. */

#pragma once

#include "pull_answer_head.h"
#include "pull_filter.h"
#include "pull_notes.h"

/* Records that are larger are not copied, if there are many bytes of them. More bytes than that are copied with the
   interpreter lock released. */
enum { LARGE_RECORD_BYTES = 16 * 1024, MAX_LARGE_BYTES = 256 * 1024, UNLOCKED_BYTES = 256 * 1024 };

/* The limits of a pull whose first unit this is; false if they change in between. */
static int room_of(
    const struct pull_run *run, const struct pull *pull, struct span units, struct room *room)
{
    const struct pull_limits *limits = &run->limits[pull->is_large];
    int64_t memory_phy_offset = run->max_phy_offset - limits->memory_bytes;
    int is_on_disk = phy_offset_of(units, 0) < memory_phy_offset;
    if (is_on_disk && phy_offset_of(units, units.size / CQ_UNIT_BYTES - 1) >= memory_phy_offset)
        return 0;
    *room = is_on_disk ? limits->on_disk : limits->in_memory;
    if (pull->max_messages < room->messages)
        room->messages = pull->max_messages;
    if (pull->max_bytes && pull->max_bytes < room->bytes)
        room->bytes = pull->max_bytes;
    return 1;
}

/* When the first record of an answer was stored. */
static int64_t stored_ms(const struct window *window, struct span units)
{
    const char *record = window->at + (phy_offset_of(units, 0) - window->start);
    if (GET(record, RECORD_SYS_FLAG) & BORN_V6)
        record += HOST_V6_EXTRA_BYTES;
    return (int64_t)GET(record, RECORD_STORE_TIMESTAMP);
}

/* Answer a pull with the records of these units, as far as there is room: 1, 0 if it needs the slow path, -1 with an
   error set. The next pull begins at `next_offset`; if negative, behind the last of them. */
static int add_answer(
    struct pull_run *run, unsigned type, const struct pull *pull, const struct pulled_queue *queue, struct room room,
    PyObject *units_object, int64_t next_offset)
{
    const struct span units = span_of(units_object);
    const Py_ssize_t last = units.size / CQ_UNIT_BYTES - 1;
    int64_t total, last_phy_offset;
    if (last < 0 || size_of(units, 0) < MIN_RECORD_BYTES + HOST_V6_EXTRA_BYTES
        || phy_offset_of(units, last) > run->max_phy_offset)
        return 0;
    const struct window *window = log_window(
        run, phy_offset_of(units, 0), phy_offset_of(units, last) + size_of(units, last),
        size_of(units, 0) * (int64_t)(last + 1));
    room.copied = size_of(units, 0) < LARGE_RECORD_BYTES ? INT64_MAX : MAX_LARGE_BYTES;
    Py_ssize_t count = window == NULL ? 0 : count_records(units, window, room, &total, &last_phy_offset);
    if (count == 0 || total > MAX_RECORD_BYTES)
        return PyErr_Occurred() ? -1 : 0;
    const int is_slow = last_phy_offset && run->max_phy_offset - last_phy_offset > run->limits[0].memory_bytes;
    if (next_offset < 0)
        next_offset = pull->queue_offset + count;
    const int64_t offsets[] = {next_offset, queue->min_offset, queue->max_offset};
    if (!add_answer_header(
            run, type, pull, offsets, is_slow ? run->target.slow_broker_id : run->target.broker_id, total)
        || !add_note(run, pull, next_offset, count, total, stored_ms(window, units)))
        return -1;
    run->answers[run->count++] = (struct answer){Py_NewRef(units_object), units, count, window, run->headers.size};
    run->records_bytes += total;
    return 1;
}

/* The same with the units that a pull looks at. */
static int answer_from(
    struct pull_run *run, unsigned type, const struct pull *pull, const struct pulled_queue *queue, PyObject *units)
{
    struct room room;
    Py_ssize_t looked_at;
    if (!room_of(run, pull, span_of(units), &room))
        return 0;
    if (run->target.code_count < 0)
        return add_answer(run, type, pull, queue, room, units, -1);
    PyObject *wanted = wanted_units(run, span_of(units), &room, &looked_at);
    int is_answered = -1;
    if (wanted != NULL)
        is_answered = add_answer(run, type, pull, queue, room, wanted, pull->queue_offset + looked_at);
    Py_XDECREF(wanted);
    return is_answered;
}

/* One pull: 1 if it can be answered, 0 if it needs the slow path, -1 with an error set. */
static int answer_pull(struct pull_run *run, const struct frame *frame)
{
    struct pull pull;
    struct pulled_queue queue;
    if (!read_pull(frame, &pull))
        return 0;
    int is_known = find_pull_target(run, &pull), is_answered = 0;
    if (is_known <= 0)
        return is_known;
    int64_t wanted = run->limits[pull.is_large].max_messages;
    if (pull.max_messages < wanted)
        wanted = pull.max_messages;
    if (wanted <= 0 || !find_pulled_queue(run, &pull, &queue))
        return PyErr_Occurred() ? -1 : 0;
    if (run->target.code_count >= 0)
        wanted = run->max_filter_units;
    PyObject *units = pulled_units(queue.queue, &pull, wanted);
    if (units != NULL)
        is_answered = answer_from(run, frame->type, &pull, &queue, units);
    Py_XDECREF(units);
    Py_DECREF(queue.queue);
    return PyErr_Occurred() ? -1 : is_answered;
}

/* The answers, with their records. */
static PyObject *joined_answers(const struct pull_run *run)
{
    const Py_ssize_t size = (Py_ssize_t)((int64_t)run->headers.size + run->records_bytes);
    PyObject *joined = PyBytes_FromStringAndSize(NULL, size);
    if (joined == NULL)
        return NULL;
    char *out = PyBytes_AsString(joined);
    size_t header = 0;
    /* Of units and windows references are held. */
    PyThreadState *unlocked = size >= UNLOCKED_BYTES ? PyEval_SaveThread() : NULL;
    for (int i = 0; i < run->count; i++) {
        const struct answer *answer = &run->answers[i];
        out = put_span(out, (struct span){run->headers.at + header, (Py_ssize_t)(answer->header_end - header)});
        out = put_records(out, answer->unit_span, answer->count, answer->window);
        header = answer->header_end;
    }
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);
    return joined;
}

static void clear_pulls(struct pull_run *run)
{
    Py_XDECREF(run->target.tuple);
    Py_XDECREF(run->target.queues);
    Py_XDECREF(run->notes);
    Py_XDECREF(run->note.target);
    Py_XDECREF(run->note.next_offsets);
    Py_XDECREF(run->note.commits);
    Py_XDECREF(run->note.stored);
    for (int i = 0; i < run->count; i++)
        Py_DECREF(run->answers[i].units);
    for (int i = 0; i < run->window_count; i++)
        PyBuffer_Release(&run->views[i]);
    free(run->headers.at);
    free(run->wanted.at);
    PyMem_Free(run);
}

PyDoc_STRVAR(answer_pulls_doc,
"answer_pulls(data, position, end, templates, limits, max_phy_offset, max_bytes, topics, find_target, find_window)\n"
"\n"
"Answers the pulls in `data` from `position` to `end`, complete frames, up to the first that needs the slow path,\n"
"or until there are `max_bytes`. Returns the position behind them, the answers, and for pulls in a row with the\n"
"same target (target, number of pulls, of messages, of their bytes, next_begin_offset by queue id, (queue id,\n"
"offset) of each that commits one, (store time of the first message, number of messages) of each); None if the\n"
"first one needs the slow path.\n"
"templates: headers of answers with %d for numbers; JSON: maxOffset, minOffset, nextBeginOffset, broker, flags of\n"
"the topic, opaque; binary: broker, nextBeginOffset, minOffset, maxOffset, flags of the topic.\n"
"limits: Apache's and the negotiated ones; each: messages and bytes in memory, on disk, bytes that count as in\n"
"memory, and the most messages; and how many units a pull by tags looks at.\n"
"find_target(topic, group, queue_id, sys_flag, subscription, expression_type, sub_version): (group, topic, number\n"
"of queues, flags of the topic, broker to ask next, the same for a slow consumer, codes of the wanted tags or\n"
"None), or None: it is to be decided.\n"
"find_window(low, end, wanted_bytes): (view, start, low, end) of the log with that part of it, or None.");

static PyObject *answer_pulls(PyObject *module, PyObject *args)
{
    PyObject *data, *templates[2], *result = NULL;
    Py_ssize_t position, end;
    long long limits[2][6], max_filter_units, max_phy_offset, max_bytes;
    (void)module;
    struct pull_run *run = PyMem_Malloc(sizeof *run);
    if (run == NULL)
        return PyErr_NoMemory();
    memset(run, 0, offsetof(struct pull_run, answers));
    if (!PyArg_ParseTuple(
            args, "Snn(SS)((LLLLLL)(LLLLLL)L)LLO!OO", &data, &position, &end, &templates[JSON], &templates[BINARY],
            &limits[0][0], &limits[0][1], &limits[0][2], &limits[0][3], &limits[0][4], &limits[0][5], &limits[1][0],
            &limits[1][1], &limits[1][2], &limits[1][3], &limits[1][4], &limits[1][5], &max_filter_units,
            &max_phy_offset, &max_bytes, &PyDict_Type, &run->topics, &run->find_target, &run->find_window)) {
        clear_pulls(run);
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        const long long *given = limits[i];
        run->templates[i] = span_of(templates[i]);
        run->limits[i] = (struct pull_limits){
            {given[0], given[1], 0}, {given[2], given[3], 0}, given[4], given[5]};
    }
    run->max_phy_offset = max_phy_offset;
    run->max_filter_units = max_filter_units;
    struct span rest = span_of(data);
    if (position < 0 || end < position || end > rest.size || !has_numbers(run->templates[JSON], 6)
        || !has_numbers(run->templates[BINARY], 5) || run->templates[BINARY].size < BINARY_COMMAND_BYTES) {
        PyErr_SetString(PyExc_ValueError, "a position is outside the data, or a template has other placeholders");
        clear_pulls(run);
        return NULL;
    }
    rest = (struct span){rest.at + position, end - position};
    struct frame frame;
    int is_answered = (run->notes = PyList_New(0)) == NULL ? -1 : 1;
    while (is_answered > 0 && run->count < MAX_PULLS && run->records_bytes < max_bytes && read_frame(rest, &frame)
           && (is_answered = answer_pull(run, &frame)) > 0)
        rest = (struct span){rest.at + frame.size, rest.size - frame.size};
    if (is_answered >= 0 && run->count == 0)
        result = Py_NewRef(Py_None);
    else if (is_answered >= 0) {
        PyObject *joined = begin_note(run, NULL) ? joined_answers(run) : NULL;
        if (joined != NULL)
            result = Py_BuildValue("(nNO)", end - rest.size, joined, run->notes);
    }
    clear_pulls(run);
    return result;
}
