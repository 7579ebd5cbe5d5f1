/* Signed sends: several are verified together, ahead of the one that is encoded. */

#pragma once

#include "run.h"
#include "send_head.h"
#include "sha1.h"

/* Sends are verified up to so many bytes ahead of the one that is encoded. */
enum { MAX_AHEAD_BYTES = 256 * 1024, ACCOUNT_PARTS = 4 };

/* Whether an account that signs with this key is known under the current ruling, and may send to the topic: 1, 0, or
   -1 with an error set. The signing state of its key is kept. */
static int find_account(struct run *run, struct span access_key, struct span topic)
{
    struct ahead *ahead = &run->ahead;
    if (ahead->topic.size > 0 && compare_names(ahead->access_key, access_key) == 0
        && compare_names(ahead->topic, topic) == 0)
        return 1;
    PyObject *name = PyUnicode_DecodeASCII(access_key.at, access_key.size, NULL);
    PyObject *account = name == NULL ? NULL : PyDict_GetItemWithError(run->accounts, name);
    Py_XDECREF(name);
    if (account == NULL)
        return PyErr_Occurred() ? -1 : 0;
    /* ruling, signing state, topics, identities of producers */
    if (!PyTuple_Check(account) || PyTuple_Size(account) != ACCOUNT_PARTS
        || PyTuple_GetItem(account, 0) != run->broker_config)
        return 0;
    struct span state = span_of(PyTuple_GetItem(account, 1));
    PyObject *wanted = state.at == NULL ? NULL : PyUnicode_DecodeASCII(topic.at, topic.size, NULL);
    int may_send = wanted == NULL ? -1 : PySet_Contains(PyTuple_GetItem(account, 2), wanted);
    Py_XDECREF(wanted);
    if (may_send <= 0 || state.size != SIGNING_STATE_BYTES)
        return may_send < 0 ? -1 : 0;
    for (int i = 0; i < SHA1_WORDS; i++) {
        ahead->key.inner[i] = (uint32_t)get_be((const unsigned char *)state.at + 4 * i, 4);
        ahead->key.outer[i] = (uint32_t)get_be((const unsigned char *)state.at + SHA1_BYTES + 4 * i, 4);
    }
    ahead->access_key = access_key;
    ahead->topic = topic;
    ahead->producers = PyTuple_GetItem(account, 3);
    return ahead->producers == NULL ? -1 : 1;
}

/* The access key and the signature of a send; false without them, and for fields that some clients do not sign. */
static int find_signature(const struct fields *fields, struct span *access_key, struct span *signature)
{
    static const char *const unsigned_names[] = {"SecurityToken", "__ZONE_NAME", "__ZONE_MODE"};
    *access_key = *signature = (struct span){NULL, 0};
    for (const struct field *field = fields->all, *end = field + fields->count; field < end; field++) {
        if (field->name.size == 1)
            continue;
        for (size_t i = 0; i < sizeof unsigned_names / sizeof *unsigned_names; i++)
            if (is_text(field->name, unsigned_names[i]))
                return 0;
        if (is_text(field->name, "AccessKey"))
            *access_key = field->value.span;
        else if (is_text(field->name, "Signature"))
            *signature = field->value.span;
    }
    return access_key->size > 0 && signature->size == SIGNATURE_BYTES;
}

/* Write what is signed: the values of all fields but the signature, then the body. Its size, -1 if the slow path has to
   read a value, -2 with an error set. */
static Py_ssize_t write_signed(struct buf *text, const struct fields *fields, struct span body)
{
    size_t room = (size_t)body.size + SHA1_PADDING_BYTES;
    for (int i = 0; i < fields->count; i++)
        room += (size_t)fields->all[i].value.span.size;
    char *begin = reserve_fresh(text, room), *out = begin;
    if (begin == NULL)
        return -2;
    for (const struct field *field = fields->all, *end = field + fields->count; field < end; field++) {
        Py_ssize_t size = is_text(field->name, "Signature") ? 0 : unescape(&field->value, out);
        if (size < 0)
            return -1;
        out += size;
    }
    return put_span(out, body) - begin;
}

