/* Whether units of a queue match their records, which are in memory or in a file. */

#pragma once

#include "log_reads.h"
#include "records.h"

PyDoc_STRVAR(units_fit_doc,
"units_fit(data, start, units, queue_offset, topic, queue_id, has_codes)\n"
"\n"
"Whether each of `units`, of which the first is number `queue_offset` of its queue, matches its record: topic,\n"
"queue, position, size, lengths, CRC of the body and, if `has_codes`, tags code. `data` has the log from\n"
"`start` on. False also for what Python has to decide: a long topic, tags that are not ASCII, zeros in\n"
"properties, or a processor without a fast CRC.");

/* The hash of the tags in properties, as a queue stores it; false if Python has to decide. */
static int tags_code_of(struct span properties, int64_t *code)
{
    struct span name, tags;
    *code = 0;
    if (memchr(properties.at, 0, (size_t)properties.size) != NULL)
        return 0;
    while (next_pair(&properties, &name, &tags)) {
        if (tags.size == 0 || !is_text(name, "TAGS"))
            continue;
        if (!is_ascii(tags))
            return 0;
        *code = (int32_t)java_hash(0, tags);
    }
    return 1;
}

struct queue_place {
    struct span topic;
    int32_t queue_id;
    int has_codes;
};

static int unit_fits(
    const unsigned char *record, const unsigned char *unit, int64_t queue_offset, const struct queue_place *queue)
{
    struct record_parts parts;
    int64_t size = (int32_t)GET(unit, CQ_UNIT_SIZE), code;
    if ((int64_t)GET(record, RECORD_TOTAL_SIZE) != size || (int32_t)GET(record, RECORD_QUEUE_ID) != queue->queue_id ||
        (int64_t)GET(record, RECORD_QUEUE_OFFSET) != queue_offset ||
        GET(record, RECORD_PHY_OFFSET) != GET(unit, CQ_UNIT_PHY_OFFSET) || !split_record(record, size, &parts) ||
        parts.topic.size != queue->topic.size ||
        memcmp(parts.topic.at, queue->topic.at, (size_t)parts.topic.size) != 0)
        return 0;
    if (!tags_code_of(parts.properties, &code) || (queue->has_codes && code != (int64_t)GET(unit, CQ_UNIT_TAGS_CODE)))
        return 0;
    return has_whole_body(record, &parts) > 0;
}

static PyObject *units_fit(PyObject *module, PyObject *args)
{
    Py_buffer data, units;
    long long start, queue_offset;
    struct queue_place queue;
    int fits = can_fold;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "y*Ly*Ly#ip", &data, &start, &units, &queue_offset, &queue.topic.at, &queue.topic.size,
            &queue.queue_id, &queue.has_codes))
        return NULL;
    fits = fits && queue.topic.size <= MAX_TOPIC_BYTES_V1;
    const unsigned char *unit = units.buf;
    Py_BEGIN_ALLOW_THREADS
    Py_ssize_t count = units.len / CQ_UNIT_BYTES;
    for (; fits && count > 0; count--, unit += CQ_UNIT_BYTES, queue_offset++) {
        int64_t at = (int64_t)GET(unit, CQ_UNIT_PHY_OFFSET), size = (int32_t)GET(unit, CQ_UNIT_SIZE);
        fits = at >= start && size > RECORD_BYTES && at - start <= data.len - size &&
               unit_fits((const unsigned char *)data.buf + (at - start), unit, queue_offset, &queue);
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    PyBuffer_Release(&units);
    return PyBool_FromLong(fits);
}

PyDoc_STRVAR(units_fit_in_file_doc,
"units_fit_in_file(fd, start, end, units, queue_offset, topic, queue_id, has_codes, ahead)\n"
"\n"
"The same for records in an open file of the log, which begins at `start` and is read up to `end`; may wait for\n"
"the disk. Where the records make up a good part of the file, it is read ahead: `ahead` bytes behind the last.\n"
"False also if the file is too short or cannot be read, and for very large records.");

static PyObject *units_fit_in_file(PyObject *module, PyObject *args)
{
    Py_buffer units;
    long long start, end, queue_offset, ahead;
    int fd;
    struct queue_place queue;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "iLLy*Ly#ipL", &fd, &start, &end, &units, &queue_offset, &queue.topic.at, &queue.topic.size,
            &queue.queue_id, &queue.has_codes, &ahead))
        return NULL;
    const struct log_part log = {fd, start, end};
    const unsigned char *unit = units.buf;
    struct buf records = {NULL, 0, 0};
    Py_ssize_t count = units.len / CQ_UNIT_BYTES;
    int fits = can_fold && queue.topic.size <= MAX_TOPIC_BYTES_V1;
    Py_BEGIN_ALLOW_THREADS
    if (fits && count > 0 && ahead >= 0)
        fetch_ahead(&log, unit, count, ahead);
    while (fits && count > 0) {
        int64_t low = (int64_t)GET(unit, CQ_UNIT_PHY_OFFSET), high = low;
        Py_ssize_t together = records_together(&log, unit, count, &high);
        fits = together > 0 && high - low <= MAX_LONE_BYTES && reserve_fresh(&records, (size_t)(high - low)) != NULL &&
               read_log(&log, records.at, high - low, low);
        for (count -= together; fits && together > 0; together--, unit += CQ_UNIT_BYTES, queue_offset++)
            fits = unit_fits(
                (const unsigned char *)records.at + ((int64_t)GET(unit, CQ_UNIT_PHY_OFFSET) - low), unit, queue_offset,
                &queue);
    }
    Py_END_ALLOW_THREADS
    free(records.at);
    PyBuffer_Release(&units);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(fits);
}
