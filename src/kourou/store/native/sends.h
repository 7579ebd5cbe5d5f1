/* All sends of a commit cycle. */

#pragma once

#include "batches.h"
#include "pieces.h"
#include "send_setup.h"
#include "signed_sends.h"

/* Read the properties of a send into `text`: their length, -1 if they need the slow path, -2 with an error set. */
static Py_ssize_t read_text(struct run *run, const struct value *properties)
{
    char *text = reserve_fresh(&run->text, (size_t)properties->span.size + 1);
    if (text == NULL)
        return -2;
    Py_ssize_t length = unescape(properties, text);
    if (length < 0)
        return -1;
    int is_valid = properties->is_ascii ? 1 : is_utf8((struct span){text, length});
    if (is_valid <= 0)
        return is_valid - 1;
    if (length > 0 && text[length - 1] != PROPERTY_SEPARATOR)
        text[length++] = PROPERTY_SEPARATOR;
    return length;
}

/* One send: 1 if it is encoded, 0 if it needs the slow path, -1 with an error set. */
static int encode_send(struct run *run, const struct frame *frame)
{
    struct send send;
    struct properties found;
    int is_read = run->accounts == NULL ? read_send(frame, &send, NULL) : read_verified(run, frame, &send);
    if (is_read <= 0)
        return is_read;
    int is_known = find_topic(run, send.topic);
    if (is_known <= 0)
        return is_known;
    if (send.queue_id >= run->queue_nums)
        return 0;
    Py_ssize_t length = read_text(run, &send.properties);
    if (length < 0)
        return (int)length + 1;
    if (length + run->own.size > MAX_PROPERTIES_BYTES
        || !read_properties((struct span){run->text.at, length}, run->own, run->slow_path_names, &found)
        || (send.is_batch && found.sequence.size))
        return PyErr_Occurred() ? -1 : 0;
    struct queue *queue = find_queue(run, send.queue_id);
    if (queue == NULL)
        return PyErr_Occurred() ? -1 : 0;
    int64_t queue_offset = queue->next;
    run->phy_offsets.size = 0;
    int is_encoded = send.is_batch ? encode_batch(run, queue, &send, frame->body)
                                 : encode_one(run, queue, &send, &found, frame->body);
    if (is_encoded <= 0 || send.flag == ONEWAY)
        return is_encoded;
    return add_response(run, frame->type, &send, found.uniq_key, queue_offset) ? 1 : -1;
}

/* Allocate the room that the records need: they are shorter than their frames, but those of batches longer by a
   twelfth with bodies of 1 KiB. What is not needed costs nothing; to grow would copy all of them. The structure of the
   groups is checked later, when they are read. */
static int make_room(struct run *run, PyObject *groups)
{
    Py_ssize_t total = 4096;
    for (Py_ssize_t group = 0, count = PyList_Size(groups); group < count; group++) {
        PyObject *pieces = PyTuple_GetItem(PyList_GetItem(groups, group), 1);
        for (Py_ssize_t at = 0, pieces_count = pieces == NULL ? 0 : PyList_Size(pieces); at < pieces_count; at++) {
            PyObject *piece = PyList_GetItem(pieces, at), *end = PyTuple_GetItem(piece, 2);
            if (end != NULL)
                total += PyLong_AsSsize_t(end) - PyLong_AsSsize_t(PyTuple_GetItem(piece, 1));
        }
    }
    total += total / 8;
    run->records = PyErr_Occurred() ? NULL : PyByteArray_FromStringAndSize(NULL, total);
    if (run->records == NULL)
        return 0;
    set_room(run, 0, total);
    return 1;
}

static PyObject *result_of(struct run *run, const struct end *end, PyObject *responses)
{
    PyObject *grown = NULL, *parts = NULL;
    if (PyByteArray_Resize(run->records, run->record - run->first_record) < 0
        || (parts = parts_of(&run->large, run->records)) == NULL || (grown = grown_queues(run)) == NULL) {
        Py_XDECREF(parts);
        return NULL;
    }
    return Py_BuildValue(
        "((nnn)nNNONN)", end->groups, end->pieces, end->position, run->messages, parts, bytes_of(&run->indexed),
        responses, grown, bytes_of(&run->undo));
}

/* Encode the sends of one connection, and set how far: 1 if all are encoded, 0 if not, -1 with an error set. */
static int encode_pieces(struct run *run, PyObject *pieces, struct end *end)
{
    struct frame frame;
    struct span rest;
    const Py_ssize_t count = PyList_Size(pieces);
    for (end->pieces = 0; end->pieces < count; end->pieces++) {
        if (!read_piece(pieces, end->pieces, &rest, &end->position))
            return -1;
        run->large.data = PyTuple_GetItem(PyList_GetItem(pieces, end->pieces), 0);
        run->large.begin = rest.at - end->position;
        while (rest.size > 0) {
            int is_encoded = read_frame(rest, &frame) ? encode_send(run, &frame) : 0;
            if (is_encoded <= 0)
                return is_encoded;
            rest = (struct span){rest.at + frame.size, rest.size - frame.size};
            end->position += frame.size;
        }
    }
    return 1;
}

