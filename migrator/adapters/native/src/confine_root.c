/* The root of a confined program: a small tmpfs with the trees, the program's files and two devices bound into it.
 *
 * What lies in a tree belongs to users, who may swap its parts at any time: the trees are opened component by component
 * without following a symlink, and bound through the descriptors. A component that is swapped meanwhile fails. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "confine.h"

#define TMPFS_OPTIONS "size=1m,nr_inodes=1024,mode=0755"
#define NOT_BUILT "the new root cannot be built"
#define FD_PATH_ROOM 40

static const int DIRECTORY_FLAGS = O_PATH | O_DIRECTORY | O_CLOEXEC;
static const unsigned long EVERYWHERE = MS_NOSUID | MS_NODEV | MS_NOEXEC;

/* The new root is built over one of them, in a namespace of its own: nothing is written there. */
static const char *const STAGING_DIRECTORIES[] = {"/tmp", "/run", "/mnt", "/var"};

/* Without random numbers rsync 3.5.0 gives its temporary files the same names every time. */
static const char *const DEVICES[] = {"/dev/null", "/dev/urandom"};
#define DEVICE_COUNT (sizeof DEVICES / sizeof *DEVICES)

static void mount_or_refuse(const char *what, const char *place, const char *kind, unsigned long flags, const char *options) {
    if (mount(what, place, kind, flags, options) < 0)
        refuse(STEP_NAMESPACE, errno, "mount");
}

/* The directory of a tree, without following a symlink beneath the root. */
static int open_tree_of(const char *root, const char *tree, const char *root_step, const char *tree_step) {
    int fd = open(root, DIRECTORY_FLAGS);
    if (fd < 0)
        refuse(root_step, errno, "the root of the file system cannot be opened");
    if (*tree == '\0')
        return fd;
    char *left = strdup(tree);
    if (left == NULL)
        refuse(STEP_NAMESPACE, ENOMEM, NOT_BUILT);
    char *next = left;
    for (char *component; (component = strsep(&next, "/")) != NULL;) {
        if (*component == '\0' || strcmp(component, ".") == 0 || strcmp(component, "..") == 0)
            refuse(STEP_USAGE, 0, "the tree is not a plain relative path");
        int deeper = openat(fd, component, DIRECTORY_FLAGS | O_NOFOLLOW);
        if (deeper < 0)
            refuse(tree_step, errno, "the tree cannot be opened");
        close(fd);
        fd = deeper;
    }
    free(left);
    return fd;
}

static int open_file(const char *path) {
    struct stat seen;
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        refuse(STEP_PROGRAM, errno, "a file of the program cannot be opened");
    if (fstat(fd, &seen) < 0)
        refuse(STEP_NAMESPACE, errno, NOT_BUILT);
    if (!S_ISREG(seen.st_mode))
        refuse(STEP_PROGRAM, 0, "a file of the program is not a regular file");
    return fd;
}

static int open_device(const char *path) {
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        refuse(STEP_NAMESPACE, errno, NOT_BUILT);
    return fd;
}

static const char *staging_directory(void) {
    struct stat seen;
    for (size_t at = 0; at < sizeof STAGING_DIRECTORIES / sizeof *STAGING_DIRECTORIES; at++)
        if (lstat(STAGING_DIRECTORIES[at], &seen) == 0 && S_ISDIR(seen.st_mode))
            return STAGING_DIRECTORIES[at];
    refuse(STEP_NAMESPACE, 0, "no directory to build the root in");
}

/* A path below the new root, to be freed. */
static char *below(const char *staging, const char *path) {
    const char *relative = path + strspn(path, "/");
    size_t room = strlen(staging) + strlen(relative) + 2;
    char *place = malloc(room);
    if (place == NULL)
        refuse(STEP_NAMESPACE, ENOMEM, NOT_BUILT);
    snprintf(place, room, "%s/%s", staging, relative);
    return place;
}

