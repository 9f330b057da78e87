/* A directory passed through by FUSE, where each request takes a given time, and is counted.
 *
 *     slow_mount BACKING MOUNT_POINT COUNTS CALL_NS FSYNC_NS CACHED_S
 *
 * It stays in the foreground. COUNTS is a file of one 64-bit number for each kind in the order of `enum request`, kept
 * while it runs. A sync takes FSYNC_NS, and writes nothing to the disks. Names and attributes are cached for CACHED_S. */

#define _GNU_SOURCE
#define FUSE_USE_VERSION 312
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

enum request { NAMES, ATTRIBUTES, LISTING, CHANGE, OPEN, READ, WRITE, CLOSE, SYNC, REQUESTS };

static const char *backing;
static int64_t call_ns, fsync_ns;
static double cached_s;
static _Atomic uint64_t *counts;

/* libfuse asks for the attributes of what it has just made or changed: no request, it has them from the answer. */
static _Thread_local bool answered;

static int change(int result) {
    answered = result >= 0;
    return result < 0 ? -errno : 0;
}

static void take(enum request request) {
    int64_t ns = request == SYNC ? fsync_ns : call_ns;
    struct timespec pause = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    atomic_fetch_add(&counts[request], 1);
    while (ns > 0 && nanosleep(&pause, &pause) < 0 && errno == EINTR)
        ;
}

/* The path below the backing directory, in a buffer of the caller. */
static const char *below(const char *path, char *full) {
    snprintf(full, PATH_MAX, "%s%s", backing, path);
    return full;
}

#define PATH(name) char name##_room[PATH_MAX]; const char *name##_full = below(name, name##_room)
#define RESULT(call) ((call) < 0 ? -errno : 0)

static void *start(struct fuse_conn_info *connection, struct fuse_config *config) {
    (void)connection;
    config->use_ino = 1;
    config->nullpath_ok = 1;
    config->entry_timeout = config->attr_timeout = cached_s;
    config->negative_timeout = 0;
    return NULL;
}

static int get_attributes(const char *path, struct stat *facts, struct fuse_file_info *open) {
    if (!answered)
        take(open == NULL ? NAMES : ATTRIBUTES);
    answered = false;
    if (open != NULL)
        return RESULT(fstat((int)open->fh, facts));
    PATH(path);
    return RESULT(lstat(path_full, facts));
}

static int read_link(const char *path, char *text, size_t room) {
    take(NAMES);
    PATH(path);
    ssize_t length = readlink(path_full, text, room - 1);
    if (length < 0)
        return -errno;
    text[length] = '\0';
    return 0;
}

static int list(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *open,
                enum fuse_readdir_flags flags) {
    (void)path, (void)offset, (void)flags;
    take(LISTING);
    DIR *directory = (DIR *)(uintptr_t)open->fh;
    rewinddir(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        struct stat facts = {.st_ino = entry->d_ino, .st_mode = (mode_t)entry->d_type << 12};
        if (fill(buffer, entry->d_name, &facts, 0, 0) != 0)
            break;
    }
    return 0;
}

static int open_directory(const char *path, struct fuse_file_info *open) {
    take(LISTING);
    PATH(path);
    DIR *directory = opendir(path_full);
    open->fh = (uint64_t)(uintptr_t)directory;
    return directory == NULL ? -errno : 0;
}

static int close_directory(const char *path, struct fuse_file_info *open) {
    (void)path;
    closedir((DIR *)(uintptr_t)open->fh);
    return 0;
}

static int change_mode(const char *path, mode_t mode, struct fuse_file_info *open) {
    take(ATTRIBUTES);
    if (open != NULL)
        return change(fchmod((int)open->fh, mode));
    PATH(path);
    return change(chmod(path_full, mode));
}

static int change_owner(const char *path, uid_t uid, gid_t gid, struct fuse_file_info *open) {
    take(ATTRIBUTES);
    if (open != NULL)
        return change(fchown((int)open->fh, uid, gid));
    PATH(path);
    return change(lchown(path_full, uid, gid));
}

static int change_times(const char *path, const struct timespec times[2], struct fuse_file_info *open) {
    take(ATTRIBUTES);
    if (open != NULL)
        return change(futimens((int)open->fh, times));
    PATH(path);
    return change(utimensat(AT_FDCWD, path_full, times, AT_SYMLINK_NOFOLLOW));
}

static int change_size(const char *path, off_t size, struct fuse_file_info *open) {
    take(ATTRIBUTES);
    if (open != NULL)
        return change(ftruncate((int)open->fh, size));
    PATH(path);
    return change(truncate(path_full, size));
}

static int set_xattr(const char *path, const char *name, const char *value, size_t length, int flags) {
    take(ATTRIBUTES);
    PATH(path);
    return RESULT(lsetxattr(path_full, name, value, length, flags));
}

