#define _GNU_SOURCE
#include "walk_reports.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "gluster.h"
#include "walk.h"

#define VALUE_BYTES 65536 /* XATTR_SIZE_MAX */
#define GFID_TEXT_BYTES 36
/* A file has another name in .glusterfs. */
#define GLUSTERS_OWN_NAMES 1

bool report_named(const char *name, enum report *report)
{
    static const char *const NAMES[] = {"rows", "directories", "without-acl", "link-marks", "strange", "names"};
    for (size_t index = 0; index < sizeof NAMES / sizeof *NAMES; index++) {
        if (strcmp(name, NAMES[index]) == 0) {
            *report = (enum report)index;
            return true;
        }
    }
    return false;
}

static int by_wanted_inode(const void *left, const void *right)
{
    ino_t one = ((const struct wanted *)left)->inode, other = ((const struct wanted *)right)->inode;
    return (one > other) - (one < other);
}

/* The bytes of a gfid in canonical form; false if it is another text. */
static bool gfid_parsed(const char *text, uint8_t gfid[GLUSTER_GFID_BYTES])
{
    if (strlen(text) != GFID_TEXT_BYTES)
        return false;
    for (size_t byte = 0; byte < GLUSTER_GFID_BYTES; byte++) {
        unsigned value;
        text += *text == '-';
        if (strspn(text, "0123456789abcdef") < 2 || sscanf(text, "%2x", &value) != 1)
            return false;
        gfid[byte] = (uint8_t)value;
        text += 2;
    }
    return true;
}

void wanted_start(struct walk *walk, char *const *gfids, size_t count)
{
    walk->wanted = allocated(count * sizeof *walk->wanted);
    for (size_t index = 0; index < count; index++) {
        struct wanted *wanted = &walk->wanted[walk->wanted_count];
        char handle[64];
        struct stat facts;
        memset(wanted, 0, sizeof *wanted);
        if (!gfid_parsed(gfids[index], wanted->gfid))
            die("%s is not a gfid", gfids[index]);
        snprintf(handle, sizeof handle, ".glusterfs/%.2s/%.2s/%s", gfids[index], gfids[index] + 2, gfids[index]);
        if (fstatat(walk->root, handle, &facts, AT_SYMLINK_NOFOLLOW) != 0) {
            if (errno != ENOENT)
                die("cannot read %s: %s", handle, strerror(errno));
            continue;
        }
        wanted->inode = facts.st_ino;
        walk->wanted_count += facts.st_nlink > GLUSTERS_OWN_NAMES;
    }
    qsort(walk->wanted, walk->wanted_count, sizeof *walk->wanted, by_wanted_inode);
    atomic_store(&walk->wanted_left, walk->wanted_count);
}

bool wanted_are_found(struct walk *walk)
{
    return walk->report == REPORT_NAMES && atomic_load(&walk->wanted_left) == 0;
}

void wanted_end(struct walk *walk)
{
    struct findings findings = {.count = 0};
    for (size_t index = 0; index < walk->wanted_count; index++)
        if (!atomic_load(&walk->wanted[index].found))
            findings_add(&findings, "", 0, NULL, walk->wanted[index].gfid, GLUSTER_GFID_BYTES);
    findings_flush(&findings);
    free(findings.data);
    free(walk->wanted);
}

static bool is_gone(int error)
{
    return error == ENOENT || error == ENOTDIR || error == ELOOP;
}

/* Store a problem, unless the entry is gone: users continue to work. */
static void failed(struct worker *worker, const struct task *directory, const char *name, const char *operation)
{
    if (is_gone(errno))
        worker->totals.vanished++;
    else
        worker_problem(worker, directory, name, operation, errno, NULL);
}

/* The length of an attribute; 0 if there is none, -1 and errno if it cannot be read. */
static ssize_t read_attribute(const char *name, const char *key, void *value, size_t room)
{
    ssize_t length = lgetxattr(name, key, value, room);
    return length < 0 && (errno == ENODATA || errno == EOPNOTSUPP) ? 0 : length;
}

