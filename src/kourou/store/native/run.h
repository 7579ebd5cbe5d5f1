/* A run of sends: the queues, records, units, index entries and responses that one call encodes. */

#pragma once

#include "checksum.h"
#include "large_bodies.h"
#include "properties.h"
#include "send_head.h"
#include "sha1.h"

enum { HOST_DIGITS = 16, OFFSET_DIGITS = 16, ID_BYTES = HOST_DIGITS + OFFSET_DIGITS + 1 };
enum { MAX_QUEUES = 256, MAX_IDENTITY_BYTES = 96 };
enum { WINDOW_BYTES = WINDOW_WORDS * 8, UNDO_BYTES = 8 + WINDOW_BYTES };

static PyObject *name_next_queue_offset, *name_encoder, *name_topic, *name_topic_part, *name_magic, *name_queue_id;

struct queue {
    PyObject *queue, *topic_part;
    struct span topic_bytes; /* the contents of topic_part */
    struct buf units;
    int64_t queue_id, first, next; /* the id: of records that are read */
    uint32_t magic, topic_code; /* the hash code of `topic#` */
    /* of idempotent producers: their slots by identity, and the window of the last one */
    PyObject *slots;
    uint64_t *window;
    int64_t slot;
    Py_ssize_t identity_size;
    char identity[MAX_IDENTITY_BYTES];
    const PyObject *producers; /* of the last send that was allowed to have this identity */
};

/* Sends whose signatures were verified together, before the first of them is encoded: hashes of several texts cost
   little more than one. The place behind the last is that of the next frame to be read. */
struct verified {
    struct send send;
    const char *header; /* where its frame has it */
    int is_valid;       /* signed, by an account that may send to the topic */
};
struct ahead {
    Py_ssize_t group, piece;
    PyObject *pieces; /* of the group; NULL before the first */
    struct span rest; /* of the piece */
    int next, count;
    struct verified all[SHA1_LANES];
    struct buf texts[SHA1_LANES];
    struct fields fields;
    /* the account of the last send: usually that of the next one, too */
    struct span access_key, topic;
    struct signing_state key;
    PyObject *producers;
};

struct run {
    /* input */
    PyObject *groups, *accounts; /* accounts: NULL where sends need no signature */
    PyObject *new_queue, *targets, *configs, *broker_config, *topics, *slots, *blocks;
    uint64_t number; /* of the run, as windows note it */
    struct span own, store_host, born_host;
    const struct span (*templates)[2]; /* of responses: by serialization type, and whether the message has an id */
    struct names *slow_path_names;
    int64_t last_phy_offset, now_ms, max_body, max_record;
    /* the topic of the last message: usually that of the next one, too */
    struct span topic;
    PyObject *target, *queues_of_topic;
    int64_t queue_nums, more_flags;
    /* output: a bytearray, its start, the place of the next record, its end */
    PyObject *records;
    char *first_record, *record, *records_end;
    struct large_bodies large; /* what is missing in them */
    struct buf indexed, responses;
    int64_t phy_offset;
    Py_ssize_t messages;
    int queue_count;
    /* of the current send: its properties, and the phy_offsets of its records, 8 bytes each */
    struct buf text, phy_offsets;
    /* of idempotent producers: the sequences of a batch, 8 bytes each; slots that were changed, and what their windows
       were before; whether a record that was read has a sequence */
    struct buf sequences, undo;
    int has_sequences;
    struct ahead ahead;
    struct queue queues[MAX_QUEUES]; /* valid as far as their count says */
};

static struct run *new_run(void)
{
    struct run *run = PyMem_Malloc(sizeof *run);
    if (run == NULL)
        PyErr_NoMemory();
    else
        memset(run, 0, offsetof(struct run, queues));
    return run;
}

/* Hold another object; takes over the reference. */
static void replace(PyObject **held, PyObject *object)
{
    PyObject *before = *held;
    *held = object;
    Py_XDECREF(before);
}

static int64_t int_attribute(PyObject *object, PyObject *name)
{
    PyObject *number = PyObject_GetAttr(object, name);
    if (number == NULL)
        return -1;
    int64_t value = PyLong_AsLongLong(number);
    Py_DECREF(number);
    return value;
}

