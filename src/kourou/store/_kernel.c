/* kourou.store._kernel: the fast path of a broker, compiled. Optional: without it Python code does the same.
   kernel.py beside this file imports it; setup.py builds it.

   sends_end      the end of the complete frames with sends in the bytes that a connection has read
   encode_sends   ordinary sends of a commit cycle: records, units, index entries, responses
   check_entries  whether the entries of a batch may be staged as they are
   encode_staged  staged entries that are published: records, units, index entries
   gather         the records of a pull, concatenated
   read_records   records of a log, as a slave gets them: units and index entries
   units_fit      whether units of a queue match their records
   checksum       CRC of a body, as records store it
   signing_state, signatures   HMAC-SHA1, as requests are signed (_sha1.h)

   Anything out of the ordinary is left to the slow path, from that send on. So nothing here reports what is
   wrong with a request, and no object of the caller is modified. Everything a peer has sent is read within its
   length; a field that the slow path might interpret differently is not accepted. The bytes are those that the
   slow path produces: tests/integration/kernel compares the two. Positions, sizes and bounds come from _layout.h.

   Only the stable ABI of Python 3.11 is used, so that one binary serves every later version. It has functions
   in place of the macros that access objects directly: what every message needs is looked up once and kept. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_layout.h"
#include "_sha1.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define CAN_FOLD __builtin_cpu_supports("pclmul")
#define FOLDS __attribute__((target("pclmul,sse2")))
#else
#define CAN_FOLD 0
#endif

#define INTERFACE 14

enum { JSON = SERIALIZE_JSON, BINARY = SERIALIZE_ROCKETMQ, ONEWAY = 2 };
enum { HOST_DIGITS = 16, OFFSET_DIGITS = 16, ID_BYTES = HOST_DIGITS + OFFSET_DIGITS + 1 };
enum { MAX_QUEUES = 256, MAX_SLOW_PATH_NAMES = 64, MAX_IDENTITY_BYTES = 96 };
enum { WINDOW_BYTES = WINDOW_WORDS * 8, UNDO_BYTES = 8 + WINDOW_BYTES };

/* Of idempotent producers: the property that a message carries, and the field of a send that makes it count. */
#define SEQUENCE_PROPERTY "__KOUROU_SEQ"
#define SEQUENCED_FIELD "kourouSequenced"

/* Read a field of a layout that begins at `begin` as an unsigned number; write a number, or bytes, to it. */
#define GET(begin, FIELD) get_be((const unsigned char *)(begin) + FIELD##_AT, FIELD##_BYTES)
#define PUT(begin, FIELD, number) put_be((begin) + FIELD##_AT, (uint64_t)(number), FIELD##_BYTES)
#define PUT_SPAN(begin, FIELD, span) memcpy((begin) + FIELD##_AT, (span).at, FIELD##_BYTES)

static PyObject *name_next_queue_offset, *name_encoder, *name_topic, *name_topic_part, *name_magic, *name_queue_id;

/* -- bytes ----------------------------------------------------------------------------------------- */

struct span {
    const char *at;
    Py_ssize_t size;
};

/* The contents of a bytes object; sets an error for any other object. */
static struct span span_of(PyObject *bytes)
{
    char *at = NULL;
    Py_ssize_t size = 0;
    PyBytes_AsStringAndSize(bytes, &at, &size);
    return (struct span){at, size};
}

static int is_text(struct span span, const char *text)
{
    return span.size == (Py_ssize_t)strlen(text) && memcmp(span.at, text, (size_t)span.size) == 0;
}

static char *put_be(char *out, uint64_t value, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--, value >>= 8)
        out[i] = (char)value;
    return out + bytes;
}

static char *put_span(char *out, struct span span)
{
    memcpy(out, span.at, (size_t)span.size);
    return out + span.size;
}

enum { MAX_DECIMAL_BYTES = 20 };

static char *put_decimal(char *out, int64_t number)
{
    char digits[MAX_DECIMAL_BYTES], *at = digits + sizeof digits;
    uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do {
        *--at = (char)('0' + rest % 10);
    } while (rest /= 10);
    if (number < 0)
        *out++ = '-';
    memcpy(out, at, (size_t)(digits + sizeof digits - at));
    return out + (digits + sizeof digits - at);
}

static char *put_hex(char *out, uint64_t number, int digits)
{
    for (int i = digits - 1; i >= 0; i--, number >>= 4)
        out[i] = "0123456789ABCDEF"[number & 15];
    return out + digits;
}

static uint64_t get_be(const unsigned char *in, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | in[i];
    return value;
}

static int is_ascii(struct span span)
{
    uint64_t eight, found = 0;
    Py_ssize_t i = 0;
    for (; i + 8 <= span.size; i += 8) {
        memcpy(&eight, span.at + i, 8);
        found |= eight;
    }
    for (; i < span.size; i++)
        found |= (unsigned char)span.at[i];
    return !(found & 0x8080808080808080u);
}

/* Buffers grow to twice their size, except under the address sanitizer, which finds every byte beyond the end. */
#ifdef __SANITIZE_ADDRESS__
#define GROWN(bytes) (bytes)
#else
#define GROWN(bytes) (2 * (bytes))
#endif

/* A growing buffer. Its memory is C's, since it may grow while the interpreter lock is released. */
struct buf {
    char *at;
    size_t size, room;
};

/* Extend the buffer by `more` bytes; returns their start, or NULL with an error set. */
static char *reserve(struct buf *buf, size_t more)
{
    if (buf->room - buf->size < more) {
        size_t room = GROWN(buf->size + more);
        char *at = realloc(buf->at, room);
        if (at == NULL) {
            PyGILState_STATE state = PyGILState_Ensure();
            PyErr_NoMemory();
            PyGILState_Release(state);
            return NULL;
        }
        buf->at = at;
        buf->room = room;
    }
    char *begin = buf->at + buf->size;
    buf->size += more;
    return begin;
}

/* Discard the contents of the buffer, then reserve `size` bytes. */
static char *reserve_fresh(struct buf *buf, size_t size)
{
    buf->size = 0;
    return reserve(buf, size);
}

static PyObject *bytes_of(const struct buf *buf)
{
    return PyBytes_FromStringAndSize(buf->at, (Py_ssize_t)buf->size);
}

/* -- checksums: CRC-32 as in zlib ----------------------------------------------------------------- */

static PyObject *crc32_function; /* of zlib, for other processors */
static int can_fold;
static uint32_t crc_table[256];

static void make_crc_table(void)
{
    for (uint32_t value = 0; value < 256; value++) {
        uint32_t crc = value;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320 : crc >> 1;
        crc_table[value] = crc;
    }
}

static uint32_t crc_bytes(uint32_t crc, const unsigned char *at, Py_ssize_t size)
{
    while (size-- > 0)
        crc = crc_table[(crc ^ *at++) & 0xFF] ^ crc >> 8;
    return crc;
}

#ifdef FOLDS
/* Fold: advance a block of 16 bytes by a distance, given by the constants in `by`, and add it to `other`. */
FOLDS static __m128i folded(__m128i block, __m128i by, __m128i other)
{
    return _mm_xor_si128(
        other, _mm_xor_si128(_mm_clmulepi64_si128(block, by, 0x00), _mm_clmulepi64_si128(block, by, 0x11)));
}

/* The CRC of 64 bytes or more, four blocks in parallel. In the end one block has the same remainder as all the
   data before it. */
FOLDS static uint32_t crc_folded(uint32_t crc, const unsigned char *at, Py_ssize_t size)
{
    const __m128i by_512 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4);
    const __m128i by_128 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0);
    const unsigned char *end = at + size;
    unsigned char last[16];
    __m128i blocks[4];
    for (int i = 0; i < 4; i++, at += 16)
        blocks[i] = _mm_loadu_si128((const __m128i *)at);
    blocks[0] = _mm_xor_si128(blocks[0], _mm_cvtsi32_si128((int)crc));
    for (; end - at >= 64; at += 64)
        for (int i = 0; i < 4; i++)
            blocks[i] = folded(blocks[i], by_512, _mm_loadu_si128((const __m128i *)(at + 16 * i)));
    for (int i = 1; i < 4; i++)
        blocks[i] = folded(blocks[i - 1], by_128, blocks[i]);
    for (; end - at >= 16; at += 16)
        blocks[3] = folded(blocks[3], by_128, _mm_loadu_si128((const __m128i *)at));
    _mm_storeu_si128((__m128i *)last, blocks[3]);
    return crc_bytes(crc_bytes(0, last, sizeof last), at, end - at);
}
#else
static uint32_t crc_folded(uint32_t crc, const unsigned char *at, Py_ssize_t size)
{
    return crc_bytes(crc, at, size);
}
#endif

/* The checksum of a body, as its record stores it. False with an error set. */
static int checksum(struct span body, uint32_t *crc)
{
    if (can_fold) {
        const unsigned char *at = (const unsigned char *)body.at;
        *crc = ~(body.size < 64 ? crc_bytes(~0u, at, body.size) : crc_folded(~0u, at, body.size)) & CRC_MASK;
        return 1;
    }
    PyObject *view = PyMemoryView_FromMemory((char *)body.at, body.size, PyBUF_READ);
    PyObject *number = view == NULL ? NULL : PyObject_CallFunctionObjArgs(crc32_function, view, NULL);
    Py_XDECREF(view);
    if (number == NULL)
        return 0;
    *crc = (uint32_t)PyLong_AsUnsignedLong(number) & CRC_MASK;
    Py_DECREF(number);
    return 1;
}

PyDoc_STRVAR(checksum_doc,
"checksum(data)\n"
"\n"
"The checksum of a body, as its record stores it: zlib's CRC-32 without the top bit.");

static PyObject *checksum_of(PyObject *module, PyObject *data)
{
    uint32_t crc;
    (void)module;
    if (!PyBytes_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "data must be bytes");
        return NULL;
    }
    return checksum(span_of(data), &crc) ? PyLong_FromUnsignedLong(crc) : NULL;
}

/* -- frames ------------------------------------------------------------------------------------------ */

/* Header and body follow the prefix. The mark holds the serialization type and, in the lower 24 bits, the length of
   the header. */
enum { MAX_NUMBERS_BYTES = 4 * 24 }; /* in a response: three of them, with their lengths */

struct frame {
    unsigned type;
    struct span header, body;
    Py_ssize_t size;
};

/* Read the frame at the start of `rest`; false if it is incomplete or malformed. */
static int read_frame(struct span rest, struct frame *frame)
{
    if (rest.size < FRAME_BYTES)
        return 0;
    uint64_t length = GET(rest.at, FRAME_LENGTH), mark = GET(rest.at, FRAME_MARK);
    uint64_t header = mark & MAX_HEADER_BYTES;
    if (length > (uint64_t)(rest.size - FRAME_LENGTH_BYTES) || header + FRAME_LENGTH_BYTES > length)
        return 0;
    frame->type = (unsigned)(mark >> 24);
    frame->size = FRAME_LENGTH_BYTES + (Py_ssize_t)length;
    frame->header = (struct span){rest.at + FRAME_BYTES, (Py_ssize_t)header};
    frame->body = (struct span){frame->header.at + header, frame->size - FRAME_BYTES - (Py_ssize_t)header};
    return 1;
}

/* Both codes may carry a batch: the field `m` decides. */
static int is_send(int64_t code)
{
    return code == SEND_MESSAGE_V2 || code == SEND_BATCH_MESSAGE;
}

#define TEXT_OF(number) #number
#define JSON_CODE(code) "{\"code\":" TEXT_OF(code) ","

static int starts_with(struct span span, const char *start)
{
    return span.size >= (Py_ssize_t)strlen(start) && memcmp(span.at, start, strlen(start)) == 0;
}

/* Whether a frame is a send, by its first bytes. Clients write the code first; in a binary header it is always
   first. */
static int looks_like_send(const struct frame *frame)
{
    struct span header = frame->header;
    if (frame->type == BINARY)
        return header.size >= BINARY_COMMAND_CODE_BYTES && is_send((int64_t)GET(header.at, BINARY_COMMAND_CODE));
    return frame->type == JSON
           && (starts_with(header, JSON_CODE(SEND_MESSAGE_V2)) || starts_with(header, JSON_CODE(SEND_BATCH_MESSAGE)));
}

PyDoc_STRVAR(sends_end_doc,
"sends_end(data, position, max_frame_bytes)\n"
"\n"
"The end of the sends in `data` from `position` on, as complete frames without a gap.");

static PyObject *sends_end(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 3 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "sends_end takes bytes and two numbers");
        return NULL;
    }
    const struct span data = span_of(args[0]);
    struct span rest = data;
    struct frame frame;
    Py_ssize_t position = PyLong_AsSsize_t(args[1]), max_bytes = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (position < 0 || position > rest.size) {
        PyErr_SetString(PyExc_ValueError, "the position is outside the data");
        return NULL;
    }
    rest = (struct span){rest.at + position, rest.size - position};
    while (read_frame(rest, &frame) && frame.size <= max_bytes && looks_like_send(&frame))
        rest = (struct span){rest.at + frame.size, rest.size - frame.size};
    return PyLong_FromSsize_t(data.size - rest.size);
}