/* Collect the responses of a group, those from `begin` on, with its owner; false with an error set. */
static int add_responses(struct run *run, PyObject *group, size_t begin, PyObject *responses)
{
    Py_ssize_t size = (Py_ssize_t)(run->responses.size - begin);
    if (size == 0)
        return 1;
    PyObject *entry = Py_BuildValue("(Oy#)", PyTuple_GetItem(group, 0), run->responses.at + begin, size);
    int is_added = entry != NULL && PyList_Append(responses, entry) == 0;
    Py_XDECREF(entry);
    return is_added;
}

/* Encode the sends of all connections, and collect the responses of each. */
static int encode_groups(struct run *run, PyObject *groups, struct end *end, PyObject *responses)
{
    PyObject *pieces;
    const Py_ssize_t count = PyList_Size(groups);
    for (end->groups = 0; end->groups < count; end->groups++) {
        end->pieces = end->position = 0;
        if (!read_group(groups, end->groups, &pieces, &run->born_host))
            return -1;
        size_t begin = run->responses.size;
        int is_whole = encode_pieces(run, pieces, end);
        if (is_whole < 0 || !add_responses(run, PyList_GetItem(groups, end->groups), begin, responses))
            return -1;
        if (!is_whole)
            return 0;
    }
    return 1;
}

PyDoc_STRVAR(encode_sends_doc,
"encode_sends(groups, setup, targets, configs, broker_config, accounts, topics, sequences,\n"
"             phy_offset, last_phy_offset, now_ms, max_body, max_record)\n"
"\n"
"A group has an owner, the pieces that it has sent, and its host; a piece is (data, start, end): complete\n"
"frames. Encodes the sends up to the first that needs the slow path, as records for the log from `phy_offset`\n"
"on. Returns their end (number of groups, of pieces of the next group, position in the next piece), the number\n"
"of messages, the records in parts (large bodies are views of the data they came in), the index entries, owners\n"
"that get responses, with these, and, for each queue with new messages, (queue, its next offset before, units);\n"
"and, of idempotent producers, slots whose windows were changed, each with what the window was before. None if\n"
"the first send needs the slow path.\n"
"An index entry: hash of a key (4 bytes), phy_offset and store time of the record (8 each).\n"
"setup: (result of send_setup, new_queue).\n"
"new_queue(topic, queue_id): creates or prepares a queue without messages; None if it cannot be used.\n"
"accounts: None, or of those whose signed sends need no look, (broker_config, signing state, topics,\n"
"identities of idempotent producers) by access key; whatever is not signed by one of them, or sent as another\n"
"producer, needs the slow path.\n"
"sequences: (slots of producers by topic, queue id and identity, blocks of windows, number of the run). The\n"
"windows are changed in place, and what they were is returned; if an error is raised, they are unchanged.");

/* Read the arguments; false with an error set. */
static int read_send_arguments(struct run *run, PyObject *const *args)
{
    run->groups = args[0];
    run->new_queue = PyTuple_GetItem(args[1], 1);
    run->targets = args[2];
    run->configs = args[3];
    run->broker_config = args[4];
    run->accounts = args[5] == Py_None ? NULL : args[5];
    run->topics = args[6];
    PyObject *sequences = args[7];
    if (!PyList_Check(run->groups) || !PyDict_Check(run->targets) || !PyDict_Check(run->configs)
        || (run->accounts != NULL && !PyDict_Check(run->accounts)) || !PyDict_Check(run->topics)
        || !PyTuple_Check(sequences) || PyTuple_Size(sequences) != 3) {
        PyErr_SetString(PyExc_TypeError, "an argument of encode_sends has another type");
        return 0;
    }
    run->slots = PyTuple_GetItem(sequences, 0);
    run->blocks = PyTuple_GetItem(sequences, 1);
    run->number = (uint64_t)PyLong_AsLongLong(PyTuple_GetItem(sequences, 2));
    if (!PyDict_Check(run->slots) || !PyList_Check(run->blocks))
        PyErr_SetString(PyExc_TypeError, "sequences must have a dict and a list");
    int64_t *const numbers[] = {
        &run->phy_offset, &run->last_phy_offset, &run->now_ms, &run->max_body, &run->max_record};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *numbers[i] = PyLong_AsLongLong(args[8 + i]);
    return !PyErr_Occurred();
}

static PyObject *encode_sends(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 13 || !PyTuple_Check(args[1]) || PyTuple_Size(args[1]) != 2) {
        PyErr_SetString(PyExc_TypeError, "encode_sends takes 13 arguments, the second is a pair");
        return NULL;
    }
    struct send_setup *setup = PyCapsule_GetPointer(PyTuple_GetItem(args[1], 0), SEND_SETUP);
    struct run *run = setup == NULL ? NULL : begin_run(setup);
    if (run == NULL)
        return NULL;
    PyObject *responses = PyList_New(0), *result = NULL;
    if (responses != NULL && read_send_arguments(run, args) && make_room(run, run->groups)) {
        struct end end = {0, 0, 0};
        if (encode_groups(run, run->groups, &end, responses) >= 0)
            result = run->messages ? result_of(run, &end, responses) : Py_NewRef(Py_None);
        if (result == NULL)
            take_back(run);
    }
    Py_XDECREF(responses);
    end_run(setup, run);
    return result;
}
