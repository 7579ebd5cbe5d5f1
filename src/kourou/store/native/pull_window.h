/* The part of the log that a pull is answered from, through the map of a file. What was found is kept by the broker
   for some time (broker/pull/fast_pull_path.py), by the region of the log that it begins in. */

#pragma once

#include "pull_run.h"

static PyObject *name_map_in_use;

/* A kept window: file of the log, its first byte's phy_offset, first and last byte, whether it is an old part. */
enum { KEPT_FILE, KEPT_START, KEPT_LOW, KEPT_END, KEPT_IS_OLD };

/* Whether the run may read old messages, which give way to sends: 1, 0, or -1 with an error set. */
static int may_read_old(struct pull_run *run)
{
    if (run->reads_old < 0) {
        PyObject *answer = PyObject_CallNoArgs(run->may_read_old);
        run->reads_old = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
    }
    return run->reads_old;
}

/* Use a kept window from here on, if its file can be read; NULL, with or without an error set, if not. */
static const struct window *open_window(struct pull_run *run, PyObject *kept, struct window bounds)
{
    struct window *window = NULL;
    Py_buffer *buffer = &run->views[run->window_count];
    PyObject *view = PyObject_GetAttr(PyTuple_GetItem(kept, KEPT_FILE), name_map_in_use);
    if (view != NULL && view != Py_None && PyObject_GetBuffer(view, buffer, PyBUF_SIMPLE) == 0) {
        window = &run->windows[run->window_count++];
        *window = bounds;
        set_view(window, buffer);
    }
    Py_XDECREF(view);
    return window;
}

/* The window that is kept for the log from one phy_offset to another; NULL, with or without an error set, if there is
   none, or it may not be read now. */
static const struct window *kept_window(struct pull_run *run, int64_t low, int64_t end)
{
    PyObject *number = PyLong_FromLongLong(low / run->region_bytes);
    PyObject *kept = number == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(run->windows_kept, number));
    const struct window *window = NULL;
    Py_XDECREF(number);
    if (kept == NULL || PyTuple_Size(kept) <= KEPT_IS_OLD) {
        Py_XDECREF(kept);
        return NULL;
    }
    struct window bounds = {
        NULL, PyLong_AsLongLong(PyTuple_GetItem(kept, KEPT_START)), PyLong_AsLongLong(PyTuple_GetItem(kept, KEPT_LOW)),
        PyLong_AsLongLong(PyTuple_GetItem(kept, KEPT_END))};
    if (bounds.end > run->max_phy_offset)
        bounds.end = run->max_phy_offset;
    if (!PyErr_Occurred() && bounds.low <= low && end <= bounds.end
        && (PyTuple_GetItem(kept, KEPT_IS_OLD) == Py_False || may_read_old(run) > 0))
        window = open_window(run, kept, bounds);
    Py_DECREF(kept);
    return window;
}

/* A window with the log from one phy_offset to another; NULL, with or without an error set, if there is none. */
static const struct window *log_window(struct pull_run *run, int64_t low, int64_t end)
{
    for (int i = run->window_count - 1; i >= 0; i--)
        if (run->windows[i].low <= low && end <= run->windows[i].end)
            return &run->windows[i];
    return run->window_count == MAX_WINDOWS || low < 0 ? NULL : kept_window(run, low, end);
}

/* Whether the last place of the run has the log from one phy_offset to another, which is old, or has units in doubt. */
static int has_cold_place(const struct pull_run *run, int64_t low, int64_t end, int in_doubt)
{
    return run->cold.tuple != NULL && run->cold.log.start <= low && end <= run->cold.log.end
           && (in_doubt || low < run->cold.old_end);
}

/* Use a place from here on, which is the caller's reference; false with an error set. */
static int use_cold_place(struct pull_run *run, PyObject *tuple)
{
    struct cold_place place = {tuple, NULL, NULL, {-1, 0, 0}, 0};
    long long start, end, old_end;
    Py_CLEAR(run->cold.tuple);
    if (!PyArg_ParseTuple(
            tuple, "O!iLLLO", shared_socket_type, &place.socket, &place.log.fd, &start, &end, &old_end,
            &place.token)) {
        Py_DECREF(tuple);
        return 0;
    }
    place.log.start = start;
    place.old_end = old_end;
    place.log.end = end < run->max_phy_offset ? end : run->max_phy_offset;
    run->cold = place;
    run->is_shared = 1;
    return 1;
}

enum place { NOWHERE, IN_WINDOW, IN_FILE };

/* Where a pull finds the log from one phy_offset to another: in a window, in a file that a thread reads, the last place
   of the run, or nowhere; then with or without an error set. Units `in_doubt` are for the thread. */
static enum place find_place(
    struct pull_run *run, int64_t low, int64_t end, int64_t wanted_bytes, int in_doubt, const struct window **window)
{
    *window = in_doubt ? NULL : log_window(run, low, end);
    if (*window != NULL)
        return IN_WINDOW;
    if (PyErr_Occurred() || low < 0 || end <= low || (!in_doubt && run->window_count == MAX_WINDOWS))
        return NOWHERE;
    if (has_cold_place(run, low, end, in_doubt))
        return IN_FILE;
    PyObject *found = PyObject_CallFunction(
        run->find_place, "OLLLO", run->connection, (long long)low, (long long)end, (long long)wanted_bytes,
        in_doubt ? Py_True : Py_False);
    if (found != NULL && PyTuple_Check(found))
        return use_cold_place(run, found) && has_cold_place(run, low, end, in_doubt) ? IN_FILE : NOWHERE;
    if (found == Py_True && !in_doubt)
        *window = kept_window(run, low, end);
    Py_XDECREF(found);
    return *window == NULL ? NOWHERE : IN_WINDOW;
}
