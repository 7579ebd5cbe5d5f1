/* kourou.store._kernel: the fast path of a broker, compiled. Optional: without it Python code does the same.
   store/kernel.py imports it; setup.py builds it. One translation unit: this file includes the headers beside it.

   sends_end      frames.h          the end of the complete frames with sends in the bytes that a connection has read
   room           frames.h          memory for bytes that a connection will read
   send_setup     send_setup.h      what all sends of a broker share
   encode_sends   sends.h           ordinary sends of a commit cycle: records, units, index entries, responses
   check_entries  staged_entries.h  whether the entries of a batch may be staged as they are
   encode_staged  staged_entries.h  staged entries that are published: records, units, index entries
   gather         pulls.h           the records of a pull, concatenated
   pulls_end      frames.h          the end of the complete frames with pulls
   pull_is_next   frames.h          whether the next request is a pull
   answer_pulls   pull_answers.h    ordinary pulls of one read: their answers, with the records, written to the socket
   ColdReader     cold_reader.h     a thread that answers pulls of old messages
   SharedSocket   shared_socket.h   a connection that such a thread writes to, beside the event loop
   read_records   records.h         records of a log, as a slave or a recovery reads them: units and index entries
   encode_again   messages_again.h  popped messages that come again: records, units, index entries
   units_fit      units.h           whether units of a queue match their records
   units_fit_in_file   units.h      the same for records that are read from a file
   link_entries   index_slots.h     index entries, chained in the hash slots of their file
   checksum, checksums         checksum.h     CRC of a body, as records store it; of many in one buffer
   signing_state, signatures   signatures.h   HMAC-SHA1, as requests are signed

   The order in which to read them: bytes, checksum, frames, json, request_head, send_head, properties, large_bodies,
   run, sequences, batches, pieces, signed_sends, send_setup, sends; records, units, shared_socket, cold_job,
   cold_reader; pulls, pull_head, pull_key, pull_note, pull_run, pull_target, pull_units, pull_window, pull_filter,
   pull_answer_head, pull_notes, pull_output, cold_answers, pull_answers; the others stand alone.

   Anything out of the ordinary is left to the slow path, from that request on. So nothing here reports what is
   wrong with a request, and no object of the caller is modified, but for the slots of link_entries. Everything a
   peer has sent is read within its length; a field that the slow path might interpret differently is not accepted.
   The bytes are those that the slow path produces: tests/integration/kernel compares the two. Positions, sizes and
   bounds come from layout.h.

   Only the stable ABI of Python 3.11 is used, so that one binary serves every later version. It has functions
   in place of the macros that access objects directly: what every message needs is looked up once and kept. */

#include "batches.h"
#include "index_slots.h"
#include "messages_again.h"
#include "pull_answers.h"
#include "records.h"
#include "sends.h"
#include "signatures.h"
#include "staged_entries.h"
#include "units.h"

#define INTERFACE 24

static PyMethodDef functions[] = {
    {"sends_end", (PyCFunction)(void (*)(void))sends_end, METH_FASTCALL, sends_end_doc},
    {"room", room, METH_O, room_doc},
    {"send_setup", send_setup, METH_VARARGS, send_setup_doc},
    {"encode_sends", (PyCFunction)(void (*)(void))encode_sends, METH_FASTCALL, encode_sends_doc},
    {"check_entries", check_entries, METH_VARARGS, check_entries_doc},
    {"encode_staged", encode_staged, METH_VARARGS, encode_staged_doc},
    {"gather", (PyCFunction)(void (*)(void))gather, METH_FASTCALL, gather_doc},
    {"pulls_end", (PyCFunction)(void (*)(void))pulls_end, METH_FASTCALL, pulls_end_doc},
    {"pull_is_next", (PyCFunction)(void (*)(void))pull_is_next, METH_FASTCALL, pull_is_next_doc},
    {"answer_pulls", (PyCFunction)(void (*)(void))answer_pulls, METH_FASTCALL, answer_pulls_doc},
    {"read_records", read_records, METH_VARARGS, read_records_doc},
    {"encode_again", encode_again, METH_VARARGS, encode_again_doc},
    {"units_fit", units_fit, METH_VARARGS, units_fit_doc},
    {"units_fit_in_file", units_fit_in_file, METH_VARARGS, units_fit_in_file_doc},
    {"link_entries", link_entries, METH_VARARGS, link_entries_doc},
    {"checksum", checksum_of, METH_O, checksum_doc},
    {"checksums", checksums, METH_VARARGS, checksums_doc},
    {"signing_state", signing_state, METH_O, signing_state_doc},
    {"signatures", signatures, METH_VARARGS, signatures_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "kourou.store._kernel", "The fast path of a Kourou broker, compiled.", -1, functions,
    NULL, NULL, NULL, NULL,
};

/* A type of the module; NULL with an error set. */
static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = module == NULL || PyErr_Occurred() ? NULL : PyType_FromSpec(spec);
    if (type != NULL && PyModule_AddType(module, (PyTypeObject *)type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

PyMODINIT_FUNC PyInit__kernel(void)
{
    PyObject *zlib = PyImport_ImportModule("zlib");
    if (zlib == NULL)
        return NULL;
    crc32_function = PyObject_GetAttrString(zlib, "crc32");
    Py_DECREF(zlib);
    make_crc_table();
    can_fold = CAN_FOLD;
    sha1_choose();
    name_next_queue_offset = PyUnicode_InternFromString("next_queue_offset");
    name_encoder = PyUnicode_InternFromString("encoder");
    name_topic = PyUnicode_InternFromString("topic");
    name_topic_part = PyUnicode_InternFromString("topic_part");
    name_magic = PyUnicode_InternFromString("magic");
    name_queue_id = PyUnicode_InternFromString("queue_id");
    name_min_queue_offset = PyUnicode_InternFromString("min_queue_offset");
    name_max_queue_offset = PyUnicode_InternFromString("max_queue_offset");
    name_flushed_queue_offset = PyUnicode_InternFromString("flushed_queue_offset");
    name_tail = PyUnicode_InternFromString("tail");
    name_blocks = PyUnicode_InternFromString("blocks");
    name_read_units_nowait = PyUnicode_InternFromString("read_units_nowait");
    name_doubted = PyUnicode_InternFromString("doubted");
    name_unverified = PyUnicode_InternFromString("unverified");
    name_load_doubted_nowait = PyUnicode_InternFromString("load_doubted_nowait");
    name_map_in_use = PyUnicode_InternFromString("map_in_use");
    PyObject *module = PyModule_Create(&definition);
    shared_socket_type = add_type(module, &shared_socket_spec);
    cold_reader_type = add_type(module, &cold_reader_spec);
    if (PyErr_Occurred() || PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
