/* Whether the SHA-1 of sha1.h by the processor's instructions computes what its portable form does, on any x86-64:
   the instructions are replaced by what Intel's manual says they do. Prints nothing and ends with 0 if so. */

#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Words from the highest to the lowest: w0, w1, w2, w3. */
struct four {
    uint32_t w[4];
};

static struct four words_of(__m128i vector)
{
    uint32_t low_first[4];
    memcpy(low_first, &vector, sizeof low_first);
    return (struct four){{low_first[3], low_first[2], low_first[1], low_first[0]}};
}

static __m128i vector_of(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3)
{
    return _mm_set_epi32((int)w0, (int)w1, (int)w2, (int)w3);
}

static uint32_t rotated(uint32_t x, int by)
{
    return x << by | x >> (32 - by);
}

static __m128i sha1msg1(__m128i first, __m128i second)
{
    struct four a = words_of(first), b = words_of(second);
    return vector_of(a.w[2] ^ a.w[0], a.w[3] ^ a.w[1], b.w[0] ^ a.w[2], b.w[1] ^ a.w[3]);
}

static __m128i sha1msg2(__m128i first, __m128i second)
{
    struct four a = words_of(first), b = words_of(second);
    uint32_t w16 = rotated(a.w[0] ^ b.w[1], 1), w17 = rotated(a.w[1] ^ b.w[2], 1);
    return vector_of(w16, w17, rotated(a.w[2] ^ b.w[3], 1), rotated(a.w[3] ^ w16, 1));
}

static __m128i sha1nexte(__m128i first, __m128i second)
{
    struct four a = words_of(first), b = words_of(second);
    return vector_of(b.w[0] + rotated(a.w[0], 30), b.w[1], b.w[2], b.w[3]);
}

static __m128i sha1rnds4(__m128i first, __m128i second, int kind)
{
    static const uint32_t constants[] = {0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xCA62C1D6};
    struct four state = words_of(first), with_e = words_of(second);
    uint32_t a = state.w[0], b = state.w[1], c = state.w[2], d = state.w[3], e = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t chosen = kind == 0 ? (b & c) ^ (~b & d) : kind == 2 ? (b & c) ^ (b & d) ^ (c & d) : b ^ c ^ d;
        uint32_t next = chosen + rotated(a, 5) + with_e.w[i] + e + constants[kind];
        e = d;
        d = c;
        c = rotated(b, 30);
        b = a;
        a = next;
    }
    return vector_of(a, b, c, d);
}

#define _mm_sha1msg1_epu32 sha1msg1
#define _mm_sha1msg2_epu32 sha1msg2
#define _mm_sha1nexte_epu32 sha1nexte
#define _mm_sha1rnds4_epu32 sha1rnds4

#include "sha1.h"

int main(void)
{
    unsigned char text[10 * SHA1_BLOCK_BYTES];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (unsigned char)(i * 31 + i / 7);
    for (size_t blocks = 0; blocks <= 10; blocks++) {
        uint32_t one[SHA1_WORDS], other[SHA1_WORDS];
        memcpy(one, sha1_begin, sizeof one);
        memcpy(other, sha1_begin, sizeof other);
        sha1_portable(one, text, blocks);
        sha1_by_instructions(other, text, blocks);
        if (memcmp(one, other, sizeof one) != 0) {
            printf("%d blocks: another hash\n", (int)blocks);
            return 1;
        }
    }
    return sha1_is_right(SHA1_BY_INSTRUCTIONS) ? 0 : 1;
}
