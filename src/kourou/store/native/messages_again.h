/* Messages that come again: popped ones whose invisible time has ended. */

#pragma once

#include "records.h"

enum { AGAIN_ROOM_BYTES = 16 * 1024 }; /* for records, at first */

/* What the messages of a check point have in common: where they lie, and how they are put again. `first_pop` and
   `origin` are properties, each with the separator behind it. */
struct again {
    struct span topic, first_pop, origin;
    int64_t queue_id, attempts;
};

/* Whether `name` is the name of the property that `pair` is. */
static int names_pair(struct span name, struct span pair)
{
    return name.size < pair.size && pair.at[name.size] == NAME_VALUE_SEPARATOR
           && memcmp(name.at, pair.at, (size_t)name.size) == 0;
}

/* Read the properties of a message that comes again, and add `first_pop`, if it has none, and `origin`, unless it ends
   with that. 1, 0 if Python has to do it, -1 with an error set. */
static int read_again(
    struct run *run, struct span text, const struct again *again, int is_first, struct properties *found)
{
    struct span rest = text, name, value;
    int has_first_pop = 0, has_origin = 0;
    *found = (struct properties){.text = text};
    if (text.size && memchr(text.at, 0, (size_t)text.size) != NULL)
        return 0;
    while (next_pair(&rest, &name, &value)) {
        if (is_text(name, SEQUENCE_PROPERTY) || !keep_word(name, value, found))
            return 0;
        if (names_pair(name, again->first_pop)) {
            if (is_first || value.size == 0 || has_first_pop++)
                return 0;
        } else if (names_pair(name, again->origin)) {
            has_origin = !is_first && rest.size == 0 && name.size + 1 + value.size + 1 == again->origin.size
                         && text.at + text.size - again->origin.size == name.at
                         && memcmp(name.at, again->origin.at, (size_t)again->origin.size) == 0;
            if (!has_origin)
                return 0;
        }
    }
    if (has_origin && !has_first_pop)
        return 0;
    if (!is_ascii(text)) {
        int is_fine = is_utf8(text);
        if (is_fine <= 0)
            return is_fine;
    }
    char *own = reserve_fresh(&run->text, (size_t)(again->first_pop.size + again->origin.size) + 1), *end = own;
    if (own == NULL)
        return -1;
    if (!has_origin && text.size && text.at[text.size - 1] != PROPERTY_SEPARATOR)
        *end++ = PROPERTY_SEPARATOR;
    if (!has_first_pop)
        end = put_span(end, again->first_pop);
    if (!has_origin)
        end = put_span(end, again->origin);
    found->own = (struct span){own, end - own};
    return 1;
}

/* Add the record of a message again: 1, 0 if Python has to do it, -1 with an error set. */
static int encode_again_one(
    struct run *run, struct queue *queue, const struct again *again, struct span record_bytes,
    const unsigned char *unit)
{
    const unsigned char *record = (const unsigned char *)record_bytes.at;
    struct record_parts parts;
    struct properties found;
    if (record_bytes.size < MIN_RECORD_BYTES || (int64_t)GET(record, RECORD_TOTAL_SIZE) != record_bytes.size
        || (int64_t)GET(unit, CQ_UNIT_SIZE) != record_bytes.size
        || GET(record, RECORD_PHY_OFFSET) != GET(unit, CQ_UNIT_PHY_OFFSET)
        || GET(record, RECORD_SYS_FLAG) & HOSTS_V6 || !split_record(record, record_bytes.size, &parts)
        || parts.topic.size != again->topic.size
        || memcmp(parts.topic.at, again->topic.at, (size_t)parts.topic.size) != 0
        || (int32_t)GET(record, RECORD_QUEUE_ID) != again->queue_id)
        return 0;
    int64_t times = (int32_t)GET(record, RECORD_RECONSUME_TIMES);
    if (times < 0 || times >= again->attempts)
        return 0;
    int is_fine = has_whole_body(record, &parts);
    if (is_fine > 0)
        is_fine = read_again(run, parts.properties, again, times == 0, &found);
    if (is_fine <= 0)
        return is_fine;
    int64_t size = RECORD_BYTES + parts.body.size + queue->topic_bytes.size + PROPERTIES_LENGTH_BYTES
                   + found.text.size + found.own.size;
    if (found.text.size + found.own.size > MAX_PROPERTIES_BYTES || parts.body.size > run->max_body
        || size > run->max_record || size > MAX_RECORD_BYTES || run->phy_offset + size > run->last_phy_offset)
        return 0;
    const struct send send = {.queue_id = queue->queue_id, .born_timestamp = (int64_t)GET(record, RECORD_BORN_TIMESTAMP),
                              .message_flag = (int32_t)GET(record, RECORD_FLAG), .reconsume_times = times + 1};
    run->born_host = (struct span){(const char *)record + RECORD_BORN_HOST_AT, HOST_V4_BYTES};
    return reserve_records(run, size)
                   && add_record(run, queue, &send, &found, parts.body, (int64_t)GET(record, RECORD_SYS_FLAG), size)
               ? 1
               : -1;
}

