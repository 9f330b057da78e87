/* Running one program where it sees one tree of each side, and nothing else. */
#ifndef CONFINE_H
#define CONFINE_H

#include <stddef.h>
#include <stdint.h>

/* What the command line asks for; empty strings stand for what is not asked for. */
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

/* migrator/transfer/engines/rules_rsync.py judges by these words. */
#define STEP_USAGE "usage"
#define STEP_NAMESPACE "namespace"
#define STEP_SOURCE_ROOT "source-root"
#define STEP_SOURCE_TREE "source-tree"
#define STEP_TARGET_ROOT "target-root"
#define STEP_TARGET_TREE "target-tree"
#define STEP_PROGRAM "program"

/* Say why the confinement could not be set up, and end this process. `code` is an errno, or 0. */
_Noreturn void refuse(const char *step, int code, const char *text);

/* Replace everything that this process sees; it must be in a mount namespace of its own. */
void build_root(const struct request *request);

#endif
