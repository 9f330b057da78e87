/* BLAKE2b without a key (RFC 7693), for digests of up to 64 bytes. */
#ifndef MIGRATOR_BLAKE2B_H
#define MIGRATOR_BLAKE2B_H

#include <stddef.h>
#include <stdint.h>

struct blake2b_state {
    uint64_t state[8];
    uint64_t counted[2];
    uint8_t block[128];
    size_t filled;
    size_t digest_bytes;
};

/* Start a digest of 1 to 64 bytes. */
void blake2b_begin(struct blake2b_state *hash, size_t digest_bytes);

/* Add data. May be called any number of times. */
void blake2b_update(struct blake2b_state *hash, const void *data, size_t length);

/* Write the digest (`digest_bytes` of it). The hash must not be used again. */
void blake2b_end(struct blake2b_state *hash, uint8_t *digest);

#endif
