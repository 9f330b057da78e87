/* Walking a brick, or a mounted file system: its rows are written to stdout as frames. */
#ifndef MIGRATOR_WALK_H
#define MIGRATOR_WALK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "owners.h"
#include "walk_names.h"
#include "walk_queue.h"
#include "walk_reports.h"
#include "walk_rows.h"

#define NO_TREE (-1)

/* The counters of one worker. */
struct totals {
    uint64_t rows;
    uint64_t directories;
    uint64_t size_bytes;      /* of regular files */
    uint64_t problems;        /* including those to look up through the mount, and the strange ones */
    uint64_t vanished;        /* listed, but gone when read */
    uint64_t migrating;       /* files with the setgid and sticky bits of a migration */
    uint64_t links;           /* link-to files, left out */
    uint64_t filling_links;   /* of these, those with a size: a migration fills them */
    uint64_t ambiguous;       /* to look up through the mount */
    uint64_t strange;         /* without a gfid: written past Gluster */
    uint64_t hidden_marks;    /* files whose setgid and sticky bits the mount does not show */
    uint64_t marked;          /* entries with a mark: this copy, or another one, may differ from what the mount shows */
};

/* The shared state of all workers; set once, then only read (except the queue). */
struct walk {
    int root;
    dev_t device;
    bool plain; /* a mounted file system, where Gluster's rules do not hold; it is walked in order (walk_in_order.c) */
    bool pins; /* a file system whose client asks its server whenever a name is used: entries are opened once */
    bool times_from_mdata;
    bool distributed; /* the volume has several subvolumes */
    bool only_trees; /* outside the trees, read only the entries that lead to one */
    bool own;        /* also read the program's own files in the root */
    bool marks;      /* report the marks by which Gluster makes the mount differ from a brick */
    bool marks_only; /* of files, report marks and no rows: another copy is read */
    bool listings;   /* report the names in each directory as a sum, for comparison with other copies */
    enum report report; /* what is written of each entry */
    char **gfids; /* of the wanted files */
    struct wanted *wanted; /* of REPORT_NAMES, in order of inodes */
    size_t wanted_count;
    atomic_size_t wanted_left;
    char **only; /* report these paths alone; none: walk */
    size_t only_count;
    uint32_t block_rows;
    struct owner_map owners; /* from the numbers on the disks to those of the rows */
    char *tree_names;
    char **trees; /* pointers into them, in order of bytes */
    int32_t *tree_numbers; /* of each, as given */
    size_t tree_count;
    char **begin; /* the directories to begin with; none: the root */
    size_t begin_count;
    char **hidden; /* paths that are left out, in order of bytes */
    size_t hidden_count;
    char **mounted; /* mount points, which are reported and not entered, in order of bytes */
    size_t mounted_count;
    struct queue queue;
};

/* A directory whose names are read by several workers, until all that they found is written. */
struct reading {
    pthread_mutex_t lock;
    atomic_uint parts; /* what is not written yet: the listing, and each task with names */
    struct task *task;
    ino_t inode;
    struct task *found;
    size_t found_count;
    struct listing names;
};

#define HELD_DIRECTORIES 32
#define LOOKS 3

struct place {
    uint64_t inode;
    const char *name;
};

