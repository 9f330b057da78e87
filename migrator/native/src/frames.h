/* The stream that a walk writes: frames of magic (u32), kind (u32), length of the payload (u64), payload; all little-endian. */
#ifndef MIGRATOR_FRAMES_H
#define MIGRATOR_FRAMES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define FRAME_MAGIC 0x57474d31u /* "1MGW" as bytes */
#define FRAME_VERSION 2u

enum frame_kind {
    FRAME_HELLO = 1,
    FRAME_ROWS = 2,
    FRAME_DIRECTORIES = 3,
    FRAME_PROBLEMS = 4,
    FRAME_END = 5,
};

/* Write one frame to stdout, whole, one thread at a time; waits as long as the reader does. `pieces[0]` is left free for
 * the frame's head, the payload begins with `pieces[1]`; all are used up. Ends the program where nobody reads. */
void frame_write(enum frame_kind kind, struct iovec *pieces, size_t count);

/* Say what is wrong on stderr and end the program with 1. */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* As malloc and realloc; the program ends where there is no memory. */
void *allocated(size_t size);
void *reallocated(void *memory, size_t size);

#endif
