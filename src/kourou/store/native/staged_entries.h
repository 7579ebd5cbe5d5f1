/* Staged entries of an atomic publish. */

#pragma once

#include "batches.h"

PyDoc_STRVAR(check_entries_doc,
"check_entries(entries, max_body, max_properties, names)\n"
"\n"
"The number of entries in the body of a batch; 0 if one is malformed, has no body, a longer one or longer\n"
"properties than allowed, or a property with one of `names`.");

static PyObject *check_entries(PyObject *module, PyObject *args)
{
    PyObject *entries;
    long long max_body, max_properties;
    Py_ssize_t count = 0;
    struct names names = {.count = NAMES_UNREAD};
    struct entry entry;
    struct span name, value;
    (void)module;
    if (!PyArg_ParseTuple(args, "SLLO!", &entries, &max_body, &max_properties, &PyTuple_Type, &names.source))
        return NULL;
    for (struct span rest = span_of(entries); rest.size > 0; count++) {
        if (!read_entry(rest, &entry) || entry.body.size == 0 || entry.body.size > max_body
            || entry.text.size > max_properties)
            return PyLong_FromLong(0);
        while (next_pair(&entry.text, &name, &value))
            if (needs_slow_path(name, &names))
                return PyErr_Occurred() ? NULL : PyLong_FromLong(0);
        rest = (struct span){rest.at + entry.size, rest.size - (Py_ssize_t)entry.size};
    }
    return PyLong_FromSsize_t(count);
}

/* What a chunk of entries is cut by: the bytes of each entry, and `more_bytes`, do not exceed `max_bytes` in total, or
   it is one entry. Each entry gets `mark` and its number, the first one `number`, as a property. */
struct chunk {
    int64_t max_bytes, more_bytes, number;
    struct span mark;
};

/* Add the record of one entry: 1, 0 if Python has to encode the chunk, -1 with an error set. */
static int encode_marked(
    struct run *run, struct queue *queue, struct send *send, const struct entry *entry, const struct chunk *chunk)
{
    struct properties found;
    if (!read_stored(entry->text, &found) || found.sequence.size)
        return 0;
    char *own = reserve_fresh(&run->text, (size_t)chunk->mark.size + 2 + MAX_DECIMAL_BYTES), *end = own;
    if (own == NULL)
        return -1;
    if (entry->text.size && entry->text.at[entry->text.size - 1] != PROPERTY_SEPARATOR)
        *end++ = PROPERTY_SEPARATOR;
    end = put_decimal(put_span(end, chunk->mark), chunk->number + run->messages);
    *end++ = PROPERTY_SEPARATOR;
    found.own = (struct span){own, end - own};
    int64_t size = RECORD_BYTES + entry->body.size + queue->topic_bytes.size + PROPERTIES_LENGTH_BYTES
                   + entry->text.size + found.own.size;
    int64_t total = run->record - run->first_record + size;
    if (entry->text.size + found.own.size > MAX_PROPERTIES_BYTES || total > run->max_record
        || total > MAX_RECORD_BYTES || run->phy_offset + size > run->last_phy_offset)
        return 0;
    send->message_flag = entry->flag;
    return reserve_records(run, size)
                   && add_record(run, queue, send, &found, entry->body, send->sys_flag & ~HOSTS_V6, size)
               ? 1
               : -1;
}

/* The entries of a chunk: how many bytes of `rest` they are, 0 if Python has to encode them, -1 with an error set. */
static Py_ssize_t encode_chunk(
    struct run *run, struct queue *queue, struct send *send, struct span rest, const struct chunk *chunk)
{
    struct entry entry;
    int64_t counted = 0, body_left = run->max_body;
    const char *const begin = rest.at;
    while (rest.size > 0) {
        if (!read_entry(rest, &entry))
            return 0;
        counted += entry.size + chunk->more_bytes;
        if (run->messages && counted > chunk->max_bytes)
            break;
        body_left -= entry.body.size;
        int is_encoded = body_left < 0 ? 0 : encode_marked(run, queue, send, &entry, chunk);
        if (is_encoded <= 0)
            return is_encoded;
        rest = (struct span){rest.at + entry.size, rest.size - (Py_ssize_t)entry.size};
    }
    return rest.at - begin;
}

PyDoc_STRVAR(encode_staged_doc,
"encode_staged(entries, position, limits, mark, number, queue, send, store_host,\n"
"              phy_offset, last_phy_offset, now_ms, max_body, max_record)\n"
"\n"
"Encodes entries of the body of a batch from `position` on, as records for the log from `phy_offset` on, all in\n"
"one file. limits: (max_bytes, more_bytes): so many that their bytes, and `more_bytes` for each, do not exceed\n"
"`max_bytes`; at least one. `mark` and a number are added to the properties, the first is `number`. send:\n"
"(born_timestamp, born_host, sys_flag). Returns the position behind them, their number, the records, the index\n"
"entries, and (queue, its next offset before, units) in a list. None if Python has to encode them.");

static PyObject *encode_staged(PyObject *module, PyObject *args)
{
    PyObject *entries, *mark, *queue_object, *born_host, *store_host, *result = NULL, *encoder = NULL;
    Py_ssize_t position;
    long long max_bytes, more_bytes, number, born_timestamp, sys_flag, phy_offset, last_phy_offset, now_ms, max_body,
        max_record;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "Sn(LL)SLO(LSL)SLLLLL", &entries, &position, &max_bytes, &more_bytes, &mark, &number, &queue_object,
            &born_timestamp, &born_host, &sys_flag, &store_host, &phy_offset, &last_phy_offset, &now_ms, &max_body,
            &max_record))
        return NULL;
    struct span rest = span_of(entries);
    if (position < 0 || position > rest.size || max_bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "the position is not within the entries, or max_bytes is negative");
        return NULL;
    }
    rest = (struct span){rest.at + position, rest.size - position};
    struct run *run = new_run();
    if (run == NULL)
        return NULL;
    run->born_host = span_of(born_host);
    run->store_host = span_of(store_host);
    run->phy_offset = phy_offset;
    run->last_phy_offset = last_phy_offset;
    run->now_ms = now_ms;
    run->max_body = max_body;
    run->max_record = max_record;
    const struct chunk chunk = {max_bytes, more_bytes, number, span_of(mark)};
    struct send send = {.queue_id = int_attribute(queue_object, name_queue_id), .born_timestamp = born_timestamp,
                        .sys_flag = sys_flag};
    if (!PyErr_Occurred())
        encoder = PyObject_GetAttr(queue_object, name_encoder);
    struct queue *queue = encoder == NULL || encoder == Py_None ? NULL : open_queue(run, queue_object, encoder);
    Py_ssize_t used = 0;
    if (queue != NULL && run->born_host.size == HOST_V4_BYTES && run->store_host.size == HOST_V4_BYTES) {
        Py_ssize_t room = Py_MIN(rest.size, max_bytes) + 4096;
        run->records = PyByteArray_FromStringAndSize(NULL, room);
        if (run->records != NULL) {
            set_room(run, 0, room);
            used = encode_chunk(run, queue, &send, rest, &chunk);
        }
    }
    PyObject *grown = NULL;
    if (PyErr_Occurred())
        result = NULL;
    else if (used <= 0)
        result = Py_NewRef(Py_None);
    else if (PyByteArray_Resize(run->records, run->record - run->first_record) == 0
             && (grown = grown_queues(run)) != NULL)
        result = Py_BuildValue(
            "(nnONN)", position + used, run->messages, run->records, bytes_of(&run->indexed), grown);
    Py_XDECREF(encoder);
    clear(run);
    return result;
}