/* -- JSON: one object of strings, numbers and words ---------------------------------------------------- */

struct cursor {
    const char *at, *end;
};

struct value {
    struct span span;
    int is_string, has_escape, is_ascii;
};

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r'))
        c->at++;
}

static int accept(struct cursor *c, char wanted)
{
    skip_blanks(c);
    if (c->at >= c->end || *c->at != wanted)
        return 0;
    c->at++;
    return 1;
}

static int read_string(struct cursor *c, struct value *value)
{
    if (!accept(c, '"'))
        return 0;
    const unsigned char *at = (const unsigned char *)c->at, *end = (const unsigned char *)c->end;
    value->span.at = c->at;
    value->is_string = value->is_ascii = 1;
    value->has_escape = 0;
    for (;; at++) {
        while (at < end && *at != '"' && *at != '\\' && *at >= 0x20 && *at < 0x80)
            at++;
        if (at >= end || *at < 0x20)
            return 0;
        if (*at == '"')
            break;
        if (*at >= 0x80) {
            value->is_ascii = 0;
        } else {
            value->has_escape = 1;
            at++; /* `unescape` checks what follows */
        }
    }
    value->span.size = (const char *)at - value->span.at;
    c->at = (const char *)at + 1;
    return 1;
}

/* A string, number or bare word; no object, no array. */
static int read_value(struct cursor *c, struct value *value)
{
    skip_blanks(c);
    if (c->at < c->end && *c->at == '"')
        return read_string(c, value);
    value->span.at = c->at;
    value->is_string = value->has_escape = 0;
    value->is_ascii = 1;
    while (c->at < c->end && ((*c->at >= '0' && *c->at <= '9') || (*c->at >= 'a' && *c->at <= 'z') || *c->at == '-'))
        c->at++;
    value->span.size = c->at - value->span.at;
    return value->span.size > 0;
}

static int is_number(const struct value *value, int64_t low, int64_t high, int64_t *number)
{
    const char *at = value->span.at, *end = at + value->span.size;
    int is_negative = at < end && *at == '-';
    if (is_negative)
        at++;
    /* Any 18 digits fit. JSON has no leading zeros. */
    if (at >= end || end - at > 18 || (*at == '0' && (end - at > 1 || is_negative)))
        return 0;
    int64_t found = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return 0;
        found = found * 10 + (*at - '0');
    }
    *number = is_negative ? -found : found;
    return *number >= low && *number <= high;
}

static int is_plain_text(const struct value *value)
{
    return value->is_string && !value->has_escape && value->is_ascii;
}

static int is_bool(const struct value *value, int *flag)
{
    *flag = is_text(value->span, "true");
    return !value->has_escape && (*flag || is_text(value->span, "false"));
}

static int hex_digit(char sign)
{
    if (sign >= '0' && sign <= '9')
        return sign - '0';
    sign |= 0x20;
    return sign >= 'a' && sign <= 'f' ? sign - 'a' + 10 : -1;
}

