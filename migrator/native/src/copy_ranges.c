/* Ranges of big files: any number of streams copy them into one part file, repeatedly if necessary. The chunk of files
 * that lists such a file comes last: it sets the attributes of the part file and renames it into place.
 *
 * The size of a part file proves nothing: the last range may have arrived, and others not (their stream did not find
 * the file during a rename, could not read it, or another engine was to copy it whole). So each range that has arrived
 * leaves a mark in a separate file, and a part file is renamed only if marks cover it from end to end. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#include "copy_ends.h"

#define CREATED_MODE 0600
/* The offset of a range determines the position of its mark. Ranges that begin in one block share a position, and are
 * never proven. */
#define MARK_STRIDE_BYTES 64
#define MARKED_BLOCK_BYTES 4096

/* Identifies a range, its content and its part file. Only programs of the same architecture read it. */
struct mark {
    uint64_t part;
    uint64_t size;
    int64_t mtime_ns;
    uint64_t offset;
    uint64_t length;
};

static off_t mark_place(uint64_t offset) { return (off_t)(offset / MARKED_BLOCK_BYTES * MARK_STRIDE_BYTES); }

static bool is_marked(int marks, ino_t part, const struct record *record, uint64_t offset, uint64_t *length) {
    struct mark mark;
    if (pread(marks, &mark, sizeof mark, mark_place(offset)) != sizeof mark)
        return false;
    *length = mark.length;
    return mark.part == part && mark.size == record->size && mark.mtime_ns == record->mtime_ns && mark.offset == offset &&
           mark.length > 0 && mark.length <= record->size - offset;
}

static int open_marks(const struct copier *copier, const char *name, int flags) {
    char marks[NAME_ROOM];
    marks_name(copier, name, marks);
    return openat(copier->target_directory, marks, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, CREATED_MODE);
}

/* Whether ranges of this very content have arrived in this part file, from the first byte to the last. */
static bool have_all_arrived(const struct copier *copier, const struct record *record, const char *name, ino_t part) {
    int marks = open_marks(copier, name, O_RDONLY);
    if (marks < 0)
        return false;
    uint64_t at = 0;
    uint64_t length;
    while (at < record->size && is_marked(marks, part, record, at, &length))
        at += length;
    close(marks);
    return at == record->size;
}

static int write_mark(struct copier *copier, const struct record *record, const struct mark *mark) {
    int marks = open_marks(copier, last_component(record), O_WRONLY | O_CREAT);
    if (marks < 0)
        return failed(copier, SIDE_TARGET, "create");
    ssize_t written = pwrite(marks, mark, sizeof *mark, mark_place(record->offset));
    if (written != sizeof *mark) {
        if (written >= 0)
            errno = ENOSPC;
        failed(copier, SIDE_TARGET, "write");
        close(marks);
        return -1;
    }
    return close(marks) < 0 ? failed(copier, SIDE_TARGET, "close") : 0;
}

static bool is_as_listed(const struct record *record, const struct attributes *seen) {
    return record->has_size && record->has_mtime && (uint64_t)seen->facts.st_size == record->size &&
           seen->mtime_ns == record->mtime_ns;
}

/* The part file of a file, if it is complete and the file is still as listed; its facts are put into `existing`. -1 if
 * the content must be copied here. */
