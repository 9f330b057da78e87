/* One entry of a directory: its facts and its attributes, interpreted by Gluster's rules. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "gluster.h"
#include "walk.h"
#include "xxh3.h"

#define LIST_BYTES 65536  /* XATTR_LIST_MAX: the kernel's limit */
#define VALUE_BYTES 65536 /* XATTR_SIZE_MAX */
/* Usually sufficient. The kernel allocates and clears the offered memory: with 64 KiB a call costs five times as
 * much. */
#define SHORT_LIST_BYTES 512
#define SHORT_VALUE_BYTES 256
#define CARRIED_LIMIT 32768 /* names have at least two bytes, with their NUL */
#define TARGET_BYTES 65536
#define PENDING_LIMIT 64 /* one for each copy, and one of its own */
#define NEW_S 60
#define LOOKS_AT_NEW 10
#define LONG_NAME_BYTES 127 /* the same figure as LONG_XATTR_NAME_BYTES of core/entry.py */
#define MOMENT_NS 20000000
/* The size and blocks that a mount shows of every directory (DHT's fixed values). */
#define DIRECTORY_SIZE 4096
#define DIRECTORY_BLOCKS 8

#define PINNED_IN "/proc/self/fd/"

enum { KIND_USER = 1, KIND_ACL_ACCESS = 2, KIND_ACL_DEFAULT = 4, KIND_CAPABILITY = 8, KIND_SECURITY = 16,
       KIND_TRUSTED = 32, KIND_LONG_NAME = 64 };

enum outcome { DONE, VANISHED, CHANGED, NAMELESS };

/* An entry without a gfid: Gluster sets the gfid right after it has made the entry, so the ctime shows whether the
 * entry may be that new. */
struct nameless {
    bool directory;
    time_t changed_s;
};

/* The attributes that an entry's list contains. */
struct listed {
    bool gfid, mdata, linkto, bad_file;
    size_t pending; /* the number of names in `counters` */
    const char *counters[PENDING_LIMIT];
    size_t carried; /* the number of names in `names` */
    const char *names[CARRIED_LIMIT];
};

static _Thread_local struct listed listed;

/* An entry of the current directory: reached by its name, or (walk->pins) by a descriptor, and `path` leads to that. */
struct entry {
    const char *name;
    int fd;
    char path[sizeof PINNED_IN + 10];
};

static bool is_absent(int error)
{
    return error == ENODATA || error == EOPNOTSUPP;
}