/* Whether messages of the topic may take the fast path: 1, 0, or -1 with an error set. */
static int find_topic(struct run *run, struct span topic)
{
    if (run->target != NULL && run->topic.size == topic.size
        && memcmp(run->topic.at, topic.at, (size_t)topic.size) == 0)
        return 1;
    PyObject *name = PyUnicode_DecodeASCII(topic.at, topic.size, NULL);
    if (name == NULL)
        return -1;
    PyObject *target = PyDict_GetItemWithError(run->targets, name);
    PyObject *config = PyDict_GetItemWithError(run->configs, name);
    PyObject *queues = PyDict_GetItemWithError(run->topics, name);
    Py_DECREF(name);
    if (PyErr_Occurred())
        return -1;
    if (target == NULL || config == NULL || queues == NULL || !PyTuple_Check(target)
        || PyTuple_Size(target) != 5 || !PyDict_Check(queues))
        return 0;
    /* topic_config, broker_config, queue_nums, sys_flag, is_retry */
    if (PyTuple_GetItem(target, 0) != config || PyTuple_GetItem(target, 1) != run->broker_config
        || PyTuple_GetItem(target, 4) != Py_False)
        return 0;
    int64_t queue_nums = PyLong_AsLongLong(PyTuple_GetItem(target, 2));
    int64_t more_flags = PyLong_AsLongLong(PyTuple_GetItem(target, 3));
    if (PyErr_Occurred())
        return -1;
    /* Keep references: the checksum of a large body lets other threads run. */
    replace(&run->target, Py_NewRef(target));
    replace(&run->queues_of_topic, Py_NewRef(queues));
    run->topic = topic;
    run->queue_nums = queue_nums;
    run->more_flags = more_flags;
    return 1;
}

/* The encoder of the records of a queue. A missing queue is created, and one without messages prepared. NULL, with
   or without an error set, if that is impossible. */
static PyObject *encoder_of(struct run *run, PyObject *number, PyObject **queue)
{
    PyObject *encoder = *queue == NULL ? NULL : PyObject_GetAttr(*queue, name_encoder);
    if (PyErr_Occurred() || (encoder != NULL && encoder != Py_None))
        return encoder;
    Py_CLEAR(encoder);
    PyObject *topic = PyUnicode_DecodeASCII(run->topic.at, run->topic.size, NULL);
    if (topic == NULL)
        return NULL;
    replace(queue, PyObject_CallFunctionObjArgs(run->new_queue, topic, number, NULL));
    Py_DECREF(topic);
    return *queue == NULL || *queue == Py_None ? NULL : PyObject_GetAttr(*queue, name_encoder);
}

/* Start to use a queue; NULL, with or without an error set, if the fast path cannot use it. */
static struct queue *open_queue(struct run *run, PyObject *queue, PyObject *encoder)
{
    struct queue *found = &run->queues[run->queue_count];
    memset(found, 0, sizeof *found);
    found->queue = Py_NewRef(queue);
    found->first = found->next = int_attribute(queue, name_next_queue_offset);
    found->magic = (uint32_t)int_attribute(encoder, name_magic);
    run->queue_count++; /* so that `clear` releases it */
    PyObject *topic = PyErr_Occurred() ? NULL : PyObject_GetAttr(queue, name_topic);
    if (topic != NULL)
        found->topic_part = PyObject_GetAttr(encoder, name_topic_part);
    struct span name = {NULL, 0};
    if (found->topic_part != NULL && PyBytes_Check(found->topic_part) && PyUnicode_Check(topic)) {
        found->topic_bytes = span_of(found->topic_part);
        name.at = PyUnicode_AsUTF8AndSize(topic, &name.size);
    }
    int is_fine = name.at != NULL && is_ascii(name)
                  && found->topic_bytes.size <= TOPIC_LENGTH_V2_BYTES + MAX_TOPIC_FOLDER_BYTES;
    if (is_fine)
        found->topic_code = java_hash(java_hash(0, name), (struct span){"#", 1});
    Py_XDECREF(topic);
    return is_fine ? found : NULL;
}

