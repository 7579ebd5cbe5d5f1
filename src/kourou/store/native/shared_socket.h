/* A socket that the event loop and a thread write to in turns.

   The event loop writes through a transport, which may keep bytes that the socket has not taken. A thread writes only
   while there are none: whole answers, without waiting. So each takes the turn before it writes:

   FREE     nothing is unsent; the first that takes the turn writes
   LOOP     the loop writes, or its transport may have unsent bytes
   THREAD   a thread is writing, for some microseconds
   REST     a thread has written a part of an answer: the loop writes the rest of it before anything else
   CLOSING  closed by the loop while a thread was writing, which closes the descriptor
   CLOSED   nothing is written through this any more

   The descriptor is a duplicate, so that its number stays that of the same socket. It has to be closed with the
   connection, since a peer sees the end only when no descriptor is left. No locks: a thread that does not run cannot
   hold up the loop. */

#pragma once

#include "bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

/* Elsewhere Python ignores SIGPIPE for the whole process. */
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

enum turn { FREE, LOOP, THREAD, REST, CLOSING, CLOSED };

struct shared_socket {
    PyObject_HEAD
    atomic_int turn;
    int fd; /* -1: only the loop writes */
    atomic_int under_way;   /* answers that are not sent */
    atomic_int_fast64_t bytes; /* of them */
};

static PyTypeObject *shared_socket_type;

/* Whether the turn was this one, and is the other one now. */
static int pass_turn(struct shared_socket *socket, int before, int after)
{
    return atomic_compare_exchange_strong(&socket->turn, &before, after);
}

/* Write as much as the socket takes at once; how much that is. An error shows when the loop writes the rest. */
static size_t send_nowait(int fd, const char *data, size_t size)
{
    size_t sent = 0;
    while (sent < size) {
        ssize_t taken = send(fd, data + sent, size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (taken < 0 && errno == EINTR)
            continue;
        if (taken <= 0)
            break;
        sent += (size_t)taken;
    }
    return sent;
}

/* In a thread: write an answer if it is possible now; false if the loop has to. `sent`: how much was written, the rest
   is for the loop. */
static int send_in_turn(struct shared_socket *socket, const char *data, size_t size, size_t *sent)
{
    if (!pass_turn(socket, FREE, THREAD))
        return 0;
    *sent = send_nowait(socket->fd, data, size);
    if (!pass_turn(socket, THREAD, *sent == size ? FREE : REST)) {
        close(socket->fd);
        atomic_store(&socket->turn, CLOSED);
    }
    return 1;
}

/* Whether an answer can leave, by the thread or by the loop. */
static int takes_answers(struct shared_socket *socket)
{
    const int turn = atomic_load(&socket->turn);
    return turn == FREE || turn == LOOP;
}

static void close_shared(struct shared_socket *socket)
{
    int turn = atomic_load(&socket->turn);
    while (turn != CLOSING && turn != CLOSED)
        if (atomic_compare_exchange_weak(&socket->turn, &turn, turn == THREAD ? CLOSING : CLOSED)) {
            if (turn != THREAD && socket->fd >= 0)
                close(socket->fd);
            return;
        }
}

PyDoc_STRVAR(shared_socket_doc,
"SharedSocket(fd)\n"
"\n"
"A socket that a ColdReader writes answers to, beside the event loop. `fd` is duplicated; -1: only the loop writes.\n"
"The loop has the turn at first.");

static PyObject *new_shared_socket(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    int fd;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "i", &fd))
        return NULL;
    struct shared_socket *socket = (struct shared_socket *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (socket == NULL)
        return NULL;
    atomic_init(&socket->turn, LOOP);
    socket->fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0 && socket->fd < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_CLEAR(socket);
    }
    return (PyObject *)socket;
}

/* No job of a thread has it any more: each holds a reference. */
static void free_shared_socket(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    close_shared((struct shared_socket *)self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(claim_doc,
"claim()\n"
"\n"
"Whether the loop may write now, and until `release`. False while a thread writes, or has left the rest of an\n"
"answer.");

static PyObject *claim(PyObject *self, PyObject *args)
{
    struct shared_socket *socket = (struct shared_socket *)self;
    (void)args;
    (void)pass_turn(socket, FREE, LOOP);
    const int turn = atomic_load(&socket->turn);
    return PyBool_FromLong(turn == LOOP || turn == CLOSED);
}

PyDoc_STRVAR(claim_rest_doc,
"claim_rest()\n"
"\n"
"The same for the loop that is about to write the rest of an answer.");

static PyObject *claim_rest(PyObject *self, PyObject *args)
{
    (void)args;
    (void)pass_turn((struct shared_socket *)self, REST, LOOP);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(release_doc,
"release()\n"
"\n"
"Let a thread write too: the transport has no unsent bytes.");

static PyObject *release_turn(PyObject *self, PyObject *args)
{
    struct shared_socket *socket = (struct shared_socket *)self;
    (void)args;
    if (socket->fd >= 0)
        (void)pass_turn(socket, LOOP, FREE);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(close_socket_doc,
"close()\n"
"\n"
"Let no thread write any more. One that is writing closes the duplicate behind that.");

static PyObject *close_socket(PyObject *self, PyObject *args)
{
    (void)args;
    close_shared((struct shared_socket *)self);
    Py_RETURN_NONE;
}

static PyMethodDef shared_socket_methods[] = {
    {"claim", claim, METH_NOARGS, claim_doc},
    {"claim_rest", claim_rest, METH_NOARGS, claim_rest_doc},
    {"release", release_turn, METH_NOARGS, release_doc},
    {"close", close_socket, METH_NOARGS, close_socket_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot shared_socket_slots[] = {
    {Py_tp_doc, (void *)shared_socket_doc},
    {Py_tp_new, (void *)new_shared_socket},
    {Py_tp_dealloc, (void *)free_shared_socket},
    {Py_tp_methods, shared_socket_methods},
    {0, NULL},
};

static PyType_Spec shared_socket_spec = {
    "kourou.store._kernel.SharedSocket", sizeof(struct shared_socket), 0, Py_TPFLAGS_DEFAULT, shared_socket_slots};
