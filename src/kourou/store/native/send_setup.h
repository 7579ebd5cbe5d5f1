/* What all sends of a broker share, read once; and the memory that their runs use in turn. */

#pragma once

#include "run.h"

/* Buffers that have grown beyond this are not kept. */
enum { MAX_KEPT_BYTES = 64 * 1024, KEPT_BUFFERS = 4 };
#define SEND_SETUP "kourou.send_setup"

struct send_setup {
    PyObject *held; /* what the spans point into */
    struct span own, store_host, templates[2][2];
    struct names slow_path_names;
    struct run *spare; /* NULL while a run uses it */
};

/* Whether a template has these placeholders, the first after the host of an id and, if binary, its length. */
static int is_template(struct span template, int type, const char *wanted)
{
    const char *end = template.at + template.size, *begin = wanted;
    for (const char *at = template.at; at < end; at++) {
        if (*at != '%')
            continue;
        if (++at < end && *at == '%')
            continue;
        if (wanted == begin
            && (end - at < 4 || memcmp(at, "016X", 4) != 0
                || at - 1 - template.at
                       < (type == BINARY ? BINARY_COMMAND_BYTES + BINARY_VALUE_LENGTH_BYTES : 0) + HOST_DIGITS))
            return 0;
        if (at == end || *wanted == 0 || *at != *wanted)
            return 0;
        wanted++;
    }
    return *wanted == 0;
}

/* The broker's templates, in JSON and binary, without an id and with one. */
static int read_templates(struct send_setup *setup, PyObject *templates[2][2])
{
    static const char *wanted[2][2] = {{"0ddd", "0ddsd"}, {"0dd", "0dds"}};
    for (int type = JSON; type <= BINARY; type++)
        for (int has_id = 0; has_id <= 1; has_id++) {
            setup->templates[type][has_id] = span_of(templates[type][has_id]);
            if (!is_template(setup->templates[type][has_id], type, wanted[type][has_id]))
                return 0;
        }
    return 1;
}

static void free_setup(PyObject *capsule)
{
    struct send_setup *setup = PyCapsule_GetPointer(capsule, SEND_SETUP);
    if (setup == NULL)
        return;
    if (setup->spare != NULL)
        clear(setup->spare);
    Py_XDECREF(setup->held);
    PyMem_Free(setup);
}

PyDoc_STRVAR(send_setup_doc,
"send_setup(properties, names, templates, store_host)\n"
"\n"
"What encode_sends needs for all sends of a broker: properties that it adds, names of properties that need the slow\n"
"path, templates of responses (JSON without and with an id, binary without and with an id), and its host.");

static PyObject *send_setup(PyObject *module, PyObject *args)
{
    PyObject *own, *templates[2][2], *store_host;
    (void)module;
    struct send_setup *setup = PyMem_Calloc(1, sizeof *setup);
    if (setup == NULL)
        return PyErr_NoMemory();
    if (!PyArg_ParseTuple(
            args, "SO!(SSSS)S", &own, &PyTuple_Type, &setup->slow_path_names.source, &templates[JSON][0],
            &templates[JSON][1], &templates[BINARY][0], &templates[BINARY][1], &store_host)) {
        PyMem_Free(setup);
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(setup, SEND_SETUP, free_setup);
    if (capsule == NULL) {
        PyMem_Free(setup);
        return NULL;
    }
    setup->held = Py_NewRef(args);
    setup->own = span_of(own);
    setup->store_host = span_of(store_host);
    if (setup->store_host.size != HOST_V4_BYTES || !read_templates(setup, templates))
        PyErr_SetString(PyExc_ValueError, "the host is not IPv4, or a template of a response has other placeholders");
    else if (read_names(&setup->slow_path_names))
        return capsule;
    Py_DECREF(capsule);
    return NULL;
}

/* A run that is empty; NULL with an error set. */
static struct run *begin_run(struct send_setup *setup)
{
    struct run *run = setup->spare;
    setup->spare = NULL;
    if (run == NULL && (run = new_run()) == NULL)
        return NULL;
    run->own = setup->own;
    run->store_host = setup->store_host;
    run->templates = setup->templates;
    run->slow_path_names = &setup->slow_path_names;
    return run;
}

/* The run is over: keep its memory for the next one. */
static void end_run(struct send_setup *setup, struct run *run)
{
#ifdef __SANITIZE_ADDRESS__
    (void)setup;
    clear(run);
#else
    struct buf *const buffers[KEPT_BUFFERS] = {&run->indexed, &run->responses, &run->text, &run->phy_offsets};
    struct buf kept[KEPT_BUFFERS];
    for (int i = 0; i < KEPT_BUFFERS; i++) {
        kept[i] = (struct buf){NULL, 0, 0};
        if (buffers[i]->room <= MAX_KEPT_BYTES) {
            kept[i] = (struct buf){buffers[i]->at, 0, buffers[i]->room};
            *buffers[i] = (struct buf){NULL, 0, 0};
        }
    }
    release(run);
    memset(run, 0, offsetof(struct run, queues));
    for (int i = 0; i < KEPT_BUFFERS; i++)
        *buffers[i] = kept[i];
    /* A run that another one has replaced meanwhile, since a callback encodes too, is not needed. */
    if (setup->spare != NULL)
        clear(setup->spare);
    setup->spare = run;
#endif
}
