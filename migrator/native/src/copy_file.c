/* Regular files: a copy under a temporary name, repeated while the file changes, and renamed when it is complete. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "copy_ends.h"

#define PERMISSIONS 0777

/* The result for a failed call on the source; missing paths have a result of their own, and the caller searches for
 * them. */
enum result source_failed(struct copier *copier, const char *operation) {
    int code = errno;
    failed(copier, SIDE_SOURCE, operation);
    return code == ENOENT ? RESULT_VANISHED : RESULT_FAILED;
}

/* Open a file of the source for reading, without blocking on any file type. */
int open_source(struct copier *copier, const char *name) {
    static _Atomic bool without_access_time = true;
    int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int fd = openat(copier->source_directory, name, flags | (without_access_time ? O_NOATIME : 0));
    if (fd < 0 && errno == EPERM && without_access_time) {
        /* The file belongs to another user, and this is not root. */
        fd = openat(copier->source_directory, name, flags);
        without_access_time = fd < 0;
    }
    return fd;
}

/* Read the facts again after the content. Of the attributes, `after` gets only the times. */
int read_again(struct copier *copier, int in, struct attributes *after) {
    if (fstat(in, &after->facts) < 0)
        return failed(copier, SIDE_SOURCE, "stat");
    return read_brick_time(copier, (struct handle){.fd = in, .name = NULL}, after);
}

/* Whether nothing changed between two reads of the facts. A new attribute, mode or owner changes the ctime. */
bool is_same_moment(const struct attributes *before, const struct attributes *after) {
    const struct stat *one = &before->facts;
    const struct stat *other = &after->facts;
    return one->st_size == other->st_size && time_ns(&one->st_mtim) == time_ns(&other->st_mtim) &&
           time_ns(&one->st_ctim) == time_ns(&other->st_ctim) && before->mtime_ns == after->mtime_ns;
}

static int create_at(const struct copier *copier, const char *name) {
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    return openat(copier->target_directory, name, flags, copier->attributes.facts.st_mode & PERMISSIONS);
}

/* Make a new file under a temporary name. An existing one is left by a killed run, and is perhaps another name of a
 * file that is in its place: it is never written to. */
static int create(struct copier *copier, const char *name, char *temporary) {
    temporary_name(copier, name, temporary);
    int out = create_at(copier, temporary);
    if (out < 0 && errno == EEXIST) {
        if (make_way(copier, name, temporary) < 0)
            return failed(copier, SIDE_TARGET, "remove an older copy");
        out = create_at(copier, temporary);
    }
    return out < 0 ? failed(copier, SIDE_TARGET, "create") : out;
}

/* Remove the leftovers of an earlier run for a file that is gone, or is no longer a file. */
void remove_leftover(const struct copier *copier, const char *name) {
    char temporary[NAME_ROOM];
    if (copier->options->recopy)
        make_way(copier, name, temporary);
    part_name(copier, name, temporary);
    unlinkat(copier->target_directory, temporary, 0);
    marks_name(copier, name, temporary);
    unlinkat(copier->target_directory, temporary, 0);
}

/* Read the attributes of an open file again, after it has changed. */
static enum result read_anew(struct copier *copier, int in) {
    if (copier->inbox != NULL)
        return take_again(copier);
    struct handle source = {.fd = in, .name = NULL};
    if (fstat(in, &copier->attributes.facts) < 0 || read_attributes(copier, source, &copier->attributes) < 0)
        return source_failed(copier, "stat");
    return is_moved(copier, &copier->attributes) ? RESULT_MOVED : RESULT_FINE;
}

static int read_whole(struct copier *copier, int in, int out, off_t *copied, struct attributes *after) {
    if (copier->inbox != NULL)
        return receive_content(copier, out, copied, after);
    if (copy_content(copier, in, out, &copier->attributes.facts, copied) < 0)
        return -1;
    end_digest(copier, in);
    return read_again(copier, in, after);
}

