/* Owner, mode, ACLs, extended attributes and times: reads them from the source, and sets them as `rsync -aHAX` does. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "copy.h"
#include "gluster.h"

#define CAPABILITY "security.capability"
#define ACL_HEADER_BYTES 4
#define ACL_ENTRY_BYTES 8
/* Tags of entries (linux/posix_acl.h). */
#define ACL_OWNER 0x01
#define ACL_GROUP 0x04
#define ACL_OTHERS 0x20
#define NS_PER_S 1000000000
#define MODE_BITS 07777

static bool begins(const char *name, const char *prefix) { return strncmp(name, prefix, strlen(prefix)) == 0; }

static bool is_acl(const char *name) { return strcmp(name, ACL_ACCESS) == 0 || strcmp(name, ACL_DEFAULT) == 0; }

/* Attributes that a kernel sets by its own policy: a copy has those of its own system. */
static bool is_kernel_label(const char *name) {
    return strcmp(name, "security.selinux") == 0 || strcmp(name, "security.ima") == 0 || strcmp(name, "security.evm") == 0;
}

/* Whether an attribute of this name is carried: nothing of `trusted.*`, and only the ACLs of `system.*`. */
static bool travels(const struct options *options, const char *name) {
    if (is_acl(name))
        return strcmp(name, ACL_DEFAULT) == 0 ? options->default_acls : options->acls;
    if (begins(name, "user."))
        return options->user_xattrs;
    return options->security_xattrs && begins(name, "security.") && !is_kernel_label(name);
}

/* Attributes that are known to exceed the target's limits are left out: the plan has announced that loss. */
static bool has_room(const struct options *options, const char *name, size_t length) {
    if (!is_acl(name))
        return length <= options->max_xattr_bytes && strlen(name) <= options->max_xattr_name_bytes;
    return length < ACL_HEADER_BYTES || (length - ACL_HEADER_BYTES) / ACL_ENTRY_BYTES <= options->max_acl_entries;
}

static ssize_t list_of(struct handle handle, char *names, size_t room) {
    return handle.fd >= 0 ? flistxattr(handle.fd, names, room) : llistxattr(handle.name, names, room);
}

static ssize_t value_of(struct handle handle, const char *name, void *value, size_t room) {
    return handle.fd >= 0 ? fgetxattr(handle.fd, name, value, room) : lgetxattr(handle.name, name, value, room);
}

static bool grow(void **memory, size_t *room, size_t wanted) {
    if (*room >= wanted)
        return true;
    size_t larger = *room * 2 > wanted ? *room * 2 : wanted;
    void *grown = realloc(*memory, larger);
    if (grown == NULL) {
        errno = ENOMEM;
        return false;
    }
    *memory = grown;
    *room = larger;
    return true;
}

/* All names, NUL-terminated, one after the other; 0 if the file system has no attributes. -1 with errno. */
static ssize_t read_names(struct handle handle, struct attributes *attributes) {
    for (;;) {
        ssize_t length = list_of(handle, attributes->names, attributes->names_room);
        if (length >= 0 && attributes->names_room > 0)
            return length;
        if (length == 0)
            return 0;
        if (length < 0 && errno == EOPNOTSUPP)
            return 0;
        if (length < 0 && errno != ERANGE)
            return -1;
        if (!grow((void **)&attributes->names, &attributes->names_room, attributes->names_room + 4096))
            return -1;
    }
}

/* Append one value; false with errno, ENODATA if the attribute is gone meanwhile. */
static bool read_value(struct handle handle, const char *name, struct attributes *attributes, size_t *length) {
    for (;;) {
        size_t left = attributes->values_room - attributes->values_length;
        ssize_t got = left == 0 ? -1 : value_of(handle, name, attributes->values + attributes->values_length, left);
        if (got >= 0) {
            *length = (size_t)got;
            return true;
        }
        /* The kernel's limit of one value is 64 KiB. */
        if ((left != 0 && errno != ERANGE) || left > XATTR_SIZE_MAX)
            return false;
        if (!grow((void **)&attributes->values, &attributes->values_room, attributes->values_room + XATTR_SIZE_MAX + 1))
            return false;
    }
}

/* Whether the attribute is carried, and not too big for the target. */
bool may_carry(const struct options *options, const char *name, size_t length) {
    return travels(options, name) && has_room(options, name, length);
}

void drop_attributes(struct attributes *attributes) { attributes->kept_count = attributes->values_length = 0; }

/* Make room for that many bytes of all names and all values. Not to be called once attributes are kept: they point there. */
bool add_attribute_room(struct attributes *attributes, size_t names, size_t values) {
    return grow((void **)&attributes->names, &attributes->names_room, names) &&
           grow((void **)&attributes->values, &attributes->values_room, values);
}