/* False and errno if the entry cannot be reached. An automount point is not mounted by this. */
static bool entry_pin(struct entry *entry)
{
    entry->fd = open(entry->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    snprintf(entry->path, sizeof entry->path, PINNED_IN "%d", entry->fd);
    return entry->fd >= 0;
}

static ssize_t value_of(const struct entry *entry, const char *key, void *value, size_t room)
{
    /* The link in /proc is followed to the entry itself, also if that is a symlink. */
    return entry->fd >= 0 ? getxattr(entry->path, key, value, room) : lgetxattr(entry->name, key, value, room);
}

static ssize_t list_of(const struct entry *entry, char *names, size_t room)
{
    return entry->fd >= 0 ? listxattr(entry->path, names, room) : llistxattr(entry->name, names, room);
}

/* Read the value of an attribute into worker->value; -1 and errno. */
static ssize_t read_value(struct worker *worker, const struct entry *entry, const char *key, size_t expected)
{
    ssize_t length = value_of(entry, key, worker->value, expected);
    if (length < 0 && errno == ERANGE)
        length = value_of(entry, key, worker->value, VALUE_BYTES);
    return length;
}

static int read_list(struct worker *worker, const struct entry *entry)
{
    listed.gfid = listed.mdata = listed.linkto = listed.bad_file = false;
    listed.carried = listed.pending = 0;
    ssize_t length = list_of(entry, worker->names, SHORT_LIST_BYTES);
    if (length < 0 && errno == ERANGE)
        length = list_of(entry, worker->names, LIST_BYTES);
    if (length < 0)
        return is_absent(errno) ? 0 : -1;
    for (const char *key = worker->names; key < worker->names + length; key += strlen(key) + 1) {
        if (strncmp(key, "trusted.g", 9) == 0) {
            if (strcmp(key, GLUSTER_GFID) == 0)
                listed.gfid = true;
            else if (strcmp(key, GLUSTER_MDATA) == 0)
                listed.mdata = true;
            else if (strcmp(key, GLUSTER_LINKTO) == 0)
                listed.linkto = true;
            else if (gluster_is_carried(key))
                listed.names[listed.carried++] = key;
        } else if (gluster_is_pending(key)) {
            if (listed.pending < PENDING_LIMIT)
                listed.counters[listed.pending++] = key;
        } else if (strcmp(key, GLUSTER_BAD_FILE) == 0) {
            listed.bad_file = true;
        } else if (gluster_is_carried(key)) {
            listed.names[listed.carried++] = key;
        }
    }
    return 0;
}

static int32_t kind_of(const char *name)
{
    if (strncmp(name, "user.", 5) == 0)
        return KIND_USER;
    if (strcmp(name, ACL_ACCESS) == 0)
        return KIND_ACL_ACCESS;
    if (strcmp(name, ACL_DEFAULT) == 0)
        return KIND_ACL_DEFAULT;
    if (strcmp(name, "security.capability") == 0)
        return KIND_CAPABILITY;
    return strncmp(name, "trusted.", 8) == 0 ? KIND_TRUSTED : KIND_SECURITY;
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static void put_length(XXH3_state_t *hash, size_t length)
{
    const uint8_t bytes[4] = {(uint8_t)(length >> 24), (uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length};
    XXH3_128bits_update(hash, bytes, sizeof bytes);
}

/* Read the carried attributes into the row; -1 and errno if one cannot be read. */
static int read_carried(struct worker *worker, const struct entry *entry, struct row *row, uint8_t digest[DIGEST_BYTES])
{
    XXH3_state_t hash;
    XXH128_canonical_t canonical;
    size_t kept = 0;
    int32_t kinds = 0, largest = 0, acl_entries = 0;
    XXH3_128bits_reset(&hash);
    qsort(listed.names, listed.carried, sizeof *listed.names, by_name);
    for (size_t index = 0; index < listed.carried; index++) {
        const char *key = listed.names[index];
        ssize_t length = read_value(worker, entry, key, SHORT_VALUE_BYTES);
        if (length < 0) {
            if (is_absent(errno))
                continue;
            return -1;
        }
        int32_t kind = kind_of(key);
        if (kind == KIND_ACL_ACCESS || kind == KIND_ACL_DEFAULT)
            map_acl(&worker->walk->owners, worker->value, (size_t)length);
        put_length(&hash, strlen(key));
        XXH3_128bits_update(&hash, key, strlen(key));
        put_length(&hash, (size_t)length);
        XXH3_128bits_update(&hash, worker->value, (size_t)length);
        kinds |= kind | (strlen(key) > LONG_NAME_BYTES ? KIND_LONG_NAME : 0);
        if ((int32_t)length > largest)
            largest = (int32_t)length;
        if (kind == KIND_ACL_ACCESS || kind == KIND_ACL_DEFAULT) {
            int32_t entries = length > 4 ? (int32_t)(length - 4) / 8 : 0;
            if (entries > acl_entries)
                acl_entries = entries;
        }
        kept++;
    }
    if (kept == 0)
        return 0;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&hash));
    memcpy(digest, canonical.digest, DIGEST_BYTES);
    row->xattr_digest = digest;
    row->xattr_kinds = kinds;
    row->xattr_largest_bytes = largest;
    row->acl_entries = acl_entries;
    return 0;
}

/* Times beyond 64 bits are limited to the nearest possible one, which the plan lists as a loss. */
static void own_times(struct row *row, const struct statx *facts)
{
    bool cut;
    row->mtime_ns = gluster_nanoseconds(facts->stx_mtime.tv_sec, facts->stx_mtime.tv_nsec, &cut);
    row->atime_ns = gluster_nanoseconds(facts->stx_atime.tv_sec, facts->stx_atime.tv_nsec, &cut);
    row->ctime_ns = gluster_nanoseconds(facts->stx_ctime.tv_sec, facts->stx_ctime.tv_nsec, &cut);
}

static int read_times(struct worker *worker, const struct task *directory, const struct entry *entry,
                      const struct statx *facts, struct row *row)
{
    if (worker->walk->times_from_mdata && listed.mdata) {
        ssize_t length = read_value(worker, entry, GLUSTER_MDATA, GLUSTER_MDATA_ROOM);
        if (length < 0 && !is_absent(errno))
            return -1;
        struct gluster_times times;
        if (length >= 0) {
            if (gluster_parse_mdata(worker->value, (size_t)length, &times) != MDATA_MALFORMED) {
                row->mtime_ns = times.mtime_ns;
                row->atime_ns = times.atime_ns;
                row->ctime_ns = times.ctime_ns;
                return 0;
            }
            worker_problem(worker, directory, entry->name, "times", 0, "trusted.glusterfs.mdata has a form that is not known");
        }
    }
    own_times(row, facts);
    return 0;
}

/* The gfid, or -1, with errno 0 if the entry has none. */
static int read_gfid(struct worker *worker, const struct entry *entry, uint8_t gfid[GLUSTER_GFID_BYTES])
{
    errno = 0;
    if (!listed.gfid)
        return -1;
    ssize_t length = read_value(worker, entry, GLUSTER_GFID, GLUSTER_GFID_BYTES);
    if (length == GLUSTER_GFID_BYTES) {
        memcpy(gfid, worker->value, GLUSTER_GFID_BYTES);
        return 0;
    }
    if (length >= 0 || is_absent(errno))
        errno = 0;
    return -1;
}

/* Symlinks are read with this mode, as by `permission_bits` of core/entry.py. */
#define SYMLINK_MODE 0777

static enum entry_type type_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR: return TYPE_DIRECTORY;
    case S_IFLNK: return TYPE_SYMLINK;
    case S_IFIFO: return TYPE_FIFO;
    case S_IFSOCK: return TYPE_SOCKET;
    case S_IFBLK: return TYPE_BLOCK;
    case S_IFCHR: return TYPE_CHARACTER;
    default: return TYPE_FILE;
    }
}

