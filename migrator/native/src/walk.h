/* Walking a brick: its rows go to stdout as frames. */
#ifndef MIGRATOR_WALK_H
#define MIGRATOR_WALK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "walk_queue.h"
#include "walk_rows.h"

#define NO_TREE (-1)

/* What one worker has counted. */
struct totals {
    uint64_t rows;
    uint64_t directories;
    uint64_t size_bytes;      /* of regular files */
    uint64_t problems;        /* with those to be asked of the mount, and the strange ones */
    uint64_t vanished;        /* listed, and gone when looked at */
    uint64_t migrating;       /* files with the setgid and sticky bits of a migration */
    uint64_t links;           /* link-to files, left out */
    uint64_t filling_links;   /* of these, those that have a size: a migration fills them */
    uint64_t ambiguous;       /* to be asked of the mount */
    uint64_t strange;         /* without a gfid: put there past Gluster */
    uint64_t hidden_marks;    /* files whose setgid and sticky bits the mount does not show */
};

/* What all workers share; set once, then only read (but for the queue). */
struct walk {
    int root;
    dev_t device;
    bool times_from_mdata;
    bool distributed; /* the volume has several subvolumes */
    bool only_trees; /* of what lies outside the trees, look at what leads to one alone */
    bool own;        /* look at the program's own in the root, too */
    uint32_t block_rows;
    char *tree_names;
    char **trees; /* pointers into them, in order of bytes */
    int32_t *tree_numbers; /* of each, as given */
    size_t tree_count;
    struct queue queue;
};

#define HELD_DIRECTORIES 32
#define LOOKS 3

/* One thread at work: its own current directory, rows, and counters. */
struct worker {
    struct walk *walk;
    unsigned number;
    struct rows files;
    struct rows directories;
    struct problems problems;
    struct totals totals;
    /* Directories above the last one, kept open: the next one mostly lies in one of them. */
    struct {
        size_t path_length;
        int fd;
    } held[HELD_DIRECTORIES];
    size_t held_count;
    char *held_path;
    size_t held_capacity;
    /* Directories found in the one that is read, not yet handed to the queue. */
    struct task *found;
    size_t found_count;
    char *listing;
    char *names;
    uint8_t *value;
    /* So often it waits for Gluster to give a new entry its gfid. */
    unsigned patience;
};

int walk_main(int argc, char **argv);

/* Read directories from the queue until none is left anywhere. */
void worker_run(struct worker *worker);

/* Look at one entry of the current directory and keep it as a row; `tree` is its directory's. */
void entry_read(struct worker *worker, const struct task *directory, const char *name);

/* The number of a directory outside every tree among the trees; NO_TREE where it is none. */
int32_t tree_of(const struct walk *walk, const char *path);

/* Whether an entry of a directory outside every tree is a tree or leads to one. */
bool leads_to_tree(const struct walk *walk, const struct task *directory, const char *name);

/* The descriptor of a task's directory, kept open by the worker; -1 and errno where it cannot be opened. */
int directory_open(struct worker *worker, const struct task *task);

/* Close every directory that is held. */
void directories_close(struct worker *worker);

/* Keep a problem with an entry (`name` NULL: the directory itself); the reason NULL: the error's own words. */
void worker_problem(struct worker *worker, const struct task *directory, const char *name, const char *operation,
                    int error, const char *reason);

/* Count an entry that was listed and is gone: a rename may have put another file under its name on another brick, so the
 * mount is asked. */
void worker_vanished(struct worker *worker, const struct task *directory, const char *name);

/* Keep an entry that has no gfid. Nobody may ask the mount for its name: a client of GlusterFS 10.3 can hang on that (#3688
 * there, with cluster.lookup-optimize off). */
void worker_strange(struct worker *worker, const struct task *directory, const char *name);

/* Keep an entry that only the mount can tell about. */
void worker_ask(struct worker *worker, const struct task *directory, const char *name, const char *reason);

#endif
