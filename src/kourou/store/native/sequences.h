/* Idempotent producers: the windows of their sequences. */

#pragma once

#include "run.h"
#include "send_head.h"

/* The window of a slot; NULL with an error set. */
static uint64_t *window_of(struct run *run, int64_t slot)
{
    PyObject *block = slot < 0 ? NULL : PyList_GetItem(run->blocks, (Py_ssize_t)(slot / WINDOW_BLOCK_SLOTS));
    if (block == NULL || !PyByteArray_Check(block)
        || PyByteArray_Size(block) != (Py_ssize_t)WINDOW_BLOCK_SLOTS * WINDOW_BYTES) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "no such window");
        return NULL;
    }
    return (uint64_t *)(void *)PyByteArray_AsString(block) + slot % WINDOW_BLOCK_SLOTS * WINDOW_WORDS;
}

/* Look up the slots of a queue: 1, 0 if it has none, -1 with an error set. */
static int find_slots(struct run *run, struct queue *queue)
{
    if (queue->slots != NULL)
        return 1;
    PyObject *topic = PyObject_GetAttr(queue->queue, name_topic);
    PyObject *number = topic == NULL ? NULL : PyObject_GetAttr(queue->queue, name_queue_id);
    PyObject *queues = number == NULL ? NULL : PyDict_GetItemWithError(run->slots, topic);
    if (queues != NULL && PyDict_Check(queues))
        queue->slots = Py_XNewRef(PyDict_GetItemWithError(queues, number));
    Py_XDECREF(topic);
    Py_XDECREF(number);
    if (PyErr_Occurred())
        return -1;
    return queue->slots != NULL && PyDict_Check(queue->slots);
}

/* Find the window of a producer in a queue: 1, 0 if it has none, -1 with an error set. */
static int find_window(struct run *run, struct queue *queue, struct span identity)
{
    if (queue->window != NULL && queue->identity_size == identity.size
        && memcmp(queue->identity, identity.at, (size_t)identity.size) == 0)
        return 1;
    queue->window = NULL;
    queue->producers = NULL;
    if (identity.size > MAX_IDENTITY_BYTES || !is_ascii(identity))
        return 0;
    int is_found = find_slots(run, queue);
    if (is_found <= 0)
        return is_found;
    PyObject *key = PyUnicode_DecodeASCII(identity.at, identity.size, NULL);
    PyObject *slot = key == NULL ? NULL : PyDict_GetItemWithError(queue->slots, key);
    Py_XDECREF(key);
    if (slot == NULL)
        return PyErr_Occurred() ? -1 : 0;
    queue->slot = PyLong_AsLongLong(slot);
    uint64_t *window = PyErr_Occurred() ? NULL : window_of(run, queue->slot);
    if (window == NULL)
        return -1;
    memcpy(queue->identity, identity.at, (size_t)identity.size);
    queue->identity_size = identity.size;
    queue->window = window;
    return 1;
}

/* Whether the account of a send may send as the producer whose window was found: 1, 0, or -1 with an error set. */
static int may_send_as(const struct send *send, struct queue *queue)
{
    if (send->producers == NULL || send->producers == queue->producers)
        return 1;
    PyObject *identity = PyUnicode_DecodeASCII(queue->identity, queue->identity_size, NULL);
    int may_send = identity == NULL ? -1 : PySet_Contains(send->producers, identity);
    Py_XDECREF(identity);
    if (may_send > 0)
        queue->producers = send->producers;
    return may_send;
}

/* Whether a window does not have a sequence yet, which is neither below it nor far ahead. */
static int is_new(const uint64_t *window, uint64_t sequence)
{
    uint64_t next = window[WINDOW_NEXT], bit = sequence % WINDOW_SEQUENCES;
    if (sequence >= next)
        return sequence - next < WINDOW_SEQUENCES;
    return next - sequence <= WINDOW_SEQUENCES && !(window[WINDOW_SEEN + bit / 64] >> bit % 64 & 1);
}

/* Read the sequence of a message, and find the window of its producer: 1 if it may be stored, 0 if the slow path has to
   decide, -1 with an error set. */
static int check_sequence(
    struct run *run, struct queue *queue, const struct send *send, struct span text, int64_t *sequence)
{
    Py_ssize_t colon = text.size - 1;
    while (colon >= 0 && text.at[colon] != ':')
        colon--;
    struct value number = {.span = {text.at + colon + 1, text.size - colon - 1}};
    if (colon <= 0 || !is_number(&number, 0, INT64_MAX, sequence))
        return 0;
    int is_found = find_window(run, queue, (struct span){text.at, colon});
    if (is_found > 0)
        is_found = may_send_as(send, queue);
    return is_found <= 0 ? is_found : is_new(queue->window, (uint64_t)*sequence);
}

/* Note a sequence that may be stored, of a record at `phy_offset` or behind it. False with an error set. */
static int note_sequence(struct run *run, struct queue *queue, uint64_t sequence, int64_t phy_offset)
{
    uint64_t *window = queue->window, bit, number = sequence / WINDOW_MARK_RANGE;
    if (window[WINDOW_RUN] != run->number) {
        char *out = reserve(&run->undo, UNDO_BYTES);
        if (out == NULL)
            return 0;
        memcpy(put_be(out, (uint64_t)queue->slot, 8), window, WINDOW_BYTES);
        window[WINDOW_RUN] = run->number;
    }
    if (window[WINDOW_NEXT] <= sequence)
        window[WINDOW_LAST] = (uint64_t)phy_offset;
    /* Bits of what is passed over are those of older sequences. */
    for (; window[WINDOW_NEXT] <= sequence; window[WINDOW_NEXT]++) {
        bit = window[WINDOW_NEXT] % WINDOW_SEQUENCES;
        window[WINDOW_SEEN + bit / 64] &= ~((uint64_t)1 << bit % 64);
    }
    bit = sequence % WINDOW_SEQUENCES;
    window[WINDOW_SEEN + bit / 64] |= (uint64_t)1 << bit % 64;
    if (window[WINDOW_USED_MS] < (uint64_t)run->now_ms)
        window[WINDOW_USED_MS] = (uint64_t)run->now_ms;
    uint64_t *mark = window + WINDOW_FIRST_MARK + number % WINDOW_MARKS * 2;
    if (mark[0] < number + 1) {
        mark[0] = number + 1;
        mark[1] = (uint64_t)phy_offset;
    }
    return 1;
}

/* Make every window what it was before the run. */
static void take_back(struct run *run)
{
    for (size_t at = run->undo.size; at >= UNDO_BYTES; at -= UNDO_BYTES) {
        const char *entry = run->undo.at + at - UNDO_BYTES;
        uint64_t *window = window_of(run, (int64_t)get_be((const unsigned char *)entry, 8));
        if (window != NULL)
            memcpy(window, entry + 8, WINDOW_BYTES);
    }
    run->undo.size = 0;
}

static int encode_one(
    struct run *run, struct queue *queue, const struct send *send, const struct properties *found, struct span body)
{
    int64_t sequence, phy_offset = run->phy_offset;
    if (found->sequence.size == 0)
        return encode_record(run, queue, send, found, body);
    int is_fine = send->is_sequenced ? check_sequence(run, queue, send, found->sequence, &sequence) : 0;
    if (is_fine > 0)
        is_fine = encode_record(run, queue, send, found, body);
    return is_fine > 0 && !note_sequence(run, queue, (uint64_t)sequence, phy_offset) ? -1 : is_fine;
}