int32_t directory_found(struct worker *worker, const struct task *directory, const char *name)
{
    struct task *child = task_made(directory->path, directory->path_length, name, directory->tree);
    if (child->tree == NO_TREE)
        child->tree = tree_of(worker->walk, child->path);
    child->next = worker->found;
    worker->found = child;
    worker->found_count++;
    return child->tree;
}

/* Report the marks by which Gluster keeps the mount from this copy, or from another one; -1 and errno. */
static int read_marks(struct worker *worker, const struct task *directory, const char *name, const struct entry *entry)
{
    if (listed.bad_file)
        worker_mark(worker, directory, name, "corrupted", "the scrubber found this copy corrupted");
    for (size_t index = 0; index < listed.pending; index++) {
        ssize_t length = read_value(worker, entry, listed.counters[index], SHORT_VALUE_BYTES);
        if (length < 0 && !is_absent(errno))
            return -1;
        if (length > 0 && gluster_counts_any(worker->value, (size_t)length)) {
            worker_mark(worker, directory, name, "pending", listed.counters[index]);
            break;
        }
    }
    return 0;
}

/* Whether a regular file is a row by Gluster's rules; removes Gluster's own bits from its mode. */
static bool is_row(struct worker *worker, const struct task *directory, const char *name, const struct statx *facts,
                   struct row *row)
{
    switch (gluster_classify(facts->stx_mode, facts->stx_size, listed.linkto)) {
    case FILE_IS_LINKTO:
        worker->totals.links++;
        /* An audit names it. In a scan, the other brick has the file's row. */
        worker->totals.filling_links += facts->stx_size > 0;
        if (facts->stx_size > 0 && worker->walk->own && !worker->walk->marks)
            worker_ask(worker, directory, name, "a link-to file that has content");
        if (facts->stx_size > 0 && worker->walk->marks)
            worker_mark(worker, directory, name, "link-with-content", "a link-to file that has content");
        return false;
    case FILE_IS_MIGRATING:
        worker->totals.migrating++;
        if (worker->walk->marks)
            worker_mark(worker, directory, name, "migration", "a data file with the marks of a migration");
        row->mode &= ~(int32_t)(S_ISGID | S_ISVTX);
        return true;
    case FILE_IS_AMBIGUOUS:
        if (!listed.gfid)
            worker_strange(worker, directory, name);
        else
            worker_ask(worker, directory, name,
                       "empty, with the attribute of a link-to file and the mode of a data file");
        return false;
    case FILE_IS_DATA: break;
    }
    if (worker->walk->distributed && gluster_hides_marks(facts->stx_mode)) {
        worker->totals.hidden_marks++;
        row->mode &= ~(int32_t)(S_ISGID | S_ISVTX);
    }
    return true;
}