/* Write the text of a string value, which is no longer than the value; returns its length, or -1. */
static Py_ssize_t unescape(const struct value *value, char *out)
{
    const char *at = value->span.at, *end = at + value->span.size;
    char *begin = out;
    while (at < end) {
        const char *plain = value->has_escape ? memchr(at, '\\', (size_t)(end - at)) : NULL;
        out = put_span(out, (struct span){at, (plain ? plain : end) - at});
        if (plain == NULL)
            break;
        at = plain + 1;
        if (at >= end)
            return -1;
        char sign = *at++;
        if (sign == 'u') {
            int code = 0;
            for (int i = 0; i < 4; i++, at++) {
                int digit = at < end ? hex_digit(*at) : -1;
                if (digit < 0)
                    return -1;
                code = code << 4 | digit;
            }
            if (code == 0 || code >= 0x80)
                return -1;
            *out++ = (char)code;
        } else {
            static const char signs[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
            const char *known = sign ? strchr(signs, sign) : NULL;
            if (known == NULL)
                return -1;
            *out++ = meant[known - signs];
        }
    }
    return out - begin;
}

/* -- the head of a send ------------------------------------------------------------------------------- */

/* The fields of a send, in the order of their names: in that order their values are signed. */
enum { MAX_SIGNED_FIELDS = 32 };
struct field {
    struct span name;
    struct value value;
};
struct fields {
    int count;
    struct field all[MAX_SIGNED_FIELDS];
};

struct send {
    struct fields *fields; /* to be kept; NULL: nothing is signed */
    int64_t opaque, flag, queue_id, sys_flag, born_timestamp, message_flag, reconsume_times;
    struct span topic;
    struct value properties;
    PyObject *producers; /* borrowed: identities that the account may send as; NULL: any */
    int is_batch, is_sequenced;
    unsigned seen; /* one bit per field, the lowest for the first letter */
};

#define FIELD(letter) (1u << ((letter) - SEND_FIRST))
#define SEEN_SEQUENCED (1u << 31)
#define IN_RANGE(value, FIELD, number) is_number(value, FIELD##_MIN, FIELD##_MAX, number)

static int read_field(char letter, const struct value *value, struct send *send)
{
    int64_t number;
    int flag;
    switch (letter) {
    case SEND_TOPIC:
        send->topic = value->span;
        return is_plain_text(value) && value->span.size >= SEND_TOPIC_MIN && value->span.size <= SEND_TOPIC_MAX;
    case SEND_DEFAULT_TOPIC_QUEUE_NUMS:
        return IN_RANGE(value, SEND_DEFAULT_TOPIC_QUEUE_NUMS, &number);
    case SEND_QUEUE_ID:
        return IN_RANGE(value, SEND_QUEUE_ID, &send->queue_id);
    case SEND_SYS_FLAG:
        return IN_RANGE(value, SEND_SYS_FLAG, &send->sys_flag) && !(send->sys_flag & TRANSACTION_MASK);
    case SEND_BORN_TIMESTAMP:
        return IN_RANGE(value, SEND_BORN_TIMESTAMP, &send->born_timestamp);
    case SEND_FLAG:
        return IN_RANGE(value, SEND_FLAG, &send->message_flag);
    case SEND_PROPERTIES:
        send->properties = *value;
        return value->is_string;
    case SEND_RECONSUME_TIMES:
        return IN_RANGE(value, SEND_RECONSUME_TIMES, &send->reconsume_times);
    case SEND_UNIT_MODE:
        return is_bool(value, &flag);
    case SEND_MAX_RECONSUME_TIMES:
        return IN_RANGE(value, SEND_MAX_RECONSUME_TIMES, &number);
    case SEND_BATCH:
        return is_bool(value, &send->is_batch);
    default:
        return is_plain_text(value);
    }
}

/* Less than 0, 0 or more: names of fields are ASCII, and Java compares them so. */
static int compare_names(struct span one, struct span other)
{
    int order = memcmp(one.at, other.at, (size_t)(one.size < other.size ? one.size : other.size));
    return order ? order : (one.size > other.size) - (one.size < other.size);
}

/* Keep a field, in order; false for a second one of that name, and for too many. */
static int keep_field(struct span name, const struct value *value, struct fields *fields)
{
    int at = fields->count, order = 1;
    if (at == MAX_SIGNED_FIELDS)
        return 0;
    while (at > 0 && (order = compare_names(fields->all[at - 1].name, name)) > 0)
        at--;
    if (at > 0 && order == 0)
        return 0;
    memmove(&fields->all[at + 1], &fields->all[at], (size_t)(fields->count - at) * sizeof fields->all[0]);
    fields->all[at] = (struct field){name, *value};
    fields->count++;
    return 1;
}

/* A duplicate field is not accepted: the slow path decides which one counts. */
static int set_field(struct span name, const struct value *value, struct send *send)
{
    char letter = name.size == 1 ? *name.at : 0;
    if (send->fields != NULL && !keep_field(name, value, send->fields))
        return 0;
    if (letter == 0 && is_text(name, SEQUENCED_FIELD)) {
        int is_first = !(send->seen & SEEN_SEQUENCED);
        send->seen |= SEEN_SEQUENCED;
        return is_first && is_bool(value, &send->is_sequenced);
    }
    if (!read_field(letter, value, send))
        return 0;
    if (letter < SEND_FIRST || letter > SEND_LAST)
        return 1;
    if (send->seen & FIELD(letter))
        return 0;
    send->seen |= FIELD(letter);
    return 1;
}

static int read_fields(struct cursor *c, struct send *send)
{
    struct value key, value;
    if (send->seen || (send->fields != NULL && send->fields->count) || !accept(c, '{'))
        return 0; /* the slow path decides which of two counts */
    do {
        if (!read_string(c, &key) || !is_plain_text(&key) || !accept(c, ':') || !read_value(c, &value))
            return 0;
        if (!set_field(key.span, &value, send))
            return 0;
    } while (accept(c, ','));
    return accept(c, '}');
}

static int read_json_send(struct span header, struct send *send)
{
    struct cursor c = {header.at, header.at + header.size};
    struct value key, value;
    int64_t code = 0, version;
    if (!accept(&c, '{'))
        return 0;
    do {
        if (!read_string(&c, &key) || !is_plain_text(&key) || !accept(&c, ':'))
            return 0;
        int is_fine;
        if (is_text(key.span, "extFields"))
            is_fine = read_fields(&c, send);
        else if (!read_value(&c, &value) || (value.is_string && !is_plain_text(&value)))
            is_fine = 0;
        else if (is_text(key.span, "code"))
            is_fine = !value.is_string && is_number(&value, 0, INT16_MAX, &code);
        else if (is_text(key.span, "flag"))
            is_fine = !value.is_string && is_number(&value, 0, ONEWAY, &send->flag) && send->flag != 1;
        else if (is_text(key.span, "opaque"))
            is_fine = !value.is_string && is_number(&value, INT64_MIN, INT64_MAX, &send->opaque);
        else if (is_text(key.span, "version"))
            is_fine = !value.is_string && is_number(&value, INT64_MIN, INT64_MAX, &version);
        else if (is_text(key.span, "remark"))
            is_fine = 0;
        else
            is_fine = value.is_string;
        if (!is_fine)
            return 0;
    } while (accept(&c, ','));
    if (!accept(&c, '}'))
        return 0;
    skip_blanks(&c);
    return c.at == c.end && is_send(code) && (send->seen & SEND_NEEDED) == SEND_NEEDED;
}

/* -- the same with a binary header --------------------------------------------------------------------- */

/* The fields follow the head: length of the name, name, length of the value, value. */

/* Read a length and a text from the start of `rest`; false if it does not fit, is empty, or contains a zero,
   which a text in JSON cannot contain either. */
static int next_text(struct span *rest, int length_bytes, struct value *text)
{
    if (rest->size < length_bytes)
        return 0;
    /* Read as unsigned, a negative length exceeds any header. */
    uint64_t size = get_be((const unsigned char *)rest->at, length_bytes);
    if (size == 0 || size > (uint64_t)(rest->size - length_bytes))
        return 0;
    struct span span = {rest->at + length_bytes, (Py_ssize_t)size};
    rest->at += length_bytes + size;
    rest->size -= length_bytes + (Py_ssize_t)size;
    *text = (struct value){.span = span, .is_string = 1, .is_ascii = is_ascii(span)};
    return memchr(span.at, 0, size) == NULL;
}

static int read_binary_send(struct span header, struct send *send)
{
    const char *head = header.at;
    struct value name, value;
    if (header.size < BINARY_COMMAND_BYTES)
        return 0;
    struct span rest = {header.at + BINARY_COMMAND_BYTES, header.size - BINARY_COMMAND_BYTES};
    if (!is_send((int64_t)GET(head, BINARY_COMMAND_CODE)) || GET(head, BINARY_COMMAND_REMARK_LENGTH) != 0
        || GET(head, BINARY_COMMAND_FIELDS_LENGTH) != (uint64_t)rest.size)
        return 0;
    send->opaque = (int32_t)GET(head, BINARY_COMMAND_OPAQUE);
    send->flag = (int32_t)GET(head, BINARY_COMMAND_FLAG);
    if (send->flag != 0 && send->flag != ONEWAY)
        return 0;
    while (rest.size > 0) {
        if (!next_text(&rest, BINARY_NAME_LENGTH_BYTES, &name) || name.span.size > INT16_MAX || !is_plain_text(&name)
            || !next_text(&rest, BINARY_VALUE_LENGTH_BYTES, &value) || !set_field(name.span, &value, send))
            return 0;
    }
    return (send->seen & SEND_NEEDED) == SEND_NEEDED;
}

/* Read the head of a send, and keep its fields unless `fields` is NULL; false if it needs the slow path. */
static int read_send(const struct frame *frame, struct send *send, struct fields *fields)
{
    memset(send, 0, sizeof *send);
    send->fields = fields;
    if (fields != NULL)
        fields->count = 0;
    return frame->type == BINARY ? read_binary_send(frame->header, send)
           : frame->type == JSON ? read_json_send(frame->header, send)
                                 : 0;
}

/* -- properties ---------------------------------------------------------------------------------------- */

struct properties {
    struct span text, own; /* stored one after the other: as sent, and added by the broker */
    struct span uniq_key, tags, keys, sequence;
};

/* Read the next pair of `rest`; false at the end. Without a separator the value is empty. */
static int next_pair(struct span *rest, struct span *name, struct span *value)
{
    const char *at = rest->at, *end = at + rest->size;
    if (at >= end)
        return 0;
    const char *stop = memchr(at, PROPERTY_SEPARATOR, (size_t)(end - at));
    if (stop == NULL)
        stop = end;
    const char *mark = memchr(at, NAME_VALUE_SEPARATOR, (size_t)(stop - at));
    *name = (struct span){at, (mark ? mark : stop) - at};
    *value = (struct span){mark ? mark + 1 : stop, mark ? stop - mark - 1 : 0};
    rest->at = stop < end ? stop + 1 : end;
    rest->size = end - rest->at;
    return 1;
}

/* Names of properties that need the slow path. `source` is a tuple of bytes, read when the first property is
   compared. */
struct names {
    PyObject *source;
    Py_ssize_t count;
    struct span all[MAX_SLOW_PATH_NAMES];
};
enum { NAMES_UNREAD = -1 };

/* False with an error set. */
static int read_names(struct names *names)
{
    Py_ssize_t count = PyTuple_Size(names->source);
    if (count > MAX_SLOW_PATH_NAMES) {
        PyErr_SetString(PyExc_ValueError, "too many names of properties that need the slow path");
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        names->all[i] = span_of(PyTuple_GetItem(names->source, i));
    names->count = count;
    return !PyErr_Occurred();
}

/* Whether a property of this name needs the slow path; true with an error set if the names cannot be read. */
static int needs_slow_path(struct span name, struct names *names)
{
    if (names->count == NAMES_UNREAD && !read_names(names))
        return 1;
    for (const struct span *other = names->all, *end = other + names->count; other < end; other++)
        if (other->size == name.size && memcmp(other->at, name.at, (size_t)name.size) == 0)
            return 1;
    return 0;
}

static int is_alphanumeric(struct span span)
{
    for (Py_ssize_t i = 0; i < span.size; i++) {
        char sign = span.at[i];
        if (!((sign >= '0' && sign <= '9') || (sign >= 'A' && sign <= 'Z') || (sign >= 'a' && sign <= 'z')))
            return 0;
    }
    return span.size > 0;
}

/* Whether Python decodes the text as UTF-8: 1, 0, or -1 with an error set. */
static int is_utf8(struct span span)
{
    PyObject *text = PyUnicode_DecodeUTF8(span.at, span.size, NULL);
    if (text != NULL) {
        Py_DECREF(text);
        return 1;
    }
    if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        return -1;
    PyErr_Clear();
    return 0;
}

/* Keep the sequence of an idempotent producer; false for a second one, or an empty one. */
static int keep_sequence(struct span value, struct properties *found)
{
    int is_first = found->sequence.size == 0;
    found->sequence = value;
    return is_first && value.size > 0;
}

/* False for a message that needs the slow path: an unusual id, a delay, or no wait for the flush. Tags and keys are
   hashed, and must be ASCII. */
static int read_properties(struct span text, struct span own, struct names *slow_path_names, struct properties *found)
{
    struct span rest = text, name, value;
    *found = (struct properties){.text = text, .own = own};
    while (next_pair(&rest, &name, &value)) {
        if (is_text(name, "UNIQ_KEY")) {
            if (value.size)
                found->uniq_key = value;
        } else if (is_text(name, "TAGS")) {
            if (value.size)
                found->tags = value;
        } else if (is_text(name, "KEYS")) {
            if (value.size)
                found->keys = value;
        } else if (is_text(name, "WAIT")) {
            if (is_text(value, "false"))
                return 0;
        } else if (is_text(name, SEQUENCE_PROPERTY)) {
            if (!keep_sequence(value, found))
                return 0;
        } else if (needs_slow_path(name, slow_path_names)) {
            return 0;
        }
    }
    int is_fine_id = found->uniq_key.size == 0 || is_alphanumeric(found->uniq_key);
    return is_fine_id && is_ascii(found->tags) && is_ascii(found->keys);
}

/* Keep the value of a pair if it is the id, tags or keys: of two pairs with the same name the later wins. False for one
   of them without a value, before which an earlier one would count, and for a value that is not ASCII. */
static int keep_word(struct span name, struct span value, struct properties *found)
{
    struct span *wanted = is_text(name, "UNIQ_KEY") ? &found->uniq_key
                          : is_text(name, "TAGS")   ? &found->tags
                          : is_text(name, "KEYS")   ? &found->keys
                                                    : NULL;
    if (wanted == NULL)
        return 1;
    *wanted = value;
    return value.size > 0 && is_ascii(value);
}

/* Java's hash code of a text that ends with `span`; `code` is that of the text before it. */
static uint32_t java_hash(uint32_t code, struct span span)
{
    for (Py_ssize_t i = 0; i < span.size; i++)
        code = 31 * code + (unsigned char)span.at[i];
    return code;
}

static int64_t tags_code(const struct properties *found)
{
    return (int32_t)java_hash(0, found->tags);
}

/* -- a run of sends ------------------------------------------------------------------------------------ */

struct queue {
    PyObject *queue, *topic_part;
    struct span topic_bytes; /* the contents of topic_part */
    struct buf units;
    int64_t queue_id, first, next; /* the id: of records that are read */
    uint32_t magic, topic_code; /* the hash code of `topic#` */
    /* of idempotent producers: their slots by identity, and the window of the last one */
    PyObject *slots;
    uint64_t *window;
    int64_t slot;
    Py_ssize_t identity_size;
    char identity[MAX_IDENTITY_BYTES];
    const PyObject *producers; /* of the last send that was allowed to have this identity */
};

/* Sends whose signatures were verified together, before the first of them is encoded: hashes of several texts cost
   little more than one. The place behind the last is that of the next frame to be read. */
struct verified {
    struct send send;
    const char *header; /* where its frame has it */
    int is_valid;       /* signed, by an account that may send to the topic */
};
struct ahead {
    Py_ssize_t group, piece;
    PyObject *pieces; /* of the group; NULL before the first */
    struct span rest; /* of the piece */
    int next, count;
    struct verified all[SHA1_LANES];
    struct buf texts[SHA1_LANES];
    struct fields fields;
    /* the account of the last send: usually that of the next one, too */
    struct span access_key, topic;
    struct signing_state key;
    PyObject *producers;
};

struct run {
    /* input */
    PyObject *groups, *accounts; /* accounts: NULL where sends need no signature */
    PyObject *new_queue, *targets, *configs, *broker_config, *topics, *slots, *blocks;
    uint64_t number; /* of the run, as windows note it */
    struct span own, store_host, born_host;
    struct span templates[2][2]; /* of responses: by serialization type, and whether the message has an id */
    int64_t last_phy_offset, now_ms, max_body, max_record;
    /* the topic of the last message: usually that of the next one, too */
    struct span topic;
    PyObject *target, *queues_of_topic;
    int64_t queue_nums, more_flags;
    /* output: a bytearray, its start, the place of the next record, its end */
    PyObject *records;
    char *first_record, *record, *records_end;
    struct buf indexed, responses;
    int64_t phy_offset;
    Py_ssize_t messages;
    int queue_count;
    /* of the current send: its properties, and the phy_offsets of its records, 8 bytes each */
    struct buf text, phy_offsets;
    /* of idempotent producers: the sequences of a batch, 8 bytes each; slots that were changed, and what their windows
       were before; whether a record that was read has a sequence */
    struct buf sequences, undo;
    int has_sequences;
    struct ahead ahead;
    struct names slow_path_names; /* this and what follows: valid as far as the counts say */
    struct queue queues[MAX_QUEUES];
};

static struct run *new_run(void)
{
    struct run *run = PyMem_Malloc(sizeof *run);
    if (run == NULL)
        PyErr_NoMemory();
    else {
        memset(run, 0, offsetof(struct run, slow_path_names));
        run->slow_path_names.count = NAMES_UNREAD;
    }
    return run;
}

/* Hold another object; takes over the reference. */
static void replace(PyObject **held, PyObject *object)
{
    PyObject *before = *held;
    *held = object;
    Py_XDECREF(before);
}

static int64_t int_attribute(PyObject *object, PyObject *name)
{
    PyObject *number = PyObject_GetAttr(object, name);
    if (number == NULL)
        return -1;
    int64_t value = PyLong_AsLongLong(number);
    Py_DECREF(number);
    return value;
}

/* Whether messages of the topic may take the fast path: 1, 0, or -1 with an error set. */
static int find_topic(struct run *run, struct span topic)
{
    if (run->target != NULL && run->topic.size == topic.size
        && memcmp(run->topic.at, topic.at, (size_t)topic.size) == 0)
        return 1;
    PyObject *name = PyUnicode_DecodeASCII(topic.at, topic.size, NULL);
    if (name == NULL)
        return -1;
    PyObject *target = PyDict_GetItemWithError(run->targets, name);
    PyObject *config = PyDict_GetItemWithError(run->configs, name);
    PyObject *queues = PyDict_GetItemWithError(run->topics, name);
    Py_DECREF(name);
    if (PyErr_Occurred())
        return -1;
    if (target == NULL || config == NULL || queues == NULL || !PyTuple_Check(target)
        || PyTuple_Size(target) != 5 || !PyDict_Check(queues))
        return 0;
    /* topic_config, broker_config, queue_nums, sys_flag, is_retry */
    if (PyTuple_GetItem(target, 0) != config || PyTuple_GetItem(target, 1) != run->broker_config
        || PyTuple_GetItem(target, 4) != Py_False)
        return 0;
    int64_t queue_nums = PyLong_AsLongLong(PyTuple_GetItem(target, 2));
    int64_t more_flags = PyLong_AsLongLong(PyTuple_GetItem(target, 3));
    if (PyErr_Occurred())
        return -1;
    /* Keep references: the checksum of a large body lets other threads run. */
    replace(&run->target, Py_NewRef(target));
    replace(&run->queues_of_topic, Py_NewRef(queues));
    run->topic = topic;
    run->queue_nums = queue_nums;
    run->more_flags = more_flags;
    return 1;
}

/* The encoder of the records of a queue. A missing queue is created, and one without messages prepared. NULL, with
   or without an error set, if that is impossible. */
static PyObject *encoder_of(struct run *run, PyObject *number, PyObject **queue)
{
    PyObject *encoder = *queue == NULL ? NULL : PyObject_GetAttr(*queue, name_encoder);
    if (PyErr_Occurred() || (encoder != NULL && encoder != Py_None))
        return encoder;
    Py_CLEAR(encoder);
    PyObject *topic = PyUnicode_DecodeASCII(run->topic.at, run->topic.size, NULL);
    if (topic == NULL)
        return NULL;
    replace(queue, PyObject_CallFunctionObjArgs(run->new_queue, topic, number, NULL));
    Py_DECREF(topic);
    return *queue == NULL || *queue == Py_None ? NULL : PyObject_GetAttr(*queue, name_encoder);
}

/* Start to use a queue; NULL, with or without an error set, if the fast path cannot use it. */
static struct queue *open_queue(struct run *run, PyObject *queue, PyObject *encoder)
{
    struct queue *found = &run->queues[run->queue_count];
    memset(found, 0, sizeof *found);
    found->queue = Py_NewRef(queue);
    found->first = found->next = int_attribute(queue, name_next_queue_offset);
    found->magic = (uint32_t)int_attribute(encoder, name_magic);
    run->queue_count++; /* so that `clear` releases it */
    PyObject *topic = PyErr_Occurred() ? NULL : PyObject_GetAttr(queue, name_topic);
    if (topic != NULL)
        found->topic_part = PyObject_GetAttr(encoder, name_topic_part);
    struct span name = {NULL, 0};
    if (found->topic_part != NULL && PyBytes_Check(found->topic_part) && PyUnicode_Check(topic)) {
        found->topic_bytes = span_of(found->topic_part);
        name.at = PyUnicode_AsUTF8AndSize(topic, &name.size);
    }
    int is_fine = name.at != NULL && is_ascii(name)
                  && found->topic_bytes.size <= TOPIC_LENGTH_V2_BYTES + MAX_TOPIC_FOLDER_BYTES;
    if (is_fine)
        found->topic_code = java_hash(java_hash(0, name), (struct span){"#", 1});
    Py_XDECREF(topic);
    return is_fine ? found : NULL;
}

/* The queue, if the run uses it already. */
static struct queue *opened_queue(struct run *run, PyObject *queue)
{
    for (int i = 0; queue != NULL && i < run->queue_count; i++)
        if (run->queues[i].queue == queue)
            return &run->queues[i];
    return NULL;
}

/* The queue of a message; NULL, with or without an error set, if the fast path cannot use it. */
static struct queue *find_queue(struct run *run, int64_t queue_id)
{
    PyObject *number = PyLong_FromLongLong(queue_id);
    if (number == NULL)
        return NULL;
    PyObject *queue = Py_XNewRef(PyDict_GetItemWithError(run->queues_of_topic, number));
    struct queue *found = opened_queue(run, queue);
    if (found == NULL && run->queue_count < MAX_QUEUES) {
        PyObject *encoder = encoder_of(run, number, &queue);
        if (encoder != NULL && (found = opened_queue(run, queue)) == NULL)
            found = open_queue(run, queue, encoder);
        Py_XDECREF(encoder);
    }
    Py_XDECREF(queue);
    Py_DECREF(number);
    return found;
}

/* Index the current record under a word: hash of the word, phy_offset and store time of the record. */
static int add_index_key(struct run *run, const struct queue *queue, struct span word)
{
    char *out = reserve(&run->indexed, INDEX_KEY_BYTES);
    if (out == NULL)
        return 0;
    int64_t code = (int32_t)java_hash(queue->topic_code, word);
    /* The absolute value, or 0 where there is none. */
    code = code == INT32_MIN ? 0 : code < 0 ? -code : code;
    PUT(out, INDEX_KEY_KEY_HASH, code);
    PUT(out, INDEX_KEY_PHY_OFFSET, run->phy_offset);
    PUT(out, INDEX_KEY_STORE_TIMESTAMP, run->now_ms);
    return 1;
}

/* Index the current record under its id, then under each of its keys, which spaces separate. */
static int add_index_keys(struct run *run, const struct queue *queue, const struct properties *found)
{
    struct span rest = found->keys;
    if (found->uniq_key.size && !add_index_key(run, queue, found->uniq_key))
        return 0;
    while (rest.size) {
        const char *blank = memchr(rest.at, ' ', (size_t)rest.size);
        struct span word = {rest.at, blank ? blank - rest.at : rest.size};
        if (word.size && !add_index_key(run, queue, word))
            return 0;
        Py_ssize_t gone = blank ? word.size + 1 : word.size;
        rest = (struct span){rest.at + gone, rest.size - gone};
    }
    return 1;
}

static int add_unit(struct run *run, struct queue *queue, int64_t size, int64_t tags_code)
{
    char *out = reserve(&queue->units, CQ_UNIT_BYTES);
    if (out == NULL)
        return 0;
    PUT(out, CQ_UNIT_PHY_OFFSET, run->phy_offset);
    PUT(out, CQ_UNIT_SIZE, size);
    PUT(out, CQ_UNIT_TAGS_CODE, tags_code);
    return 1;
}

/* A number as text, after the length of the text if `length_bytes` is not 0. */
static char *put_number(char *out, int64_t number, int length_bytes)
{
    char *end = put_decimal(out + length_bytes, number);
    put_be(out, (uint64_t)(end - out - length_bytes), length_bytes);
    return end;
}

/* Keep the phy_offset of the current record, for the response. */
static int add_phy_offset(struct run *run)
{
    char *out = reserve(&run->phy_offsets, 8);
    if (out == NULL)
        return 0;
    put_be(out, (uint64_t)run->phy_offset, 8);
    return 1;
}

/* The size of the ids of the records of a send, with a comma after each. */
static size_t ids_bytes(const struct run *run)
{
    return run->phy_offsets.size / 8 * ID_BYTES;
}

/* The ids of the records of a send, without the host of the first, which the template contains. */
static char *put_ids(char *out, const struct run *run)
{
    uint64_t host = get_be((const unsigned char *)run->store_host.at, HOST_V4_BYTES);
    const unsigned char *offset = (const unsigned char *)run->phy_offsets.at;
    out = put_hex(out, get_be(offset, 8), OFFSET_DIGITS);
    for (size_t at = 8; at < run->phy_offsets.size; at += 8) {
        *out++ = ',';
        out = put_hex(put_hex(out, host, HOST_DIGITS), get_be(offset + at, 8), OFFSET_DIGITS);
    }
    return out;
}

/* Fill in a template. Its placeholders are those of Python's `%` for bytes, in this order: phy_offset, queue id,
   queue_offset, id of the message if it has one and, in JSON, opaque. In a binary header a length precedes each text;
   that of the offset ids is part of the template. */
static char *put_filled(
    char *out, const struct run *run, unsigned type, const struct send *send, struct span id, int64_t queue_offset)
{
    struct span template = run->templates[type][id.size > 0];
    const int64_t numbers[] = {send->queue_id, queue_offset, send->opaque};
    const int length_bytes = type == BINARY ? BINARY_VALUE_LENGTH_BYTES : 0;
    const char *at = template.at, *end = at + template.size;
    int next = 0;
    while (at < end) {
        const char *placeholder = memchr(at, '%', (size_t)(end - at));
        out = put_span(out, (struct span){at, (placeholder ? placeholder : end) - at});
        if (placeholder == NULL)
            break;
        at = placeholder + 2;
        if (placeholder[1] == 's')
            out = put_span(put_be(out, (uint64_t)id.size, length_bytes), id);
        else if (placeholder[1] == 'd')
            out = put_number(out, numbers[next++], length_bytes);
        else if (placeholder[1] == '0') {
            if (type == BINARY)
                put_be(out - HOST_DIGITS - BINARY_VALUE_LENGTH_BYTES, ids_bytes(run) - 1, BINARY_VALUE_LENGTH_BYTES);
            out = put_ids(out, run);
            at += 3; /* %016X */
        } else
            *out++ = '%';
    }
    return out;
}

/* Add the response to a send; false with an error set. */
static int add_response(
    struct run *run, unsigned type, const struct send *send, struct span id, int64_t queue_offset)
{
    size_t template_bytes = (size_t)run->templates[type][id.size > 0].size;
    char *begin = reserve(
        &run->responses, FRAME_BYTES + template_bytes + (size_t)id.size + ids_bytes(run) + MAX_NUMBERS_BYTES);
    if (begin == NULL)
        return 0;
    char *header = begin + FRAME_BYTES, *end = put_filled(header, run, type, send, id, queue_offset);
    PUT(begin, FRAME_LENGTH, end - begin - FRAME_LENGTH_BYTES);
    PUT(begin, FRAME_MARK, (uint64_t)type << 24 | (uint64_t)(end - header));
    if (type == BINARY) {
        PUT(header, BINARY_COMMAND_OPAQUE, send->opaque);
        PUT(header, BINARY_COMMAND_FIELDS_LENGTH, end - header - BINARY_COMMAND_BYTES);
    }
    run->responses.size = (size_t)(end - run->responses.at);
    return 1;
}

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
static int read_templates(struct run *run, PyObject *templates[2][2])
{
    static const char *wanted[2][2] = {{"0ddd", "0ddsd"}, {"0dd", "0dds"}};
    for (int type = JSON; type <= BINARY; type++)
        for (int has_id = 0; has_id <= 1; has_id++) {
            run->templates[type][has_id] = span_of(templates[type][has_id]);
            if (!is_template(run->templates[type][has_id], type, wanted[type][has_id]))
                return 0;
        }
    return 1;
}

static void put_record(
    struct run *run, struct queue *queue, const struct send *send, const struct properties *found,
    struct span body, uint32_t crc, int64_t sys_flag, int64_t size)
{
    char *const head = run->record, *out = head + RECORD_BYTES;
    PUT(head, RECORD_TOTAL_SIZE, size);
    PUT(head, RECORD_MAGIC, queue->magic);
    PUT(head, RECORD_BODY_CRC, crc);
    PUT(head, RECORD_QUEUE_ID, send->queue_id);
    PUT(head, RECORD_FLAG, send->message_flag);
    PUT(head, RECORD_QUEUE_OFFSET, queue->next);
    PUT(head, RECORD_PHY_OFFSET, run->phy_offset);
    PUT(head, RECORD_SYS_FLAG, sys_flag);
    PUT(head, RECORD_BORN_TIMESTAMP, send->born_timestamp);
    PUT_SPAN(head, RECORD_BORN_HOST, run->born_host);
    PUT(head, RECORD_STORE_TIMESTAMP, run->now_ms);
    PUT_SPAN(head, RECORD_STORE_HOST, run->store_host);
    PUT(head, RECORD_RECONSUME_TIMES, send->reconsume_times);
    PUT(head, RECORD_PREPARED_TRANSACTION_OFFSET, 0);
    PUT(head, RECORD_BODY_LENGTH, body.size);
    out = put_span(out, body);
    out = put_span(out, queue->topic_bytes);
    out = put_be(out, (uint64_t)(found->text.size + found->own.size), PROPERTIES_LENGTH_BYTES);
    out = put_span(out, found->text);
    run->record = put_span(out, found->own);
}

static void set_room(struct run *run, Py_ssize_t used, Py_ssize_t room)
{
    run->first_record = PyByteArray_AsString(run->records);
    run->record = run->first_record + used;
    run->records_end = run->first_record + room;
}

/* Reserve room for `size` bytes of records; false with an error set. */
static int reserve_records(struct run *run, int64_t size)
{
    if (run->records_end - run->record >= size)
        return 1;
    Py_ssize_t used = run->record - run->first_record, room = GROWN(used + (Py_ssize_t)size);
    if (PyByteArray_Resize(run->records, room) < 0)
        return 0;
    set_room(run, used, room);
    return 1;
}

/* Add a record, for which room is reserved, with its unit and index entries. False with an error set. */
static int add_record(
    struct run *run, struct queue *queue, const struct send *send, const struct properties *found, struct span body,
    int64_t sys_flag, int64_t size)
{
    uint32_t crc;
    if (!checksum(body, &crc) || !add_unit(run, queue, size, tags_code(found)) || !add_index_keys(run, queue, found)
        || !add_phy_offset(run))
        return 0;
    put_record(run, queue, send, found, body, crc, sys_flag, size);
    run->phy_offset += size;
    run->messages++;
    queue->next++;
    return 1;
}

static int encode_record(
    struct run *run, struct queue *queue, const struct send *send, const struct properties *found, struct span body)
{
    Py_ssize_t properties_bytes = found->text.size + found->own.size;
    int64_t size = RECORD_BYTES + body.size + queue->topic_bytes.size + PROPERTIES_LENGTH_BYTES + properties_bytes;
    if (found->uniq_key.size == 0 || body.size > run->max_body || size > run->max_record || size > MAX_RECORD_BYTES
        || run->phy_offset + size > run->last_phy_offset)
        return 0;
    int64_t sys_flag = (send->sys_flag | run->more_flags) & ~HOSTS_V6;
    return reserve_records(run, size) && add_record(run, queue, send, found, body, sys_flag, size) ? 1 : -1;
}

/* -- idempotent producers --------------------------------------------------------------------------------- */

/* The window of a slot; NULL with an error set. */
static uint64_t *window_of(struct run *run, int64_t slot)
{
    PyObject *block = slot < 0 ? NULL : PyList_GetItem(run->blocks, (Py_ssize_t)(slot / WINDOW_BLOCK_SLOTS));
    if (block == NULL || !PyByteArray_Check(block)
        || PyByteArray_Size(block) != (Py_ssize_t)WINDOW_BLOCK_SLOTS * WINDOW_BYTES) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "no such window");
        return NULL;
    }
    return (uint64_t *)(void *)PyByteArray_AsString(block) + slot % WINDOW_BLOCK_SLOTS * WINDOW_WORDS;
}