void report_begin(struct worker *worker, const struct task *directory)
{
    ssize_t length = 0;
    worker->inherits_acl = false;
    memset(worker->gfid_above, 0, sizeof worker->gfid_above);
    if (worker->walk->report == REPORT_WITHOUT_ACL) {
        length = read_attribute(".", ACL_DEFAULT, worker->value, VALUE_BYTES);
        worker->inherits_acl = length > 0;
    } else if (worker->walk->report == REPORT_DIRECTORIES && directory->path_length > 0) {
        length = read_attribute(".", GLUSTER_GFID, worker->gfid_above, sizeof worker->gfid_above);
    }
    if (length < 0)
        failed(worker, directory, NULL, "xattrs");
}

/* The gfid of an entry; false if it has none, or if it cannot be read, which is a problem. */
static bool read_gfid(struct worker *worker, const struct task *directory, const char *name, uint8_t *gfid)
{
    ssize_t length = read_attribute(name, GLUSTER_GFID, gfid, GLUSTER_GFID_BYTES);
    if (length < 0)
        failed(worker, directory, name, "xattrs");
    return length == GLUSTER_GFID_BYTES;
}

static void add(struct worker *worker, const struct task *directory, const char *name, const void *value, size_t length)
{
    findings_add(&worker->findings, directory->path, directory->path_length, name, value, length);
}

/* Returns whether it is a directory of the volume. */
static bool report_directory(struct worker *worker, const struct task *directory, const char *name,
                             const struct stat *status)
{
    /* Both gfids, the facts, and two ACLs. */
    static _Thread_local uint8_t value[2 * GLUSTER_GFID_BYTES + sizeof(struct directory_facts) + 2 * VALUE_BYTES];
    uint8_t *acls = value + 2 * GLUSTER_GFID_BYTES + sizeof(struct directory_facts);
    struct directory_facts facts = {.mode = status->st_mode & 07777, .uid = status->st_uid, .gid = status->st_gid};
    struct gluster_times times;
    ssize_t gfid = read_attribute(name, GLUSTER_GFID, value, GLUSTER_GFID_BYTES);
    ssize_t access = gfid < 0 ? -1 : read_attribute(name, ACL_ACCESS, acls, VALUE_BYTES);
    ssize_t inherited = access < 0 ? -1 : read_attribute(name, ACL_DEFAULT, acls + access, VALUE_BYTES);
    ssize_t mdata = inherited < 0 ? -1 : read_attribute(name, GLUSTER_MDATA, worker->value, VALUE_BYTES);
    if (mdata < 0) {
        failed(worker, directory, name, "xattrs");
        return false;
    }
    if (gfid != GLUSTER_GFID_BYTES) {
        worker_problem(worker, directory, name, "gfid", 0, "has no trusted.gfid: it was put there past Gluster");
        return false;
    }
    if (gluster_parse_mdata(worker->value, (size_t)mdata, &times) != MDATA_MALFORMED) {
        facts.has_times = 1;
        facts.ctime_ns = times.ctime_ns;
        facts.mtime_ns = times.mtime_ns;
    }
    facts.access_length = (uint32_t)access;
    facts.default_length = (uint32_t)inherited;
    memcpy(value + GLUSTER_GFID_BYTES, worker->gfid_above, GLUSTER_GFID_BYTES);
    memcpy(value + 2 * GLUSTER_GFID_BYTES, &facts, sizeof facts);
    add(worker, directory, name, value, (size_t)(acls - value) + (size_t)(access + inherited));
    return true;
}

static void report_without_acl(struct worker *worker, const struct task *directory, const char *name)
{
    uint8_t gfid[GLUSTER_GFID_BYTES];
    ssize_t access = read_attribute(name, ACL_ACCESS, worker->value, VALUE_BYTES);
    if (access < 0)
        failed(worker, directory, name, "xattrs");
    /* A file without a gfid is not part of the volume, and Gluster does not move it. */
    else if (access == 0 && read_gfid(worker, directory, name, gfid))
        add(worker, directory, name, gfid, sizeof gfid);
}

