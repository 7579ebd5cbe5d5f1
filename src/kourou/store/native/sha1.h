/* HMAC-SHA1, as requests are signed with it, of one text or of eight at once. Without Python: the load generator of
   benchmarks/ includes it too.

   The portable form is always there. x86-64 has two faster ones, chosen when the module is loaded
   (`sha1_choose`): the processor's own instructions for SHA-1, or AVX2 with a text in each of eight lanes. A form
   that does not compute what the portable one does is never chosen.

   SHA-1 is broken where somebody may choose two texts with the same hash; HMAC-SHA1 is not, and it is what
   RocketMQ's clients sign with. */

#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define SHA1_FOR_X86
#include <cpuid.h>
#include <immintrin.h>
#endif

enum { SHA1_WORDS = 5, SHA1_BYTES = 20, SHA1_BLOCK_BYTES = 64, SHA1_LANES = 8 };
enum { SHA1_PADDING_BYTES = SHA1_BLOCK_BYTES + 8 }; /* what a text may grow by */
enum { SIGNATURE_BYTES = 28, SIGNING_STATE_BYTES = 2 * SHA1_BYTES };

enum sha1_form { SHA1_PORTABLE, SHA1_IN_LANES, SHA1_BY_INSTRUCTIONS, SHA1_FORMS };
static enum sha1_form sha1_form = SHA1_PORTABLE;

static const uint32_t sha1_begin[SHA1_WORDS] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};