/* Closes the descriptor. */
static void bind_opened(int fd, const char *place, unsigned long flags) {
    char opened[FD_PATH_ROOM];
    snprintf(opened, sizeof opened, "/proc/self/fd/%d", fd);
    mount_or_refuse(opened, place, NULL, MS_BIND, NULL);
    mount_or_refuse(NULL, place, NULL, MS_REMOUNT | MS_BIND | flags, NULL);
    close(fd);
}

static void bind_tree(int fd, const char *staging, const char *name, unsigned long flags) {
    char *place = below(staging, name);
    if (mkdir(place, 0700) < 0)
        refuse(STEP_NAMESPACE, errno, NOT_BUILT);
    bind_opened(fd, place, flags);
    free(place);
}

static void make_parents(char *place, size_t begin) {
    for (char *slash = strchr(place + begin, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(place, 0755) < 0 && errno != EEXIST)
            refuse(STEP_NAMESPACE, errno, NOT_BUILT);
        *slash = '/';
    }
}

static void bind_file(int fd, const char *staging, const char *path, unsigned long flags) {
    char *place = below(staging, path);
    make_parents(place, strlen(staging) + 1);
    int made = open(place, O_CREAT | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0755);
    if (made < 0)
        refuse(STEP_NAMESPACE, errno, NOT_BUILT);
    close(made);
    bind_opened(fd, place, MS_RDONLY | MS_NOSUID | flags);
    free(place);
}

static void check_read_only(const char *place) {
    struct statvfs seen;
    if (statvfs(place, &seen) < 0)
        refuse(STEP_NAMESPACE, errno, NOT_BUILT);
    if (!(seen.f_flag & ST_RDONLY))
        refuse(STEP_NAMESPACE, 0, "a part that must be read-only is not");
}

static void enter_root(const char *staging) {
    if (chdir(staging) < 0)
        refuse(STEP_NAMESPACE, errno, NOT_BUILT);
    /* The old root comes to lie on the new one and is taken off: pivot_root(2), "pivot_root(".", ".")". */
    if (syscall(SYS_pivot_root, ".", ".") < 0)
        refuse(STEP_NAMESPACE, errno, "pivot_root");
    if (umount2(".", MNT_DETACH) < 0)
        refuse(STEP_NAMESPACE, errno, "umount of the old root");
    if (chdir("/") < 0)
        refuse(STEP_NAMESPACE, errno, NOT_BUILT);
}

void build_root(const struct request *request) {
    bool with_source = *request->source_root != '\0';
    bool with_target = *request->target_root != '\0';
    int source = -1;
    int target = -1;
    int devices[DEVICE_COUNT];
    int *files = calloc(request->file_count + 1, sizeof *files);
    if (files == NULL)
        refuse(STEP_NAMESPACE, ENOMEM, NOT_BUILT);
    mount_or_refuse(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    if (with_source)
        source = open_tree_of(request->source_root, request->tree, STEP_SOURCE_ROOT, STEP_SOURCE_TREE);
    if (with_target)
        target = open_tree_of(request->target_root, request->tree, STEP_TARGET_ROOT, STEP_TARGET_TREE);
    /* Opened before the staging directory is covered: they may lie in it. */
    for (size_t at = 0; at < request->file_count; at++)
        files[at] = open_file(request->files[at]);
    for (size_t at = 0; at < DEVICE_COUNT; at++)
        devices[at] = open_device(DEVICES[at]);
    const char *staging = staging_directory();
    mount_or_refuse("tmpfs", staging, "tmpfs", EVERYWHERE, TMPFS_OPTIONS);
    if (with_source)
        bind_tree(source, staging, "source", MS_RDONLY | EVERYWHERE);
    if (with_target)
        bind_tree(target, staging, "target", EVERYWHERE);
    for (size_t at = 0; at < request->file_count; at++)
        bind_file(files[at], staging, request->files[at], MS_NODEV);
    for (size_t at = 0; at < DEVICE_COUNT; at++)
        bind_file(devices[at], staging, DEVICES[at], MS_NOEXEC);
    free(files);
    mount_or_refuse(NULL, staging, NULL, MS_REMOUNT | MS_RDONLY | EVERYWHERE, TMPFS_OPTIONS);
    enter_root(staging);
    check_read_only("/");
    if (with_source)
        check_read_only("/source");
}