/* Add the records of `records` until Python has to add one: 0 with an error set. */
static int encode_again_all(
    struct run *run, struct queue *queue, const struct again *again, PyObject *records, struct span units)
{
    Py_ssize_t count = PyList_Size(records);
    for (Py_ssize_t i = 0; i < count && (i + 1) * CQ_UNIT_BYTES <= units.size; i++) {
        Py_buffer record;
        if (PyObject_GetBuffer(PyList_GetItem(records, i), &record, PyBUF_SIMPLE) < 0)
            return 0;
        int is_encoded = encode_again_one(
            run, queue, again, (struct span){record.buf, record.len},
            (const unsigned char *)units.at + i * CQ_UNIT_BYTES);
        PyBuffer_Release(&record);
        if (is_encoded <= 0)
            return is_encoded == 0;
    }
    return !PyErr_Occurred();
}

PyDoc_STRVAR(encode_again_doc,
"encode_again(records, units, source, properties, queue, store_host,\n"
"             phy_offset, last_phy_offset, now_ms, max_body, max_record)\n"
"\n"
"Encodes stored messages once more, as records of `queue` for the log from `phy_offset` on, all in one file.\n"
"`records` is a list of buffers, `units` says where each lies. source: (topic, queue_id, attempts), what the\n"
"records have to say, and the reconsume times that they are below; they get one more. properties: two of them,\n"
"with separators: the first is added unless there is one, the second in any case. Stops at the first record\n"
"that Python has to encode, which includes damaged ones. Returns the number of messages, the records, the index\n"
"entries, and (queue, its next offset before, units) in a list; None without messages.");

static PyObject *encode_again(PyObject *module, PyObject *args)
{
    PyObject *records, *units, *topic, *first_pop, *origin, *queue_object, *store_host, *result = NULL, *encoder = NULL;
    long long queue_id, attempts, phy_offset, last_phy_offset, now_ms, max_body, max_record;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "O!S(SLL)(SS)OSLLLLL", &PyList_Type, &records, &units, &topic, &queue_id, &attempts, &first_pop, &origin,
            &queue_object, &store_host, &phy_offset, &last_phy_offset, &now_ms, &max_body, &max_record))
        return NULL;
    struct run *run = new_run();
    if (run == NULL)
        return NULL;
    run->store_host = span_of(store_host);
    run->phy_offset = phy_offset;
    run->last_phy_offset = last_phy_offset;
    run->now_ms = now_ms;
    run->max_body = max_body;
    run->max_record = max_record;
    const struct again again = {span_of(topic), span_of(first_pop), span_of(origin), queue_id, attempts};
    int64_t target_id = int_attribute(queue_object, name_queue_id);
    if (!PyErr_Occurred())
        encoder = PyObject_GetAttr(queue_object, name_encoder);
    struct queue *queue = encoder == NULL || encoder == Py_None ? NULL : open_queue(run, queue_object, encoder);
    int is_fine = !PyErr_Occurred();
    if (queue != NULL && run->store_host.size == HOST_V4_BYTES) {
        queue->queue_id = target_id;
        run->records = PyByteArray_FromStringAndSize(NULL, AGAIN_ROOM_BYTES);
        if (run->records != NULL)
            set_room(run, 0, AGAIN_ROOM_BYTES);
        is_fine = run->records != NULL && encode_again_all(run, queue, &again, records, span_of(units));
    }
    PyObject *grown = NULL;
    if (!is_fine)
        result = NULL;
    else if (run->messages == 0)
        result = Py_NewRef(Py_None);
    else if (PyByteArray_Resize(run->records, run->record - run->first_record) == 0
             && (grown = grown_queues(run)) != NULL)
        result = Py_BuildValue("(nONN)", run->messages, run->records, bytes_of(&run->indexed), grown);
    Py_XDECREF(encoder);
    clear(run);
    return result;
}
