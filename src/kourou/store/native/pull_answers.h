/* The answers to a run of pulls. */

#pragma once

#include "cold_answers.h"
#include "pull_filter.h"
#include "pull_notes.h"
#include "pull_output.h"
#include "pull_units.h"
#include "pull_window.h"

/* Records that are larger are not answered here, if there are many bytes of them. */
enum { LARGE_RECORD_BYTES = 16 * 1024, MAX_LARGE_BYTES = 256 * 1024 };

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

/* Answer a pull with the records of its units, which are in those of the run from `units_at` on, as far as there is
   room: 1, 0 if it needs the slow path, -1 with an error set. The next pull begins at `next_offset`; if negative,
   behind the last of them. */
static int add_answer(
    struct pull_run *run, const struct frame *frame, const struct pull *pull, const struct pulled_queue *queue,
    struct room room, size_t units_at, int64_t next_offset)
{
    const struct span units = {run->units.at + units_at, (Py_ssize_t)(run->units.size - units_at)};
    const Py_ssize_t last = units.size / CQ_UNIT_BYTES - 1;
    int64_t total, last_phy_offset;
    if (last < 0 || size_of(units, 0) < MIN_RECORD_BYTES + HOST_V6_EXTRA_BYTES
        || phy_offset_of(units, last) > run->max_phy_offset)
        return 0;
    const struct window *window;
    const enum place place = find_place(
        run, phy_offset_of(units, 0), phy_offset_of(units, last) + size_of(units, last),
        size_of(units, 0) * (int64_t)(last + 1), queue->unverified != NULL, &window);
    if (place == IN_FILE)
        return add_cold_answer(run, frame, pull, queue, room, units, next_offset);
    if (place == NOWHERE)
        return PyErr_Occurred() ? -1 : 0;
    room.copied = size_of(units, 0) < LARGE_RECORD_BYTES ? INT64_MAX : MAX_LARGE_BYTES;
    const Py_ssize_t count = count_records(units, window, room, &total, &last_phy_offset);
    if (count == 0 || total > MAX_RECORD_BYTES)
        return 0;
    if (next_offset < 0)
        next_offset = pull->queue_offset + count;
    const int64_t offsets[] = {next_offset, queue->min_offset, queue->max_offset};
    if (!add_answer_header(run, frame->type, pull, offsets, broker_to_ask(run, last_phy_offset), total))
        return -1;
    run->answers[run->count++] = (struct answer){
        .fields = Py_NewRef(run->target.fields),
        .note = {pull->queue_id, count, total, next_offset, stored_ms_of(record_of(units.at, window).at)},
        .commits = (pull->sys_flag & PULL_COMMITS_OFFSET) != 0, .commit_offset = pull->commit_offset,
        .units_at = units_at, .count = count, .window = window, .header_end = run->headers.size};
    run->records_bytes += total;
    run->units.size = units_at + (size_t)count * CQ_UNIT_BYTES;
    return 1;
}

/* The same with the units that a pull looks at. */
static int answer_from(
    struct pull_run *run, const struct frame *frame, const struct pull *pull, const struct pulled_queue *queue,
    size_t units_at)
{
    struct room room;
    Py_ssize_t looked_at;
    const struct span units = {run->units.at + units_at, (Py_ssize_t)(run->units.size - units_at)};
    if (!room_of(run, pull, units, &room))
        return 0;
    if (run->target.code_count < 0)
        return add_answer(run, frame, pull, queue, room, units_at, -1);
    const Py_ssize_t count = keep_wanted(
        &run->target, run->units.at + units_at, units.size / CQ_UNIT_BYTES, &room, &looked_at);
    run->units.size = units_at + (size_t)count * CQ_UNIT_BYTES;
    return count == 0 ? 0 : add_answer(run, frame, pull, queue, room, units_at, pull->queue_offset + looked_at);
}