/* The queue, if the run uses it already. */
static struct queue *opened_queue(struct run *run, PyObject *queue)
{
    for (int i = 0; queue != NULL && i < run->queue_count; i++)
        if (run->queues[i].queue == queue)
            return &run->queues[i];
    return NULL;
}

/* The queue of a message; NULL, with or without an error set, if the fast path cannot use it. */
static struct queue *find_queue(struct run *run, int64_t queue_id)
{
    PyObject *number = PyLong_FromLongLong(queue_id);
    if (number == NULL)
        return NULL;
    PyObject *queue = Py_XNewRef(PyDict_GetItemWithError(run->queues_of_topic, number));
    struct queue *found = opened_queue(run, queue);
    if (found == NULL && run->queue_count < MAX_QUEUES) {
        PyObject *encoder = encoder_of(run, number, &queue);
        if (encoder != NULL && (found = opened_queue(run, queue)) == NULL)
            found = open_queue(run, queue, encoder);
        Py_XDECREF(encoder);
    }
    Py_XDECREF(queue);
    Py_DECREF(number);
    return found;
}

/* Index the current record under a word: hash of the word, phy_offset and store time of the record. */
static int add_index_key(struct run *run, const struct queue *queue, struct span word)
{
    char *out = reserve(&run->indexed, INDEX_KEY_BYTES);
    if (out == NULL)
        return 0;
    int64_t code = (int32_t)java_hash(queue->topic_code, word);
    /* The absolute value, or 0 where there is none. */
    code = code == INT32_MIN ? 0 : code < 0 ? -code : code;
    PUT(out, INDEX_KEY_KEY_HASH, code);
    PUT(out, INDEX_KEY_PHY_OFFSET, run->phy_offset);
    PUT(out, INDEX_KEY_STORE_TIMESTAMP, run->now_ms);
    return 1;
}

/* Index the current record under its id, then under each of its keys, which spaces separate. */
static int add_index_keys(struct run *run, const struct queue *queue, const struct properties *found)
{
    struct span rest = found->keys;
    if (found->uniq_key.size && !add_index_key(run, queue, found->uniq_key))
        return 0;
    while (rest.size) {
        const char *blank = memchr(rest.at, ' ', (size_t)rest.size);
        struct span word = {rest.at, blank ? blank - rest.at : rest.size};
        if (word.size && !add_index_key(run, queue, word))
            return 0;
        Py_ssize_t gone = blank ? word.size + 1 : word.size;
        rest = (struct span){rest.at + gone, rest.size - gone};
    }
    return 1;
}

static int add_unit(struct run *run, struct queue *queue, int64_t size, int64_t tags_code)
{
    char *out = reserve(&queue->units, CQ_UNIT_BYTES);
    if (out == NULL)
        return 0;
    PUT(out, CQ_UNIT_PHY_OFFSET, run->phy_offset);
    PUT(out, CQ_UNIT_SIZE, size);
    PUT(out, CQ_UNIT_TAGS_CODE, tags_code);
    return 1;
}

/* A number as text, after the length of the text if `length_bytes` is not 0. */
static char *put_number(char *out, int64_t number, int length_bytes)
{
    char *end = put_decimal(out + length_bytes, number);
    put_be(out, (uint64_t)(end - out - length_bytes), length_bytes);
    return end;
}

/* Keep the phy_offset of the current record, for the response. */
static int add_phy_offset(struct run *run)
{
    char *out = reserve(&run->phy_offsets, 8);
    if (out == NULL)
        return 0;
    put_be(out, (uint64_t)run->phy_offset, 8);
    return 1;
}

/* The size of the ids of the records of a send, with a comma after each. */
static size_t ids_bytes(const struct run *run)
{
    return run->phy_offsets.size / 8 * ID_BYTES;
}

/* The ids of the records of a send, without the host of the first, which the template contains. */
static char *put_ids(char *out, const struct run *run)
{
    uint64_t host = get_be((const unsigned char *)run->store_host.at, HOST_V4_BYTES);
    const unsigned char *offset = (const unsigned char *)run->phy_offsets.at;
    out = put_hex(out, get_be(offset, 8), OFFSET_DIGITS);
    for (size_t at = 8; at < run->phy_offsets.size; at += 8) {
        *out++ = ',';
        out = put_hex(put_hex(out, host, HOST_DIGITS), get_be(offset + at, 8), OFFSET_DIGITS);
    }
    return out;
}

