/* Signatures of requests that a client sends. */

#pragma once

#include "bytes.h"
#include "sha1.h"

PyDoc_STRVAR(signing_state_doc,
"signing_state(secret_key)\n"
"\n"
"What HMAC-SHA1 with a key begins with, inside and outside: 20 bytes each. As secret as the key.");

static PyObject *signing_state(PyObject *module, PyObject *secret)
{
    unsigned char bytes[SIGNING_STATE_BYTES];
    (void)module;
    struct span key = span_of(secret);
    if (key.at == NULL)
        return NULL;
    struct signing_state state = signing_state_of((const unsigned char *)key.at, (size_t)key.size);
    sha1_put(bytes, state.inner);
    sha1_put(bytes + SHA1_BYTES, state.outer);
    return PyBytes_FromStringAndSize((const char *)bytes, sizeof bytes);
}

PyDoc_STRVAR(signatures_doc,
"signatures(secret_key, texts, form)\n"
"\n"
"The signatures of up to eight texts, for tests: Base64 of their HMAC-SHA1. Forms: 0 portable, 1 in lanes (AVX2),\n"
"2 by the processor's instructions. None if the processor does not have that form.");

static PyObject *signatures(PyObject *module, PyObject *args)
{
    PyObject *secret, *list, *found = NULL;
    struct signed_text texts[SHA1_LANES];
    struct buf rooms[SHA1_LANES] = {{NULL, 0, 0}};
    int form, count = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "SO!i", &secret, &PyList_Type, &list, &form))
        return NULL;
    if (form < 0 || form >= SHA1_FORMS || PyList_Size(list) > SHA1_LANES) {
        PyErr_SetString(PyExc_ValueError, "no such form, or too many texts");
        return NULL;
    }
    if (!sha1_is_supported((enum sha1_form)form))
        return Py_NewRef(Py_None);
    struct span key = span_of(secret);
    for (; count < PyList_Size(list); count++) {
        struct span text = span_of(PyList_GetItem(list, count));
        char *room = text.at == NULL ? NULL : reserve(&rooms[count], (size_t)text.size + SHA1_PADDING_BYTES);
        if (room == NULL)
            break;
        put_span(room, text);
        texts[count] = (struct signed_text){
            .key = signing_state_of((const unsigned char *)key.at, (size_t)key.size),
            .at = (unsigned char *)room,
            .size = (size_t)text.size};
    }
    if (!PyErr_Occurred() && (found = PyList_New(0)) != NULL && count)
        hmac_all((enum sha1_form)form, texts, count);
    for (int i = 0; found != NULL && i < count; i++) {
        char signature[SIGNATURE_BYTES];
        put_signature(signature, texts[i].digest);
        PyObject *text = PyUnicode_DecodeASCII(signature, SIGNATURE_BYTES, NULL);
        if (text == NULL || PyList_Append(found, text) < 0)
            Py_CLEAR(found);
        Py_XDECREF(text);
    }
    for (int i = 0; i < SHA1_LANES; i++)
        free(rooms[i].at);
    return found;
}