/* One pull: 1 if it can be answered, 0 if it needs the slow path, -1 with an error set. */
static int answer_pull(struct pull_run *run, const struct frame *frame)
{
    const size_t units_at = run->units.size;
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
    if (append_pulled_units(run, &queue, pull.queue_offset, wanted))
        is_answered = answer_from(run, frame, &pull, &queue, units_at);
    if (is_answered <= 0)
        run->units.size = units_at;
    Py_DECREF(queue.queue);
    Py_XDECREF(queue.unverified);
    return PyErr_Occurred() ? -1 : is_answered;
}

static void clear_pulls(struct pull_run *run)
{
    drop_target(&run->target);
    for (int i = 0; i < run->count; i++)
        Py_DECREF(run->answers[i].fields);
    for (int i = 0; i < run->handed_over; i++)
        free_job(run->jobs[i]);
    for (int i = 0; i < run->window_count; i++)
        PyBuffer_Release(&run->views[i]);
    Py_XDECREF(run->cold.tuple);
    free(run->headers.at);
    free(run->units.at);
    PyMem_Free(run);
}

/* What all runs of a broker share, by its place in a tuple. */
enum {
    SETUP_JSON, SETUP_BINARY, SETUP_NUMBERS, SETUP_TOPICS, SETUP_WINDOWS, SETUP_NOTED, SETUP_FIND_TARGET,
    SETUP_FIND_PLACE, SETUP_MAY_READ_OLD, SETUP_READER, SETUP_ITEMS
};

/* Read the setup of a broker; false with an error set. */
static int read_setup(struct pull_run *run, PyObject *setup)
{
    PyObject *items[SETUP_ITEMS];
    for (int i = 0; i < SETUP_ITEMS; i++)
        if ((items[i] = PyTuple_GetItem(setup, i)) == NULL)
            return 0;
    if (!read_pull_numbers(run, items[SETUP_NUMBERS]))
        return 0;
    run->templates[JSON] = span_of(items[SETUP_JSON]);
    run->templates[BINARY] = span_of(items[SETUP_BINARY]);
    if (PyErr_Occurred())
        return 0;
    if (!has_numbers(run->templates[JSON], 6) || !has_numbers(run->templates[BINARY], 5)
        || run->templates[BINARY].size < BINARY_COMMAND_BYTES)
        PyErr_SetString(PyExc_ValueError, "templates have 6 and 5 placeholders");
    run->topics = items[SETUP_TOPICS];
    run->windows_kept = items[SETUP_WINDOWS];
    run->noted = items[SETUP_NOTED];
    run->find_target = items[SETUP_FIND_TARGET];
    run->find_place = items[SETUP_FIND_PLACE];
    run->may_read_old = items[SETUP_MAY_READ_OLD];
    if (items[SETUP_READER] != Py_None) {
        if (!PyObject_TypeCheck(items[SETUP_READER], cold_reader_type))
            PyErr_SetString(PyExc_TypeError, "old messages are read by a ColdReader, or None");
        run->reader = (struct cold_reader *)items[SETUP_READER];
    }
    return !PyErr_Occurred();
}

/* Answer the pulls at the start of `rest`, frames of at most `max_frame_bytes`, up to the first that needs the slow
   path; false with an error set. */
static int answer_frames(struct pull_run *run, struct span *rest, int64_t max_frame_bytes)
{
    struct frame frame;
    int is_answered = 1;
    while (is_answered > 0 && run->count + run->handed_over < MAX_PULLS && output_bytes(run) < run->max_bytes
           && read_frame(*rest, &frame) && frame.size <= max_frame_bytes && looks_like_pull(&frame)) {
        is_answered = answer_pull(run, &frame);
        if (is_answered > 0)
            *rest = (struct span){rest->at + frame.size, rest->size - frame.size};
    }
    return is_answered >= 0;
}

/* Note the answers of a run, put them, and hand over what the thread is to answer: position, number of answered
   pulls, size of the answers, rest, commits. */