int open_part(struct copier *copier, const struct record *record, const char *name, char *part) {
    struct stat *facts = &copier->existing.facts;
    if (!is_as_listed(record, &copier->attributes))
        return -1;
    part_name(copier, name, part);
    int fd = openat(copier->target_directory, part, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -1;
    bool whole = fstat(fd, facts) == 0 && S_ISREG(facts->st_mode) && (uint64_t)facts->st_size == record->size &&
                 have_all_arrived(copier, record, name, facts->st_ino);
    if (whole)
        return fd;
    close(fd);
    return -1;
}

static enum result read_range_attributes(struct copier *copier, int in) {
    struct attributes *seen = &copier->attributes;
    if (fstat(in, &seen->facts) < 0)
        return source_failed(copier, "stat");
    if (!S_ISREG(seen->facts.st_mode))
        return RESULT_CHANGED;
    if (read_attributes(copier, (struct handle){.fd = in, .name = NULL}, seen) < 0)
        return RESULT_FAILED;
    return is_moved(copier, seen) ? RESULT_MOVED : RESULT_FINE;
}

/* RANGE_CUT as copy_range. `after` gets the facts from after the reading. */
static int read_range(struct copier *copier, const struct record *record, int in, int out, struct attributes *after) {
    uint64_t end = record->offset + record->length;
    if (copier->inbox != NULL)
        return receive_range(copier, out, record->offset, end, after);
    int copied = copy_range(copier, in, out, record->offset, end);
    return copied < 0 || read_again(copier, in, after) < 0 ? -1 : copied;
}

/* Copy one range, if the file is as listed, before and after. */
enum result write_range(struct copier *copier, const struct record *record, int in) {
    struct attributes *seen = &copier->attributes;
    uint64_t end = record->offset + record->length;
    if (!is_as_listed(record, seen) || end > record->size)
        return RESULT_CHANGED;
    /* An earlier pass has copied the file, and nothing has changed since. */
    struct stat existing;
    if (is_there(copier, last_component(record), &existing))
        return RESULT_FINE;
    char part[NAME_ROOM];
    part_name(copier, last_component(record), part);
    int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int out = openat(copier->target_directory, part, flags, CREATED_MODE);
    if (out < 0)
        return failed(copier, SIDE_TARGET, "create"), RESULT_FAILED;
    struct attributes after;
    enum result result = RESULT_FINE;
    /* A range that is being overwritten has not arrived, whatever an earlier mark records. */
    const struct mark none = {.size = 0};
    int copied = 0;
    struct stat made;
    if (fstat(out, &made) < 0)
        result = (failed(copier, SIDE_TARGET, "stat"), RESULT_FAILED);
    else if (write_mark(copier, record, &none) < 0 || (copied = read_range(copier, record, in, out, &after)) < 0)
        result = RESULT_FAILED;
    /* Another end has read the attributes anew with the content. */
    else if (!is_same_moment(seen, &after) || !is_as_listed(record, seen))
        result = RESULT_CHANGED;
    /* The file has not changed, but the file system returned less than it has: see copy_file.c. */
    else if (copied == RANGE_CUT)
        errno = ENODATA, result = (failed(copier, SIDE_SOURCE, "read to the end"), RESULT_FAILED);
    /* The last range gives the part file its size, also if it ends in a hole. */
    else if (end == record->size && ftruncate(out, (off_t)end) < 0)
        result = (failed(copier, SIDE_TARGET, "truncate"), RESULT_FAILED);
    /* A mark must not reach the disks before the bytes. After a crash, not every range in flight is copied again: its
     * file may be missing at that moment, or another engine may be selected; later the marks count. Write-back during
     * the copy makes this wait short. */
    else if (fsync(out) < 0)
        result = (failed(copier, SIDE_TARGET, "sync"), RESULT_FAILED);
    if (close(out) < 0 && result != RESULT_FAILED)
        result = (failed(copier, SIDE_TARGET, "close"), RESULT_FAILED);
    if (result != RESULT_FINE)
        return result;
    const struct mark arrived = {
        .part = made.st_ino,
        .size = record->size,
        .mtime_ns = record->mtime_ns,
        .offset = record->offset,
        .length = record->length,
    };
    if (write_mark(copier, record, &arrived) < 0)
        return RESULT_FAILED;
    return result;
}

/* Open the file of a range, and read its attributes. */
enum result open_range(struct copier *copier, const struct record *record, int *opened) {
    int in = open_source(copier, last_component(record));
    if (in < 0)
        return errno == ELOOP ? RESULT_CHANGED : source_failed(copier, "open");
    enum result result = read_range_attributes(copier, in);
    if (result == RESULT_FINE)
        *opened = in;
    else
        close(in);
    return result;
}