static int get_xattr(const char *path, const char *name, char *value, size_t room) {
    take(ATTRIBUTES);
    PATH(path);
    ssize_t length = lgetxattr(path_full, name, value, room);
    return length < 0 ? -errno : (int)length;
}

static int list_xattrs(const char *path, char *names, size_t room) {
    take(ATTRIBUTES);
    PATH(path);
    ssize_t length = llistxattr(path_full, names, room);
    return length < 0 ? -errno : (int)length;
}

static int remove_xattr(const char *path, const char *name) {
    take(ATTRIBUTES);
    PATH(path);
    return RESULT(lremovexattr(path_full, name));
}

static int make_directory(const char *path, mode_t mode) {
    take(CHANGE);
    PATH(path);
    return change(mkdir(path_full, mode));
}

static int make_node(const char *path, mode_t mode, dev_t device) {
    take(CHANGE);
    PATH(path);
    return change(mknod(path_full, mode, device));
}

static int make_symlink(const char *text, const char *path) {
    take(CHANGE);
    PATH(path);
    return change(symlink(text, path_full));
}

static int make_link(const char *from, const char *path) {
    take(CHANGE);
    PATH(from);
    PATH(path);
    return change(link(from_full, path_full));
}

static int rename_entry(const char *from, const char *path, unsigned int flags) {
    take(CHANGE);
    PATH(from);
    PATH(path);
    return RESULT(renameat2(AT_FDCWD, from_full, AT_FDCWD, path_full, flags));
}

static int remove_name(const char *path) {
    take(CHANGE);
    PATH(path);
    return RESULT(unlink(path_full));
}

static int remove_directory(const char *path) {
    take(CHANGE);
    PATH(path);
    return RESULT(rmdir(path_full));
}

static int create(const char *path, mode_t mode, struct fuse_file_info *file) {
    take(CHANGE);
    PATH(path);
    int fd = open(path_full, file->flags & ~O_DIRECT, mode);
    file->fh = (uint64_t)fd;
    return change(fd);
}

static int open_file(const char *path, struct fuse_file_info *file) {
    take(OPEN);
    PATH(path);
    int fd = open(path_full, file->flags & ~(O_DIRECT | O_NOFOLLOW));
    file->fh = (uint64_t)fd;
    return fd < 0 ? -errno : 0;
}

static int read_file(const char *path, char *bytes, size_t room, off_t offset, struct fuse_file_info *file) {
    (void)path;
    take(READ);
    ssize_t length = pread((int)file->fh, bytes, room, offset);
    return length < 0 ? -errno : (int)length;
}

static int write_file(const char *path, const char *bytes, size_t length, off_t offset, struct fuse_file_info *file) {
    (void)path;
    take(WRITE);
    ssize_t written = pwrite((int)file->fh, bytes, length, offset);
    return written < 0 ? -errno : (int)written;
}

static int sync_file(const char *path, int data_only, struct fuse_file_info *file) {
    (void)path, (void)data_only, (void)file;
    take(SYNC);
    return 0;
}

static int close_file(const char *path, struct fuse_file_info *file) {
    (void)path;
    take(CLOSE);
    return RESULT(close((int)file->fh));
}

static int get_room(const char *path, struct statvfs *room) {
    PATH(path);
    return RESULT(statvfs(path_full, room));
}

static const struct fuse_operations operations = {
    .init = start,
    .getattr = get_attributes,
    .readlink = read_link,
    .opendir = open_directory,
    .readdir = list,
    .releasedir = close_directory,
    .chmod = change_mode,
    .chown = change_owner,
    .utimens = change_times,
    .truncate = change_size,
    .setxattr = set_xattr,
    .getxattr = get_xattr,
    .listxattr = list_xattrs,
    .removexattr = remove_xattr,
    .mkdir = make_directory,
    .mknod = make_node,
    .symlink = make_symlink,
    .link = make_link,
    .rename = rename_entry,
    .unlink = remove_name,
    .rmdir = remove_directory,
    .create = create,
    .open = open_file,
    .read = read_file,
    .write = write_file,
    .fsync = sync_file,
    .release = close_file,
    .statfs = get_room,
};

int main(int argc, char **argv) {
    if (argc != 7)
        return 64;
    backing = argv[1];
    call_ns = atoll(argv[4]);
    fsync_ns = atoll(argv[5]);
    cached_s = atof(argv[6]);
    int file = open(argv[3], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, REQUESTS * sizeof *counts) < 0)
        return 66;
    counts = mmap(NULL, REQUESTS * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (counts == MAP_FAILED)
        return 66;
    umask(0);
    char *arguments[] = {argv[0], "-f", "-o", "allow_other,fsname=slow,max_threads=256,max_idle_threads=256", argv[2], NULL};
    return fuse_main(5, arguments, &operations, NULL);
}