/* Whether the file may have changed because it is in migration. */
static enum result judge_changed(struct copier *copier, int in, const struct attributes *after) {
    if (copier->inbox != NULL)
        return was_moved(copier) ? RESULT_MOVED : RESULT_CHANGED;
    struct stat before = copier->attributes.facts;
    int64_t mtime_ns = copier->attributes.mtime_ns;
    copier->attributes.facts = after->facts;
    if (read_attributes(copier, (struct handle){.fd = in, .name = NULL}, &copier->attributes) < 0)
        return RESULT_FAILED;
    if (is_moved(copier, &copier->attributes))
        return RESULT_MOVED;
    copier->attributes.facts = before;
    copier->attributes.mtime_ns = mtime_ns;
    return RESULT_CHANGED;
}

/* Write content and attributes into an open, empty file. */
static enum result fill(struct copier *copier, int in, int out) {
    mode_t made_mode = copier->attributes.facts.st_mode & PERMISSIONS;
    struct attributes after;
    bool changed = false;
    bool same = false;
    /* On a mount of Gluster, reading the content may set the access time, with O_NOATIME too. */
    const int64_t atime_ns = copier->attributes.atime_ns;
    for (int tried = 0; tried < TRIES && !same; tried++) {
        if (tried > 0 || (copier->inbox != NULL && !content_follows(copier))) {
            enum result anew = read_anew(copier, in);
            if (anew != RESULT_FINE)
                return anew;
        }
        if (tried > 0 && ftruncate(out, 0) < 0)
            return failed(copier, SIDE_TARGET, "truncate"), RESULT_FAILED;
        off_t copied = 0;
        if (read_whole(copier, in, out, &copied, &after) < 0)
            return RESULT_FAILED;
        same = is_same_moment(&copier->attributes, &after);
        if (same && copied != copier->attributes.facts.st_size) {
            /* The file was not truncated: the file system returned less than the file has. Mounts of Gluster do that
             * for files of mode 1000, which look like link-to files. */
            errno = ENODATA;
            return failed(copier, SIDE_SOURCE, "read to the end"), RESULT_FAILED;
        }
    }
    /* The last copy stays, with the time from before it was read, so the next pass detects that it is outdated. */
    enum result result = same ? RESULT_FINE : judge_changed(copier, in, &after);
    if (result != RESULT_FINE && result != RESULT_CHANGED)
        return result;
    copier->attributes.atime_ns = atime_ns;
    mode_t permissions = copier->attributes.facts.st_mode & PERMISSIONS;
    if (permissions != made_mode && fchmod(out, permissions) < 0)
        return failed(copier, SIDE_TARGET, "set mode"), RESULT_FAILED;
    if (dress(copier, (struct handle){.fd = out, .name = NULL}, NULL, &changed) < 0)
        return RESULT_FAILED;
    if (same)
        report_digest(copier);
    return result;
}

/* Clocks of two hosts differ by less than this (the same figure as SETTLED_BEFORE_SCAN_S of catalogs). */
#define CLOCKS_DIFFER_NS INT64_C(2000000000)

/* Whether the target already has this very file, by size and mtime, as is_copy() of fs/rules_equality.py defines it: only
 * its attributes remain to be set. A file that changed after it was copied is copied again even if both match: Gluster keeps an mtime in the future when the file is
 * written to, and users set mtimes. */