/* Look up the slots of a queue: 1, 0 if it has none, -1 with an error set. */
static int find_slots(struct run *run, struct queue *queue)
{
    if (queue->slots != NULL)
        return 1;
    PyObject *topic = PyObject_GetAttr(queue->queue, name_topic);
    PyObject *number = topic == NULL ? NULL : PyObject_GetAttr(queue->queue, name_queue_id);
    PyObject *queues = number == NULL ? NULL : PyDict_GetItemWithError(run->slots, topic);
    if (queues != NULL && PyDict_Check(queues))
        queue->slots = Py_XNewRef(PyDict_GetItemWithError(queues, number));
    Py_XDECREF(topic);
    Py_XDECREF(number);
    if (PyErr_Occurred())
        return -1;
    return queue->slots != NULL && PyDict_Check(queue->slots);
}

/* Find the window of a producer in a queue: 1, 0 if it has none, -1 with an error set. */
static int find_window(struct run *run, struct queue *queue, struct span identity)
{
    if (queue->window != NULL && queue->identity_size == identity.size
        && memcmp(queue->identity, identity.at, (size_t)identity.size) == 0)
        return 1;
    queue->window = NULL;
    queue->producers = NULL;
    if (identity.size > MAX_IDENTITY_BYTES || !is_ascii(identity))
        return 0;
    int is_found = find_slots(run, queue);
    if (is_found <= 0)
        return is_found;
    PyObject *key = PyUnicode_DecodeASCII(identity.at, identity.size, NULL);
    PyObject *slot = key == NULL ? NULL : PyDict_GetItemWithError(queue->slots, key);
    Py_XDECREF(key);
    if (slot == NULL)
        return PyErr_Occurred() ? -1 : 0;
    queue->slot = PyLong_AsLongLong(slot);
    uint64_t *window = PyErr_Occurred() ? NULL : window_of(run, queue->slot);
    if (window == NULL)
        return -1;
    memcpy(queue->identity, identity.at, (size_t)identity.size);
    queue->identity_size = identity.size;
    queue->window = window;
    return 1;
}