/* Fill in a template. Its placeholders are those of Python's `%` for bytes, in this order: phy_offset, queue id,
   queue_offset, id of the message if it has one and, in JSON, opaque. In a binary header a length precedes each text;
   that of the offset ids is part of the template. */
static char *put_filled(
    char *out, const struct run *run, unsigned type, const struct send *send, struct span id, int64_t queue_offset)
{
    struct span template = run->templates[type][id.size > 0];
    const int64_t numbers[] = {send->queue_id, queue_offset, send->opaque};
    const int length_bytes = type == BINARY ? BINARY_VALUE_LENGTH_BYTES : 0;
    const char *at = template.at, *end = at + template.size;
    int next = 0;
    while (at < end) {
        const char *placeholder = memchr(at, '%', (size_t)(end - at));
        out = put_span(out, (struct span){at, (placeholder ? placeholder : end) - at});
        if (placeholder == NULL)
            break;
        at = placeholder + 2;
        if (placeholder[1] == 's')
            out = put_span(put_be(out, (uint64_t)id.size, length_bytes), id);
        else if (placeholder[1] == 'd')
            out = put_number(out, numbers[next++], length_bytes);
        else if (placeholder[1] == '0') {
            if (type == BINARY)
                put_be(out - HOST_DIGITS - BINARY_VALUE_LENGTH_BYTES, ids_bytes(run) - 1, BINARY_VALUE_LENGTH_BYTES);
            out = put_ids(out, run);
            at += 3; /* %016X */
        } else
            *out++ = '%';
    }
    return out;
}

/* Add the response to a send; false with an error set. */
static int add_response(
    struct run *run, unsigned type, const struct send *send, struct span id, int64_t queue_offset)
{
    size_t template_bytes = (size_t)run->templates[type][id.size > 0].size;
    char *begin = reserve(
        &run->responses, FRAME_BYTES + template_bytes + (size_t)id.size + ids_bytes(run) + MAX_NUMBERS_BYTES);
    if (begin == NULL)
        return 0;
    char *header = begin + FRAME_BYTES, *end = put_filled(header, run, type, send, id, queue_offset);
    PUT(begin, FRAME_LENGTH, end - begin - FRAME_LENGTH_BYTES);
    PUT(begin, FRAME_MARK, (uint64_t)type << 24 | (uint64_t)(end - header));
    if (type == BINARY) {
        PUT(header, BINARY_COMMAND_OPAQUE, send->opaque);
        PUT(header, BINARY_COMMAND_FIELDS_LENGTH, end - header - BINARY_COMMAND_BYTES);
    }
    run->responses.size = (size_t)(end - run->responses.at);
    return 1;
}

static void put_record(
    struct run *run, struct queue *queue, const struct send *send, const struct properties *found,
    struct span body, uint32_t crc, int64_t sys_flag, int64_t size)
{
    char *const head = run->record, *out = head + RECORD_BYTES;
    PUT(head, RECORD_TOTAL_SIZE, size);
    PUT(head, RECORD_MAGIC, queue->magic);
    PUT(head, RECORD_BODY_CRC, crc);
    PUT(head, RECORD_QUEUE_ID, send->queue_id);
    PUT(head, RECORD_FLAG, send->message_flag);
    PUT(head, RECORD_QUEUE_OFFSET, queue->next);
    PUT(head, RECORD_PHY_OFFSET, run->phy_offset);
    PUT(head, RECORD_SYS_FLAG, sys_flag);
    PUT(head, RECORD_BORN_TIMESTAMP, send->born_timestamp);
    PUT_SPAN(head, RECORD_BORN_HOST, run->born_host);
    PUT(head, RECORD_STORE_TIMESTAMP, run->now_ms);
    PUT_SPAN(head, RECORD_STORE_HOST, run->store_host);
    PUT(head, RECORD_RECONSUME_TIMES, send->reconsume_times);
    PUT(head, RECORD_PREPARED_TRANSACTION_OFFSET, 0);
    PUT(head, RECORD_BODY_LENGTH, body.size);
    if (!is_large(&run->large, body))
        out = put_span(out, body);
    out = put_span(out, queue->topic_bytes);
    out = put_be(out, (uint64_t)(found->text.size + found->own.size), PROPERTIES_LENGTH_BYTES);
    out = put_span(out, found->text);
    run->record = put_span(out, found->own);
}

