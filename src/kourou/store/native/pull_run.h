/* A run of pulls that a connection has sent: what is given for them, and what is found. */

#pragma once

#include "cold_reader.h"
#include "pull_head.h"
#include "pull_key.h"
#include "pulls.h"
#include "run.h"

enum { MAX_PULLS = 256, MAX_WINDOWS = 16, MAX_PULL_NUMBERS = 6, MAX_TAG_CODES = 8 };

struct pull_limits {
    struct room in_memory, on_disk;
    int64_t memory_bytes, max_messages;
};

/* What the broker knows of a topic and a group: texts and numbers of a tuple. */
struct pull_target {
    PyObject *fields, *queues; /* held; the queues by their ids, NULL: none */
    struct pull_key key;       /* of the pull that it was looked up for */
    int64_t queue_nums, topic_sys_flag, broker_id, slow_broker_id;
    int code_count; /* of wanted tags; -1: all messages are wanted */
    int64_t codes[MAX_TAG_CODES];
};

/* What a thread reads records from, and where it sends them. */
struct cold_place {
    PyObject *tuple, *token; /* the first is held, the others are in it; NULL: none was found yet */
    struct shared_socket *socket;
    struct log_part log;
    int64_t old_end; /* of what is read there although its units are not in doubt */
};

struct answer {
    PyObject *fields; /* of its target, held */
    struct pull_note note;
    int commits;       /* whether the pull commits the following offset */
    int64_t commit_offset;
    size_t units_at;   /* the units of its records, in those of the run */
    Py_ssize_t count;  /* of its records */
    const struct window *window;
    size_t header_end; /* in the headers of the run */
};

struct pull_run {
    /* input */
    PyObject *connection, *known, *topics, *windows_kept, *noted, *find_target, *find_place, *may_read_old;
    struct cold_reader *reader; /* of what has no window; NULL: there is none */
    struct span templates[2];
    struct pull_limits limits[2]; /* Apache's, and those that are negotiated */
    int64_t max_filter_units, max_bytes, region_bytes, block_units, chunk_units, max_phy_offset, now_ms;
    struct pull_target target; /* of the last pull: usually that of the next one, too */
    int reads_old;             /* whether it may read old messages; -1: not asked yet */
    int window_count, count, handed_over;
    struct cold_place cold; /* of the last pull that was handed over: usually that of the next one, too */
    int is_shared; /* a thread may write to the socket from here on: the loop does not write to it directly */
    /* output: headers, and the units of all answers */
    struct buf headers, units;
    int64_t records_bytes;
    struct answer answers[MAX_PULLS]; /* this and what follows: valid as far as the counts say */
    struct cold_job *jobs[MAX_PULLS]; /* handed over at the end of the run */
    struct window windows[MAX_WINDOWS];
    Py_buffer views[MAX_WINDOWS];
};

enum { PULL_NUMBERS = 17 };

static struct pull_limits limits_of(const int64_t numbers[6])
{
    return (struct pull_limits){{numbers[0], numbers[1], 0}, {numbers[2], numbers[3], 0}, numbers[4], numbers[5]};
}

/* Read the numbers that all runs of a broker share; false with an error set. */
static int read_pull_numbers(struct pull_run *run, PyObject *packed)
{
    int64_t numbers[PULL_NUMBERS];
    const struct span span = span_of(packed);
    if (PyErr_Occurred())
        return 0;
    if (span.size != sizeof numbers) {
        PyErr_SetString(PyExc_ValueError, "the numbers of pulls have another length");
        return 0;
    }
    memcpy(numbers, span.at, sizeof numbers);
    run->limits[0] = limits_of(numbers);
    run->limits[1] = limits_of(numbers + 6);
    run->max_filter_units = numbers[12];
    run->max_bytes = numbers[13];
    run->region_bytes = numbers[14];
    run->block_units = numbers[15];
    run->chunk_units = numbers[16];
    if (run->region_bytes <= 0 || run->block_units <= 0 || run->chunk_units <= 0
        || run->chunk_units > INT8_MAX)
        PyErr_SetString(PyExc_ValueError, "regions, blocks and chunks have a size, chunks a small one");
    return !PyErr_Occurred();
}