/* Whether the account of a send may send as the producer whose window was found: 1, 0, or -1 with an error set. */
static int may_send_as(const struct send *send, struct queue *queue)
{
    if (send->producers == NULL || send->producers == queue->producers)
        return 1;
    PyObject *identity = PyUnicode_DecodeASCII(queue->identity, queue->identity_size, NULL);
    int may_send = identity == NULL ? -1 : PySet_Contains(send->producers, identity);
    Py_XDECREF(identity);
    if (may_send > 0)
        queue->producers = send->producers;
    return may_send;
}

/* Whether a window does not have a sequence yet, which is neither below it nor far ahead. */
static int is_new(const uint64_t *window, uint64_t sequence)
{
    uint64_t next = window[WINDOW_NEXT], bit = sequence % WINDOW_SEQUENCES;
    if (sequence >= next)
        return sequence - next < WINDOW_SEQUENCES;
    return next - sequence <= WINDOW_SEQUENCES && !(window[WINDOW_SEEN + bit / 64] >> bit % 64 & 1);
}

/* Read the sequence of a message, and find the window of its producer: 1 if it may be stored, 0 if the slow path has to
   decide, -1 with an error set. */
static int check_sequence(
    struct run *run, struct queue *queue, const struct send *send, struct span text, int64_t *sequence)
{
    Py_ssize_t colon = text.size - 1;
    while (colon >= 0 && text.at[colon] != ':')
        colon--;
    struct value number = {.span = {text.at + colon + 1, text.size - colon - 1}};
    if (colon <= 0 || !is_number(&number, 0, INT64_MAX, sequence))
        return 0;
    int is_found = find_window(run, queue, (struct span){text.at, colon});
    if (is_found > 0)
        is_found = may_send_as(send, queue);
    return is_found <= 0 ? is_found : is_new(queue->window, (uint64_t)*sequence);
}

/* Note a sequence that may be stored, of a record at `phy_offset` or behind it. False with an error set. */
static int note_sequence(struct run *run, struct queue *queue, uint64_t sequence, int64_t phy_offset)
{
    uint64_t *window = queue->window, bit, number = sequence / WINDOW_MARK_RANGE;
    if (window[WINDOW_RUN] != run->number) {
        char *out = reserve(&run->undo, UNDO_BYTES);
        if (out == NULL)
            return 0;
        memcpy(put_be(out, (uint64_t)queue->slot, 8), window, WINDOW_BYTES);
        window[WINDOW_RUN] = run->number;
    }
    if (window[WINDOW_NEXT] <= sequence)
        window[WINDOW_LAST] = (uint64_t)phy_offset;
    /* Bits of what is passed over are those of older sequences. */
    for (; window[WINDOW_NEXT] <= sequence; window[WINDOW_NEXT]++) {
        bit = window[WINDOW_NEXT] % WINDOW_SEQUENCES;
        window[WINDOW_SEEN + bit / 64] &= ~((uint64_t)1 << bit % 64);
    }
    bit = sequence % WINDOW_SEQUENCES;
    window[WINDOW_SEEN + bit / 64] |= (uint64_t)1 << bit % 64;
    if (window[WINDOW_USED_MS] < (uint64_t)run->now_ms)
        window[WINDOW_USED_MS] = (uint64_t)run->now_ms;
    uint64_t *mark = window + WINDOW_FIRST_MARK + number % WINDOW_MARKS * 2;
    if (mark[0] < number + 1) {
        mark[0] = number + 1;
        mark[1] = (uint64_t)phy_offset;
    }
    return 1;
}

/* Make every window what it was before the run. */
static void take_back(struct run *run)
{
    for (size_t at = run->undo.size; at >= UNDO_BYTES; at -= UNDO_BYTES) {
        const char *entry = run->undo.at + at - UNDO_BYTES;
        uint64_t *window = window_of(run, (int64_t)get_be((const unsigned char *)entry, 8));
        if (window != NULL)
            memcpy(window, entry + 8, WINDOW_BYTES);
    }
    run->undo.size = 0;
}

static int encode_one(
    struct run *run, struct queue *queue, const struct send *send, const struct properties *found, struct span body)
{
    int64_t sequence, phy_offset = run->phy_offset;
    if (found->sequence.size == 0)
        return encode_record(run, queue, send, found, body);
    int is_fine = send->is_sequenced ? check_sequence(run, queue, send, found->sequence, &sequence) : 0;
    if (is_fine > 0)
        is_fine = encode_record(run, queue, send, found, body);
    return is_fine > 0 && !note_sequence(run, queue, (uint64_t)sequence, phy_offset) ? -1 : is_fine;
}

/* -- a batch -------------------------------------------------------------------------------------------- */

enum { MAX_BATCH_MESSAGES = MAX_HEADER_BYTES / 2 / ID_BYTES }; /* the header of the response contains their ids */

/* Tags, keys and id of properties that are stored as they are. False for those that `keep_word` leaves to Python, and
   for the half message of a transaction. */
static int read_stored(struct span text, struct properties *found)
{
    struct span rest = text, name, value;
    *found = (struct properties){.text = text, .own = {"", 0}};
    while (next_pair(&rest, &name, &value))
        if (is_text(name, "TRAN_MSG") || !keep_word(name, value, found)
            || (is_text(name, SEQUENCE_PROPERTY) && !keep_sequence(value, found)))
            return 0;
    /* With a zero at the end they would look truncated. */
    return text.size == 0 || text.at[text.size - 1] != 0;
}

/* The number of entries in the body of a batch; 0 if their lengths do not add up. */
static Py_ssize_t count_entries(struct span rest)
{
    Py_ssize_t entries = 0;
    for (; rest.size >= MIN_BATCH_ENTRY_BYTES; entries++) {
        int64_t size = (int32_t)GET(rest.at, BATCH_ENTRY_SIZE);
        if (size < MIN_BATCH_ENTRY_BYTES || size > rest.size)
            return 0;
        rest.at += size;
        rest.size -= (Py_ssize_t)size;
    }
    return rest.size == 0 ? entries : 0;
}

/* Check the sequence of an entry, and keep it until the batch is encoded: 1, 0 if the batch needs the slow path, -1 with
   an error set. All of a batch are of one producer, each higher than the one before, or the slow path decides. */
static int add_sequence(struct run *run, struct queue *queue, const struct send *send, struct span text)
{
    const uint64_t *window = queue->window;
    int64_t sequence, last = -1;
    size_t size = run->sequences.size;
    int is_fine = send->is_sequenced ? check_sequence(run, queue, send, text, &sequence) : 0;
    if (is_fine <= 0)
        return is_fine;
    if (size)
        memcpy(&last, run->sequences.at + size - 8, 8);
    if (sequence <= last || (size && queue->window != window))
        return 0;
    char *out = reserve(&run->sequences, 8);
    if (out == NULL)
        return -1;
    memcpy(out, &sequence, 8);
    return 1;
}

static int note_sequences(struct run *run, struct queue *queue, int64_t phy_offset)
{
    for (size_t at = 0; at < run->sequences.size; at += 8) {
        uint64_t sequence;
        memcpy(&sequence, run->sequences.at + at, 8);
        if (!note_sequence(run, queue, sequence, phy_offset))
            return 0;
    }
    return 1;
}

struct entry {
    int64_t size;
    int32_t flag;
    struct span body, text; /* the text: its properties */
};

/* Read the entry that `rest` begins with; false if its lengths do not add up. */
static int read_entry(struct span rest, struct entry *entry)
{
    if (rest.size < MIN_BATCH_ENTRY_BYTES)
        return 0;
    int64_t body_size = (int32_t)GET(rest.at, BATCH_ENTRY_BODY_LENGTH);
    entry->size = (int32_t)GET(rest.at, BATCH_ENTRY_SIZE);
    entry->flag = (int32_t)GET(rest.at, BATCH_ENTRY_FLAG);
    if (entry->size > rest.size || body_size < 0 || body_size > entry->size - MIN_BATCH_ENTRY_BYTES)
        return 0;
    entry->body = (struct span){rest.at + BATCH_ENTRY_BYTES, (Py_ssize_t)body_size};
    const char *length = entry->body.at + body_size;
    int64_t text_size = (int16_t)get_be((const unsigned char *)length, PROPERTIES_LENGTH_BYTES);
    entry->text = (struct span){length + PROPERTIES_LENGTH_BYTES, (Py_ssize_t)text_size};
    return text_size >= 0 && entry->size == MIN_BATCH_ENTRY_BYTES + body_size + text_size;
}

/* One entry, whose length is right: 1, 0 if the batch needs the slow path, -1 with an error set. */
static int encode_entry(
    struct run *run, struct queue *queue, struct send *send, const char *at, int64_t *body_left)
{
    struct entry entry;
    struct properties found;
    if (!read_entry((struct span){at, (Py_ssize_t)GET(at, BATCH_ENTRY_SIZE)}, &entry) || entry.body.size > *body_left
        || !read_stored(entry.text, &found))
        return 0;
    send->message_flag = entry.flag;
    int is_fine = found.sequence.size ? add_sequence(run, queue, send, found.sequence) : 1;
    if (is_fine <= 0)
        return is_fine;
    *body_left -= entry.body.size;
    int64_t size = entry.size - MIN_BATCH_ENTRY_BYTES + RECORD_BYTES + queue->topic_bytes.size
                   + PROPERTIES_LENGTH_BYTES;
    return add_record(run, queue, send, &found, entry.body, send->sys_flag & ~HOSTS_V6, size) ? 1 : -1;
}

static int encode_entries(
    struct run *run, struct queue *queue, struct send *send, const char *entry, Py_ssize_t entries)
{
    int64_t body_left = run->max_body;
    int is_encoded = 1;
    while (is_encoded > 0 && entries-- > 0) {
        is_encoded = encode_entry(run, queue, send, entry, &body_left);
        entry += GET(entry, BATCH_ENTRY_SIZE);
    }
    return is_encoded;
}

/* All messages of a batch, or none. */
static int encode_batch(struct run *run, struct queue *queue, struct send *send, struct span body)
{
    Py_ssize_t entries = count_entries(body), each = RECORD_BYTES + queue->topic_bytes.size + PROPERTIES_LENGTH_BYTES;
    /* A record has `each` bytes where an entry has MIN_BATCH_ENTRY_BYTES; the broker adds nothing. */
    int64_t total = body.size + entries * (each - MIN_BATCH_ENTRY_BYTES);
    if (entries == 0 || entries > MAX_BATCH_MESSAGES || send->topic.size > MAX_TOPIC_BYTES_V1
        || total > run->max_record || total > MAX_RECORD_BYTES || run->phy_offset + total > run->last_phy_offset)
        return 0;
    if (!reserve_records(run, total))
        return -1;
    const int64_t phy_offset = run->phy_offset, next = queue->next;
    const size_t units = queue->units.size, indexed = run->indexed.size;
    const Py_ssize_t messages = run->messages;
    char *const record = run->record;
    run->sequences.size = 0;
    int is_encoded = encode_entries(run, queue, send, body.at, entries);
    if (is_encoded > 0 && !note_sequences(run, queue, phy_offset))
        return -1;
    if (!is_encoded) {
        run->phy_offset = phy_offset;
        run->record = record;
        queue->next = next;
        queue->units.size = units;
        run->indexed.size = indexed;
        run->messages = messages;
    }
    return is_encoded;
}

/* -- what connections have sent -------------------------------------------------------------------------- */

/* The end of the encoded sends: the number of complete groups, of complete pieces of the next group, and the position
   in the next piece. */
struct end {
    Py_ssize_t groups, pieces, position;
};

/* The bytes of a piece, and their position in its data; false with an error set. */
static int read_piece(PyObject *pieces, Py_ssize_t at, struct span *bytes, Py_ssize_t *position)
{
    PyObject *piece = PyList_GetItem(pieces, at);
    if (piece == NULL || PyTuple_Size(piece) != 3)
        goto wrong;
    Py_ssize_t end = PyLong_AsSsize_t(PyTuple_GetItem(piece, 2));
    *position = PyLong_AsSsize_t(PyTuple_GetItem(piece, 1));
    *bytes = span_of(PyTuple_GetItem(piece, 0));
    if (bytes->at == NULL || *position < 0 || end < *position || end > bytes->size)
        goto wrong;
    *bytes = (struct span){bytes->at + *position, end - *position};
    return 1;
wrong:
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "a piece must be (bytes, start, end), with start and end within the bytes");
    return 0;
}

/* The pieces and the host of a connection; false with an error set. */
static int read_group(PyObject *groups, Py_ssize_t at, PyObject **pieces, struct span *born_host)
{
    PyObject *group = PyList_GetItem(groups, at);
    if (group == NULL || PyTuple_Size(group) != 2)
        goto wrong;
    *pieces = PyTuple_GetItem(group, 0);
    *born_host = span_of(PyTuple_GetItem(group, 1));
    if (born_host->size == HOST_V4_BYTES)
        return 1;
wrong:
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "a group must be (pieces, host), with an IPv4 host");
    return 0;
}

