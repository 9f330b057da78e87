/* Rows in columns, in Arrow's layout, and problems; each is written as a frame when it is full. */
#ifndef MIGRATOR_WALK_ROWS_H
#define MIGRATOR_WALK_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frames.h"

enum entry_type {
    TYPE_FILE,
    TYPE_DIRECTORY,
    TYPE_SYMLINK,
    TYPE_FIFO,
    TYPE_SOCKET,
    TYPE_BLOCK,
    TYPE_CHARACTER,
};

/* One row; rows_add reads the pointers and does not keep them. */
struct row {
    const char *directory;
    size_t directory_length;
    const char *name;
    enum entry_type type;
    int64_t size, blocks, mtime_ns, atime_ns, ctime_ns;
    uint64_t rdev, ino;
    uint32_t uid, gid;
    int32_t mode;
    uint32_t nlink;
    int32_t xattr_largest_bytes, xattr_kinds, acl_entries, tree;
    const uint8_t *gfid;
    const char *symlink_target; /* NULL: none */
    size_t symlink_length;
    const uint8_t *xattr_digest; /* NULL: none */
};

enum { WIDE_COLUMNS = 7, NARROW_COLUMNS = 8, BITMAPS = 5, VARIABLE_COLUMNS = 4, DIGEST_BYTES = 16 };

/* The bytes of one column of variable length. */
struct pool {
    uint8_t *data;
    size_t length;
    size_t capacity;
    int32_t *offsets;
};

struct rows {
    enum frame_kind kind;
    uint32_t count;
    uint32_t capacity;
    uint64_t *wide[WIDE_COLUMNS];
    uint32_t *narrow[NARROW_COLUMNS];
    uint8_t *type;
    uint8_t *bitmaps[BITMAPS];
    struct pool pools[VARIABLE_COLUMNS];
};

void rows_start(struct rows *rows, enum frame_kind kind, uint32_t capacity);

/* Add a row; writes the frame when it is full. */
void rows_add(struct rows *rows, const struct row *row);

/* Write the stored rows. */
void rows_flush(struct rows *rows);

/* Free the memory of rows_start. */
void rows_free(struct rows *rows);

/* The number of names in a directory, and the sum of their hashes: the same for the same names in any order. */
struct listing {
    uint64_t entries;
    uint64_t names;
};

/* Listings of directories; one that is read in pieces has several. */
struct listings {
    uint32_t count;
    struct listing *each;
    struct pool paths;
};

void listings_start(struct listings *listings);

/* Add a listing; writes the frame when it is full. */
void listings_add(struct listings *listings, const char *directory, size_t directory_length, struct listing listing);

void listings_flush(struct listings *listings);

void listings_free(struct listings *listings);

enum problem_kind { PROBLEM = 0, PROBLEM_ASK_THE_MOUNT = 1, PROBLEM_STRANGE = 2, PROBLEM_MARKED = 3 };

struct problems {
    uint8_t *data;
    size_t length;
    size_t capacity;
    uint32_t count;
};

/* Add a problem; `name` NULL: with the directory itself. Writes the frame when it is full. */
void problems_add(struct problems *problems, enum problem_kind kind, const char *directory, size_t directory_length,
                  const char *name, const char *operation, int error, const char *reason);

void problems_flush(struct problems *problems);

/* Entries that a walk reports, each with a value. */
struct findings {
    uint8_t *data;
    size_t length;
    size_t capacity;
    uint64_t count;
};

/* Add a finding; `name` NULL: the directory itself. Writes the frame when it is full. */
void findings_add(struct findings *findings, const char *directory, size_t directory_length, const char *name,
                  const void *value, size_t value_length);

void findings_flush(struct findings *findings);

#endif
