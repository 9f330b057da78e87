/* The interface between the parts of `migrator-native copy`. copy.c describes the program and its arguments. */

#ifndef MIGRATOR_COPY_H
#define MIGRATOR_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "owners.h"

/* The exit codes. All others (except signals) are faults of this program. */
enum {
    EXIT_LIST_DONE = 0, /* the whole list was processed; problems were reported by path */
    EXIT_STOPPED = 3,   /* an error that affects more than one path; the last reported line names it */
    EXIT_USAGE = 64,
    EXIT_BAD_LIST = 65,
    EXIT_NO_TREE = 66,
    EXIT_NO_MEMORY = 71,
    EXIT_NOBODY_LISTENS = 74,
    EXIT_OTHER_END_LOST = 75,
};

/* The mode of a directory until it gets its attributes. */
#define CREATED_DIRECTORY_MODE 0700

enum side { SIDE_SOURCE, SIDE_TARGET };

enum kind { KIND_DIRECTORIES, KIND_FILES, KIND_RANGES, KIND_DIRECTORY_TIMES };

enum problem { PROBLEM_VANISHED, PROBLEM_MOVED, PROBLEM_CHANGED, PROBLEM_BAD };

struct options {
    const char *source;
    const char *target;
    enum kind kind;
    bool brick;            /* the source is a brick */
    bool distributed;      /* of a volume with several subvolumes */
    bool times_from_mdata; /* and its times are in trusted.glusterfs.mdata, if present */
    bool privileged;
    bool facts_once; /* of the files that are digested */
    bool digest;    /* report the digest of what is copied */
    bool own_names; /* make new files under their own names */
    bool recopy;    /* equal size and time prove nothing */
    bool fsync;     /* sync each file: a syncfs of the target does not reach its disks */
    bool sparse;
    bool hard_links;
    bool acls;
    bool default_acls;
    bool user_xattrs;
    bool security_xattrs;
    bool atimes; /* of regular files */
    bool symlink_times;
    bool symlink_owner;
    bool devices;
    bool fifos;
    bool sockets;
    const char *links_from; /* absolute symlinks that begin so ... */
    const char *links_to;   /* ... begin so on the target; both NULL: none are changed */
    int64_t granularity_ns;
    uint64_t bwlimit_bytes_per_s; /* 0: no limit */
    uint64_t in_flight;           /* the number of paths that are copied at the same time */
    uint64_t name_seed;           /* of temporary names: random for each site */
    uint64_t list_bytes;          /* of a copy with two ends; 0: one end has both trees */
    uint64_t max_xattr_bytes;
    uint64_t max_xattr_name_bytes;
    uint64_t max_acl_entries;
    struct owner_map owners; /* from the numbers of the source to those of the target */
};

/* One line of the list; `name` is relative to the tree and NUL-terminated. */
struct record {
    const char *name;
    size_t name_length;
    size_t directory_length; /* the length of the part before the last slash */
    bool has_mtime;
    bool has_group;
    bool has_size;
    bool has_range;
    bool in_ranges;
    int64_t mtime_ns;
    uint64_t group;
    uint64_t size;
    uint64_t offset;
    uint64_t length;
};

struct list {
    char *text;
    struct record *records;
    size_t count;
};

/* A link group's name that is on the target already, and its inode on the source. */
struct first_name {
    uint64_t group;
    size_t index;
    dev_t device;
    ino_t inode;
    bool taken;
};

struct xattr {
    const char *name; /* in names */
    size_t offset;    /* in values */
    size_t length;
};

/* The attributes read from the source. The buffers are reused from path to path. */
struct attributes {
    struct stat facts;
    int64_t mtime_ns;
    int64_t atime_ns;
    bool link_to;
    bool corrupted; /* marked by the scrubber: the mount shows another copy, or EIO */
    char *names;
    size_t names_room;
    char *values;
    size_t values_room;
    size_t values_length;
    struct xattr *kept;
    size_t kept_room;
    size_t kept_count;
};

/* An open file, or (fd -1) a name in the working directory. */
struct handle {
    int fd;
    const char *name;
};

/* The facts of a file that change with its content, as the mount shows them. */
struct facts {
    uint64_t ino;
    int64_t size;
    int64_t mtime_ns;
    int64_t ctime_ns;
};

enum where { WHERE_UNKNOWN, WHERE_SOURCE, WHERE_TARGET };

/* What a thread has to do with the other end of a copy with two ends (copy_ends.h). */
struct inbox;
struct outbox;

struct copier {
    const struct options *options;
    const struct list *list;
    const struct record *record; /* of the current path */
    int source_tree;
    int target_tree;
    /* The directory of the last path, on both sides: lists are sorted by directory. */
    int source_directory;
    int target_directory;
    const char *directory;
    size_t directory_length;
    bool directory_known;
    bool gives_acls; /* new entries of the target's directory may inherit an ACL */
    enum where working_directory;
    struct attributes attributes;
    struct attributes existing;
    struct first_name *first_names;
    size_t first_names_room;
    unsigned char *buffer;
    char *link_text; /* of the current path, if it is a symlink */
    struct inbox *inbox;   /* of a writing end */
    struct outbox *outbox; /* of a reading end */
    void *digest; /* of the current file's content; NULL: none is wanted */
    bool digested;
    struct facts digested_facts;
    /* The error that ended the work on the current path. */
    enum side failed_side;
    const char *failed_operation;
    int failed_errno;
};