static uint32_t sha1_get(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void sha1_put(unsigned char *at, const uint32_t state[SHA1_WORDS])
{
    for (int i = 0; i < SHA1_BYTES; i++)
        at[i] = (unsigned char)(state[i / 4] >> (24 - i % 4 * 8));
}

/* -- rounds, for numbers and for vectors of them ---------------------------------------------------------- */

#define SHA1_ROTATED(x, by) ((x) << (by) | (x) >> (32 - (by)))
#define SHA1_CHOICE(b, c, d) ((d) ^ ((b) & ((c) ^ (d))))
#define SHA1_PARITY(b, c, d) ((b) ^ (c) ^ (d))
#define SHA1_MAJORITY(b, c, d) (((b) & (c)) | ((d) & ((b) | (c))))
/* The word of a round: of the block, or made of earlier words, in whose place it is kept. */
#define SHA1_WORD(t) \
    ((t) < 16 ? words[(t) & 15] \
              : (words[(t) & 15] = SHA1_ROTATED( \
                     words[((t) + 13) & 15] ^ words[((t) + 8) & 15] ^ words[((t) + 2) & 15] ^ words[(t) & 15], 1)))
#define SHA1_ROUND(a, b, c, d, e, f, k, t) \
    e += SHA1_ROTATED(a, 5) + f(b, c, d) + (k) + SHA1_WORD(t); \
    b = SHA1_ROTATED(b, 30);
#define SHA1_FIVE(f, k, t) \
    SHA1_ROUND(a, b, c, d, e, f, k, t) \
    SHA1_ROUND(e, a, b, c, d, f, k, (t) + 1) \
    SHA1_ROUND(d, e, a, b, c, f, k, (t) + 2) \
    SHA1_ROUND(c, d, e, a, b, f, k, (t) + 3) \
    SHA1_ROUND(b, c, d, e, a, f, k, (t) + 4)
#define SHA1_TWENTY(f, k, t) \
    SHA1_FIVE(f, k, t) SHA1_FIVE(f, k, (t) + 5) SHA1_FIVE(f, k, (t) + 10) SHA1_FIVE(f, k, (t) + 15)
/* All rounds on `state` and the 16 `words` of a block; NUMBER(k) makes a constant of their type. */
#define SHA1_ROUNDS(type, NUMBER) \
    type a = state[0], b = state[1], c = state[2], d = state[3], e = state[4]; \
    SHA1_TWENTY(SHA1_CHOICE, NUMBER(0x5A827999u), 0) \
    SHA1_TWENTY(SHA1_PARITY, NUMBER(0x6ED9EBA1u), 20) \
    SHA1_TWENTY(SHA1_MAJORITY, NUMBER(0x8F1BBCDCu), 40) \
    SHA1_TWENTY(SHA1_PARITY, NUMBER(0xCA62C1D6u), 60) \
    state[0] += a; \
    state[1] += b; \
    state[2] += c; \
    state[3] += d; \
    state[4] += e;

#define SHA1_SCALAR(number) (number)

static void sha1_portable(uint32_t state[SHA1_WORDS], const unsigned char *at, size_t blocks)
{
    uint32_t words[16];
    for (; blocks > 0; blocks--, at += SHA1_BLOCK_BYTES) {
        for (int i = 0; i < 16; i++)
            words[i] = sha1_get(at + 4 * i);
        SHA1_ROUNDS(uint32_t, SHA1_SCALAR)
    }
}

#ifdef SHA1_FOR_X86
/* -- eight lanes ------------------------------------------------------------------------------------------- */

typedef uint32_t sha1_lanes __attribute__((vector_size(4 * SHA1_LANES)));
#define SHA1_AVX2 __attribute__((target("avx2")))
#define SHA1_VECTOR(number) \
    ((sha1_lanes){(number), (number), (number), (number), (number), (number), (number), (number)})

/* Eight words of each lane, from `at` on: a vector for each word. */
SHA1_AVX2 static void sha1_load(const unsigned char *const texts[SHA1_LANES], size_t at, sha1_lanes words[8])
{
    const __m256i order = _mm256_set_epi8(
        12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    __m256i rows[8], pairs[8], fours[8];
    for (int i = 0; i < 8; i++)
        rows[i] = _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)(const void *)(texts[i] + at)), order);
    for (int i = 0; i < 4; i++) {
        pairs[2 * i] = _mm256_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm256_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 2; i++) {
            fours[4 * half + 2 * i] = _mm256_unpacklo_epi64(pairs[4 * half + i], pairs[4 * half + 2 + i]);
            fours[4 * half + 2 * i + 1] = _mm256_unpackhi_epi64(pairs[4 * half + i], pairs[4 * half + 2 + i]);
        }
    for (int i = 0; i < 4; i++) {
        words[i] = (sha1_lanes)_mm256_permute2x128_si256(fours[i], fours[4 + i], 0x20);
        words[4 + i] = (sha1_lanes)_mm256_permute2x128_si256(fours[i], fours[4 + i], 0x31);
    }
}

/* One block of each lane. */
SHA1_AVX2 static void sha1_block_of_lanes(
    sha1_lanes state[SHA1_WORDS], const unsigned char *const texts[SHA1_LANES], size_t at)
{
    sha1_lanes words[16];
    sha1_load(texts, at, words);
    sha1_load(texts, at + SHA1_BLOCK_BYTES / 2, words + 8);
    SHA1_ROUNDS(sha1_lanes, SHA1_VECTOR)
}

/* -- the processor's instructions ----------------------------------------------------------------------------- */

#define SHA1_INSTRUCTIONS __attribute__((target("sha,sse4.1,ssse3")))

/* Four rounds, number `i` of twenty: their words are made of those of the sixteen rounds before. What was in a, b,
   c and d four rounds ago becomes their e. */
#define SHA1_FOUR(i) \
    { \
        if ((i) >= 4) \
            words[(i) & 3] = _mm_sha1msg2_epu32( \
                _mm_xor_si128(_mm_sha1msg1_epu32(words[(i) & 3], words[((i) + 1) & 3]), words[((i) + 2) & 3]), \
                words[((i) + 3) & 3]); \
        const __m128i with_e = \
            (i) == 0 ? _mm_add_epi32(e, words[0]) : _mm_sha1nexte_epu32(before, words[(i) & 3]); \
        before = abcd; \
        abcd = _mm_sha1rnds4_epu32(abcd, with_e, (i) / 5); \
    }

