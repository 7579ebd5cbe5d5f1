/* The target of a pull: what was decided for the same request before, as long as nothing has changed by which it was
   decided. PullTargets (broker/pull/pull_targets.py) decides, and says what that is: the guards of the decision. */

#pragma once

#include "pull_run.h"

/* The fields of a target, by their places (KnownPull). */
enum { TARGET_TOPIC = 1, TARGET_NUMBERS = 2, TARGET_CODES = 6 };

/* Whether a dict, or an object, has at a key, or as an attribute, the very object that it had: 1, 0, or -1 with an
   error set. None: the dict had nothing there. */
static int guard_holds(PyObject *guard)
{
    PyObject *owner = PyTuple_GetItem(guard, 0), *name = PyTuple_GetItem(guard, 1), *found = PyTuple_GetItem(guard, 2);
    if (owner == NULL || name == NULL || found == NULL)
        return -1;
    PyObject *now =
        PyDict_Check(owner) ? Py_XNewRef(PyDict_GetItemWithError(owner, name)) : PyObject_GetAttr(owner, name);
    if (now == NULL && PyErr_Occurred())
        return -1;
    int is_same = now == found || (now == NULL && found == Py_None);
    Py_XDECREF(now);
    return is_same;
}

static int guards_hold(PyObject *guards)
{
    const Py_ssize_t count = PyTuple_Size(guards);
    int holds = count < 0 ? -1 : 1;
    for (Py_ssize_t i = 0; holds > 0 && i < count; i++)
        holds = guard_holds(PyTuple_GetItem(guards, i));
    return holds;
}

/* What is known of pulls with this key, a reference; NULL, with or without an error set, if nothing is, or it does
   not hold any more. */
static PyObject *known_target(const struct pull_run *run, PyObject *key)
{
    PyObject *known = Py_XNewRef(PyDict_GetItemWithError(run->known, key));
    PyObject *guards = known == NULL ? NULL : PyTuple_GetItem(known, 1);
    if (guards == NULL || guards_hold(guards) <= 0)
        Py_CLEAR(known);
    return known;
}

/* Have the broker look; a reference to what is known then, or to None; NULL with an error set. */
static PyObject *ask_for_target(const struct pull_run *run, const struct pull *pull, PyObject *key)
{
    const struct span type = pull->expression_type, text = pull->subscription;
    return PyObject_CallFunction(
        run->find_target, "OOs#s#LLz#z#L", run->connection, key, pull->topic.at, pull->topic.size, pull->group.at,
        pull->group.size, (long long)pull->queue_id, (long long)pull->sys_flag, text.at, text.size, type.at, type.size,
        (long long)pull->sub_version);
}

/* Read the codes of tags, a tuple, or None; false with an error set. */
static int read_codes(struct pull_target *target, PyObject *codes)
{
    target->code_count = -1;
    if (codes == Py_None)
        return 1;
    const Py_ssize_t count = codes == NULL ? -1 : PyTuple_Size(codes);
    if (count > MAX_TAG_CODES)
        PyErr_SetString(PyExc_ValueError, "too many codes of tags");
    for (Py_ssize_t i = 0; !PyErr_Occurred() && i < count; i++)
        target->codes[i] = PyLong_AsLongLong(PyTuple_GetItem(codes, i));
    target->code_count = (int)count;
    return !PyErr_Occurred();
}

static void drop_target(struct pull_target *target)
{
    Py_CLEAR(target->fields);
    Py_CLEAR(target->queues);
}

/* Read the fields of a target, which is held from here on; false with an error set. */
static int read_target(struct pull_run *run, PyObject *fields)
{
    struct pull_target *target = &run->target;
    int64_t *numbers[] = {
        &target->queue_nums, &target->topic_sys_flag, &target->broker_id, &target->slow_broker_id};
    if (fields == NULL || PyTuple_Size(fields) <= TARGET_NOTES) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a target has too few fields");
        return 0;
    }
    for (int i = 0; i < 4; i++)
        *numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(fields, TARGET_NUMBERS + i));
    if (PyErr_Occurred() || !read_codes(target, PyTuple_GetItem(fields, TARGET_CODES)))
        return 0;
    target->queues = Py_XNewRef(PyDict_GetItemWithError(run->topics, PyTuple_GetItem(fields, TARGET_TOPIC)));
    target->fields = Py_NewRef(fields);
    return !PyErr_Occurred();
}

/* Have the target of a pull in `run->target`: 1, 0 if the slow path has to decide, -1 with an error set. */
static int find_pull_target(struct pull_run *run, const struct pull *pull)
{
    struct pull_target *target = &run->target;
    struct pull_key key;
    if (!make_key(pull, &key))
        return 0;
    if (target->fields != NULL && is_same_key(&target->key, &key))
        return 1;
    drop_target(target);
    PyObject *bytes = PyBytes_FromStringAndSize(key.at, key.size);
    PyObject *known = bytes == NULL ? NULL : known_target(run, bytes);
    if (known == NULL && !PyErr_Occurred())
        known = ask_for_target(run, pull, bytes);
    Py_XDECREF(bytes);
    int is_known = known == NULL ? -1 : known != Py_None;
    if (is_known > 0 && !read_target(run, PyTuple_GetItem(known, 0))) {
        drop_target(target);
        is_known = -1;
    }
    Py_XDECREF(known);
    memcpy(&target->key, &key, offsetof(struct pull_key, at) + (size_t)key.size);
    return is_known;
}