static PyObject *finish_pulls(struct pull_run *run, Py_ssize_t position, int fd)
{
    PyObject *commits = commits_of(run);
    PyObject *rest = commits == NULL || !add_notes(run) ? NULL : put_answers(run, run->is_shared ? -1 : fd);
    if (rest == NULL) {
        Py_XDECREF(commits);
        return NULL;
    }
    PyObject *result = Py_BuildValue("(niLNN)", position, run->count, (long long)output_bytes(run), rest, commits);
    if (result != NULL) {
        hand_over(run->reader, run->jobs, run->handed_over);
        run->handed_over = 0;
    }
    return result;
}

PyDoc_STRVAR(answer_pulls_doc,
"answer_pulls(connection, known, data, position, max_frame_bytes, fd, setup, max_phy_offset, now_ms)\n"
"\n"
"Answers the pulls in `data` from `position` on, complete frames of at most `max_frame_bytes`, up to the first that\n"
"needs the slow path, or until there are as many bytes as a run has. The answers are written to the socket `fd`, as\n"
"far as it takes them; if that is negative, not at all. Returns the position behind the pulls, the number of those\n"
"that are answered now, the size of the answers, what is left to write of them or None, and (target, queue id, offset)\n"
"of each that commits one, or None for none; None if the first pull needs the slow path.\n"
"known: by key of a request, (target, guards); these hold as long as each owner, a dict or an object, has the same\n"
"object at a key, or as an attribute: (owner, key, object). A target: group, topic, number of queues, flags of the\n"
"topic, broker to ask next, the same for a slow consumer, codes of the wanted tags or None, and a bytearray that\n"
"gets a row for each pull (PULL_NOTE).\n"
"setup: headers of answers with %d for numbers, in JSON: maxOffset, minOffset, nextBeginOffset, broker, flags of the\n"
"topic, opaque; and binary: broker, nextBeginOffset, minOffset, maxOffset, flags of the topic. `pull_numbers`.\n"
"Queues by topic and id. Windows by region of the log: (file, its start, first and last byte, whether it is old).\n"
"A list that gets each target with its first row.\n"
"find_target(connection, key, topic, group, queue_id, sys_flag, subscription, expression_type, sub_version): what is\n"
"to be `known`, or None: it has to be decided. find_place(connection, low, end, wanted_bytes, in_doubt): True if\n"
"there is a window now; or, if a ColdReader is to answer, (SharedSocket of the connection, descriptor of the file with\n"
"that part of the log, its start and end, the end of what is old, a token for the report), which the rest of the run\n"
"uses for what is old or in doubt; else None or False. In doubt are units that the ColdReader has to verify.\n"
"may_read_old(): whether the run may read old messages. The ColdReader, or None.");

static PyObject *answer_pulls(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 9) {
        PyErr_SetString(PyExc_TypeError, "answer_pulls takes 9 arguments");
        return NULL;
    }
    struct span data = span_of(args[2]);
    const Py_ssize_t position = PyErr_Occurred() ? 0 : PyLong_AsSsize_t(args[3]);
    const int64_t max_frame_bytes = PyErr_Occurred() ? 0 : PyLong_AsLongLong(args[4]);
    const int fd = PyErr_Occurred() ? -1 : (int)PyLong_AsLong(args[5]);
    if (!PyErr_Occurred() && (position < 0 || position > data.size))
        PyErr_SetString(PyExc_ValueError, "the position is outside the data");
    struct pull_run *run = PyErr_Occurred() ? NULL : PyMem_Malloc(sizeof *run);
    if (run == NULL)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    memset(run, 0, offsetof(struct pull_run, answers));
    run->connection = args[0];
    run->known = args[1];
    run->max_phy_offset = PyLong_AsLongLong(args[7]);
    run->now_ms = PyErr_Occurred() ? 0 : PyLong_AsLongLong(args[8]);
    run->reads_old = -1;
    struct span rest = {data.at + position, data.size - position};
    PyObject *result = NULL;
    if (!PyErr_Occurred() && read_setup(run, args[6]) && answer_frames(run, &rest, max_frame_bytes))
        result = run->count + run->handed_over ? finish_pulls(run, data.size - rest.size, fd) : Py_NewRef(Py_None);
    clear_pulls(run);
    return result;
}