bool is_there(const struct copier *copier, const char *name, struct stat *existing) {
    const struct attributes *wanted = &copier->attributes;
    return !copier->options->recopy && fstatat(copier->target_directory, name, existing, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(existing->st_mode) && existing->st_size == wanted->facts.st_size &&
           same_time(copier, existing, wanted->mtime_ns) &&
           time_ns(&wanted->facts.st_ctim) + CLOCKS_DIFFER_NS <= time_ns(&existing->st_ctim);
}

/* A copy before it has its time and its name. */
struct made {
    int out;
    enum result result;
    const char *name;
    char temporary[NAME_ROOM]; /* its name until then; empty: its own */
    int64_t mtime_ns;
    bool is_part; /* of ranges: it stays if anything fails */
};

/* A copy with its content and attributes becomes the file: it is synced if need be, closed, and gets its time and its
 * name. Returns its result, or RESULT_FAILED. */
static enum result finish(struct copier *copier, const struct made *made) {
    enum result result = made->result;
    const char *name = made->temporary[0] != '\0' ? made->temporary : made->name;
    bool is_copied = result == RESULT_FINE || result == RESULT_CHANGED;
    bool whole = is_copied;
    /* Through the descriptor that has written: BeeGFS syncs only the files that a session has open on the servers. */
    if (whole && copier->options->fsync && fsync(made->out) < 0)
        whole = (failed(copier, SIDE_TARGET, "sync"), false);
    if (close(made->out) < 0 && whole)
        whole = (failed(copier, SIDE_TARGET, "close"), false);
    whole = whole && dress_times(copier, name, made->mtime_ns) == 0;
    if (!whole && !made->is_part)
        unlinkat(copier->target_directory, name, 0);
    if (!whole)
        return is_copied ? RESULT_FAILED : result;
    if (name != made->name && put_in_place(copier, name, made->name) < 0)
        return RESULT_FAILED;
    count_file();
    return result;
}

/* Copy a file whose attributes were read. */
enum result write_file(struct copier *copier, const struct record *record, int in) {
    struct made made = {.name = last_component(record)};
    struct stat existing;
    /* If that fails for any reason, the usual way deals with it. */
    made.out = copier->options->own_names && !record->in_ranges ? create_at(copier, made.name) : -1;
    if (made.out < 0 && is_there(copier, made.name, &existing)) {
        int touched = dress_existing(copier, made.name, &existing, copier->attributes.mtime_ns, false);
        if (touched > 0)
            count_file();
        return touched < 0 ? RESULT_FAILED : RESULT_FINE;
    }
    if (made.out < 0 && record->in_ranges)
        made.is_part = (made.out = open_part(copier, record, made.name, made.temporary)) >= 0;
    if (made.is_part) {
        bool changed = false;
        made.result = dress(copier, (struct handle){.fd = made.out, .name = NULL}, &copier->existing.facts, &changed) < 0
                          ? RESULT_FAILED
                          : RESULT_FINE;
    } else {
        if (made.out < 0 && (made.out = create(copier, made.name, made.temporary)) < 0)
            return RESULT_FAILED;
        made.result = fill(copier, in, made.out);
    }
    made.mtime_ns = copier->attributes.mtime_ns;
    return finish(copier, &made);
}

/* Open a path that should be a regular file, and read its attributes. RESULT_NOT_A_FILE: it has another type. */
enum result open_file(struct copier *copier, const struct record *record, int *opened) {
    const char *name = last_component(record);
    struct stat seen;
    /* On a brick no FIFO blocks and no device is real; elsewhere they must not be opened. */
    if (!copier->options->brick && fstatat(copier->source_directory, name, &seen, AT_SYMLINK_NOFOLLOW) == 0 &&
        !S_ISREG(seen.st_mode))
        return RESULT_NOT_A_FILE;
    int in = open_source(copier, name);
    if (in < 0) {
        int code = errno;
        if (code == ELOOP || code == ENXIO || code == EACCES || code == ENODEV) {
            bool is_file = fstatat(copier->source_directory, name, &seen, AT_SYMLINK_NOFOLLOW) < 0 || S_ISREG(seen.st_mode);
            if (!is_file)
                return RESULT_NOT_A_FILE;
        }
        errno = code;
        return source_failed(copier, "open");
    }
    enum result result;
    if (fstat(in, &copier->attributes.facts) < 0)
        result = source_failed(copier, "stat");
    else if (!S_ISREG(copier->attributes.facts.st_mode))
        result = RESULT_NOT_A_FILE;
    else if (read_attributes(copier, (struct handle){.fd = in, .name = NULL}, &copier->attributes) < 0)
        result = RESULT_FAILED;
    else if (is_moved(copier, &copier->attributes))
        result = RESULT_MOVED;
    else
        result = RESULT_FINE;
    if (result == RESULT_FINE)
        *opened = in;
    else
        close(in);
    return result;
}
