/* One directory: opened beneath the brick's root without following a symlink, read in pieces, its children queued. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gluster.h"
#include "walk.h"
#include "xxh3.h"

#define LISTING_BYTES (256u << 10)
/* The most subdirectories of one directory that are held back. The rest of the directory is read after them, so that
 * memory does not grow with the widest directory. */
#define FOUND_LIMIT 512u
/* The most waits for a gfid of one worker, whatever is on the brick. */
#define PATIENCE 100u
#define SENTINEL ".migrator-sentinel"
#define PURGE ".migrator-purge"
#define BENCH ".migrator-bench"
#define PROBE ".migrator-probe"
#define JOURNAL ".migrator-journal"
/* The most names of a directory that are compared with each other, beside those of its directories. */
#define NAMES_MET 10000u
#define ANONYMOUS_PREFIX ".glusterfs-anonymous-inode-"

struct listed_entry {
    uint64_t inode;
    int64_t next_offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

void worker_problem(struct worker *worker, const struct task *directory, const char *name, const char *operation,
                    int error, const char *reason)
{
    worker->totals.problems++;
    problems_add(&worker->problems, PROBLEM, directory->path, directory->path_length, name, operation, error,
                 reason != NULL ? reason : strerror(error));
}

void worker_ask(struct worker *worker, const struct task *directory, const char *name, const char *reason)
{
    worker->totals.problems++;
    worker->totals.ambiguous++;
    problems_add(&worker->problems, PROBLEM_ASK_THE_MOUNT, directory->path, directory->path_length, name,
                 "ask-the-mount", 0, reason);
}

void worker_strange(struct worker *worker, const struct task *directory, const char *name)
{
    worker->totals.problems++;
    worker->totals.strange++;
    problems_add(&worker->problems, PROBLEM_STRANGE, directory->path, directory->path_length, name, "gfid", 0,
                 "has no trusted.gfid: it was put there past Gluster");
}

void worker_mark(struct worker *worker, const struct task *directory, const char *name, const char *mark,
                 const char *reason)
{
    worker->totals.problems++;
    worker->totals.marked++;
    problems_add(&worker->problems, PROBLEM_MARKED, directory->path, directory->path_length, name, mark, 0, reason);
}

void worker_vanished(struct worker *worker, const struct task *directory, const char *name)
{
    worker->totals.vanished++;
    worker_ask(worker, directory, name, "vanished while it was read");
}

static void let_go(struct worker *worker, size_t first, size_t count)
{
    for (size_t index = first; index < first + count; index++)
        close(worker->held[index].fd);
    size_t after = worker->held_count - first - count;
    memmove(worker->held + first, worker->held + first + count, after * sizeof *worker->held);
    worker->held_count -= count;
}

void directories_close(struct worker *worker)
{
    let_go(worker, 0, worker->held_count);
}

static void hold(struct worker *worker, size_t path_length, int fd)
{
    /* The lowest ones serve the next directories; those near the root are opened again by name. */
    if (worker->held_count == HELD_DIRECTORIES)
        let_go(worker, 0, 1);
    worker->held[worker->held_count].path_length = path_length;
    worker->held[worker->held_count].fd = fd;
    worker->held_count++;
}

/* Keep the open directories above a path, and close the others. */
static void keep_above(struct worker *worker, const struct task *task)
{
    size_t kept = 0;
    for (; kept < worker->held_count; kept++) {
        size_t length = worker->held[kept].path_length;
        if (length >= task->path_length || task->path[length] != '/' ||
            memcmp(task->path, worker->held_path, length) != 0)
            break;
    }
    let_go(worker, kept, worker->held_count - kept);
}

static int open_beneath(int parent, const char *name, bool last)
{
    int flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    if (!last)
        return openat(parent, name, flags | O_PATH);
    int fd = openat(parent, name, flags | O_RDONLY | O_NOATIME);
    if (fd < 0 && errno == EPERM)
        fd = openat(parent, name, flags | O_RDONLY);
    return fd;
}

int directory_open(struct worker *worker, const struct task *task)
{
    keep_above(worker, task);
    if (worker->held_capacity <= task->path_length) {
        worker->held_capacity = 2 * task->path_length + 256;
        worker->held_path = reallocated(worker->held_path, worker->held_capacity);
    }
    memcpy(worker->held_path, task->path, task->path_length + 1);
    if (task->path_length == 0)
        return open_beneath(worker->walk->root, ".", true);

    int parent = worker->walk->root;
    size_t start = 0;
    if (worker->held_count > 0) {
        parent = worker->held[worker->held_count - 1].fd;
        start = worker->held[worker->held_count - 1].path_length + 1;
    }
    for (;;) {
        char *slash = strchr(worker->held_path + start, '/');
        size_t end = slash ? (size_t)(slash - worker->held_path) : task->path_length;
        worker->held_path[end] = '\0';
        int fd = open_beneath(parent, worker->held_path + start, slash == NULL);
        if (slash != NULL)
            *slash = '/';
        if (fd < 0)
            return -1;
        hold(worker, end, fd);
        if (slash == NULL)
            return fd;
        parent = fd;
        start = end + 1;
    }
}

static void publish(struct worker *worker)
{
    queue_push(&worker->walk->queue, worker->number, worker->found, worker->found_count);
    worker->found = NULL;
    worker->found_count = 0;
}

/* Queue the rest of a directory as a task of its own, beneath its children, which are read first. */
static void put_off(struct worker *worker, const struct task *task, ino_t inode, int64_t offset)
{
    struct task *rest = task_made("", 0, task->path, task->tree);
    rest->inode = inode;
    rest->offset = offset;
    struct task *last = worker->found;
    while (last->next != NULL)
        last = last->next;
    last->next = rest;
    worker->found_count++;
    publish(worker);
}

static bool is_internal(const struct walk *walk, const struct task *task, const char *name)
{
    if (name[0] != '.')
        return false;
    if (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'))
        return true;
    if (task->path_length > 0)
        return false;
    if (!walk->plain &&
        (strcmp(name, ".glusterfs") == 0 || strncmp(name, ANONYMOUS_PREFIX, strlen(ANONYMOUS_PREFIX)) == 0))
        return true;
    return !walk->own && (strcmp(name, SENTINEL) == 0 || strcmp(name, PURGE) == 0 || strcmp(name, PROBE) == 0 ||
                          strcmp(name, BENCH) == 0 || strcmp(name, JOURNAL) == 0);
}

/* Whether an entry is hidden from this walk, or is a mount point, which is reported. */
static bool is_kept_out(struct worker *worker, const struct task *task, const char *name)
{
    const struct walk *walk = worker->walk;
    if (walk->hidden_count + walk->mounted_count == 0)
        return false;
    struct task *entry = task_made(task->path, task->path_length, name, NO_TREE);
    bool hidden = is_listed(walk->hidden, walk->hidden_count, entry->path);
    bool mounted = is_listed(walk->mounted, walk->mounted_count, entry->path);
    free(entry);
    if (mounted && !hidden)
        worker_problem(worker, task, name, "open", EXDEV, "another file system is mounted here; not entered");
    return hidden || mounted;
}

static bool is_skipped(struct worker *worker, const struct task *task, const struct listed_entry *entry)
{
    const struct walk *walk = worker->walk;
    const char *name = entry->name;
    if (is_internal(walk, task, name) || (walk->only_trees && task->tree == NO_TREE && !leads_to_tree(walk, task, name)))
        return true;
    if (!walk->plain)
        return false;
    bool compared = worker->names_met.count < NAMES_MET || entry->type == DT_DIR || entry->type == DT_UNKNOWN;
    return (compared && !names_add(&worker->names_met, name)) || is_kept_out(worker, task, name);
}

static int by_inode(const void *left, const void *right)
{
    uint64_t one = ((const struct place *)left)->inode, other = ((const struct place *)right)->inode;
    return (one > other) - (one < other);
}

size_t names_listed(struct worker *worker, const struct task *task, size_t length, int64_t *next)
{
    struct place *places = worker->places;
    size_t count = 0;
    bool in_order = true;
    for (size_t at = 0; at < length;) {
        const struct listed_entry *entry = (const struct listed_entry *)(const void *)(worker->listing + at);
        *next = entry->next_offset;
        at += entry->length;
        if (is_skipped(worker, task, entry))
            continue;
        worker->names_read.entries++;
        worker->names_read.names += XXH3_64bits(entry->name, strlen(entry->name));
        in_order = in_order && (count == 0 || places[count - 1].inode <= entry->inode);
        places[count++] = (struct place){entry->inode, entry->name};
    }
    if (!in_order)
        qsort(places, count, sizeof *places, by_inode);
    return count;
}

size_t piece_read(struct worker *worker, const struct task *task, int fd)
{
    long length = syscall(SYS_getdents64, fd, worker->listing, LISTING_BYTES);
    if (length >= 0)
        return (size_t)length;
    if (errno == ENOENT)
        worker_vanished(worker, task, NULL);
    else
        worker_problem(worker, task, NULL, "list", errno, NULL);
    return 0;
}

static void read_directory(struct worker *worker, const struct task *task, int fd, ino_t inode)
{
    size_t length;
    while ((length = piece_read(worker, task, fd)) > 0) {
        int64_t next = 0;
        size_t count = names_listed(worker, task, length, &next);
        for (size_t index = 0; index < count; index++) {
            if (worker->walk->report == REPORT_ROWS)
                entry_read(worker, task, worker->places[index].name);
            else
                entry_report(worker, task, worker->places[index].name);
        }
        if (worker->found_count >= FOUND_LIMIT) {
            put_off(worker, task, inode, next);
            return;
        }
        if (worker->found_count > 0 && atomic_load(&worker->walk->queue.idle) > 0)
            publish(worker);
    }
}

bool directory_enter(struct worker *worker, const struct task *task, int *fd, struct stat *facts)
{
    *fd = directory_open(worker, task);
    if (*fd < 0 || fstat(*fd, facts) != 0 || fchdir(*fd) != 0) {
        if (errno == ENOENT)
            worker_vanished(worker, task, NULL);
        else
            worker_problem(worker, task, NULL, "open", errno, NULL);
        return false;
    }
    if (facts->st_dev != worker->walk->device)
        worker_problem(worker, task, NULL, "open", EXDEV, "another file system is mounted here; not entered");
    else if (task->inode != 0 && task->inode != facts->st_ino)
        worker_problem(worker, task, NULL, "list", 0, "was replaced by another directory while it was read");
    else
        return true;
    return false;
}

static void read_task(struct worker *worker, const struct task *task, int fd, ino_t inode)
{
    if (task->inode != 0 && lseek(fd, task->offset, SEEK_SET) < 0) {
        worker_problem(worker, task, NULL, "list", errno, NULL);
        return;
    }
    worker->names_read = (struct listing){0};
    if (task->path_length == 0 && task->inode == 0 && worker->walk->marks)
        root_marks_read(worker, task);
    if (worker->walk->report != REPORT_ROWS)
        report_begin(worker, task);
    read_directory(worker, task, fd, inode);
    if (worker->walk->listings)
        listings_add(&worker->listings, task->path, task->path_length, worker->names_read);
    publish(worker);
}

static void read_all(struct worker *worker)
{
    struct task *task;
    while ((task = queue_take(&worker->walk->queue, worker->number)) != NULL) {
        int fd;
        struct stat facts;
        /* The tasks that are left when every wanted file is found are only taken off. */
        bool is_over = wanted_are_found(worker->walk);
        if (!is_over && directory_enter(worker, task, &fd, &facts))
            read_task(worker, task, fd, facts.st_ino);
        if (!is_over && fd >= 0 && task->path_length == 0)
            close(fd);
        queue_done(&worker->walk->queue, task);
    }
}

void worker_run(struct worker *worker)
{
    worker->listing = allocated(LISTING_BYTES);
    worker->places = allocated(LISTING_BYTES / sizeof(struct listed_entry) * sizeof *worker->places);
    worker->names = allocated(65536);
    worker->value = allocated(65536);
    worker->patience = PATIENCE;
    if (worker->walk->plain)
        worker_run_in_order(worker);
    else if (worker->walk->only_count > 0)
        paths_report(worker, worker->walk->only, worker->walk->only_count);
    else
        read_all(worker);
    directories_close(worker);
    rows_flush(&worker->files);
    rows_flush(&worker->directories);
    listings_flush(&worker->listings);
    problems_flush(&worker->problems);
    findings_flush(&worker->findings);
    rows_free(&worker->files);
    rows_free(&worker->directories);
    listings_free(&worker->listings);
    free(worker->problems.data);
    free(worker->findings.data);
    free(worker->held_path);
    free(worker->listing);
    free(worker->places);
    free(worker->names);
    free(worker->value);
}