/* Keep the attribute whose value is the next one in `values`. */
bool keep_attribute(struct attributes *attributes, const char *name, size_t length) {
    size_t room = attributes->kept_room * sizeof *attributes->kept;
    if (!grow((void **)&attributes->kept, &room, (attributes->kept_count + 1) * sizeof *attributes->kept))
        return false;
    attributes->kept_room = room / sizeof *attributes->kept;
    attributes->kept[attributes->kept_count++] =
        (struct xattr){.name = name, .offset = attributes->values_length, .length = length};
    attributes->values_length += length;
    return true;
}

/* Limited to the range of 64 bits, which is also that of catalogs: 1677 to 2262. */
int64_t time_ns(const struct timespec *time) {
    bool cut = false;
    return gluster_nanoseconds(time->tv_sec, time->tv_nsec, &cut);
}

static int read_mdata(struct copier *copier, struct handle handle, struct attributes *attributes) {
    uint8_t value[GLUSTER_MDATA_BYTES + 1];
    struct gluster_times times;
    ssize_t length = value_of(handle, GLUSTER_MDATA, value, sizeof value);
    if (length < 0 && errno != ENODATA && errno != ERANGE)
        return failed(copier, SIDE_SOURCE, "get xattr");
    if (length > 0 && gluster_parse_mdata(value, (size_t)length, &times) != MDATA_MALFORMED) {
        attributes->mtime_ns = times.mtime_ns;
        attributes->atime_ns = times.atime_ns;
    }
    return 0;
}

/* The mtime of a file without mdata. The copies of a replica set differ in it, so the listed one counts, which is that of
 * the scanned copy. Every change through the volume gives a file mdata. */
static int64_t own_time(const struct copier *copier, const struct stat *facts) {
    const struct record *record = copier->record;
    return copier->options->times_from_mdata && record->has_mtime ? record->mtime_ns : time_ns(&facts->st_mtim);
}

/* Only the mtime, for facts that are known already: one system call, and only on bricks. */
int read_brick_time(struct copier *copier, struct handle handle, struct attributes *attributes) {
    attributes->mtime_ns = own_time(copier, &attributes->facts);
    return copier->options->times_from_mdata ? read_mdata(copier, handle, attributes) : 0;
}

/* All attributes except the facts of stat(2), which the caller has set already. */
int read_attributes(struct copier *copier, struct handle handle, struct attributes *attributes) {
    const struct options *options = copier->options;
    drop_attributes(attributes);
    attributes->link_to = attributes->corrupted = false;
    attributes->mtime_ns = own_time(copier, &attributes->facts);
    attributes->atime_ns = time_ns(&attributes->facts.st_atim);
    if (!options->brick && !options->acls && !options->user_xattrs && !options->security_xattrs)
        return 0;
    ssize_t length = read_names(handle, attributes);
    if (length < 0)
        return failed(copier, SIDE_SOURCE, "list xattrs");
    for (const char *name = attributes->names; name < attributes->names + length; name += strlen(name) + 1) {
        if (options->brick && begins(name, "trusted.")) {
            if (strcmp(name, GLUSTER_LINKTO) == 0)
                attributes->link_to = true;
            else if (strcmp(name, GLUSTER_BAD_FILE) == 0)
                attributes->corrupted = true;
            else if (options->times_from_mdata && strcmp(name, GLUSTER_MDATA) == 0 &&
                     read_mdata(copier, handle, attributes) < 0)
                return -1;
            continue;
        }
        if (!travels(options, name))
            continue;
        size_t size;
        if (!read_value(handle, name, attributes, &size)) {
            if (errno == ENODATA)
                continue;
            return failed(copier, SIDE_SOURCE, "get xattr");
        }
        if (is_acl(name))
            map_acl(&options->owners, attributes->values + attributes->values_length, size);
        if (has_room(options, name, size) && !keep_attribute(attributes, name, size))
            return failed(copier, SIDE_SOURCE, "get xattr");
    }
    if (options->distributed && !attributes->link_to && gluster_hides_marks(attributes->facts.st_mode))
        attributes->facts.st_mode &= ~(mode_t)(S_ISGID | S_ISVTX);
    return 0;
}

/* Whether the file on the brick is, or may be, only a link-to file, in migration, or corrupted: only the mount knows. */
bool is_moved(const struct copier *copier, const struct attributes *attributes) {
    const struct stat *facts = &attributes->facts;
    return copier->options->brick && S_ISREG(facts->st_mode) &&
           (attributes->corrupted ||
            gluster_classify(facts->st_mode, (uint64_t)facts->st_size, attributes->link_to) != FILE_IS_DATA);
}

static const struct xattr *find(const struct attributes *attributes, const char *name) {
    for (size_t at = 0; at < attributes->kept_count; at++)
        if (strcmp(attributes->kept[at].name, name) == 0)
            return &attributes->kept[at];
    return NULL;
}