/* Read the next frame behind those that were verified: 1, 0 if there is none, -1 with an error set. */
static int read_ahead(struct run *run, struct frame *frame)
{
    struct ahead *ahead = &run->ahead;
    struct span born_host;
    Py_ssize_t position;
    while (ahead->rest.size == 0) {
        if (ahead->pieces != NULL && ahead->piece < PyList_Size(ahead->pieces)) {
            if (!read_piece(ahead->pieces, ahead->piece++, &ahead->rest, &position))
                return -1;
        } else if (ahead->group < PyList_Size(run->groups)) {
            if (!read_group(run->groups, ahead->group++, &ahead->pieces, &born_host))
                return -1;
            ahead->piece = 0;
        } else
            return 0;
    }
    if (!read_frame(ahead->rest, frame))
        return 0;
    ahead->rest = (struct span){ahead->rest.at + frame->size, ahead->rest.size - frame->size};
    return 1;
}

/* Read one send, and what it signs: 1, 0 if the slow path has to verify it, -1 with an error set. */
static int prepare_verification(
    struct run *run, const struct frame *frame, struct verified *sent, struct signed_text *text, struct buf *room,
    struct span *signature)
{
    struct span access_key;
    struct fields *fields = &run->ahead.fields;
    if (!read_send(frame, &sent->send, fields) || !find_signature(fields, &access_key, signature))
        return 0;
    int is_known = find_account(run, access_key, sent->send.topic);
    if (is_known <= 0)
        return is_known;
    sent->send.producers = run->ahead.producers;
    Py_ssize_t size = write_signed(room, fields, frame->body);
    if (size < 0)
        return size == -1 ? 0 : -1;
    *text = (struct signed_text){.key = run->ahead.key, .at = (unsigned char *)room->at, .size = (size_t)size};
    return 1;
}

/* Verify the next sends, up to the first that needs the slow path. False with an error set. */
static int verify_ahead(struct run *run)
{
    struct ahead *ahead = &run->ahead;
    struct signed_text texts[SHA1_LANES];
    struct span signatures[SHA1_LANES];
    struct frame frame;
    size_t total = 0;
    int count = 0, is_signed = 1;
    ahead->next = ahead->count = 0;
    while (is_signed > 0 && count < SHA1_LANES && total < MAX_AHEAD_BYTES) {
        int is_read = read_ahead(run, &frame);
        if (is_read <= 0) {
            is_signed = is_read;
            break;
        }
        struct verified *sent = &ahead->all[ahead->count++];
        sent->header = frame.header.at;
        sent->is_valid = 0;
        is_signed = prepare_verification(
            run, &frame, sent, &texts[count], &ahead->texts[count], &signatures[count]);
        total += is_signed > 0 ? texts[count].size : 0;
        count += is_signed > 0;
    }
    if (is_signed < 0)
        return 0;
    if (count)
        hmac_all(sha1_form, texts, count);
    for (int i = 0; i < count; i++)
        ahead->all[i].is_valid = is_signature(signatures[i].at, texts[i].digest);
    return 1;
}

/* The send of a frame, if it was signed by an account that may send to its topic: 1, 0 if the slow path has to decide
   that, -1 with an error set. Frames come in the order in which they are verified. */
static int read_verified(struct run *run, const struct frame *frame, struct send *send)
{
    struct ahead *ahead = &run->ahead;
    if (ahead->next == ahead->count && !verify_ahead(run))
        return -1;
    const struct verified *sent = &ahead->all[ahead->next];
    if (ahead->next == ahead->count || sent->header != frame->header.at || !sent->is_valid)
        return 0;
    ahead->next++;
    *send = sent->send;
    return 1;
}