/* -- signed sends ------------------------------------------------------------------------------------------ */

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

/* -- all sends ------------------------------------------------------------------------------------------ */

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
        || !read_properties((struct span){run->text.at, length}, run->own, &run->slow_path_names, &found)
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

/* Allocate about the room that the records need: they are shorter than their frames, except for batches. The structure
   of the groups is checked later, when they are read. */
static int make_room(struct run *run, PyObject *groups)
{
    Py_ssize_t total = 4096;
    for (Py_ssize_t group = 0, count = PyList_Size(groups); group < count; group++) {
        PyObject *pieces = PyTuple_GetItem(PyList_GetItem(groups, group), 0);
        for (Py_ssize_t at = 0, pieces_count = pieces == NULL ? 0 : PyList_Size(pieces); at < pieces_count; at++) {
            PyObject *piece = PyList_GetItem(pieces, at), *end = PyTuple_GetItem(piece, 2);
            if (end != NULL)
                total += PyLong_AsSsize_t(end) - PyLong_AsSsize_t(PyTuple_GetItem(piece, 1));
        }
    }
    run->records = PyErr_Occurred() ? NULL : PyByteArray_FromStringAndSize(NULL, total);
    if (run->records == NULL)
        return 0;
    set_room(run, 0, total);
    return 1;
}

static PyObject *grown_queues(struct run *run)
{
    PyObject *grown = PyList_New(0);
    for (int i = 0; grown != NULL && i < run->queue_count; i++) {
        struct queue *queue = &run->queues[i];
        if (queue->next == queue->first)
            continue;
        PyObject *entry = Py_BuildValue("(OLN)", queue->queue, (long long)queue->first, bytes_of(&queue->units));
        if (entry == NULL || PyList_Append(grown, entry) < 0)
            Py_CLEAR(grown);
        Py_XDECREF(entry);
    }
    return grown;
}

static PyObject *result_of(struct run *run, const struct end *end, PyObject *responses)
{
    PyObject *grown = NULL;
    if (PyByteArray_Resize(run->records, run->record - run->first_record) < 0
        || (grown = grown_queues(run)) == NULL)
        return NULL;
    return Py_BuildValue(
        "((nnn)nONONN)", end->groups, end->pieces, end->position, run->messages, run->records,
        bytes_of(&run->indexed), responses, grown, bytes_of(&run->undo));
}

static void clear(struct run *run)
{
    Py_XDECREF(run->target);
    Py_XDECREF(run->queues_of_topic);
    for (int i = 0; i < run->queue_count; i++) {
        Py_XDECREF(run->queues[i].queue);
        Py_XDECREF(run->queues[i].topic_part);
        Py_XDECREF(run->queues[i].slots);
        free(run->queues[i].units.at);
    }
    Py_XDECREF(run->records);
    free(run->indexed.at);
    free(run->responses.at);
    free(run->text.at);
    free(run->phy_offsets.at);
    free(run->sequences.at);
    free(run->undo.at);
    for (int i = 0; i < SHA1_LANES; i++)
        free(run->ahead.texts[i].at);
    PyMem_Free(run);
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
        PyObject *own = is_whole < 0 ? NULL
                                     : PyBytes_FromStringAndSize(
                                           run->responses.at + begin, (Py_ssize_t)(run->responses.size - begin));
        int is_added = own != NULL && PyList_Append(responses, own) == 0;
        Py_XDECREF(own);
        if (!is_added)
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
"A group has the pieces that a connection has sent, and its host; a piece is (data, start, end): complete\n"
"frames. Encodes the sends up to the first that needs the slow path, as records for the log from `phy_offset`\n"
"on. Returns their end (number of groups, of pieces of the next group, position in the next piece), the number\n"
"of messages, the records, the index entries, the responses for each group that was read and, for each queue\n"
"with new messages, (queue, its next offset before, units); and, of idempotent producers, slots whose windows\n"
"were changed, each with what the window was before. None if the first send needs the slow path.\n"
"An index entry: hash of a key (4 bytes), phy_offset and store time of the record (8 each).\n"
"setup: (properties that the broker adds, names of properties that need the slow path, templates of responses,\n"
"store_host, new_queue). The templates: JSON without and with an id, binary without and with an id.\n"
"new_queue(topic, queue_id): creates or prepares a queue without messages; None if it cannot be used.\n"
"accounts: None, or of those whose signed sends need no look, (broker_config, signing state, topics,\n"
"identities of idempotent producers) by access key; whatever is not signed by one of them, or sent as another\n"
"producer, needs the slow path.\n"
"sequences: (slots of producers by topic, queue id and identity, blocks of windows, number of the run). The\n"
"windows are changed in place, and what they were is returned; if an error is raised, they are unchanged.");

static PyObject *encode_sends(PyObject *module, PyObject *args)
{
    PyObject *groups, *own, *templates[2][2], *store_host, *accounts, *result = NULL;
    long long phy_offset, last_phy_offset, now_ms, max_body, max_record, number;
    (void)module;
    struct run *run = new_run();
    if (run == NULL)
        return NULL;
    if (!PyArg_ParseTuple(
            args, "O!(SO!(SSSS)SO)O!O!OOO!(O!O!L)LLLLL", &PyList_Type, &groups, &own, &PyTuple_Type,
            &run->slow_path_names.source, &templates[JSON][0], &templates[JSON][1], &templates[BINARY][0], &templates[BINARY][1], &store_host,
            &run->new_queue, &PyDict_Type, &run->targets, &PyDict_Type, &run->configs,
            &run->broker_config, &accounts, &PyDict_Type, &run->topics, &PyDict_Type, &run->slots, &PyList_Type, &run->blocks,
            &number, &phy_offset, &last_phy_offset, &now_ms, &max_body,
            &max_record)) {
        clear(run);
        return NULL;
    }
    run->groups = groups;
    run->accounts = accounts == Py_None ? NULL : accounts;
    run->own = span_of(own);
    run->store_host = span_of(store_host);
    run->number = (uint64_t)number;
    run->phy_offset = phy_offset;
    run->last_phy_offset = last_phy_offset;
    run->now_ms = now_ms;
    run->max_body = max_body;
    run->max_record = max_record;
    PyObject *responses = PyList_New(0);
    if (run->accounts != NULL && !PyDict_Check(run->accounts))
        PyErr_SetString(PyExc_TypeError, "accounts must be a dict or None");
    else if (run->store_host.size != HOST_V4_BYTES || !read_templates(run, templates))
        PyErr_SetString(PyExc_ValueError, "the host is not IPv4, or a template of a response has other placeholders");
    else if (responses != NULL && make_room(run, groups)) {
        struct end end = {0, 0, 0};
        if (encode_groups(run, groups, &end, responses) >= 0)
            result = run->messages ? result_of(run, &end, responses) : Py_NewRef(Py_None);
        if (result == NULL)
            take_back(run);
    }
    Py_XDECREF(responses);
    clear(run);
    return result;
}

/* -- staged entries ------------------------------------------------------------------------------------- */

PyDoc_STRVAR(check_entries_doc,
"check_entries(entries, max_body, max_properties, names)\n"
"\n"
"The number of entries in the body of a batch; 0 if one is malformed, has no body, a longer one or longer\n"
"properties than allowed, or a property with one of `names`.");

static PyObject *check_entries(PyObject *module, PyObject *args)
{
    PyObject *entries;
    long long max_body, max_properties;
    Py_ssize_t count = 0;
    struct names names = {.count = NAMES_UNREAD};
    struct entry entry;
    struct span name, value;
    (void)module;
    if (!PyArg_ParseTuple(args, "SLLO!", &entries, &max_body, &max_properties, &PyTuple_Type, &names.source))
        return NULL;
    for (struct span rest = span_of(entries); rest.size > 0; count++) {
        if (!read_entry(rest, &entry) || entry.body.size == 0 || entry.body.size > max_body
            || entry.text.size > max_properties)
            return PyLong_FromLong(0);
        while (next_pair(&entry.text, &name, &value))
            if (needs_slow_path(name, &names))
                return PyErr_Occurred() ? NULL : PyLong_FromLong(0);
        rest = (struct span){rest.at + entry.size, rest.size - (Py_ssize_t)entry.size};
    }
    return PyLong_FromSsize_t(count);
}

/* What a chunk of entries is cut by: the bytes of each entry, and `more_bytes`, do not exceed `max_bytes` in total, or
   it is one entry. Each entry gets `mark` and its number, the first one `number`, as a property. */
struct chunk {
    int64_t max_bytes, more_bytes, number;
    struct span mark;
};

/* Add the record of one entry: 1, 0 if Python has to encode the chunk, -1 with an error set. */
static int encode_marked(
    struct run *run, struct queue *queue, struct send *send, const struct entry *entry, const struct chunk *chunk)
{
    struct properties found;
    if (!read_stored(entry->text, &found) || found.sequence.size)
        return 0;
    char *own = reserve_fresh(&run->text, (size_t)chunk->mark.size + 2 + MAX_DECIMAL_BYTES), *end = own;
    if (own == NULL)
        return -1;
    if (entry->text.size && entry->text.at[entry->text.size - 1] != PROPERTY_SEPARATOR)
        *end++ = PROPERTY_SEPARATOR;
    end = put_decimal(put_span(end, chunk->mark), chunk->number + run->messages);
    *end++ = PROPERTY_SEPARATOR;
    found.own = (struct span){own, end - own};
    int64_t size = RECORD_BYTES + entry->body.size + queue->topic_bytes.size + PROPERTIES_LENGTH_BYTES
                   + entry->text.size + found.own.size;
    int64_t total = run->record - run->first_record + size;
    if (entry->text.size + found.own.size > MAX_PROPERTIES_BYTES || total > run->max_record
        || total > MAX_RECORD_BYTES || run->phy_offset + size > run->last_phy_offset)
        return 0;
    send->message_flag = entry->flag;
    return reserve_records(run, size)
                   && add_record(run, queue, send, &found, entry->body, send->sys_flag & ~HOSTS_V6, size)
               ? 1
               : -1;
}

/* The entries of a chunk: how many bytes of `rest` they are, 0 if Python has to encode them, -1 with an error set. */
static Py_ssize_t encode_chunk(
    struct run *run, struct queue *queue, struct send *send, struct span rest, const struct chunk *chunk)
{
    struct entry entry;
    int64_t counted = 0, body_left = run->max_body;
    const char *const begin = rest.at;
    while (rest.size > 0) {
        if (!read_entry(rest, &entry))
            return 0;
        counted += entry.size + chunk->more_bytes;
        if (run->messages && counted > chunk->max_bytes)
            break;
        body_left -= entry.body.size;
        int is_encoded = body_left < 0 ? 0 : encode_marked(run, queue, send, &entry, chunk);
        if (is_encoded <= 0)
            return is_encoded;
        rest = (struct span){rest.at + entry.size, rest.size - (Py_ssize_t)entry.size};
    }
    return rest.at - begin;
}

PyDoc_STRVAR(encode_staged_doc,
"encode_staged(entries, position, limits, mark, number, queue, send, store_host,\n"
"              phy_offset, last_phy_offset, now_ms, max_body, max_record)\n"
"\n"
"Encodes entries of the body of a batch from `position` on, as records for the log from `phy_offset` on, all in\n"
"one file. limits: (max_bytes, more_bytes): so many that their bytes, and `more_bytes` for each, do not exceed\n"
"`max_bytes`; at least one. `mark` and a number are added to the properties, the first is `number`. send:\n"
"(born_timestamp, born_host, sys_flag). Returns the position behind them, their number, the records, the index\n"
"entries, and (queue, its next offset before, units) in a list. None if Python has to encode them.");