static enum outcome failed(struct worker *worker, const struct task *directory, const char *name,
                           const char *operation)
{
    if (errno == ENOENT)
        return VANISHED;
    worker_problem(worker, directory, name, operation, errno, NULL);
    return DONE;
}

void root_marks_read(struct worker *worker, const struct task *root)
{
    const struct entry entry = {.name = ".", .fd = -1};
    if (read_list(worker, &entry) != 0 || read_marks(worker, root, NULL, &entry) != 0)
        worker_problem(worker, root, NULL, "xattrs", errno, NULL);
}

static enum outcome read_entry(struct worker *worker, const struct task *directory, const struct entry *entry,
                               struct nameless *nameless)
{
    const char *name = entry->name;
    static _Thread_local char target[TARGET_BYTES];
    struct statx facts;
    struct row row = {.directory = directory->path, .directory_length = directory->path_length, .name = name};
    uint8_t gfid[GLUSTER_GFID_BYTES], digest[DIGEST_BYTES];
    bool plain = worker->walk->plain;

    int found_by = entry->fd >= 0 ? AT_EMPTY_PATH : AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
    if (statx(entry->fd >= 0 ? entry->fd : AT_FDCWD, entry->fd >= 0 ? "" : name, found_by, STATX_BASIC_STATS, &facts) != 0)
        return failed(worker, directory, name, "lstat");
    if (makedev(facts.stx_dev_major, facts.stx_dev_minor) != worker->walk->device ||
        (facts.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0) {
        worker_problem(worker, directory, name, "open", EXDEV, "another file system is mounted here; not entered");
        return DONE;
    }
    row.type = type_of(facts.stx_mode);
    row.mode = row.type == TYPE_SYMLINK ? SYMLINK_MODE : facts.stx_mode & 07777;
    if (row.type == TYPE_SYMLINK) {
        ssize_t length = entry->fd >= 0 ? readlinkat(entry->fd, "", target, sizeof target)
                                        : readlink(name, target, sizeof target);
        if (length < 0)
            return errno == EINVAL ? CHANGED : failed(worker, directory, name, "readlink");
        row.symlink_target = target;
        row.symlink_length = (size_t)length;
    }
    if (read_list(worker, entry) != 0) {
        /* On a mount it has a row all the same, and is entered: only its attributes are unknown. */
        if (!plain || errno == ENOENT)
            return failed(worker, directory, name, "xattrs");
        worker_problem(worker, directory, name, "xattrs", errno, NULL);
    }
    if (row.type == TYPE_FILE && !plain && !is_row(worker, directory, name, &facts, &row))
        return DONE;
    if (row.type == TYPE_FILE && plain && worker->walk->distributed && gluster_hides_marks(facts.stx_mode))
        row.mode &= ~(int32_t)(S_ISGID | S_ISVTX);

    if (worker->walk->marks && read_marks(worker, directory, name, entry) != 0)
        return failed(worker, directory, name, "xattrs");
    if (worker->walk->marks_only && row.type != TYPE_DIRECTORY && listed.gfid)
        return DONE;
    if (!plain && read_gfid(worker, entry, gfid) != 0) {
        if (errno != 0)
            return failed(worker, directory, name, "xattrs");
        nameless->directory = row.type == TYPE_DIRECTORY;
        nameless->changed_s = facts.stx_ctime.tv_sec;
        return NAMELESS;
    }
    row.tree = row.type == TYPE_DIRECTORY ? directory_found(worker, directory, name) : directory->tree;
    if (read_times(worker, directory, entry, &facts, &row) != 0)
        return failed(worker, directory, name, "xattrs");
    if (listed.carried > 0 && read_carried(worker, entry, &row, digest) != 0) {
        if (errno == ENOENT)
            return VANISHED;
        worker_problem(worker, directory, name, "xattrs", errno, NULL);
    }
    row.gfid = plain ? NULL : gfid;
    row.ino = plain ? facts.stx_ino : gluster_ino(gfid);
    row.uid = mapped_id(&worker->walk->owners.users, facts.stx_uid);
    row.gid = mapped_id(&worker->walk->owners.groups, facts.stx_gid);
    row.rdev = makedev(facts.stx_rdev_major, facts.stx_rdev_minor);
    if (row.type == TYPE_DIRECTORY) {
        row.size = plain ? (int64_t)facts.stx_size : DIRECTORY_SIZE;
        row.blocks = plain ? (int64_t)facts.stx_blocks : DIRECTORY_BLOCKS;
        row.nlink = facts.stx_nlink;
        worker->totals.directories++;
        rows_add(&worker->directories, &row);
        return DONE;
    }
    row.size = (int64_t)facts.stx_size;
    /* As Gluster reports it: no more than the size needs, although XFS may preallocate beyond the end. */
    uint64_t most = facts.stx_size / 512 + (facts.stx_size % 512 != 0);
    row.blocks = (int64_t)(plain || facts.stx_blocks < most ? facts.stx_blocks : most);
    /* On a brick, one of the names is Gluster's own, in .glusterfs. */
    row.nlink = plain ? facts.stx_nlink : facts.stx_nlink > 1 ? facts.stx_nlink - 1 : 1;
    worker->totals.rows++;
    if (row.type == TYPE_FILE)
        worker->totals.size_bytes += facts.stx_size;
    rows_add(&worker->files, &row);
    return DONE;
}

static enum outcome look(struct worker *worker, const struct task *directory, const char *name,
                         struct nameless *nameless)
{
    struct entry entry = {.name = name, .fd = -1};
    if (worker->walk->pins && !entry_pin(&entry))
        return failed(worker, directory, name, "lstat");
    enum outcome outcome = read_entry(worker, directory, &entry, nameless);
    if (entry.fd >= 0)
        close(entry.fd);
    return outcome;
}

/* Wait a moment if an entry may be so new that Gluster has not set its gfid yet; false if it is not. */
static bool waited(struct worker *worker, const struct nameless *nameless)
{
    const struct timespec moment = {.tv_nsec = MOMENT_NS};
    if (worker->patience == 0 || nameless->changed_s < time(NULL) - NEW_S)
        return false;
    worker->patience--;
    nanosleep(&moment, NULL);
    return true;
}

void entry_read(struct worker *worker, const struct task *directory, const char *name)
{
    enum outcome outcome = CHANGED;
    struct nameless nameless;
    for (int looks = 0; outcome == CHANGED && looks < LOOKS; looks++)
        outcome = look(worker, directory, name, &nameless);
    for (int looks = 1; outcome == NAMELESS && looks < LOOKS_AT_NEW && waited(worker, &nameless); looks++)
        outcome = look(worker, directory, name, &nameless);
    if (outcome == NAMELESS) {
        if (nameless.directory)
            directory_found(worker, directory, name);
        worker_strange(worker, directory, name);
    } else if (outcome == VANISHED)
        worker_vanished(worker, directory, name);
    else if (outcome == CHANGED)
        worker_problem(worker, directory, name, "readlink", 0, "changes its type all the time");
}
