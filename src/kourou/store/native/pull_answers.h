/* The answers to a run of pulls. */

#pragma once

#include "pull_notes.h"

/* Records that are larger are not copied, if there are many bytes of them. More bytes than that are copied with the
   interpreter lock released. */
enum { LARGE_RECORD_BYTES = 16 * 1024, MAX_LARGE_BYTES = 256 * 1024, UNLOCKED_BYTES = 256 * 1024 };

static int64_t phy_offset_of(struct span units, Py_ssize_t index)
{
    return (int64_t)GET(units.at + index * CQ_UNIT_BYTES, CQ_UNIT_PHY_OFFSET);
}

static int32_t size_of(struct span units, Py_ssize_t index)
{
    return (int32_t)GET(units.at + index * CQ_UNIT_BYTES, CQ_UNIT_SIZE);
}

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
    if (pull->max_bytes && pull->max_bytes < room->bytes)
        room->bytes = pull->max_bytes;
    room->copied = size_of(units, 0) < LARGE_RECORD_BYTES ? INT64_MAX : MAX_LARGE_BYTES;
    return 1;
}

/* Fill in a template: numbers in place of `%d`. In a binary header the length precedes each. */
static char *put_numbers(char *out, struct span template, const int64_t *numbers, int length_bytes)
{
    const char *at = template.at, *end = at + template.size;
    for (;;) {
        const char *placeholder = memchr(at, '%', (size_t)(end - at));
        out = put_span(out, (struct span){at, (placeholder ? placeholder : end) - at});
        if (placeholder == NULL)
            return out;
        char *text = out + length_bytes;
        out = put_decimal(text, *numbers++);
        put_be(text - length_bytes, (uint64_t)(out - text), length_bytes);
        at = placeholder + 2;
    }
}