static PyObject *encode_staged(PyObject *module, PyObject *args)
{
    PyObject *entries, *mark, *queue_object, *born_host, *store_host, *result = NULL, *encoder = NULL;
    Py_ssize_t position;
    long long max_bytes, more_bytes, number, born_timestamp, sys_flag, phy_offset, last_phy_offset, now_ms, max_body,
        max_record;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "Sn(LL)SLO(LSL)SLLLLL", &entries, &position, &max_bytes, &more_bytes, &mark, &number, &queue_object,
            &born_timestamp, &born_host, &sys_flag, &store_host, &phy_offset, &last_phy_offset, &now_ms, &max_body,
            &max_record))
        return NULL;
    struct span rest = span_of(entries);
    if (position < 0 || position > rest.size || max_bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "the position is not within the entries, or max_bytes is negative");
        return NULL;
    }
    rest = (struct span){rest.at + position, rest.size - position};
    struct run *run = new_run();
    if (run == NULL)
        return NULL;
    run->born_host = span_of(born_host);
    run->store_host = span_of(store_host);
    run->phy_offset = phy_offset;
    run->last_phy_offset = last_phy_offset;
    run->now_ms = now_ms;
    run->max_body = max_body;
    run->max_record = max_record;
    const struct chunk chunk = {max_bytes, more_bytes, number, span_of(mark)};
    struct send send = {.queue_id = int_attribute(queue_object, name_queue_id), .born_timestamp = born_timestamp,
                        .sys_flag = sys_flag};
    if (!PyErr_Occurred())
        encoder = PyObject_GetAttr(queue_object, name_encoder);
    struct queue *queue = encoder == NULL || encoder == Py_None ? NULL : open_queue(run, queue_object, encoder);
    Py_ssize_t used = 0;
    if (queue != NULL && run->born_host.size == HOST_V4_BYTES && run->store_host.size == HOST_V4_BYTES) {
        Py_ssize_t room = Py_MIN(rest.size, max_bytes) + 4096;
        run->records = PyByteArray_FromStringAndSize(NULL, room);
        if (run->records != NULL) {
            set_room(run, 0, room);
            used = encode_chunk(run, queue, &send, rest, &chunk);
        }
    }
    PyObject *grown = NULL;
    if (PyErr_Occurred())
        result = NULL;
    else if (used <= 0)
        result = Py_NewRef(Py_None);
    else if (PyByteArray_Resize(run->records, run->record - run->first_record) == 0
             && (grown = grown_queues(run)) != NULL)
        result = Py_BuildValue(
            "(nnONN)", position + used, run->messages, run->records, bytes_of(&run->indexed), grown);
    Py_XDECREF(encoder);
    clear(run);
    return result;
}

/* -- pulls ---------------------------------------------------------------------------------------------- */

PyDoc_STRVAR(gather_doc,
"gather(view, start, low, end, units, max_messages, max_bytes, max_copied)\n"
"\n"
"The records that `units` point to, concatenated: their number, the phy_offset of the last, and their bytes.\n"
"At most `max_messages` and `max_bytes`, but at least one. `view` has the log from `start` on; it may be read\n"
"from `low` to `end`. None if a record lies elsewhere, or if more than `max_copied` bytes would be copied.");

static PyObject *gather(PyObject *module, PyObject *const *args, Py_ssize_t args_count)
{
    Py_buffer view, units;
    Py_ssize_t count = 0;
    PyObject *records = NULL;
    (void)module;
    if (args_count != 8) {
        PyErr_SetString(PyExc_TypeError, "gather takes 8 arguments");
        return NULL;
    }
    int64_t start = PyLong_AsLongLong(args[1]), low = PyLong_AsLongLong(args[2]), end = PyLong_AsLongLong(args[3]);
    Py_ssize_t max_messages = PyLong_AsSsize_t(args[5]);
    int64_t max_bytes = PyLong_AsLongLong(args[6]), max_copied = PyLong_AsLongLong(args[7]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[4], &units, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    if (low < start)
        low = start;
    if (end > start + view.len)
        end = start + view.len;
    if (max_messages > units.len / CQ_UNIT_BYTES)
        max_messages = units.len / CQ_UNIT_BYTES;
    int64_t total = 0, last = 0;
    const unsigned char *unit = units.buf;
    for (; count < max_messages; count++, unit += CQ_UNIT_BYTES) {
        int64_t at = (int64_t)GET(unit, CQ_UNIT_PHY_OFFSET);
        int32_t size = (int32_t)GET(unit, CQ_UNIT_SIZE);
        if (count && total + size > max_bytes)
            break;
        if (at < low || size <= 0 || at > end - size || total + size > max_copied) {
            count = 0;
            break;
        }
        total += size;
        last = at;
    }
    if (count && (records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total)) != NULL) {
        char *out = PyBytes_AsString(records);
        unit = units.buf;
        for (Py_ssize_t i = 0; i < count; i++, unit += CQ_UNIT_BYTES)
            out = put_span(
                out, (struct span){(const char *)view.buf + ((int64_t)GET(unit, CQ_UNIT_PHY_OFFSET) - start),
                                   (Py_ssize_t)GET(unit, CQ_UNIT_SIZE)});
    }
    PyBuffer_Release(&view);
    PyBuffer_Release(&units);
    if (records == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    return Py_BuildValue("(nLN)", count, (long long)last, records);
}

/* -- records of a log ------------------------------------------------------------------------------------ */

/* What follows the head of a record that has a place in its queue. */
struct record_parts {
    struct span body, topic, properties;
    int64_t store_timestamp;
};

/* Split a record of `size` bytes, more than RECORD_BYTES, which are all there. False unless its lengths add up; for a
   record that has no unit; and for a long topic, which Python reads. */
static int split_record(const unsigned char *record, int64_t size, struct record_parts *parts)
{
    uint32_t sys_flag = (uint32_t)GET(record, RECORD_SYS_FLAG), transaction = sys_flag & TRANSACTION_MASK;
    int64_t born_more = sys_flag & BORN_V6 ? HOST_V6_EXTRA_BYTES : 0;
    int64_t more = born_more + (sys_flag & STORE_V6 ? HOST_V6_EXTRA_BYTES : 0);
    if (GET(record, RECORD_MAGIC) != MESSAGE_MAGIC_CODE || transaction == TRANSACTION_PREPARED ||
        transaction == TRANSACTION_ROLLBACK || size < MIN_RECORD_BYTES + more)
        return 0;
    int64_t body = (int32_t)GET(record + more, RECORD_BODY_LENGTH), body_at = RECORD_BYTES + more;
    int64_t topic_at = body_at + body + TOPIC_LENGTH_V1_BYTES;
    if (body < 0 || topic_at > size - PROPERTIES_LENGTH_BYTES)
        return 0;
    parts->store_timestamp = (int64_t)GET(record + born_more, RECORD_STORE_TIMESTAMP);
    parts->body = (struct span){(const char *)record + body_at, (Py_ssize_t)body};
    parts->topic = (struct span){(const char *)record + topic_at, record[topic_at - TOPIC_LENGTH_V1_BYTES]};
    int64_t properties_at = topic_at + parts->topic.size + PROPERTIES_LENGTH_BYTES;
    if (parts->topic.size > MAX_TOPIC_BYTES_V1 || properties_at > size || size - properties_at > MAX_PROPERTIES_BYTES ||
        (int64_t)get_be(record + properties_at - PROPERTIES_LENGTH_BYTES, PROPERTIES_LENGTH_BYTES) !=
            size - properties_at)
        return 0;
    parts->properties = (struct span){(const char *)record + properties_at, (Py_ssize_t)(size - properties_at)};
    return 1;
}

/* Whether the body matches its CRC: 1, 0, or -1 with an error set. */
static int has_whole_body(const unsigned char *record, const struct record_parts *parts)
{
    uint32_t crc;
    if (parts->body.size == 0)
        return 1;
    return checksum(parts->body, &crc) ? crc == (uint32_t)GET(record, RECORD_BODY_CRC) : -1;
}

/* Whether a topic is plain text that may name a folder. */
static int is_folder_name(struct span topic)
{
    return topic.size > 0 && topic.at[0] != '.' && is_ascii(topic) && memchr(topic.at, '/', (size_t)topic.size) == NULL
           && memchr(topic.at, 0, (size_t)topic.size) == NULL;
}

/* The queue of a record that is read, whose topic stays where it is; NULL if there are too many, or its name has to be
   checked by Python. */
static struct queue *queue_of_record(struct run *run, struct span topic, int64_t queue_id, int64_t queue_offset)
{
    for (struct queue *queue = run->queues, *end = queue + run->queue_count; queue < end; queue++)
        if (queue->queue_id == queue_id && queue->topic_bytes.size == topic.size
            && memcmp(queue->topic_bytes.at, topic.at, (size_t)topic.size) == 0)
            return queue;
    if (run->queue_count == MAX_QUEUES || queue_id < 0 || !is_folder_name(topic))
        return NULL;
    struct queue *queue = &run->queues[run->queue_count++];
    memset(queue, 0, sizeof *queue);
    queue->topic_bytes = topic;
    queue->queue_id = queue_id;
    queue->first = queue->next = queue_offset;
    queue->topic_code = java_hash(java_hash(0, topic), (struct span){"#", 1});
    return queue;
}

/* Read the record at the start of `rest`: its size, 0 if it is incomplete or has to be read by Python, -1 with an error
   set. */
static int64_t read_record(struct run *run, struct span rest, struct span slow_path_topic)
{
    const unsigned char *record = (const unsigned char *)rest.at;
    struct record_parts parts;
    struct properties found = {.own = {"", 0}};
    struct span pairs, name, value;
    if (rest.size < MIN_RECORD_BYTES)
        return 0;
    int64_t size = (int32_t)GET(record, RECORD_TOTAL_SIZE), queue_offset = (int64_t)GET(record, RECORD_QUEUE_OFFSET);
    if (size < MIN_RECORD_BYTES || size > rest.size || run->max_record < size || queue_offset < 0
        || queue_offset == INT64_MAX || (int64_t)GET(record, RECORD_PHY_OFFSET) != run->phy_offset || !split_record(record, size, &parts)
        || memchr(parts.properties.at, 0, (size_t)parts.properties.size) != NULL
        || (parts.topic.size == slow_path_topic.size
            && memcmp(parts.topic.at, slow_path_topic.at, (size_t)parts.topic.size) == 0))
        return 0;
    for (pairs = parts.properties; next_pair(&pairs, &name, &value);)
        if (!keep_word(name, value, &found))
            return 0;
        else if (is_text(name, SEQUENCE_PROPERTY))
            found.sequence = value;
    int is_whole = has_whole_body(record, &parts);
    if (is_whole <= 0)
        return is_whole;
    struct queue *queue = queue_of_record(run, parts.topic, (int32_t)GET(record, RECORD_QUEUE_ID), queue_offset);
    if (queue == NULL || queue->next != queue_offset)
        return 0;
    run->now_ms = parts.store_timestamp;
    if (!add_unit(run, queue, size, tags_code(&found)) || !add_index_keys(run, queue, &found))
        return -1;
    run->has_sequences |= found.sequence.size > 0;
    queue->next++;
    return size;
}

/* The queues with records that were read: topic, queue id, first queue_offset, units. */
static PyObject *read_queues(struct run *run)
{
    PyObject *grown = PyList_New(0);
    for (int i = 0; grown != NULL && i < run->queue_count; i++) {
        struct queue *queue = &run->queues[i];
        PyObject *topic = PyUnicode_DecodeASCII(queue->topic_bytes.at, queue->topic_bytes.size, NULL);
        PyObject *entry = topic == NULL ? NULL
                                        : Py_BuildValue(
                                              "(NLLN)", topic, (long long)queue->queue_id, (long long)queue->first,
                                              bytes_of(&queue->units));
        if (entry == NULL || PyList_Append(grown, entry) < 0)
            Py_CLEAR(grown);
        Py_XDECREF(entry);
    }
    return grown;
}

PyDoc_STRVAR(read_records_doc,
"read_records(data, phy_offset, max_record_bytes, slow_path_topic)\n"
"\n"
"Reads the records at the start of `data`, which lies at `phy_offset` of the log, up to the first that is\n"
"incomplete, is not one, or has to be read by Python: of `slow_path_topic`, without a place in a queue, not in\n"
"the order of its queue, with a long topic, or with an unusual name or properties. Returns their end in the log,\n"
"the store time of the last, their index entries (as encode_sends) and, for each queue, (topic, queue id, first\n"
"queue_offset, units), and whether one of them has a sequence. None if that is the first record. The interpreter\n"
"lock is released meanwhile if there is much to read.");

/* For fewer bytes than these it does not pay to release the interpreter lock, and to wait for it again. */
enum { LONG_BYTES = 256 * 1024 };

static PyObject *read_records(PyObject *module, PyObject *args)
{
    Py_buffer data;
    long long phy_offset, max_record;
    struct span slow_path_topic;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "y*LLy#", &data, &phy_offset, &max_record, &slow_path_topic.at, &slow_path_topic.size))
        return NULL;
    struct run *run = new_run();
    if (run != NULL) {
        struct span rest = {data.buf, data.len};
        int64_t size;
        run->phy_offset = phy_offset;
        run->max_record = max_record;
        PyThreadState *thread = can_fold && data.len >= LONG_BYTES ? PyEval_SaveThread() : NULL;
        while ((size = read_record(run, rest, slow_path_topic)) > 0) {
            run->phy_offset += size;
            rest = (struct span){rest.at + size, rest.size - (Py_ssize_t)size};
        }
        if (thread != NULL)
            PyEval_RestoreThread(thread);
        if (size == 0)
            result = run->phy_offset == phy_offset
                         ? Py_NewRef(Py_None)
                         : Py_BuildValue(
                               "(LLNNN)", (long long)run->phy_offset, (long long)run->now_ms, bytes_of(&run->indexed),
                               read_queues(run), PyBool_FromLong(run->has_sequences));
        clear(run);
    }
    PyBuffer_Release(&data);
    return result;
}

/* -- messages that come again --------------------------------------------------------------------------- */

enum { AGAIN_ROOM_BYTES = 16 * 1024 }; /* for records, at first */

/* What the messages of a check point have in common: where they lie, and how they are put again. `first_pop` and
   `origin` are properties, each with the separator behind it. */
