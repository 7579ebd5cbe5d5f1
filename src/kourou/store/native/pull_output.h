/* The bytes of a run of answers: written to a socket straight from the log, or joined. */

#pragma once

#include "pull_run.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* More bytes than that are copied with the interpreter lock released. As many pieces as any system takes at once. */
enum { UNLOCKED_BYTES = 256 * 1024, MAX_PIECES = 1024 };

/* A place in the answers: the header of one, if `unit` is negative, or one of its records. */
struct output_place {
    int answer;
    Py_ssize_t unit;
    size_t header;
};

static const struct output_place OUTPUT_START = {0, -1, 0};

static const char *unit_of(const struct pull_run *run, const struct answer *answer, Py_ssize_t unit)
{
    return run->units.at + answer->units_at + (size_t)unit * CQ_UNIT_BYTES;
}

/* The piece at a place, which moves to the next one; false behind the last. */
static int next_piece(const struct pull_run *run, struct output_place *place, struct span *piece)
{
    if (place->answer == run->count)
        return 0;
    const struct answer *answer = &run->answers[place->answer];
    if (place->unit < 0) {
        *piece = (struct span){run->headers.at + place->header, (Py_ssize_t)(answer->header_end - place->header)};
        place->header = answer->header_end;
    } else
        *piece = record_of(unit_of(run, answer, place->unit), answer->window);
    if (++place->unit == answer->count)
        *place = (struct output_place){place->answer + 1, -1, place->header};
    return 1;
}

static int64_t output_bytes(const struct pull_run *run)
{
    return (int64_t)run->headers.size + run->records_bytes;
}

/* The answers without their first `skipped` bytes; NULL with an error set. */
static PyObject *joined_answers(const struct pull_run *run, int64_t skipped)
{
    const Py_ssize_t size = (Py_ssize_t)(output_bytes(run) - skipped);
    PyObject *joined = PyBytes_FromStringAndSize(NULL, size);
    if (joined == NULL)
        return NULL;
    char *out = PyBytes_AsString(joined);
    struct output_place place = OUTPUT_START;
    struct span piece, following = {NULL, 0};
    /* The log's windows are held, and units are the run's own. */
    PyThreadState *unlocked = size >= UNLOCKED_BYTES ? PyEval_SaveThread() : NULL;
    for (int is_more = next_piece(run, &place, &piece); is_more; piece = following) {
        const int64_t left_out = skipped < piece.size ? skipped : piece.size;
        skipped -= left_out;
        if ((is_more = next_piece(run, &place, &following)) && !skipped)
            prefetch(following);
        out = put_span(out, (struct span){piece.at + left_out, piece.size - (Py_ssize_t)left_out});
    }
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);
    return joined;
}

/* Collect pieces from a place on; how many bytes they have. */
static size_t gather_pieces(
    const struct pull_run *run, struct output_place *place, struct iovec pieces[MAX_PIECES], int *count)
{
    size_t size = 0;
    struct span piece;
    for (*count = 0; *count < MAX_PIECES && next_piece(run, place, &piece); size += (size_t)piece.size) {
        struct iovec *last = *count ? &pieces[*count - 1] : NULL;
        if (last != NULL && (const char *)last->iov_base + last->iov_len == piece.at)
            last->iov_len += (size_t)piece.size;
        else
            pieces[(*count)++] = (struct iovec){(void *)piece.at, (size_t)piece.size};
    }
    return size;
}

/* Write the answers to a socket as far as it takes them without waiting: how many bytes. The system copies records
   from where they are; to copy them together before was slower. What is wrong with the socket is found when the rest is
   written; so is a part of the log that cannot be read. */
static int64_t write_answers(const struct pull_run *run, int fd)
{
    struct iovec pieces[MAX_PIECES];
    struct output_place place = OUTPUT_START;
    int64_t total = 0;
    for (int count;;) {
        const size_t size = gather_pieces(run, &place, pieces, &count);
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)count};
        ssize_t sent = 0;
        if (count == 0)
            return total;
        do
            sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        while (sent < 0 && errno == EINTR);
        if (sent > 0)
            total += sent;
        if (sent < 0 || (size_t)sent < size)
            return total;
    }
}

/* Write the answers to a socket, or not at all if that is negative. The rest, or None if there is none; NULL with an
   error set. */
static PyObject *put_answers(const struct pull_run *run, int fd)
{
    const int64_t size = output_bytes(run);
    int64_t sent = 0;
    if (fd >= 0) {
        PyThreadState *unlocked = size >= UNLOCKED_BYTES ? PyEval_SaveThread() : NULL;
        sent = write_answers(run, fd);
        if (unlocked != NULL)
            PyEval_RestoreThread(unlocked);
    }
    if (sent == size)
        return Py_NewRef(Py_None);
    PyObject *rest = joined_answers(run, sent);
    /* Nothing may follow half an answer. */
    if (rest == NULL && sent > 0)
        shutdown(fd, SHUT_RDWR);
    return rest;
}