SHA1_INSTRUCTIONS static void sha1_by_instructions(
    uint32_t state[SHA1_WORDS], const unsigned char *at, size_t blocks)
{
    const __m128i order = _mm_set_epi64x(0x0001020304050607, 0x08090A0B0C0D0E0F);
    __m128i words[4], before = _mm_setzero_si128();
    /* The first word is the highest. */
    __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)state), 0x1B);
    __m128i e = _mm_set_epi32((int)state[4], 0, 0, 0);
    for (; blocks > 0; blocks--, at += SHA1_BLOCK_BYTES) {
        const __m128i abcd_begin = abcd;
        for (int i = 0; i < 4; i++)
            words[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(at + 16 * i)), order);
        SHA1_FOUR(0) SHA1_FOUR(1) SHA1_FOUR(2) SHA1_FOUR(3) SHA1_FOUR(4)
        SHA1_FOUR(5) SHA1_FOUR(6) SHA1_FOUR(7) SHA1_FOUR(8) SHA1_FOUR(9)
        SHA1_FOUR(10) SHA1_FOUR(11) SHA1_FOUR(12) SHA1_FOUR(13) SHA1_FOUR(14)
        SHA1_FOUR(15) SHA1_FOUR(16) SHA1_FOUR(17) SHA1_FOUR(18) SHA1_FOUR(19)
        e = _mm_sha1nexte_epu32(before, e);
        abcd = _mm_add_epi32(abcd, abcd_begin);
    }
    _mm_storeu_si128((__m128i *)(void *)state, _mm_shuffle_epi32(abcd, 0x1B));
    state[4] = (uint32_t)_mm_extract_epi32(e, 3);
}
#endif

static void sha1_blocks(enum sha1_form form, uint32_t state[SHA1_WORDS], const unsigned char *at, size_t blocks)
{
#ifdef SHA1_FOR_X86
    if (form == SHA1_BY_INSTRUCTIONS) {
        sha1_by_instructions(state, at, blocks);
        return;
    }
#endif
    (void)form;
    sha1_portable(state, at, blocks);
}

/* -- HMAC ------------------------------------------------------------------------------------------------------ */

/* What a secret key makes of SHA-1's state before the text, and before the hash of the text. */
struct signing_state {
    uint32_t inner[SHA1_WORDS], outer[SHA1_WORDS];
};

/* A text to be signed. Behind its `size` bytes there is room for SHA1_PADDING_BYTES. */
struct signed_text {
    struct signing_state key;
    unsigned char *at;
    size_t size;
    uint32_t digest[SHA1_WORDS];
};

/* Pad a text that follows one block (of the key), and return the number of its blocks. */
static size_t sha1_pad(unsigned char *at, size_t size)
{
    size_t blocks = (size + 8) / SHA1_BLOCK_BYTES + 1;
    uint64_t bits = (uint64_t)(SHA1_BLOCK_BYTES + size) * 8;
    unsigned char *end = at + blocks * SHA1_BLOCK_BYTES;
    at[size] = 0x80;
    memset(at + size + 1, 0, (size_t)(end - at) - size - 1);
    for (int i = 1; i <= 8; i++, bits >>= 8)
        end[-i] = (unsigned char)bits;
    return blocks;
}

/* The hash of any bytes. */
static void sha1_whole(uint32_t state[SHA1_WORDS], const unsigned char *at, size_t size)
{
    unsigned char last[2 * SHA1_BLOCK_BYTES];
    size_t whole = size / SHA1_BLOCK_BYTES, left = size % SHA1_BLOCK_BYTES;
    memcpy(state, sha1_begin, sizeof sha1_begin);
    sha1_portable(state, at, whole);
    memset(last, 0, sizeof last);
    if (left)
        memcpy(last, at + whole * SHA1_BLOCK_BYTES, left);
    last[left] = 0x80;
    size_t blocks = left + 9 > SHA1_BLOCK_BYTES ? 2 : 1;
    for (int i = 0; i < 8; i++)
        last[blocks * SHA1_BLOCK_BYTES - 1 - (size_t)i] = (unsigned char)((uint64_t)size * 8 >> 8 * i);
    sha1_portable(state, last, blocks);
}

