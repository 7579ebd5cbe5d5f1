/* A batch: all its messages, or none. */

#pragma once

#include "sequences.h"

enum { MAX_BATCH_MESSAGES = MAX_HEADER_BYTES / 2 / ID_BYTES }; /* the header of the response contains their ids */

/* Tags, keys and id of properties that are stored as they are. False for those that `keep_word` leaves to Python, and
   for the half message of a transaction. */
static int read_stored(struct span text, struct properties *found)
{
    struct span rest = text, name, value;
    *found = (struct properties){.text = text, .own = {"", 0}};
    while (next_pair(&rest, &name, &value))
        if (is_text(name, "TRAN_MSG") || !keep_word(name, value, found)
            || (is_text(name, SEQUENCE_PROPERTY) && !keep_sequence(value, found)))
            return 0;
    /* With a zero at the end they would look truncated. */
    return text.size == 0 || text.at[text.size - 1] != 0;
}

/* The number of entries in the body of a batch; 0 if their lengths do not add up. */
static Py_ssize_t count_entries(struct span rest)
{
    Py_ssize_t entries = 0;
    for (; rest.size >= MIN_BATCH_ENTRY_BYTES; entries++) {
        int64_t size = (int32_t)GET(rest.at, BATCH_ENTRY_SIZE);
        if (size < MIN_BATCH_ENTRY_BYTES || size > rest.size)
            return 0;
        rest.at += size;
        rest.size -= (Py_ssize_t)size;
    }
    return rest.size == 0 ? entries : 0;
}

/* Check the sequence of an entry, and keep it until the batch is encoded: 1, 0 if the batch needs the slow path, -1 with
   an error set. All of a batch are of one producer, each higher than the one before, or the slow path decides. */
static int add_sequence(struct run *run, struct queue *queue, const struct send *send, struct span text)
{
    const uint64_t *window = queue->window;
    int64_t sequence, last = -1;
    size_t size = run->sequences.size;
    int is_fine = send->is_sequenced ? check_sequence(run, queue, send, text, &sequence) : 0;
    if (is_fine <= 0)
        return is_fine;
    if (size)
        memcpy(&last, run->sequences.at + size - 8, 8);
    if (sequence <= last || (size && queue->window != window))
        return 0;
    char *out = reserve(&run->sequences, 8);
    if (out == NULL)
        return -1;
    memcpy(out, &sequence, 8);
    return 1;
}

static int note_sequences(struct run *run, struct queue *queue, int64_t phy_offset)
{
    for (size_t at = 0; at < run->sequences.size; at += 8) {
        uint64_t sequence;
        memcpy(&sequence, run->sequences.at + at, 8);
        if (!note_sequence(run, queue, sequence, phy_offset))
            return 0;
    }
    return 1;
}

struct entry {
    int64_t size;
    int32_t flag;
    struct span body, text; /* the text: its properties */
};

/* Read the entry that `rest` begins with; false if its lengths do not add up. */
static int read_entry(struct span rest, struct entry *entry)
{
    if (rest.size < MIN_BATCH_ENTRY_BYTES)
        return 0;
    int64_t body_size = (int32_t)GET(rest.at, BATCH_ENTRY_BODY_LENGTH);
    entry->size = (int32_t)GET(rest.at, BATCH_ENTRY_SIZE);
    entry->flag = (int32_t)GET(rest.at, BATCH_ENTRY_FLAG);
    if (entry->size > rest.size || body_size < 0 || body_size > entry->size - MIN_BATCH_ENTRY_BYTES)
        return 0;
    entry->body = (struct span){rest.at + BATCH_ENTRY_BYTES, (Py_ssize_t)body_size};
    const char *length = entry->body.at + body_size;
    int64_t text_size = (int16_t)get_be((const unsigned char *)length, PROPERTIES_LENGTH_BYTES);
    entry->text = (struct span){length + PROPERTIES_LENGTH_BYTES, (Py_ssize_t)text_size};
    return text_size >= 0 && entry->size == MIN_BATCH_ENTRY_BYTES + body_size + text_size;
}

/* One entry, whose length is right: 1, 0 if the batch needs the slow path, -1 with an error set. */
static int encode_entry(
    struct run *run, struct queue *queue, struct send *send, const char *at, int64_t *body_left)
{
    struct entry entry;
    struct properties found;
    if (!read_entry((struct span){at, (Py_ssize_t)GET(at, BATCH_ENTRY_SIZE)}, &entry) || entry.body.size > *body_left
        || !read_stored(entry.text, &found))
        return 0;
    send->message_flag = entry.flag;
    int is_fine = found.sequence.size ? add_sequence(run, queue, send, found.sequence) : 1;
    if (is_fine <= 0)
        return is_fine;
    *body_left -= entry.body.size;
    int64_t size = entry.size - MIN_BATCH_ENTRY_BYTES + RECORD_BYTES + queue->topic_bytes.size
                   + PROPERTIES_LENGTH_BYTES;
    return add_record(run, queue, send, &found, entry.body, send->sys_flag & ~HOSTS_V6, size) ? 1 : -1;
}

static int encode_entries(
    struct run *run, struct queue *queue, struct send *send, const char *entry, Py_ssize_t entries)
{
    int64_t body_left = run->max_body;
    int is_encoded = 1;
    while (is_encoded > 0 && entries-- > 0) {
        is_encoded = encode_entry(run, queue, send, entry, &body_left);
        entry += GET(entry, BATCH_ENTRY_SIZE);
    }
    return is_encoded;
}

/* All messages of a batch, or none. */
static int encode_batch(struct run *run, struct queue *queue, struct send *send, struct span body)
{
    Py_ssize_t entries = count_entries(body), each = RECORD_BYTES + queue->topic_bytes.size + PROPERTIES_LENGTH_BYTES;
    /* A record has `each` bytes where an entry has MIN_BATCH_ENTRY_BYTES; the broker adds nothing. */
    int64_t total = body.size + entries * (each - MIN_BATCH_ENTRY_BYTES);
    if (entries == 0 || entries > MAX_BATCH_MESSAGES || send->topic.size > MAX_TOPIC_BYTES_V1
        || total > run->max_record || total > MAX_RECORD_BYTES || run->phy_offset + total > run->last_phy_offset)
        return 0;
    if (!reserve_records(run, total))
        return -1;
    const int64_t phy_offset = run->phy_offset, next = queue->next;
    const size_t units = queue->units.size, indexed = run->indexed.size, large = run->large.all.size;
    const Py_ssize_t messages = run->messages;
    char *const record = run->record;
    run->sequences.size = 0;
    int is_encoded = encode_entries(run, queue, send, body.at, entries);
    if (is_encoded > 0 && !note_sequences(run, queue, phy_offset))
        return -1;
    if (!is_encoded) {
        run->phy_offset = phy_offset;
        run->record = record;
        queue->next = next;
        queue->units.size = units;
        run->indexed.size = indexed;
        run->large.all.size = large;
        run->messages = messages;
    }
    return is_encoded;
}
