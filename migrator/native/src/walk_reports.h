/* Walks of a brick that report some of its entries, each with a value, instead of rows. */
#ifndef MIGRATOR_WALK_REPORTS_H
#define MIGRATOR_WALK_REPORTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct walk;
struct worker;
struct task;

enum report {
    REPORT_ROWS,
    REPORT_DIRECTORIES, /* gfid, gfid of the directory above (zeros: unknown), then struct directory_facts and both ACLs */
    REPORT_WITHOUT_ACL, /* files without an ACL in a directory with a default ACL: their gfid */
    REPORT_LINK_MARKS,  /* data files of several names with the attribute of a link-to file: their inode number. And, as
                         * problems, files that were put there past Gluster */
    REPORT_STRANGE,     /* nothing: entries without a gfid are problems */
    REPORT_NAMES,       /* one name of each wanted file: its gfid. An empty path: the brick has it, no name was found */
};

/* As it is written, after the gfids; the ACLs follow. */
struct directory_facts {
    uint32_t mode, uid, gid;
    uint32_t has_times; /* of trusted.glusterfs.mdata */
    int64_t ctime_ns, mtime_ns;
    uint32_t access_length, default_length;
};

/* A file to find the name of. */
struct wanted {
    ino_t inode;
    uint8_t gfid[16];
    atomic_bool found;
};

/* The report of this name; false if there is none. */
bool report_named(const char *name, enum report *report);

/* Find the inodes of the wanted files, given by their gfids in canonical form. */
void wanted_start(struct walk *walk, char *const *gfids, size_t count);

/* Whether every wanted file is found: nothing is left to read. */
bool wanted_are_found(struct walk *walk);

/* Report the wanted files of which no name was found, and free their memory. */
void wanted_end(struct walk *walk);

/* Read what the report of its entries needs from the current directory. */
void report_begin(struct worker *worker, const struct task *directory);

/* Report one entry of the current directory, if the report has it. Directories are queued, unless only some paths are
 * wanted. */
void entry_report(struct worker *worker, const struct task *directory, const char *name);

/* Report some paths alone, each without the gfid of the directory above. */
void paths_report(struct worker *worker, char *const *paths, size_t count);

#endif