static struct signing_state signing_state_of(const unsigned char *secret, size_t size)
{
    unsigned char key[SHA1_BLOCK_BYTES] = {0}, block[SHA1_BLOCK_BYTES];
    uint32_t digest[SHA1_WORDS];
    struct signing_state found;
    if (size > SHA1_BLOCK_BYTES) {
        sha1_whole(digest, secret, size);
        sha1_put(key, digest);
    } else if (size) {
        memcpy(key, secret, size);
    }
    memcpy(found.inner, sha1_begin, sizeof sha1_begin);
    memcpy(found.outer, sha1_begin, sizeof sha1_begin);
    for (int i = 0; i < SHA1_BLOCK_BYTES; i++)
        block[i] = key[i] ^ 0x36;
    sha1_portable(found.inner, block, 1);
    for (int i = 0; i < SHA1_BLOCK_BYTES; i++)
        block[i] = key[i] ^ 0x5C;
    sha1_portable(found.outer, block, 1);
    return found;
}

static void hmac_each(enum sha1_form form, struct signed_text *texts, const size_t *blocks, int count)
{
    unsigned char hashed[SHA1_BLOCK_BYTES + SHA1_PADDING_BYTES];
    for (int i = 0; i < count; i++) {
        uint32_t state[SHA1_WORDS];
        memcpy(state, texts[i].key.inner, sizeof state);
        sha1_blocks(form, state, texts[i].at, blocks[i]);
        sha1_put(hashed, state);
        memcpy(texts[i].digest, texts[i].key.outer, sizeof texts[i].digest);
        sha1_blocks(form, texts[i].digest, hashed, sha1_pad(hashed, SHA1_BYTES));
    }
}

#ifdef SHA1_FOR_X86
/* Several texts at once. A lane without a text, or behind the end of its own, repeats the longest one. */
SHA1_AVX2 static void hmac_in_lanes(struct signed_text *texts, const size_t *blocks, int count, int longest)
{
    unsigned char hashed[SHA1_LANES][SHA1_BLOCK_BYTES + SHA1_PADDING_BYTES];
    const unsigned char *at[SHA1_LANES];
    sha1_lanes state[SHA1_WORDS], outer[SHA1_WORDS];
    for (int lane = 0; lane < SHA1_LANES; lane++) {
        const struct signed_text *text = &texts[lane < count ? lane : longest];
        at[lane] = text->at;
        for (int word = 0; word < SHA1_WORDS; word++) {
            state[word][lane] = text->key.inner[word];
            outer[word][lane] = text->key.outer[word];
        }
    }
    for (size_t block = 0; block < blocks[longest]; block++) {
        sha1_block_of_lanes(state, at, block * SHA1_BLOCK_BYTES);
        for (int lane = 0; lane < count; lane++)
            if (block + 1 == blocks[lane]) {
                uint32_t digest[SHA1_WORDS];
                for (int word = 0; word < SHA1_WORDS; word++)
                    digest[word] = state[word][lane];
                sha1_put(hashed[lane], digest);
                sha1_pad(hashed[lane], SHA1_BYTES);
                at[lane] = texts[longest].at;
            }
    }
    for (int lane = 0; lane < SHA1_LANES; lane++)
        at[lane] = hashed[lane < count ? lane : 0];
    sha1_block_of_lanes(outer, at, 0);
    for (int lane = 0; lane < count; lane++)
        for (int word = 0; word < SHA1_WORDS; word++)
            texts[lane].digest[word] = outer[word][lane];
}
#endif