static void report_strange(struct worker *worker, const struct task *directory, const char *name)
{
    uint8_t gfid[GLUSTER_GFID_BYTES];
    ssize_t length = read_attribute(name, GLUSTER_GFID, gfid, sizeof gfid);
    if (length < 0)
        failed(worker, directory, name, "xattrs");
    else if (length == 0)
        worker_strange(worker, directory, name);
}

static void report_link_mark(struct worker *worker, const struct task *directory, const char *name,
                             const struct stat *status)
{
    mode_t mode = status->st_mode & 07777;
    if (status->st_nlink <= GLUSTERS_OWN_NAMES) {
        report_strange(worker, directory, name);
        return;
    }
    bool migrates = (mode & (S_ISGID | S_ISVTX)) == (S_ISGID | S_ISVTX);
    if (status->st_nlink <= 1 + GLUSTERS_OWN_NAMES || mode == S_ISVTX || migrates)
        return;
    ssize_t length = lgetxattr(name, GLUSTER_LINKTO, NULL, 0);
    uint64_t inode = status->st_ino;
    if (length >= 0)
        add(worker, directory, name, &inode, sizeof inode);
    else if (errno != ENODATA && errno != EOPNOTSUPP)
        failed(worker, directory, name, "xattrs");
}

static void report_name(struct worker *worker, const struct task *directory, const char *name, ino_t inode)
{
    struct walk *walk = worker->walk;
    const struct wanted key = {.inode = inode};
    struct wanted *wanted = bsearch(&key, walk->wanted, walk->wanted_count, sizeof key, by_wanted_inode);
    if (wanted == NULL || atomic_exchange(&wanted->found, true))
        return;
    add(worker, directory, name, wanted->gfid, sizeof wanted->gfid);
    atomic_fetch_sub(&walk->wanted_left, 1);
}

void entry_report(struct worker *worker, const struct task *directory, const char *name)
{
    struct stat status;
    if (fstatat(AT_FDCWD, name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        failed(worker, directory, name, "lstat");
        return;
    }
    if (status.st_dev != worker->walk->device) {
        worker_problem(worker, directory, name, "open", EXDEV, "another file system is mounted here; not entered");
        return;
    }
    bool is_directory = S_ISDIR(status.st_mode);
    bool enters = is_directory;
    switch (worker->walk->report) {
    case REPORT_DIRECTORIES:
        if (is_directory)
            enters = report_directory(worker, directory, name, &status);
        else if (worker->walk->only_count > 0)
            worker_problem(worker, directory, name, "lstat", ENOTDIR, NULL);
        break;
    case REPORT_WITHOUT_ACL:
        if (!is_directory && !S_ISLNK(status.st_mode) && worker->inherits_acl)
            report_without_acl(worker, directory, name);
        break;
    case REPORT_LINK_MARKS:
        if (S_ISREG(status.st_mode))
            report_link_mark(worker, directory, name, &status);
        break;
    case REPORT_STRANGE:
        report_strange(worker, directory, name);
        break;
    case REPORT_NAMES:
        if (!is_directory)
            report_name(worker, directory, name, status.st_ino);
        break;
    case REPORT_ROWS: break;
    }
    if (enters && worker->walk->only_count == 0)
        directory_found(worker, directory, name);
}

void paths_report(struct worker *worker, char *const *paths, size_t count)
{
    for (size_t index = 0; index < count; index++) {
        const char *slash = strrchr(paths[index], '/');
        size_t length = slash != NULL ? (size_t)(slash - paths[index]) : 0;
        char *above = allocated(length + 1);
        memcpy(above, paths[index], length);
        above[length] = '\0';
        struct task *directory = task_made("", 0, above, NO_TREE);
        int fd = directory_open(worker, directory);
        struct stat facts;
        if (fd < 0 || fstat(fd, &facts) != 0 || fchdir(fd) != 0)
            failed(worker, directory, NULL, "open");
        else if (facts.st_dev != worker->walk->device)
            worker_problem(worker, directory, NULL, "open", EXDEV, "another file system is mounted here; not entered");
        else
            entry_report(worker, directory, slash != NULL ? slash + 1 : paths[index]);
        if (fd >= 0 && directory->path_length == 0)
            close(fd);
        free(directory);
        free(above);
    }
}