/* The client of BeeGFS 8.3.1 answers EINVAL to every removal of an ACL on Linux 6.0 and 6.1, but removes an access ACL
 * that is set to what the mode says, and a default ACL that is set to one without entries. */
static int empty_acl(struct handle handle, const char *name) {
    unsigned char acl[ACL_HEADER_BYTES + 3 * ACL_ENTRY_BYTES] = {2};
    size_t length = ACL_HEADER_BYTES;
    struct stat facts;
    if ((handle.fd >= 0 ? fstat(handle.fd, &facts) : lstat(handle.name, &facts)) < 0)
        return -1;
    for (int shift = 6; shift >= 0 && strcmp(name, ACL_ACCESS) == 0; shift -= 3, length += ACL_ENTRY_BYTES) {
        acl[length] = shift == 6 ? ACL_OWNER : shift == 3 ? ACL_GROUP : ACL_OTHERS;
        acl[length + 2] = facts.st_mode >> shift & 7;
        memset(acl + length + 4, 0xff, 4); /* no id */
    }
    return handle.fd >= 0 ? fsetxattr(handle.fd, name, acl, length, 0) : lsetxattr(handle.name, name, acl, length, 0);
}

static int remove_xattr(struct copier *copier, struct handle handle, const char *name) {
    int result = handle.fd >= 0 ? fremovexattr(handle.fd, name) : lremovexattr(handle.name, name);
    if (result < 0 && errno == EINVAL && is_acl(name))
        result = empty_acl(handle, name);
    if (result < 0 && errno != ENODATA && errno != EOPNOTSUPP)
        return failed(copier, SIDE_TARGET, "remove xattr");
    return 0;
}

static bool has_value(struct copier *copier, struct handle handle, const struct xattr *wanted, const char *value) {
    struct attributes *existing = &copier->existing;
    size_t length;
    existing->values_length = 0;
    return read_value(handle, wanted->name, existing, &length) && length == wanted->length &&
           memcmp(existing->values, value, length) == 0;
}

static int set_xattr(struct copier *copier, struct handle handle, const struct xattr *wanted, bool fresh, bool *changed) {
    const char *value = copier->attributes.values + wanted->offset;
    if (!fresh && has_value(copier, handle, wanted, value))
        return 0;
    int result = handle.fd >= 0 ? fsetxattr(handle.fd, wanted->name, value, wanted->length, 0)
                                : lsetxattr(handle.name, wanted->name, value, wanted->length, 0);
    *changed = true;
    return result < 0 ? failed(copier, SIDE_TARGET, "set xattr") : 0;
}

/* Remove carried attributes that are not on the source: inherited or old ones. */
static int remove_others(struct copier *copier, struct handle handle, bool fresh, bool *changed) {
    const struct attributes *wanted = &copier->attributes;
    if (fresh && !copier->gives_acls)
        return 0;
    const struct options *options = copier->options;
    if (!options->acls && !options->user_xattrs && !options->security_xattrs)
        return 0;
    ssize_t length = read_names(handle, &copier->existing);
    if (length < 0)
        return failed(copier, SIDE_TARGET, "list xattrs");
    for (const char *name = copier->existing.names; name < copier->existing.names + length; name += strlen(name) + 1) {
        if (!travels(options, name) || find(wanted, name) != NULL)
            continue;
        *changed = true;
        if (remove_xattr(copier, handle, name) < 0)
            return -1;
    }
    return 0;
}

static int set_owner(struct copier *copier, struct handle handle, const struct stat *existing, bool *changed) {
    const struct stat *facts = &copier->attributes.facts;
    if (S_ISLNK(facts->st_mode) && !copier->options->symlink_owner)
        return 0;
    bool privileged = copier->options->privileged;
    const struct owner_map *owners = &copier->options->owners;
    uid_t user = privileged ? mapped_id(&owners->users, facts->st_uid) : (uid_t)-1;
    gid_t group = mapped_id(&owners->groups, facts->st_gid);
    if (existing != NULL && existing->st_gid == group && (!privileged || existing->st_uid == user))
        return 0;
    int result = handle.fd >= 0
                     ? fchown(handle.fd, user, group)
                     : fchownat(copier->target_directory, handle.name, user, group, AT_SYMLINK_NOFOLLOW);
    if (result < 0 && !(errno == EPERM && !privileged))
        return failed(copier, SIDE_TARGET, "set owner");
    *changed = *changed || result == 0;
    return 0;
}

static mode_t wanted_mode(const struct copier *copier) {
    mode_t mode = copier->attributes.facts.st_mode;
    /* Without root, a directory that its owner may not write cannot be filled; its mode is set with the times. */
    bool to_fill = S_ISDIR(mode) && !copier->options->privileged && copier->options->kind == KIND_DIRECTORIES;
    return (mode & MODE_BITS) | (to_fill ? S_IRWXU : 0);
}