static void set_room(struct run *run, Py_ssize_t used, Py_ssize_t room)
{
    run->first_record = PyByteArray_AsString(run->records);
    run->record = run->first_record + used;
    run->records_end = run->first_record + room;
}

/* Reserve room for `size` bytes of records; false with an error set. */
static int reserve_records(struct run *run, int64_t size)
{
    if (run->records_end - run->record >= size)
        return 1;
    Py_ssize_t used = run->record - run->first_record, room = GROWN(used + (Py_ssize_t)size);
    if (PyByteArray_Resize(run->records, room) < 0)
        return 0;
    set_room(run, used, room);
    return 1;
}

/* Add a record, for which room is reserved, with its unit and index entries. False with an error set. */
static int add_record(
    struct run *run, struct queue *queue, const struct send *send, const struct properties *found, struct span body,
    int64_t sys_flag, int64_t size)
{
    uint32_t crc;
    if (!checksum(body, &crc) || !add_unit(run, queue, size, tags_code(found)) || !add_index_keys(run, queue, found)
        || !add_phy_offset(run)
        || (is_large(&run->large, body)
            && !leave_out(&run->large, run->record + RECORD_BYTES - run->first_record, body)))
        return 0;
    put_record(run, queue, send, found, body, crc, sys_flag, size);
    run->phy_offset += size;
    run->messages++;
    queue->next++;
    return 1;
}

static int encode_record(
    struct run *run, struct queue *queue, const struct send *send, const struct properties *found, struct span body)
{
    Py_ssize_t properties_bytes = found->text.size + found->own.size;
    int64_t size = RECORD_BYTES + body.size + queue->topic_bytes.size + PROPERTIES_LENGTH_BYTES + properties_bytes;
    if (found->uniq_key.size == 0 || body.size > run->max_body || size > run->max_record || size > MAX_RECORD_BYTES
        || run->phy_offset + size > run->last_phy_offset)
        return 0;
    int64_t sys_flag = (send->sys_flag | run->more_flags) & ~HOSTS_V6;
    return reserve_records(run, size) && add_record(run, queue, send, found, body, sys_flag, size) ? 1 : -1;
}

static PyObject *grown_queues(struct run *run)
{
    PyObject *grown = PyList_New(0);
    for (int i = 0; grown != NULL && i < run->queue_count; i++) {
        struct queue *queue = &run->queues[i];
        if (queue->next == queue->first)
            continue;
        PyObject *entry = Py_BuildValue("(OLN)", queue->queue, (long long)queue->first, bytes_of(&queue->units));
        if (entry == NULL || PyList_Append(grown, entry) < 0)
            Py_CLEAR(grown);
        Py_XDECREF(entry);
    }
    return grown;
}

/* Let go of all that a run holds, but for the run itself. */
static void release(struct run *run)
{
    Py_XDECREF(run->target);
    Py_XDECREF(run->queues_of_topic);
    for (int i = 0; i < run->queue_count; i++) {
        Py_XDECREF(run->queues[i].queue);
        Py_XDECREF(run->queues[i].topic_part);
        Py_XDECREF(run->queues[i].slots);
        free(run->queues[i].units.at);
    }
    Py_XDECREF(run->records);
    free(run->large.all.at);
    free(run->indexed.at);
    free(run->responses.at);
    free(run->text.at);
    free(run->phy_offsets.at);
    free(run->sequences.at);
    free(run->undo.at);
    for (int i = 0; i < SHA1_LANES; i++)
        free(run->ahead.texts[i].at);
}

static void clear(struct run *run)
{
    release(run);
    PyMem_Free(run);
}
