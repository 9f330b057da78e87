/* The root of a confined program: a small tmpfs with bind mounts of the trees, the program's files and two devices, and
 * for scripts of the installed programs.
 *
 * Users own the content of the trees and may swap components at any time. So the trees are opened component by
 * component without following a symlink, and mounted through the descriptors. A component that is swapped meanwhile
 * fails. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

/* The new root is built over one of these, in a namespace of its own: nothing is written to the directory. */
static const char *const STAGING_DIRECTORIES[] = {"/tmp", "/run", "/mnt", "/var"};

/* Without random numbers, rsync 3.5.0 gives its temporary files the same names every time. */
static const char *const DEVICES[] = {"/dev/null", "/dev/urandom"};
#define DEVICE_COUNT (sizeof DEVICES / sizeof *DEVICES)

/* Existing directories of programs and their libraries; none of the machine's settings and secrets. */
static const char *const SYSTEM[] = {"/usr",   "/bin",    "/sbin",             "/lib",     "/lib32",
                                     "/lib64", "/libx32", "/etc/alternatives", "/etc/perl"};
#define SYSTEM_COUNT (sizeof SYSTEM / sizeof *SYSTEM)
#define LOADER_CACHE "/etc/ld.so.cache"
#define TEMPORARY_OPTIONS "size=256m,mode=1777"

/* The parts of the machine that a script needs. If one is missing, its descriptor is -1 or its link NULL. */
struct system {
    int work;
    int directories[SYSTEM_COUNT];
    char *links[SYSTEM_COUNT];
    int loader_cache;
};

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

/* Mounts an open file or directory, and closes the descriptor. */
static void bind_opened(int fd, const char *place, unsigned long flags) {
    char opened[FD_PATH_ROOM];
    snprintf(opened, sizeof opened, "/proc/self/fd/%d", fd);
    mount_or_refuse(opened, place, NULL, MS_BIND, NULL);
    mount_or_refuse(NULL, place, NULL, MS_REMOUNT | MS_BIND | flags, NULL);
    close(fd);
}

static void make_parents(char *place, size_t begin) {
    for (char *slash = strchr(place + begin, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(place, 0755) < 0 && errno != EEXIST)
            refuse(STEP_NAMESPACE, errno, NOT_BUILT);
        *slash = '/';
    }
}

/* An empty directory below the new root; its path, to be freed. */
static char *make_directory(const char *staging, const char *path) {
    char *place = below(staging, path);
    make_parents(place, strlen(staging) + 1);
    if (mkdir(place, 0700) < 0)
        refuse(STEP_NAMESPACE, errno, NOT_BUILT);
    return place;
}

static void bind_directory(int fd, const char *staging, const char *path, unsigned long flags) {
    char *place = make_directory(staging, path);
    bind_opened(fd, place, flags);
    free(place);
}

static void mount_new(const char *kind, const char *staging, const char *path, unsigned long flags, const char *options) {
    char *place = make_directory(staging, path);
    mount_or_refuse(kind, place, kind, flags, options);
    free(place);
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

static char *link_at(const char *path) {
    char target[PATH_MAX];
    ssize_t length = readlink(path, target, sizeof target);
    char *kept = length < 0 ? NULL : strndup(target, (size_t)length);
    if (kept == NULL)
        refuse(STEP_NAMESPACE, errno, NOT_BUILT);
    return kept;
}

/* Open the parts that a script needs, before the staging directory is covered. */
static struct system open_system(const char *work) {
    struct system system = {.work = open_tree_of(work, "", STEP_NAMESPACE, STEP_NAMESPACE), .loader_cache = -1};
    struct stat seen;
    for (size_t at = 0; at < SYSTEM_COUNT; at++) {
        system.directories[at] = -1;
        if (lstat(SYSTEM[at], &seen) < 0)
            continue;
        if (S_ISLNK(seen.st_mode))
            system.links[at] = link_at(SYSTEM[at]);
        else if (S_ISDIR(seen.st_mode))
            system.directories[at] = open_tree_of(SYSTEM[at], "", STEP_NAMESPACE, STEP_NAMESPACE);
    }
    if (stat(LOADER_CACHE, &seen) == 0 && S_ISREG(seen.st_mode))
        system.loader_cache = open_file(LOADER_CACHE);
    return system;
}

static void build_system(struct system *system, const char *staging) {
    for (size_t at = 0; at < SYSTEM_COUNT; at++) {
        if (system->links[at] != NULL) {
            char *place = below(staging, SYSTEM[at]);
            make_parents(place, strlen(staging) + 1);
            if (symlink(system->links[at], place) < 0)
                refuse(STEP_NAMESPACE, errno, NOT_BUILT);
            free(place);
            free(system->links[at]);
        }
        if (system->directories[at] >= 0)
            bind_directory(system->directories[at], staging, SYSTEM[at], MS_RDONLY | MS_NOSUID | MS_NODEV);
    }
    if (system->loader_cache >= 0)
        bind_file(system->loader_cache, staging, LOADER_CACHE, MS_NODEV | MS_NOEXEC);
    bind_directory(system->work, staging, "/work", EVERYWHERE);
    mount_new("tmpfs", staging, "/tmp", EVERYWHERE, TEMPORARY_OPTIONS);
    /* This process is already the first of the new pid namespace, so that is the one shown. */
    mount_new("proc", staging, "/proc", EVERYWHERE | MS_RDONLY, NULL);
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
    /* The old root is stacked on the new one and unmounted: pivot_root(2), "pivot_root(".", ".")". */
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
    bool with_system = *request->work != '\0';
    int source = -1;
    int target = -1;
    struct system system;
    int devices[DEVICE_COUNT];
    int *files = calloc(request->file_count + 1, sizeof *files);
    if (files == NULL)
        refuse(STEP_NAMESPACE, ENOMEM, NOT_BUILT);
    mount_or_refuse(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    if (with_source)
        source = open_tree_of(request->source_root, request->tree, STEP_SOURCE_ROOT, STEP_SOURCE_TREE);
    if (with_target)
        target = open_tree_of(request->target_root, request->tree, STEP_TARGET_ROOT, STEP_TARGET_TREE);
    /* Opened before the staging directory is covered: the files may be in it. */
    for (size_t at = 0; at < request->file_count; at++)
        files[at] = open_file(request->files[at]);
    for (size_t at = 0; at < DEVICE_COUNT; at++)
        devices[at] = open_device(DEVICES[at]);
    if (with_system)
        system = open_system(request->work);
    const char *staging = staging_directory();
    mount_or_refuse("tmpfs", staging, "tmpfs", EVERYWHERE, TMPFS_OPTIONS);
    if (with_source)
        bind_directory(source, staging, "source", MS_RDONLY | EVERYWHERE);
    if (with_target)
        bind_directory(target, staging, "target", EVERYWHERE);
    if (with_system)
        build_system(&system, staging);
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
    if (with_system) {
        check_read_only("/usr");
        check_read_only("/proc");
    }
}