/* Set the mode; read back, the mode decides, and not the answer: the client of BeeGFS 8.3.1 changes the mode of a FIFO,
 * socket or device, and answers EOPNOTSUPP. */
static int set_mode(struct copier *copier, struct handle handle) {
    mode_t mode = wanted_mode(copier);
    int directory = copier->target_directory;
    /* This program made the name, or has checked that it is no symlink: no user can access the target's tree. */
    int result = handle.fd >= 0 ? fchmod(handle.fd, mode) : fchmodat(directory, handle.name, mode, 0);
    if (result == 0)
        return 0;
    struct stat now;
    int error = errno;
    int seen = handle.fd >= 0 ? fstat(handle.fd, &now) : fstatat(directory, handle.name, &now, AT_SYMLINK_NOFOLLOW);
    if (seen == 0 && (now.st_mode & MODE_BITS) == mode)
        return 0;
    errno = error;
    return failed(copier, SIDE_TARGET, "set mode");
}

/* Set owner, attributes and mode of a new entry (`existing` NULL: an open file, made with its final permission bits, or
 * a node) or of an existing one. Times follow later. A change of the owner clears setuid bits and capabilities, and
 * ACLs change the mode; this order makes all equal to the source. */
int dress(struct copier *copier, struct handle handle, const struct stat *existing, bool *changed) {
    const struct attributes *wanted = &copier->attributes;
    mode_t mode = wanted->facts.st_mode;
    bool fresh = existing == NULL;
    bool touched = false;
    if (set_owner(copier, handle, existing, &touched) < 0)
        return -1;
    bool attributes_touched = false;
    if (remove_others(copier, handle, fresh, &attributes_touched) < 0)
        return -1;
    for (size_t at = 0; at < wanted->kept_count; at++)
        if (strcmp(wanted->kept[at].name, CAPABILITY) != 0 &&
            set_xattr(copier, handle, &wanted->kept[at], fresh, &attributes_touched) < 0)
            return -1;
    bool mode_is_right = fresh ? handle.fd >= 0 && (mode & (S_ISUID | S_ISGID | S_ISVTX)) == 0 && !copier->gives_acls
                               : (existing->st_mode & MODE_BITS) == wanted_mode(copier) && !touched;
    if (!S_ISLNK(mode) && (!mode_is_right || attributes_touched)) {
        if (set_mode(copier, handle) < 0)
            return -1;
        touched = touched || !mode_is_right;
    }
    const struct xattr *capability = find(wanted, CAPABILITY);
    /* Read again even if only the owner was changed. */
    if (capability != NULL && set_xattr(copier, handle, capability, fresh, &attributes_touched) < 0)
        return -1;
    *changed = *changed || touched || attributes_touched;
    return 0;
}

static int64_t floored(int64_t time, int64_t granularity) {
    int64_t rest = time % granularity;
    int64_t floor;
    return __builtin_sub_overflow(time, rest < 0 ? rest + granularity : rest, &floor) ? time : floor;
}

static bool shows(const struct copier *copier, const struct timespec *shown, int64_t wanted_ns) {
    int64_t shown_ns = time_ns(shown);
    return shown_ns == wanted_ns || shown_ns == floored(wanted_ns, copier->options->granularity_ns);
}

/* Whether the target shows this time, as it is or floored to its granularity: shows_time() of fs/rules.py, but times
 * outside the target's range are set again each time. */
bool same_time(const struct copier *copier, const struct stat *existing, int64_t mtime_ns) {
    return shows(copier, &existing->st_mtim, mtime_ns);
}

static bool carries_atime(const struct copier *copier) {
    return copier->options->atimes && S_ISREG(copier->attributes.facts.st_mode);
}

/* Whether the access time of an existing entry needs no change. */
bool same_atime(const struct copier *copier, const struct stat *existing) {
    return !carries_atime(copier) || shows(copier, &existing->st_atim, copier->attributes.atime_ns);
}

static struct timespec timespec_of(int64_t time_ns) {
    int64_t seconds = time_ns / NS_PER_S;
    int64_t rest = time_ns % NS_PER_S;
    bool before = rest < 0;
    return (struct timespec){.tv_sec = seconds - before, .tv_nsec = rest + (before ? NS_PER_S : 0)};
}

/* Set the times of an entry of the target: the mtime, and with --atimes the access time of a file, which is kept
 * otherwise. By name and after the last close: file systems that write behind may set the mtime themselves when a file is
 * closed. */
int dress_times(struct copier *copier, const char *name, int64_t mtime_ns) {
    struct timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, timespec_of(mtime_ns)};
    if (carries_atime(copier))
        times[0] = timespec_of(copier->attributes.atime_ns);
    if (utimensat(copier->target_directory, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return failed(copier, SIDE_TARGET, "set times");
    return 0;
}