/* Add the header of an answer, with what precedes it; false with an error set. */
static int add_answer_header(
    struct pull_run *run, unsigned type, const struct pull *pull, const int64_t offsets[3], int64_t broker_id,
    int64_t body_bytes)
{
    const struct span template = run->templates[type];
    const int64_t sys_flag = run->target.topic_sys_flag, next = offsets[0], low = offsets[1], high = offsets[2];
    const int64_t json[] = {high, low, next, broker_id, sys_flag, pull->opaque};
    const int64_t binary[] = {broker_id, next, low, high, sys_flag};
    char *begin = reserve(&run->headers, FRAME_BYTES + (size_t)template.size + MAX_PULL_NUMBERS * 24);
    if (begin == NULL)
        return 0;
    char *header = begin + FRAME_BYTES, *end;
    if (type == BINARY) {
        end = put_numbers(header, template, binary, BINARY_VALUE_LENGTH_BYTES);
        int64_t fields_at = BINARY_COMMAND_BYTES + (int64_t)GET(header, BINARY_COMMAND_REMARK_LENGTH);
        PUT(header, BINARY_COMMAND_OPAQUE, pull->opaque);
        put_be(
            header + fields_at - BINARY_COMMAND_FIELDS_LENGTH_BYTES, (uint64_t)(end - header - fields_at),
            BINARY_COMMAND_FIELDS_LENGTH_BYTES);
    } else
        end = put_numbers(header, template, json, 0);
    PUT(begin, FRAME_LENGTH, FRAME_BYTES - FRAME_LENGTH_BYTES + (end - header) + body_bytes);
    PUT(begin, FRAME_MARK, (uint64_t)type << 24 | (uint64_t)(end - header));
    run->headers.size = (size_t)(end - run->headers.at);
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

/* Note what a pull gets: 1, 0 if it needs the slow path, -1 with an error set. */
static int add_answer(
    struct pull_run *run, unsigned type, const struct pull *pull, int64_t min_offset, int64_t max_offset,
    PyObject *units_object)
{
    const struct span units = span_of(units_object);
    const Py_ssize_t last = units.size / CQ_UNIT_BYTES - 1;
    int64_t total, last_phy_offset;
    struct room room;
    if (!room_of(run, pull, units, &room) || size_of(units, 0) < MIN_RECORD_BYTES + HOST_V6_EXTRA_BYTES)
        return 0;
    const struct window *window = log_window(
        run, phy_offset_of(units, 0), phy_offset_of(units, last) + size_of(units, last),
        size_of(units, 0) * (int64_t)(last + 1));
    Py_ssize_t count = window == NULL ? 0 : count_records(units, window, room, &total, &last_phy_offset);
    if (count == 0 || total > MAX_RECORD_BYTES)
        return PyErr_Occurred() ? -1 : 0;
    const int is_slow = last_phy_offset && run->max_phy_offset - last_phy_offset > run->limits[0].memory_bytes;
    const int64_t offsets[] = {pull->queue_offset + count, min_offset, max_offset};
    if (!add_answer_header(
            run, type, pull, offsets, is_slow ? run->target.slow_broker_id : run->target.broker_id, total))
        return -1;
    if (!add_note(run, pull, offsets[0], count, total, stored_ms(window, units)))
        return -1;
    run->answers[run->count++] = (struct answer){Py_NewRef(units_object), units, count, window, run->headers.size};
    run->records_bytes += total;
    return 1;
}

/* One pull: 1 if it can be answered, 0 if it needs the slow path, -1 with an error set. */
static int answer_pull(struct pull_run *run, const struct frame *frame)
{
    struct pull pull;
    if (!read_pull(frame, &pull))
        return 0;
    int is_known = find_pull_target(run, &pull);
    if (is_known <= 0)
        return is_known;
    PyObject *queue = Py_XNewRef(pulled_queue(run, &pull)), *units = NULL;
    int64_t wanted = run->limits[pull.is_large].max_messages;
    int64_t low = queue == NULL ? 0 : int_attribute(queue, name_min_queue_offset);
    int64_t high = queue == NULL ? 0 : int_attribute(queue, name_max_queue_offset);
    int is_answered = 0;
    if (pull.max_messages < wanted)
        wanted = pull.max_messages;
    if (wanted > 0 && low <= pull.queue_offset && pull.queue_offset < high)
        units = pulled_units(queue, &pull, wanted);
    if (units != NULL)
        is_answered = add_answer(run, frame->type, &pull, low, high, units);
    Py_XDECREF(units);
    Py_XDECREF(queue);
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

/* Whether a template has so many placeholders, and no others. */
static int has_numbers(struct span template, int count)
{
    const char *end = template.at + template.size;
    for (const char *at = template.at; at < end; at++)
        if (*at == '%' && (++at == end || *at != 'd' || --count < 0))
            return 0;
    return count == 0;
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
"memory, and the most messages.\n"
"find_target(topic, group, queue_id, sys_flag, subscription, expression_type, sub_version): (group, topic, number\n"
"of queues, flags of the topic, broker to ask next, the same for a slow consumer), or None: it is to be decided.\n"
"find_window(low, end, wanted_bytes): (view, start, low, end) of the log with that part of it, or None.");

static PyObject *answer_pulls(PyObject *module, PyObject *args)
{
    PyObject *data, *templates[2], *result = NULL;
    Py_ssize_t position, end;
    long long limits[2][6], max_phy_offset, max_bytes;
    (void)module;
    struct pull_run *run = PyMem_Malloc(sizeof *run);
    if (run == NULL)
        return PyErr_NoMemory();
    memset(run, 0, offsetof(struct pull_run, answers));
    if (!PyArg_ParseTuple(
            args, "Snn(SS)((LLLLLL)(LLLLLL))LLO!OO", &data, &position, &end, &templates[JSON], &templates[BINARY],
            &limits[0][0], &limits[0][1], &limits[0][2], &limits[0][3], &limits[0][4], &limits[0][5], &limits[1][0],
            &limits[1][1], &limits[1][2], &limits[1][3], &limits[1][4], &limits[1][5], &max_phy_offset, &max_bytes,
            &PyDict_Type, &run->topics, &run->find_target, &run->find_window)) {
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
