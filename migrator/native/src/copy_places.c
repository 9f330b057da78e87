/* Directories on both sides, reached without following a symlink, and the temporary names of copies. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "copy.h"
#include "xxh3.h"

/* Incomplete files have one of these names in their final directory: the prefix, and the hexadecimal XXH3_128 digest
 * of the last component, with the site's seed. So a second run finds the leftovers of the first, and no user has a file
 * of such a name: no brick could prove that, because a brick has only a part of a directory's files.
 * migrator/transfer/rules.py has the same rule. */
#define COPY_PREFIX ".migrator-copy-"
#define PART_PREFIX ".migrator-part-"
#define MARKS_PREFIX ".migrator-marks-"
#define AGAIN 64

#define DEFAULT_ACL "system.posix_acl_default"

static const int DIRECTORY_FLAGS = O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;

/* `readable`: open it for reading its attributes, if permitted. */
int open_tree(const char *path, bool readable) {
    int fd = readable ? open(path, O_RDONLY | O_NONBLOCK | O_DIRECTORY | O_CLOEXEC) : -1;
    return fd >= 0 ? fd : open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Open component by component; `make`: missing ones are made. */
static int open_by_hand(int tree, const char *path, size_t length, int flags, bool make) {
    int fd = tree;
    while (length > 0) {
        char component[NAME_ROOM];
        const char *slash = memchr(path, '/', length);
        size_t one = slash == NULL ? length : (size_t)(slash - path);
        if (one >= sizeof component) {
            errno = ENAMETOOLONG;
            one = 0;
        }
        memcpy(component, path, one);
        component[one] = '\0';
        bool is_last = slash == NULL;
        if (make && one > 0 && mkdirat(fd, component, CREATED_DIRECTORY_MODE) < 0 && errno != EEXIST)
            one = 0;
        int deeper = one == 0 ? -1 : openat(fd, component, DIRECTORY_FLAGS | (is_last ? flags : O_PATH));
        int code = errno;
        if (fd != tree)
            close(fd);
        if (deeper < 0) {
            errno = code;
            return -1;
        }
        fd = deeper;
        path += is_last ? one : one + 1;
        length -= is_last ? one : one + 1;
    }
    return fd;
}

/* The directory at a path beneath a tree; the tree's own descriptor for the empty path. `readable`: open it for reading
 * its attributes, if permitted. -1 with errno. */
int open_beneath(int tree, const char *path, size_t length, bool readable) {
    static _Atomic bool has_openat2 = true;
    char text[4096];
    int flags = readable ? O_RDONLY | O_NONBLOCK : O_PATH;
    if (length == 0)
        return tree;
    if (has_openat2 && length < sizeof text) {
        memcpy(text, path, length);
        text[length] = '\0';
        struct open_how how = {.flags = (uint64_t)(DIRECTORY_FLAGS | flags), .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
        /* EAGAIN: something was renamed meanwhile, and the kernel does not know whether the path left the tree. */
        for (int left = AGAIN; left > 0; left--) {
            long fd = syscall(SYS_openat2, tree, text, &how, sizeof how);
            if (fd >= 0 || (errno != EAGAIN && errno != ENOSYS && errno != EPERM))
                return (int)fd;
            if (errno != EAGAIN) {
                has_openat2 = errno != ENOSYS && has_openat2;
                break;
            }
        }
    }
    return open_by_hand(tree, path, length, flags, false);
}

static void leave(struct copier *copier) {
    if (copier->source_directory >= 0 && copier->source_directory != copier->source_tree)
        close(copier->source_directory);
    if (copier->target_directory >= 0 && copier->target_directory != copier->target_tree)
        close(copier->target_directory);
    copier->source_directory = copier->target_directory = -1;
    copier->directory_known = false;
    copier->working_directory = WHERE_UNKNOWN;
}

static int enter_target(struct copier *copier, const struct record *record) {
    size_t length = record->directory_length;
    copier->target_directory = open_beneath(copier->target_tree, record->name, length, true);
    if (copier->target_directory < 0 && errno == EACCES)
        copier->target_directory = open_beneath(copier->target_tree, record->name, length, false);
    /* The parent is in the list of another stream, which sets its attributes. */
    if (copier->target_directory < 0 && errno == ENOENT && copier->options->kind == KIND_DIRECTORIES)
        copier->target_directory = open_by_hand(copier->target_tree, record->name, length, O_RDONLY | O_NONBLOCK, true);
    if (copier->target_directory < 0) {
        failed(copier, SIDE_TARGET, "open directory");
        int code = copier->failed_errno;
        leave(copier);
        copier->failed_errno = code;
        return -1;
    }
    copier->gives_acls = false;
    if (copier->options->acls) {
        ssize_t size = fgetxattr(copier->target_directory, DEFAULT_ACL, NULL, 0);
        copier->gives_acls = size > 0 || (size < 0 && errno != ENODATA && errno != EOPNOTSUPP);
    }
    return 0;
}

/* Open the directory of a path on both sides, unless it is that of the previous path. Of two ends, each has one side. */
int enter(struct copier *copier, const struct record *record) {
    size_t length = record->directory_length;
    if (copier->directory_known && copier->directory_length == length && memcmp(copier->directory, record->name, length) == 0)
        return 0;
    leave(copier);
    if (copier->inbox == NULL) {
        copier->source_directory = open_beneath(copier->source_tree, record->name, length, false);
        if (copier->source_directory < 0)
            return failed(copier, SIDE_SOURCE, "open directory");
    }
    if (copier->outbox == NULL && enter_target(copier, record) < 0)
        return -1;
    copier->directory = record->name;
    copier->directory_length = length;
    copier->directory_known = true;
    return 0;
}

/* Attributes of entries that cannot be opened are set by name, and no such call takes a directory's descriptor: they go
 * through the working directory. */
int stand_in(struct copier *copier, enum where where) {
    if (copier->working_directory == where)
        return 0;
    if (fchdir(where == WHERE_SOURCE ? copier->source_directory : copier->target_directory) < 0)
        return failed(copier, where == WHERE_SOURCE ? SIDE_SOURCE : SIDE_TARGET, "enter directory");
    copier->working_directory = where;
    return 0;
}

const char *last_component(const struct record *record) {
    return record->name + (record->directory_length == 0 ? 0 : record->directory_length + 1);
}

static void hashed_name(const struct copier *copier, const char *prefix, const char *name, char *hashed) {
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits_withSeed(name, strlen(name), copier->options->name_seed));
    size_t at = strlen(prefix);
    memcpy(hashed, prefix, at);
    for (size_t byte = 0; byte < sizeof hash.digest; byte++) {
        hashed[at++] = "0123456789abcdef"[hash.digest[byte] >> 4];
        hashed[at++] = "0123456789abcdef"[hash.digest[byte] & 15];
    }
    hashed[at] = '\0';
}

/* The temporary name of a copy. It is not looked up first: it is nearly always free, and otherwise making it fails. */
void temporary_name(const struct copier *copier, const char *name, char *temporary) {
    hashed_name(copier, COPY_PREFIX, name, temporary);
}

/* Remove a copy that a killed run left under the temporary name of a file. -1 with errno. */
int make_way(const struct copier *copier, const char *name, char *temporary) {
    temporary_name(copier, name, temporary);
    return unlinkat(copier->target_directory, temporary, 0) < 0 && errno != ENOENT ? -1 : 0;
}

/* The name of the part file, into which ranges are copied. */
void part_name(const struct copier *copier, const char *name, char *part) { hashed_name(copier, PART_PREFIX, name, part); }

/* The name of the file that records which ranges have arrived. */
void marks_name(const struct copier *copier, const char *name, char *marks) {
    hashed_name(copier, MARKS_PREFIX, name, marks);
}

/* Rename a finished copy over any existing entry, as rsync does: an empty directory is replaced, a full one is not. */
int put_in_place(struct copier *copier, const char *temporary, const char *name) {
    int directory = copier->target_directory;
    if (renameat(directory, temporary, directory, name) == 0)
        return 0;
    if (errno == EISDIR || errno == EEXIST || errno == ENOTEMPTY) {
        if (unlinkat(directory, name, AT_REMOVEDIR) < 0)
            failed(copier, SIDE_TARGET, "remove the directory in the way");
        else if (renameat(directory, temporary, directory, name) == 0)
            return 0;
        else
            failed(copier, SIDE_TARGET, "rename");
    } else {
        failed(copier, SIDE_TARGET, "rename");
    }
    unlinkat(directory, temporary, 0);
    return -1;
}