/* One thread: its own current directory, rows, and counters. */
struct worker {
    struct walk *walk;
    unsigned number;
    struct rows files;
    struct rows directories;
    struct listings listings;
    struct problems problems;
    struct findings findings;
    struct totals totals;
    /* Of the current directory, for reports. */
    bool inherits_acl;
    uint8_t gfid_above[16];
    /* Directories above the last one, kept open: the next one is usually in one of them. */
    struct {
        size_t path_length;
        int fd;
    } held[HELD_DIRECTORIES];
    size_t held_count;
    char *held_path;
    size_t held_capacity;
    /* Directories found in the current one, not yet in the queue. */
    struct task *found;
    size_t found_count;
    /* Names of the current directory, as far as it was read by the present task. */
    struct listing names_read;
    /* Of a walk in order: directories that this worker keeps for itself, and readings that it has to report once its
     * rows are written. */
    struct task *own;
    size_t own_count;
    struct reading **unsettled;
    size_t unsettled_count;
    size_t unsettled_capacity;
    struct names names_met;
    uint64_t entry_ns; /* what an entry takes, on average */
    uint64_t settled_ns;
    char *listing;
    struct place *places;
    char *names;
    uint8_t *value;
    /* The number of waits for Gluster to give new entries their gfid. */
    unsigned patience;
};

int walk_main(int argc, char **argv);

/* Read directories from the queue until no worker has any left. */
void worker_run(struct worker *worker);

/* Read one entry of the current directory and store it as a row; `tree` is its directory's. */
void entry_read(struct worker *worker, const struct task *directory, const char *name);

/* Queue a directory of the current one, to be read later; returns the tree that it is or is in. */
int32_t directory_found(struct worker *worker, const struct task *directory, const char *name);

/* Report the marks of the brick's root, which is the current directory. */
void root_marks_read(struct worker *worker, const struct task *root);

/* The same in order: a directory is listed as done (frame of listings) after all of its rows and problems, and after the
 * directory above it. So a reader that keeps what has arrived can resume from there. */
void worker_run_in_order(struct worker *worker);

/* Open a task's directory and make it the current one. False: it cannot be read, and the problem has been stored; the
 * descriptor is one of those that the worker keeps open. */
bool directory_enter(struct worker *worker, const struct task *task, int *fd, struct stat *facts);

/* The names in a piece of a listing that are to be read, in the order of their inodes on the disk: the number of them,
 * in `worker->places`. `next`: the start of the next piece. */
size_t names_listed(struct worker *worker, const struct task *task, size_t length, int64_t *next);

/* Read a piece of a listing into `worker->listing`; 0 at its end and after a problem, which has been stored. */
size_t piece_read(struct worker *worker, const struct task *task, int fd);

/* Whether a path is in a list in the order of bytes. */
bool is_listed(char *const *paths, size_t count, const char *path);

/* The number of the tree that a directory is or is in. */
int32_t tree_above(const struct walk *walk, const char *path);

/* The number of the tree at a directory that is outside every tree; NO_TREE if it is none. */
int32_t tree_of(const struct walk *walk, const char *path);

/* Whether an entry of a directory outside every tree is a tree or leads to one. */
bool leads_to_tree(const struct walk *walk, const struct task *directory, const char *name);

/* The descriptor of a task's directory, kept open by the worker; -1 and errno if it cannot be opened. */
int directory_open(struct worker *worker, const struct task *task);

/* Close every directory that is kept open. */
void directories_close(struct worker *worker);

/* Store a problem with an entry (`name` NULL: the directory itself). Without a reason (NULL), the text of the error is
 * used. */
void worker_problem(struct worker *worker, const struct task *directory, const char *name, const char *operation,
                    int error, const char *reason);

/* Count an entry that was listed and is gone. A rename may have put another file under its name on another brick, so it
 * is looked up through the mount. */
void worker_vanished(struct worker *worker, const struct task *directory, const char *name);

/* Store an entry without a gfid. Its name must not be looked up through the mount: a client of GlusterFS 10.3 can hang
 * (#3688 there, with cluster.lookup-optimize off). */
void worker_strange(struct worker *worker, const struct task *directory, const char *name);

/* Store an entry with a mark of Gluster. `mark` is one of those of migrator/gluster/model.py. */
void worker_mark(struct worker *worker, const struct task *directory, const char *name, const char *mark,
                 const char *reason);

/* Store an entry that must be looked up through the mount. */
void worker_ask(struct worker *worker, const struct task *directory, const char *name, const char *reason);

#endif