struct again {
    struct span topic, first_pop, origin;
    int64_t queue_id, attempts;
};

/* Whether `name` is the name of the property that `pair` is. */
static int names_pair(struct span name, struct span pair)
{
    return name.size < pair.size && pair.at[name.size] == NAME_VALUE_SEPARATOR
           && memcmp(name.at, pair.at, (size_t)name.size) == 0;
}

/* Read the properties of a message that comes again, and add `first_pop`, if it has none, and `origin`, unless it ends
   with that. 1, 0 if Python has to do it, -1 with an error set. */
static int read_again(
    struct run *run, struct span text, const struct again *again, int is_first, struct properties *found)
{
    struct span rest = text, name, value;
    int has_first_pop = 0, has_origin = 0;
    *found = (struct properties){.text = text};
    if (text.size && memchr(text.at, 0, (size_t)text.size) != NULL)
        return 0;
    while (next_pair(&rest, &name, &value)) {
        if (is_text(name, SEQUENCE_PROPERTY) || !keep_word(name, value, found))
            return 0;
        if (names_pair(name, again->first_pop)) {
            if (is_first || value.size == 0 || has_first_pop++)
                return 0;
        } else if (names_pair(name, again->origin)) {
            has_origin = !is_first && rest.size == 0 && name.size + 1 + value.size + 1 == again->origin.size
                         && text.at + text.size - again->origin.size == name.at
                         && memcmp(name.at, again->origin.at, (size_t)again->origin.size) == 0;
            if (!has_origin)
                return 0;
        }
    }
    if (has_origin && !has_first_pop)
        return 0;
    if (!is_ascii(text)) {
        int is_fine = is_utf8(text);
        if (is_fine <= 0)
            return is_fine;
    }
    char *own = reserve_fresh(&run->text, (size_t)(again->first_pop.size + again->origin.size) + 1), *end = own;
    if (own == NULL)
        return -1;
    if (!has_origin && text.size && text.at[text.size - 1] != PROPERTY_SEPARATOR)
        *end++ = PROPERTY_SEPARATOR;
    if (!has_first_pop)
        end = put_span(end, again->first_pop);
    if (!has_origin)
        end = put_span(end, again->origin);
    found->own = (struct span){own, end - own};
    return 1;
}

/* Add the record of a message again: 1, 0 if Python has to do it, -1 with an error set. */
static int encode_again_one(
    struct run *run, struct queue *queue, const struct again *again, struct span record_bytes,
    const unsigned char *unit)
{
    const unsigned char *record = (const unsigned char *)record_bytes.at;
    struct record_parts parts;
    struct properties found;
    if (record_bytes.size < MIN_RECORD_BYTES || (int64_t)GET(record, RECORD_TOTAL_SIZE) != record_bytes.size
        || (int64_t)GET(unit, CQ_UNIT_SIZE) != record_bytes.size
        || GET(record, RECORD_PHY_OFFSET) != GET(unit, CQ_UNIT_PHY_OFFSET)
        || GET(record, RECORD_SYS_FLAG) & HOSTS_V6 || !split_record(record, record_bytes.size, &parts)
        || parts.topic.size != again->topic.size
        || memcmp(parts.topic.at, again->topic.at, (size_t)parts.topic.size) != 0
        || (int32_t)GET(record, RECORD_QUEUE_ID) != again->queue_id)
        return 0;
    int64_t times = (int32_t)GET(record, RECORD_RECONSUME_TIMES);
    if (times < 0 || times >= again->attempts)
        return 0;
    int is_fine = has_whole_body(record, &parts);
    if (is_fine > 0)
        is_fine = read_again(run, parts.properties, again, times == 0, &found);
    if (is_fine <= 0)
        return is_fine;
    int64_t size = RECORD_BYTES + parts.body.size + queue->topic_bytes.size + PROPERTIES_LENGTH_BYTES
                   + found.text.size + found.own.size;
    if (found.text.size + found.own.size > MAX_PROPERTIES_BYTES || parts.body.size > run->max_body
        || size > run->max_record || size > MAX_RECORD_BYTES || run->phy_offset + size > run->last_phy_offset)
        return 0;
    const struct send send = {.queue_id = queue->queue_id, .born_timestamp = (int64_t)GET(record, RECORD_BORN_TIMESTAMP),
                              .message_flag = (int32_t)GET(record, RECORD_FLAG), .reconsume_times = times + 1};
    run->born_host = (struct span){(const char *)record + RECORD_BORN_HOST_AT, HOST_V4_BYTES};
    return reserve_records(run, size)
                   && add_record(run, queue, &send, &found, parts.body, (int64_t)GET(record, RECORD_SYS_FLAG), size)
               ? 1
               : -1;
}

/* Add the records of `records` until Python has to add one: 0 with an error set. */
static int encode_again_all(
    struct run *run, struct queue *queue, const struct again *again, PyObject *records, struct span units)
{
    Py_ssize_t count = PyList_Size(records);
    for (Py_ssize_t i = 0; i < count && (i + 1) * CQ_UNIT_BYTES <= units.size; i++) {
        Py_buffer record;
        if (PyObject_GetBuffer(PyList_GetItem(records, i), &record, PyBUF_SIMPLE) < 0)
            return 0;
        int is_encoded = encode_again_one(
            run, queue, again, (struct span){record.buf, record.len},
            (const unsigned char *)units.at + i * CQ_UNIT_BYTES);
        PyBuffer_Release(&record);
        if (is_encoded <= 0)
            return is_encoded == 0;
    }
    return !PyErr_Occurred();
}

PyDoc_STRVAR(encode_again_doc,
"encode_again(records, units, source, properties, queue, store_host,\n"
"             phy_offset, last_phy_offset, now_ms, max_body, max_record)\n"
"\n"
"Encodes stored messages once more, as records of `queue` for the log from `phy_offset` on, all in one file.\n"
"`records` is a list of buffers, `units` says where each lies. source: (topic, queue_id, attempts), what the\n"
"records have to say, and the reconsume times that they are below; they get one more. properties: two of them,\n"
"with separators: the first is added unless there is one, the second in any case. Stops at the first record\n"
"that Python has to encode, which includes damaged ones. Returns the number of messages, the records, the index\n"
"entries, and (queue, its next offset before, units) in a list; None without messages.");

static PyObject *encode_again(PyObject *module, PyObject *args)
{
    PyObject *records, *units, *topic, *first_pop, *origin, *queue_object, *store_host, *result = NULL, *encoder = NULL;
    long long queue_id, attempts, phy_offset, last_phy_offset, now_ms, max_body, max_record;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "O!S(SLL)(SS)OSLLLLL", &PyList_Type, &records, &units, &topic, &queue_id, &attempts, &first_pop, &origin,
            &queue_object, &store_host, &phy_offset, &last_phy_offset, &now_ms, &max_body, &max_record))
        return NULL;
    struct run *run = new_run();
    if (run == NULL)
        return NULL;
    run->store_host = span_of(store_host);
    run->phy_offset = phy_offset;
    run->last_phy_offset = last_phy_offset;
    run->now_ms = now_ms;
    run->max_body = max_body;
    run->max_record = max_record;
    const struct again again = {span_of(topic), span_of(first_pop), span_of(origin), queue_id, attempts};
    int64_t target_id = int_attribute(queue_object, name_queue_id);
    if (!PyErr_Occurred())
        encoder = PyObject_GetAttr(queue_object, name_encoder);
    struct queue *queue = encoder == NULL || encoder == Py_None ? NULL : open_queue(run, queue_object, encoder);
    int is_fine = !PyErr_Occurred();
    if (queue != NULL && run->store_host.size == HOST_V4_BYTES) {
        queue->queue_id = target_id;
        run->records = PyByteArray_FromStringAndSize(NULL, AGAIN_ROOM_BYTES);
        if (run->records != NULL)
            set_room(run, 0, AGAIN_ROOM_BYTES);
        is_fine = run->records != NULL && encode_again_all(run, queue, &again, records, span_of(units));
    }
    PyObject *grown = NULL;
    if (!is_fine)
        result = NULL;
    else if (run->messages == 0)
        result = Py_NewRef(Py_None);
    else if (PyByteArray_Resize(run->records, run->record - run->first_record) == 0
             && (grown = grown_queues(run)) != NULL)
        result = Py_BuildValue("(nONN)", run->messages, run->records, bytes_of(&run->indexed), grown);
    Py_XDECREF(encoder);
    clear(run);
    return result;
}

/* -- units of a queue ------------------------------------------------------------------------------------ */

PyDoc_STRVAR(units_fit_doc,
"units_fit(data, start, units, queue_offset, topic, queue_id, has_codes)\n"
"\n"
"Whether each of `units`, of which the first is number `queue_offset` of its queue, matches its record: topic,\n"
"queue, position, size, lengths, CRC of the body and, if `has_codes`, tags code. `data` has the log from\n"
"`start` on. False also for what Python has to decide: a long topic, tags that are not ASCII, zeros in\n"
"properties, or a processor without a fast CRC.");

/* The hash of the tags in properties, as a queue stores it; false if Python has to decide. */
static int tags_code_of(struct span properties, int64_t *code)
{
    struct span name, tags;
    *code = 0;
    if (memchr(properties.at, 0, (size_t)properties.size) != NULL)
        return 0;
    while (next_pair(&properties, &name, &tags)) {
        if (tags.size == 0 || !is_text(name, "TAGS"))
            continue;
        if (!is_ascii(tags))
            return 0;
        *code = (int32_t)java_hash(0, tags);
    }
    return 1;
}

struct queue_place {
    struct span topic;
    int32_t queue_id;
    int has_codes;
};

static int unit_fits(
    const unsigned char *record, const unsigned char *unit, int64_t queue_offset, const struct queue_place *queue)
{
    struct record_parts parts;
    int64_t size = (int32_t)GET(unit, CQ_UNIT_SIZE), code;
    if ((int64_t)GET(record, RECORD_TOTAL_SIZE) != size || (int32_t)GET(record, RECORD_QUEUE_ID) != queue->queue_id ||
        (int64_t)GET(record, RECORD_QUEUE_OFFSET) != queue_offset ||
        GET(record, RECORD_PHY_OFFSET) != GET(unit, CQ_UNIT_PHY_OFFSET) || !split_record(record, size, &parts) ||
        parts.topic.size != queue->topic.size ||
        memcmp(parts.topic.at, queue->topic.at, (size_t)parts.topic.size) != 0)
        return 0;
    if (!tags_code_of(parts.properties, &code) || (queue->has_codes && code != (int64_t)GET(unit, CQ_UNIT_TAGS_CODE)))
        return 0;
    return has_whole_body(record, &parts) > 0;
}

static PyObject *units_fit(PyObject *module, PyObject *args)
{
    Py_buffer data, units;
    long long start, queue_offset;
    struct queue_place queue;
    int fits = can_fold;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "y*Ly*Ly#ip", &data, &start, &units, &queue_offset, &queue.topic.at, &queue.topic.size,
            &queue.queue_id, &queue.has_codes))
        return NULL;
    fits = fits && queue.topic.size <= MAX_TOPIC_BYTES_V1;
    const unsigned char *unit = units.buf;
    Py_BEGIN_ALLOW_THREADS
    Py_ssize_t count = units.len / CQ_UNIT_BYTES;
    for (; fits && count > 0; count--, unit += CQ_UNIT_BYTES, queue_offset++) {
        int64_t at = (int64_t)GET(unit, CQ_UNIT_PHY_OFFSET), size = (int32_t)GET(unit, CQ_UNIT_SIZE);
        fits = at >= start && size > RECORD_BYTES && at - start <= data.len - size &&
               unit_fits((const unsigned char *)data.buf + (at - start), unit, queue_offset, &queue);
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    PyBuffer_Release(&units);
    return PyBool_FromLong(fits);
}

/* -- signatures ------------------------------------------------------------------------------------------- */

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

/* -- module --------------------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"sends_end", (PyCFunction)(void (*)(void))sends_end, METH_FASTCALL, sends_end_doc},
    {"encode_sends", encode_sends, METH_VARARGS, encode_sends_doc},
    {"check_entries", check_entries, METH_VARARGS, check_entries_doc},
    {"encode_staged", encode_staged, METH_VARARGS, encode_staged_doc},
    {"gather", (PyCFunction)(void (*)(void))gather, METH_FASTCALL, gather_doc},
    {"read_records", read_records, METH_VARARGS, read_records_doc},
    {"encode_again", encode_again, METH_VARARGS, encode_again_doc},
    {"units_fit", units_fit, METH_VARARGS, units_fit_doc},
    {"checksum", checksum_of, METH_O, checksum_doc},
    {"signing_state", signing_state, METH_O, signing_state_doc},
    {"signatures", signatures, METH_VARARGS, signatures_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "kourou.store._kernel", "The fast path of a Kourou broker, compiled.", -1, functions,
    NULL, NULL, NULL, NULL,
};

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
    PyObject *module = PyModule_Create(&definition);
    if (PyErr_Occurred() || PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