#define COPY_BUFFER_BYTES ((size_t)1 << 20)
#define LINK_TEXT_ROOM ((size_t)8192)
#define NAME_ROOM 256
#define TRIES 3

/* copy_list.c */
bool read_list(int fd, struct list *list, uint64_t length);

/* copy_events.c: for any thread */
void start_events(const struct options *options);
void tick(void);
void count_file(void);
void pace(size_t bytes);
void report_problem(const struct copier *copier, size_t index, enum problem problem);
bool is_stopped(void);
void end_events(void);
__attribute__((format(printf, 1, 2))) void print_event(const char *format, ...);
void print_request(const char *line);
int failed(struct copier *copier, enum side side, const char *operation);

/* digest.c */
bool make_digest(struct copier *copier);
void free_digest(struct copier *copier);
void begin_digest(struct copier *copier);
void add_to_digest(struct copier *copier, const unsigned char *bytes, size_t length);
void add_hole_to_digest(struct copier *copier, off_t length);
void end_digest(struct copier *copier, int in);
void report_digest(const struct copier *copier);
void digest_value(const struct copier *copier, uint8_t *value);

/* copy_places.c */
int open_tree(const char *path, bool readable);
int open_beneath(int tree, const char *path, size_t length, bool readable);
int enter(struct copier *copier, const struct record *record);
int stand_in(struct copier *copier, enum where where);
const char *last_component(const struct record *record);
void temporary_name(const struct copier *copier, const char *name, char *temporary);
int make_way(const struct copier *copier, const char *name, char *temporary);
void part_name(const struct copier *copier, const char *name, char *part);
void marks_name(const struct copier *copier, const char *name, char *marks);
int put_in_place(struct copier *copier, const char *temporary, const char *name);

/* copy_attributes.c */
int read_attributes(struct copier *copier, struct handle handle, struct attributes *attributes);
bool may_carry(const struct options *options, const char *name, size_t length);
void drop_attributes(struct attributes *attributes);
bool add_attribute_room(struct attributes *attributes, size_t names, size_t values);
bool keep_attribute(struct attributes *attributes, const char *name, size_t length);
int read_brick_time(struct copier *copier, struct handle handle, struct attributes *attributes);
bool is_moved(const struct copier *copier, const struct attributes *attributes);
int dress(struct copier *copier, struct handle handle, const struct stat *existing, bool *changed);
int dress_times(struct copier *copier, const char *name, int64_t mtime_ns);
bool same_time(const struct copier *copier, const struct stat *existing, int64_t mtime_ns);
bool same_atime(const struct copier *copier, const struct stat *existing);
int64_t time_ns(const struct timespec *time);

/* The result for one path, which the caller reports. */
enum result {
    RESULT_FINE,
    RESULT_VANISHED,
    RESULT_MOVED,
    RESULT_CHANGED,
    RESULT_FAILED,
    RESULT_NOT_A_FILE,
};

/* copy_content.c */
bool next_data(int in, off_t from, off_t end, off_t *data, off_t *data_end);
bool holes_are_plausible(int fd, const struct stat *facts);
int copy_content(struct copier *copier, int in, int out, const struct stat *facts, off_t *copied);
/* 0, -1 on a reported error, or RANGE_CUT if the source returned less than the range. */
enum { RANGE_CUT = 1 };
int copy_range(struct copier *copier, int in, int out, uint64_t offset, uint64_t end);
int write_at(struct copier *copier, int out, const unsigned char *bytes, size_t length, off_t offset);
int write_back(struct copier *copier, int out, off_t from, off_t end);
int clear(struct copier *copier, int out, off_t from, off_t end);
/* Write-back of a big file starts in pieces of this size during the copy. So the final sync is short, and the disks are
 * not idle before it. */
#define WRITTEN_BACK_BYTES ((off_t)8 << 20)

/* copy_file.c, copy_ranges.c, copy_nodes.c */
enum result copy_path(struct copier *copier, const struct record *record, size_t index);
/* Read the attributes of a path, in its current state. A file is opened for its content (`*in`, else -1). */
enum result look_up(struct copier *copier, const struct record *record, int *in);
void report(struct copier *copier, size_t index, enum result result);
enum result open_file(struct copier *copier, const struct record *record, int *in);
enum result write_file(struct copier *copier, const struct record *record, int in);
enum result open_range(struct copier *copier, const struct record *record, int *in);
enum result write_range(struct copier *copier, const struct record *record, int in);
enum result read_node(struct copier *copier, const struct record *record);
enum result write_node(struct copier *copier, const struct record *record);
enum result source_failed(struct copier *copier, const char *operation);
int open_part(struct copier *copier, const struct record *record, const char *name, char *part);
bool is_there(const struct copier *copier, const char *name, struct stat *existing);
void remove_leftover(const struct copier *copier, const char *name);
int open_source(struct copier *copier, const char *name);
bool is_same_moment(const struct attributes *before, const struct attributes *after);
int read_again(struct copier *copier, int in, struct attributes *after);
int dress_existing(struct copier *copier, const char *name, const struct stat *existing, int64_t mtime_ns, bool with_time);
/* Link the path to a file of its group on the target: 1 if that was done, 0 if not, -1 for failed(). `seen` NULL: its
 * facts are read first. */
int link_to_first(struct copier *copier, const struct record *record, const struct stat *seen);
void remember_first(struct copier *copier, const struct record *record, size_t index);

#endif
