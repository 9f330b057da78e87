/* The content of files: large pieces, holes kept. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "copy_ends.h"

#define BLOCK_BYTES 4096
#define SECTOR_BYTES 512
/* A small file without holes is detected by its blocks; a larger file may have as many blocks as bytes, and holes
 * too. */
#define ASK_FOR_HOLES_FROM_BYTES ((off_t)1 << 20)

int write_at(struct copier *copier, int out, const unsigned char *bytes, size_t length, off_t offset) {
    if (copier->outbox != NULL)
        return send_piece(copier, bytes, length, offset);
    while (length > 0) {
        ssize_t written = pwrite(out, bytes, length, offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return failed(copier, SIDE_TARGET, "write");
        bytes += written;
        length -= (size_t)written;
        offset += written;
        pace((size_t)written);
    }
    return 0;
}

static bool is_zero(const unsigned char *bytes, size_t length) {
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0;
}

/* Write a piece without its blocks of zeros. Blocks are aligned to the file, so pieces may begin at any offset. */
static int write_sparse(struct copier *copier, int out, const unsigned char *bytes, size_t length, off_t offset) {
    size_t at = 0;
    size_t kept_from = 0;
    while (at < length) {
        size_t block = BLOCK_BYTES - (size_t)((offset + (off_t)at) % BLOCK_BYTES);
        if (block > length - at)
            block = length - at;
        if (is_zero(bytes + at, block)) {
            if (at > kept_from && write_at(copier, out, bytes + kept_from, at - kept_from, offset + (off_t)kept_from) < 0)
                return -1;
            kept_from = at + block;
        }
        at += block;
    }
    if (at > kept_from)
        return write_at(copier, out, bytes + kept_from, at - kept_from, offset + (off_t)kept_from);
    return 0;
}

/* Start the write-back of [from, end) without waiting; nothing relies on it. If the file system does not support that,
 * the sync writes everything. */
int write_back(struct copier *copier, int out, off_t from, off_t end) {
    if (copier->outbox != NULL || sync_file_range(out, from, end - from, SYNC_FILE_RANGE_WRITE) == 0)
        return 0;
    bool lost = errno == EIO || errno == ENOSPC || errno == EDQUOT;
    return lost ? failed(copier, SIDE_TARGET, "write") : 0;
}

/* Copy [from, end) up to the end of the source; `*reached` is the position where the copy ended. */
static int copy_span(struct copier *copier, int in, int out, off_t from, off_t end, bool sparse, off_t *reached) {
    off_t written_back = from;
    *reached = from;
    while (*reached < end) {
        size_t wanted = COPY_BUFFER_BYTES < (uint64_t)(end - *reached) ? COPY_BUFFER_BYTES : (size_t)(end - *reached);
        ssize_t got = pread(in, copier->buffer, wanted, *reached);
        if (got < 0 && errno == EINTR)
            continue;
        if (is_stopped()) {
            errno = ECANCELED;
            return failed(copier, SIDE_TARGET, "write");
        }
        if (got < 0)
            return failed(copier, SIDE_SOURCE, "read");
        if (got == 0)
            return 0;
        add_to_digest(copier, copier->buffer, (size_t)got);
        if ((sparse ? write_sparse : write_at)(copier, out, copier->buffer, (size_t)got, *reached) < 0)
            return -1;
        *reached += got;
        if (*reached - written_back >= WRITTEN_BACK_BYTES) {
            if (write_back(copier, out, written_back, *reached) < 0)
                return -1;
            written_back = *reached;
        }
    }
    return 0;
}

static bool may_have_holes(int in, const struct stat *facts) {
    if ((off_t)facts->st_blocks * SECTOR_BYTES < facts->st_size)
        return true;
    if (facts->st_size < ASK_FOR_HOLES_FROM_BYTES)
        return false;
    off_t hole = lseek(in, 0, SEEK_HOLE);
    return hole >= 0 && hole < facts->st_size;
}

/* The next range of data after `from`; all of the rest if the file system does not report holes. False: none is
 * left. */
bool next_data(int in, off_t from, off_t end, off_t *data, off_t *data_end) {
    *data = lseek(in, from, SEEK_DATA);
    if (*data < 0 && errno == ENXIO)
        return false;
    *data_end = *data < 0 ? -1 : lseek(in, *data, SEEK_HOLE);
    if (*data < 0 || *data_end < 0) {
        *data = from;
        *data_end = end;
    }
    if (*data_end > end)
        *data_end = end;
    return *data < end && *data_end > *data;
}

/* The blocks that a file may have beside its data: of its own lists of blocks, and allocated ahead. */
#define OTHER_BLOCKS_BYTES ((off_t)1 << 20)
#define OTHER_BLOCKS_PART 32

/* Whether holes are reported, and the data between them is about as large as the blocks of the file: a file system that
 * reported data as a hole would be believed twice, by the copy and by its proof. */
bool holes_are_plausible(int fd, const struct stat *facts) {
    if (!may_have_holes(fd, facts))
        return false;
    off_t data, data_end, bytes = 0;
    for (off_t at = 0; at < facts->st_size && next_data(fd, at, facts->st_size, &data, &data_end); at = data_end)
        bytes += data_end - data;
    off_t allocated = (off_t)facts->st_blocks * SECTOR_BYTES;
    return bytes + OTHER_BLOCKS_BYTES >= allocated - allocated / OTHER_BLOCKS_PART;
}

/* Copy the whole content, up to the size in `facts`, into an empty file. The copy is shorter if the file was truncated:
 * `*copied` is its size. */
int copy_content(struct copier *copier, int in, int out, const struct stat *facts, off_t *copied) {
    off_t end = facts->st_size;
    off_t at = 0;
    begin_digest(copier);
    if (!copier->options->sparse || !may_have_holes(in, facts))
        return copy_span(copier, in, out, 0, end, false, copied);
    off_t data, data_end;
    while (at < end && next_data(in, at, end, &data, &data_end)) {
        add_hole_to_digest(copier, data - at);
        if (copy_span(copier, in, out, data, data_end, true, &at) < 0)
            return -1;
        if (at < data_end) {
            end = at; /* truncated meanwhile */
            break;
        }
    }
    add_hole_to_digest(copier, end - at);
    if (copier->outbox == NULL && ftruncate(out, end) < 0)
        return failed(copier, SIDE_TARGET, "truncate");
    *copied = end;
    return 0;
}

/* Make [from, end) of a part file read as zeros. Usually it already does: only a range of older content can have left
 * data there. */
int clear(struct copier *copier, int out, off_t from, off_t end) {
    if (copier->outbox != NULL)
        return 0;
    off_t size = lseek(out, 0, SEEK_END);
    if (size < 0)
        return failed(copier, SIDE_TARGET, "seek");
    if (end > size)
        end = size;
    off_t data, data_end;
    while (from < end && next_data(out, from, end, &data, &data_end)) {
        if (fallocate(out, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, data, data_end - data) < 0) {
            if (errno != EOPNOTSUPP && errno != ENOSYS)
                return failed(copier, SIDE_TARGET, "punch a hole");
            memset(copier->buffer, 0, COPY_BUFFER_BYTES);
            for (off_t at = data; at < data_end;) {
                size_t some = COPY_BUFFER_BYTES < (uint64_t)(data_end - at) ? COPY_BUFFER_BYTES : (size_t)(data_end - at);
                if (write_at(copier, out, copier->buffer, some, at) < 0)
                    return -1;
                at += (off_t)some;
            }
        }
        from = data_end;
    }
    return 0;
}

/* Copy [offset, end) of a file to the same offset of its part file, and overwrite old data. */
int copy_range(struct copier *copier, int in, int out, uint64_t offset, uint64_t end) {
    off_t at = (off_t)offset;
    off_t stop = (off_t)end;
    if (!copier->options->sparse) {
        if (copy_span(copier, in, out, at, stop, false, &at) < 0)
            return -1;
        return at < stop ? RANGE_CUT : 0;
    }
    off_t data, data_end;
    while (at < stop && next_data(in, at, stop, &data, &data_end)) {
        off_t reached;
        if (clear(copier, out, at, data) < 0 || copy_span(copier, in, out, data, data_end, false, &reached) < 0)
            return -1;
        if (reached < data_end)
            return RANGE_CUT;
        at = data_end;
    }
    return clear(copier, out, at, stop);
}
