#include "frames.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the frames are little-endian and are written as they lie in memory"
#endif

static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("migrator-native: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    /* Other threads may still run: exit without cleaning up. */
    _exit(1);
}

void *reallocated(void *memory, size_t size)
{
    void *result = realloc(memory, size ? size : 1);
    if (result == NULL)
        die("out of memory (%zu bytes were asked for)", size);
    return result;
}

void *allocated(size_t size)
{
    return reallocated(NULL, size);
}

static void write_whole(struct iovec *pieces, size_t count)
{
    while (count > 0) {
        if (pieces->iov_len == 0) {
            pieces++;
            count--;
            continue;
        }
        ssize_t written = writev(STDOUT_FILENO, pieces, count < 1024 ? (int)count : 1024);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            die("cannot write what was found: %s", strerror(errno));
        }
        size_t left = (size_t)written;
        while (left > 0) {
            size_t taken = left < pieces->iov_len ? left : pieces->iov_len;
            pieces->iov_base = (char *)pieces->iov_base + taken;
            pieces->iov_len -= taken;
            left -= taken;
            if (pieces->iov_len == 0) {
                pieces++;
                count--;
            }
        }
    }
}

void frame_write(enum frame_kind kind, struct iovec *pieces, size_t count)
{
    struct {
        uint32_t magic;
        uint32_t kind;
        uint64_t length;
    } head = {FRAME_MAGIC, (uint32_t)kind, 0};
    for (size_t index = 1; index < count; index++)
        head.length += pieces[index].iov_len;
    pieces[0].iov_base = &head;
    pieces[0].iov_len = sizeof head;
    pthread_mutex_lock(&writing);
    write_whole(pieces, count);
    pthread_mutex_unlock(&writing);
}
