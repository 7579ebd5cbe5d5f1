/* Records of a log, as a slave gets them or a recovery reads them. */

#pragma once

#include "run.h"

/* What follows the head of a record that has a place in its queue. */
struct record_parts {
    struct span body, topic, properties;
    int64_t store_timestamp;
};

/* Split a record of `size` bytes, more than RECORD_BYTES, which are all there. False unless its lengths add up; for a
   record that has no unit; and for a long topic, which Python reads. */
static int split_record(const unsigned char *record, int64_t size, struct record_parts *parts)
{
    uint32_t sys_flag = (uint32_t)GET(record, RECORD_SYS_FLAG), transaction = sys_flag & TRANSACTION_MASK;
    int64_t born_more = sys_flag & BORN_V6 ? HOST_V6_EXTRA_BYTES : 0;
    int64_t more = born_more + (sys_flag & STORE_V6 ? HOST_V6_EXTRA_BYTES : 0);
    if (GET(record, RECORD_MAGIC) != MESSAGE_MAGIC_CODE || transaction == TRANSACTION_PREPARED ||
        transaction == TRANSACTION_ROLLBACK || size < MIN_RECORD_BYTES + more)
        return 0;
    int64_t body = (int32_t)GET(record + more, RECORD_BODY_LENGTH), body_at = RECORD_BYTES + more;
    int64_t topic_at = body_at + body + TOPIC_LENGTH_V1_BYTES;
    if (body < 0 || topic_at > size - PROPERTIES_LENGTH_BYTES)
        return 0;
    parts->store_timestamp = (int64_t)GET(record + born_more, RECORD_STORE_TIMESTAMP);
    parts->body = (struct span){(const char *)record + body_at, (Py_ssize_t)body};
    parts->topic = (struct span){(const char *)record + topic_at, record[topic_at - TOPIC_LENGTH_V1_BYTES]};
    int64_t properties_at = topic_at + parts->topic.size + PROPERTIES_LENGTH_BYTES;
    if (parts->topic.size > MAX_TOPIC_BYTES_V1 || properties_at > size || size - properties_at > MAX_PROPERTIES_BYTES ||
        (int64_t)get_be(record + properties_at - PROPERTIES_LENGTH_BYTES, PROPERTIES_LENGTH_BYTES) !=
            size - properties_at)
        return 0;
    parts->properties = (struct span){(const char *)record + properties_at, (Py_ssize_t)(size - properties_at)};
    return 1;
}

/* Whether the body matches its CRC: 1, 0, or -1 with an error set. */
static int has_whole_body(const unsigned char *record, const struct record_parts *parts)
{
    uint32_t crc;
    if (parts->body.size == 0)
        return 1;
    return checksum(parts->body, &crc) ? crc == (uint32_t)GET(record, RECORD_BODY_CRC) : -1;
}

/* Whether a topic is plain text that may name a folder. */
static int is_folder_name(struct span topic)
{
    return topic.size > 0 && topic.at[0] != '.' && is_ascii(topic) && memchr(topic.at, '/', (size_t)topic.size) == NULL
           && memchr(topic.at, 0, (size_t)topic.size) == NULL;
}

/* The queue of a record that is read, whose topic stays where it is; NULL if there are too many, or its name has to be
   checked by Python. */
static struct queue *queue_of_record(struct run *run, struct span topic, int64_t queue_id, int64_t queue_offset)
{
    for (struct queue *queue = run->queues, *end = queue + run->queue_count; queue < end; queue++)
        if (queue->queue_id == queue_id && queue->topic_bytes.size == topic.size
            && memcmp(queue->topic_bytes.at, topic.at, (size_t)topic.size) == 0)
            return queue;
    if (run->queue_count == MAX_QUEUES || queue_id < 0 || !is_folder_name(topic))
        return NULL;
    struct queue *queue = &run->queues[run->queue_count++];
    memset(queue, 0, sizeof *queue);
    queue->topic_bytes = topic;
    queue->queue_id = queue_id;
    queue->first = queue->next = queue_offset;
    queue->topic_code = java_hash(java_hash(0, topic), (struct span){"#", 1});
    return queue;
}

/* Read the record at the start of `rest`: its size, 0 if it is incomplete or has to be read by Python, -1 with an error
   set. */
