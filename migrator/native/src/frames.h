/* The stream that a walk writes: frames of magic (u32), kind (u32), length of the payload (u64), payload; all little-endian. */
#ifndef MIGRATOR_FRAMES_H
#define MIGRATOR_FRAMES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define FRAME_MAGIC 0x57474d31u /* "1MGW" as bytes */
#define FRAME_VERSION 3u

enum frame_kind {
    FRAME_HELLO = 1,
    FRAME_ROWS = 2,
    FRAME_DIRECTORIES = 3,
    FRAME_PROBLEMS = 4,
    FRAME_END = 5,
    FRAME_LISTINGS = 6,
    FRAME_FINDINGS = 7,
};

/* Write one whole frame to stdout, one thread at a time; blocks until the reader takes it. `pieces[0]` is reserved for
 * the frame's header, the payload begins with `pieces[1]`; the call changes all pieces. Ends the program if there is no
 * reader. */
void frame_write(enum frame_kind kind, struct iovec *pieces, size_t count);

/* Print the error on stderr and end the program with 1. */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* As malloc and realloc; the program ends if there is no memory. */
void *allocated(size_t size);
void *reallocated(void *memory, size_t size);

#endif