/* The digests of up to SHA1_LANES texts, which are padded. */
static void hmac_all(enum sha1_form form, struct signed_text *texts, int count)
{
    size_t blocks[SHA1_LANES] = {0}, total = 0;
    int longest = 0;
    for (int i = 0; i < count; i++) {
        blocks[i] = sha1_pad(texts[i].at, texts[i].size);
        longest = blocks[i] > blocks[longest] ? i : longest;
        total += blocks[i];
    }
#ifdef SHA1_FOR_X86
    /* A block of all lanes takes the time of about 2.5 single ones. */
    if (form == SHA1_IN_LANES && total >= 3 * blocks[longest]) {
        hmac_in_lanes(texts, blocks, count, longest);
        return;
    }
#endif
    hmac_each(form, texts, blocks, count);
}

/* The Base64 of a digest. */
static void put_signature(char out[SIGNATURE_BYTES], const uint32_t digest[SHA1_WORDS])
{
    static const char signs[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char bytes[SHA1_BYTES + 1] = {0};
    sha1_put(bytes, digest);
    for (int i = 0; i < SIGNATURE_BYTES; i++) {
        int bit = 6 * i, at = bit / 8;
        unsigned two = at < SHA1_BYTES ? (unsigned)bytes[at] << 8 | bytes[at + 1] : 0;
        out[i] = signs[two >> (10 - bit % 8) & 63];
    }
    out[SIGNATURE_BYTES - 1] = '=';
}

/* Whether a text was signed: in the same time, whatever was given. */
static int is_signature(const char given[SIGNATURE_BYTES], const uint32_t digest[SHA1_WORDS])
{
    char right[SIGNATURE_BYTES];
    unsigned differs = 0;
    put_signature(right, digest);
    for (int i = 0; i < SIGNATURE_BYTES; i++)
        differs |= (unsigned char)(right[i] ^ given[i]);
    return differs == 0;
}

/* -- which form ------------------------------------------------------------------------------------------------ */

static int sha1_is_supported(enum sha1_form form)
{
#ifdef SHA1_FOR_X86
    unsigned a, b, c, d;
    if (form == SHA1_IN_LANES)
        return __builtin_cpu_supports("avx2") != 0;
    if (form == SHA1_BY_INSTRUCTIONS)
        return __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("ssse3")
               && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
#endif
    return form == SHA1_PORTABLE;
}

/* Whether a form computes what the portable one does, for texts of several lengths. */
static int sha1_is_right(enum sha1_form form)
{
    enum { TEXT_BYTES = 4 * SHA1_BLOCK_BYTES };
    unsigned char room[2][SHA1_LANES][TEXT_BYTES + SHA1_PADDING_BYTES];
    struct signed_text texts[2][SHA1_LANES];
    memset(room, 'k', sizeof room);
    for (int i = 0; i < SHA1_LANES; i++)
        for (int way = 0; way < 2; way++) {
            struct signed_text *text = &texts[way][i];
            text->key = signing_state_of((const unsigned char *)"secret", (size_t)(i % 6 + 1));
            text->at = room[way][i];
            text->size = (size_t)(TEXT_BYTES - 23 * i);
        }
    hmac_all(SHA1_PORTABLE, texts[0], SHA1_LANES);
    hmac_all(form, texts[1], SHA1_LANES);
    for (int i = 0; i < SHA1_LANES; i++)
        if (memcmp(texts[0][i].digest, texts[1][i].digest, sizeof texts[0][i].digest) != 0)
            return 0;
    return 1;
}

/* The fastest form that this processor has. */
static void sha1_choose(void)
{
    for (enum sha1_form form = SHA1_IN_LANES; form < SHA1_FORMS; form++)
        if (sha1_is_supported(form) && sha1_is_right(form))
            sha1_form = form;
}
