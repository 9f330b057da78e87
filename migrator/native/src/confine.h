/* Runs one program in a file system that holds only one tree of each side. */
#ifndef CONFINE_H
#define CONFINE_H

#include <stddef.h>
#include <stdint.h>

/* The arguments of the command line; an empty string is an option that was not given. */
struct request {
    const char *source_root;
    const char *target_root;
    const char *tree;
    const char *work;
    const char **files;
    size_t file_count;
    uint64_t parent_pid;
    char **argv;
};

/* migrator/transfer/engines/rules_rsync.py parses these words. */
#define STEP_USAGE "usage"
#define STEP_NAMESPACE "namespace"
#define STEP_SOURCE_ROOT "source-root"
#define STEP_SOURCE_TREE "source-tree"
#define STEP_TARGET_ROOT "target-root"
#define STEP_TARGET_TREE "target-tree"
#define STEP_PROGRAM "program"

/* Report why the confinement could not be set up, and end this process. `code` is an errno, or 0. */
_Noreturn void refuse(const char *step, int code, const char *text);

/* Replace this process's whole file system; it must be in a mount namespace of its own. */
void build_root(const struct request *request);

#endif
