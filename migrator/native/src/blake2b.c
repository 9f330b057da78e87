#include "blake2b.h"

#include <string.h>

static const uint64_t INITIAL[8] = {
    0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
    0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u,
};

static const uint8_t ORDER[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};

static uint64_t rotated(uint64_t word, unsigned bits)
{
    return (word >> bits) | (word << (64 - bits));
}

static uint64_t loaded(const uint8_t *bytes)
{
    uint64_t word = 0;
    for (int index = 7; index >= 0; index--)
        word = (word << 8) | bytes[index];
    return word;
}

#define MIX(a, b, c, d, x, y)                \
    do {                                     \
        v[a] += v[b] + (x);                  \
        v[d] = rotated(v[d] ^ v[a], 32);     \
        v[c] += v[d];                        \
        v[b] = rotated(v[b] ^ v[c], 24);     \
        v[a] += v[b] + (y);                  \
        v[d] = rotated(v[d] ^ v[a], 16);     \
        v[c] += v[d];                        \
        v[b] = rotated(v[b] ^ v[c], 63);     \
    } while (0)

static void compress(struct blake2b_state *hash, int last)
{
    uint64_t v[16], m[16];
    for (int index = 0; index < 8; index++) {
        v[index] = hash->state[index];
        v[index + 8] = INITIAL[index];
    }
    v[12] ^= hash->counted[0];
    v[13] ^= hash->counted[1];
    if (last)
        v[14] = ~v[14];
    for (int index = 0; index < 16; index++)
        m[index] = loaded(hash->block + 8 * index);
    for (int round = 0; round < 12; round++) {
        const uint8_t *s = ORDER[round];
        MIX(0, 4, 8, 12, m[s[0]], m[s[1]]);
        MIX(1, 5, 9, 13, m[s[2]], m[s[3]]);
        MIX(2, 6, 10, 14, m[s[4]], m[s[5]]);
        MIX(3, 7, 11, 15, m[s[6]], m[s[7]]);
        MIX(0, 5, 10, 15, m[s[8]], m[s[9]]);
        MIX(1, 6, 11, 12, m[s[10]], m[s[11]]);
        MIX(2, 7, 8, 13, m[s[12]], m[s[13]]);
        MIX(3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    for (int index = 0; index < 8; index++)
        hash->state[index] ^= v[index] ^ v[index + 8];
}

void blake2b_begin(struct blake2b_state *hash, size_t digest_bytes)
{
    memset(hash, 0, sizeof *hash);
    memcpy(hash->state, INITIAL, sizeof INITIAL);
    hash->state[0] ^= 0x01010000u ^ digest_bytes;
    hash->digest_bytes = digest_bytes;
}

void blake2b_update(struct blake2b_state *hash, const void *data, size_t length)
{
    const uint8_t *bytes = data;
    while (length > 0) {
        /* The last block is compressed by blake2b_end: a full block waits for further data. */
        if (hash->filled == sizeof hash->block) {
            hash->counted[0] += sizeof hash->block;
            hash->counted[1] += hash->counted[0] < sizeof hash->block;
            compress(hash, 0);
            hash->filled = 0;
        }
        size_t room = sizeof hash->block - hash->filled;
        size_t taken = length < room ? length : room;
        memcpy(hash->block + hash->filled, bytes, taken);
        hash->filled += taken;
        bytes += taken;
        length -= taken;
    }
}

void blake2b_end(struct blake2b_state *hash, uint8_t *digest)
{
    hash->counted[0] += hash->filled;
    hash->counted[1] += hash->counted[0] < hash->filled;
    memset(hash->block + hash->filled, 0, sizeof hash->block - hash->filled);
    compress(hash, 1);
    for (size_t index = 0; index < hash->digest_bytes; index++)
        digest[index] = (uint8_t)(hash->state[index / 8] >> (8 * (index % 8)));
}
