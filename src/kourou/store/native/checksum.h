/* Checksums of bodies, of one or of many in one buffer: CRC-32 as in zlib. */

#pragma once

#include "bytes.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define CAN_FOLD __builtin_cpu_supports("pclmul")
#define FOLDS __attribute__((target("pclmul,sse2")))
#else
#define CAN_FOLD 0
#endif

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

/* The bytes of `data` from the position at `begins` to that at `ends`, both native int64; false if they lie outside. */
static int span_at(const Py_buffer *data, const char *begins, const char *ends, struct span *found)
{
    int64_t begin, end;
    memcpy(&begin, begins, sizeof begin);
    memcpy(&end, ends, sizeof end);
    if (begin < 0 || end < begin || end > data->len)
        return 0;
    *found = (struct span){(const char *)data->buf + begin, (Py_ssize_t)(end - begin)};
    return 1;
}

PyDoc_STRVAR(checksums_doc,
"checksums(data, begins, ends)\n"
"\n"
"The checksums of the bodies that lie in `data` from `begins[i]` to `ends[i]`, both arrays of native int64, as\n"
"bytes of native uint32. None if there are not as many of both, or one is outside. The interpreter lock is\n"
"released meanwhile.");

static PyObject *checksums(PyObject *module, PyObject *args)
{
    Py_buffer data, begins, ends;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*", &data, &begins, &ends))
        return NULL;
    Py_ssize_t count = begins.len / (Py_ssize_t)sizeof(int64_t), row = 0;
    int is_within = begins.len == ends.len && begins.len % (Py_ssize_t)sizeof(int64_t) == 0, is_whole = 1;
    if (is_within && (result = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint32_t))) != NULL) {
        char *out = PyBytes_AsString(result);
        const char *begin = begins.buf, *end = ends.buf;
        PyThreadState *thread = can_fold ? PyEval_SaveThread() : NULL;
        for (; is_within && is_whole && row < count; row++, begin += sizeof(int64_t), end += sizeof(int64_t)) {
            struct span body;
            uint32_t crc = 0;
            is_within = span_at(&data, begin, end, &body);
            is_whole = !is_within || checksum(body, &crc);
            memcpy(out + row * (Py_ssize_t)sizeof crc, &crc, sizeof crc);
        }
        if (thread != NULL)
            PyEval_RestoreThread(thread);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&begins);
    PyBuffer_Release(&ends);
    if (result != NULL && !is_whole)
        Py_CLEAR(result);
    else if (!is_within) {
        Py_XDECREF(result);
        result = Py_NewRef(Py_None);
    }
    return result;
}