static int64_t read_record(struct run *run, struct span rest, struct span slow_path_topic)
{
    const unsigned char *record = (const unsigned char *)rest.at;
    struct record_parts parts;
    struct properties found = {.own = {"", 0}};
    struct span pairs, name, value;
    if (rest.size < MIN_RECORD_BYTES)
        return 0;
    int64_t size = (int32_t)GET(record, RECORD_TOTAL_SIZE), queue_offset = (int64_t)GET(record, RECORD_QUEUE_OFFSET);
    if (size < MIN_RECORD_BYTES || size > rest.size || run->max_record < size || queue_offset < 0
        || queue_offset == INT64_MAX || (int64_t)GET(record, RECORD_PHY_OFFSET) != run->phy_offset || !split_record(record, size, &parts)
        || memchr(parts.properties.at, 0, (size_t)parts.properties.size) != NULL
        || (parts.topic.size == slow_path_topic.size
            && memcmp(parts.topic.at, slow_path_topic.at, (size_t)parts.topic.size) == 0))
        return 0;
    for (pairs = parts.properties; next_pair(&pairs, &name, &value);)
        if (!keep_word(name, value, &found))
            return 0;
        else if (is_text(name, SEQUENCE_PROPERTY))
            found.sequence = value;
    int is_whole = has_whole_body(record, &parts);
    if (is_whole <= 0)
        return is_whole;
    struct queue *queue = queue_of_record(run, parts.topic, (int32_t)GET(record, RECORD_QUEUE_ID), queue_offset);
    if (queue == NULL || queue->next != queue_offset)
        return 0;
    run->now_ms = parts.store_timestamp;
    if (!add_unit(run, queue, size, tags_code(&found)) || !add_index_keys(run, queue, &found))
        return -1;
    run->has_sequences |= found.sequence.size > 0;
    queue->next++;
    return size;
}

/* The queues with records that were read: topic, queue id, first queue_offset, units. */
static PyObject *read_queues(struct run *run)
{
    PyObject *grown = PyList_New(0);
    for (int i = 0; grown != NULL && i < run->queue_count; i++) {
        struct queue *queue = &run->queues[i];
        PyObject *topic = PyUnicode_DecodeASCII(queue->topic_bytes.at, queue->topic_bytes.size, NULL);
        PyObject *entry = topic == NULL ? NULL
                                        : Py_BuildValue(
                                              "(NLLN)", topic, (long long)queue->queue_id, (long long)queue->first,
                                              bytes_of(&queue->units));
        if (entry == NULL || PyList_Append(grown, entry) < 0)
            Py_CLEAR(grown);
        Py_XDECREF(entry);
    }
    return grown;
}

PyDoc_STRVAR(read_records_doc,
"read_records(data, phy_offset, max_record_bytes, slow_path_topic)\n"
"\n"
"Reads the records at the start of `data`, which lies at `phy_offset` of the log, up to the first that is\n"
"incomplete, is not one, or has to be read by Python: of `slow_path_topic`, without a place in a queue, not in\n"
"the order of its queue, with a long topic, or with an unusual name or properties. Returns their end in the log,\n"
"the store time of the last, their index entries (as encode_sends) and, for each queue, (topic, queue id, first\n"
"queue_offset, units), and whether one of them has a sequence. None if that is the first record. The interpreter\n"
"lock is released meanwhile if there is much to read.");

/* For fewer bytes than these it does not pay to release the interpreter lock, and to wait for it again. */
enum { LONG_BYTES = 256 * 1024 };

static PyObject *read_records(PyObject *module, PyObject *args)
{
    Py_buffer data;
    long long phy_offset, max_record;
    struct span slow_path_topic;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "y*LLy#", &data, &phy_offset, &max_record, &slow_path_topic.at, &slow_path_topic.size))
        return NULL;
    struct run *run = new_run();
    if (run != NULL) {
        struct span rest = {data.buf, data.len};
        int64_t size;
        run->phy_offset = phy_offset;
        run->max_record = max_record;
        PyThreadState *thread = can_fold && data.len >= LONG_BYTES ? PyEval_SaveThread() : NULL;
        while ((size = read_record(run, rest, slow_path_topic)) > 0) {
            run->phy_offset += size;
            rest = (struct span){rest.at + size, rest.size - (Py_ssize_t)size};
        }
        if (thread != NULL)
            PyEval_RestoreThread(thread);
        if (size == 0)
            result = run->phy_offset == phy_offset
                         ? Py_NewRef(Py_None)
                         : Py_BuildValue(
                               "(LLNNN)", (long long)run->phy_offset, (long long)run->now_ms, bytes_of(&run->indexed),
                               read_queues(run), PyBool_FromLong(run->has_sequences));
        clear(run);
    }
    PyBuffer_Release(&data);
    return result;
}
