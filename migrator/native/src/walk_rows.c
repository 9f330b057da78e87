#include "walk_rows.h"

#include <stdlib.h>
#include <string.h>

/* A frame is written long before its bytes exceed 32-bit offsets. */
#define POOL_LIMIT_BYTES (16u << 20)
#define PROBLEMS_LIMIT 1000u
#define LISTINGS_LIMIT 4096u
#define FINDINGS_LIMIT 1000u

enum bitmap { HAS_TREE, HAS_GFID, HAS_LINK_GROUP, HAS_TARGET, HAS_DIGEST };
enum pool_number { PATHS, GFIDS, TARGETS, DIGESTS };

static const uint8_t ZEROS[8];

void rows_start(struct rows *rows, enum frame_kind kind, uint32_t capacity)
{
    memset(rows, 0, sizeof *rows);
    rows->kind = kind;
    rows->capacity = capacity;
    for (int column = 0; column < WIDE_COLUMNS; column++)
        rows->wide[column] = allocated((size_t)capacity * sizeof(uint64_t));
    for (int column = 0; column < NARROW_COLUMNS; column++)
        rows->narrow[column] = allocated((size_t)capacity * sizeof(uint32_t));
    rows->type = allocated(capacity);
    for (int bitmap = 0; bitmap < BITMAPS; bitmap++) {
        rows->bitmaps[bitmap] = allocated(capacity / 8 + 1);
        memset(rows->bitmaps[bitmap], 0, capacity / 8 + 1);
    }
    for (int pool = 0; pool < VARIABLE_COLUMNS; pool++) {
        rows->pools[pool].offsets = allocated(((size_t)capacity + 1) * sizeof(int32_t));
        rows->pools[pool].offsets[0] = 0;
    }
}

void rows_free(struct rows *rows)
{
    for (int column = 0; column < WIDE_COLUMNS; column++)
        free(rows->wide[column]);
    for (int column = 0; column < NARROW_COLUMNS; column++)
        free(rows->narrow[column]);
    free(rows->type);
    for (int bitmap = 0; bitmap < BITMAPS; bitmap++)
        free(rows->bitmaps[bitmap]);
    for (int pool = 0; pool < VARIABLE_COLUMNS; pool++) {
        free(rows->pools[pool].data);
        free(rows->pools[pool].offsets);
    }
}

static uint8_t *room(struct pool *pool, size_t length)
{
    if (pool->length + length >= pool->capacity) {
        pool->capacity = 2 * pool->capacity + length + 4096;
        pool->data = reallocated(pool->data, pool->capacity);
    }
    uint8_t *place = pool->data + pool->length;
    pool->length += length;
    return place;
}

static void mark(struct rows *rows, enum bitmap bitmap)
{
    rows->bitmaps[bitmap][rows->count / 8] |= (uint8_t)(1u << (rows->count % 8));
}

void rows_add(struct rows *rows, const struct row *row)
{
    uint32_t at = rows->count;
    const uint64_t wide[WIDE_COLUMNS] = {
        (uint64_t)row->size,     (uint64_t)row->blocks, (uint64_t)row->mtime_ns, (uint64_t)row->atime_ns,
        (uint64_t)row->ctime_ns, row->rdev,             row->ino,
    };
    const uint32_t narrow[NARROW_COLUMNS] = {
        row->uid,
        row->gid,
        (uint32_t)row->mode,
        row->nlink,
        (uint32_t)row->xattr_largest_bytes,
        (uint32_t)row->xattr_kinds,
        (uint32_t)row->acl_entries,
        (uint32_t)row->tree,
    };
    for (int column = 0; column < WIDE_COLUMNS; column++)
        rows->wide[column][at] = wide[column];
    for (int column = 0; column < NARROW_COLUMNS; column++)
        rows->narrow[column][at] = narrow[column];
    rows->type[at] = (uint8_t)row->type;

    size_t name_length = strlen(row->name);
    size_t slash = row->directory_length > 0;
    uint8_t *path = room(&rows->pools[PATHS], row->directory_length + slash + name_length);
    memcpy(path, row->directory, row->directory_length);
    if (slash)
        path[row->directory_length] = '/';
    memcpy(path + row->directory_length + slash, row->name, name_length);
    if (row->tree >= 0)
        mark(rows, HAS_TREE);
    if (row->gfid != NULL) {
        memcpy(room(&rows->pools[GFIDS], 16), row->gfid, 16);
        mark(rows, HAS_GFID);
    }
    if (row->nlink > 1 && row->type != TYPE_DIRECTORY)
        mark(rows, HAS_LINK_GROUP);
    if (row->symlink_target != NULL) {
        memcpy(room(&rows->pools[TARGETS], row->symlink_length), row->symlink_target, row->symlink_length);
        mark(rows, HAS_TARGET);
    }
    if (row->xattr_digest != NULL) {
        memcpy(room(&rows->pools[DIGESTS], DIGEST_BYTES), row->xattr_digest, DIGEST_BYTES);
        mark(rows, HAS_DIGEST);
    }
    rows->count = ++at;
    for (int pool = 0; pool < VARIABLE_COLUMNS; pool++)
        rows->pools[pool].offsets[at] = (int32_t)rows->pools[pool].length;
    if (at == rows->capacity || rows->pools[PATHS].length > POOL_LIMIT_BYTES ||
        rows->pools[TARGETS].length > POOL_LIMIT_BYTES)
        rows_flush(rows);
}

/* The pieces of a frame, each padded with zeros to 8 bytes. */
struct pieces {
    struct iovec list[2 * (2 + WIDE_COLUMNS + NARROW_COLUMNS + 1 + BITMAPS + 2 * VARIABLE_COLUMNS)];
    size_t count;
};

static void piece(struct pieces *pieces, const void *data, size_t length)
{
    pieces->list[pieces->count++] = (struct iovec){(void *)(uintptr_t)data, length};
    if (length % 8 != 0)
        pieces->list[pieces->count++] = (struct iovec){(void *)(uintptr_t)ZEROS, 8 - length % 8};
}

void rows_flush(struct rows *rows)
{
    if (rows->count == 0)
        return;
    struct pieces pieces = {.count = 1};
    uint64_t head[1 + VARIABLE_COLUMNS] = {rows->count};
    for (int pool = 0; pool < VARIABLE_COLUMNS; pool++)
        head[1 + pool] = rows->pools[pool].length;
    piece(&pieces, head, sizeof head);
    for (int column = 0; column < WIDE_COLUMNS; column++)
        piece(&pieces, rows->wide[column], rows->count * sizeof(uint64_t));
    for (int column = 0; column < NARROW_COLUMNS; column++)
        piece(&pieces, rows->narrow[column], rows->count * sizeof(uint32_t));
    piece(&pieces, rows->type, rows->count);
    size_t bitmap_bytes = (rows->count + 7) / 8;
    for (int bitmap = 0; bitmap < BITMAPS; bitmap++)
        piece(&pieces, rows->bitmaps[bitmap], bitmap_bytes);
    for (int pool = 0; pool < VARIABLE_COLUMNS; pool++) {
        piece(&pieces, rows->pools[pool].offsets, (rows->count + 1) * sizeof(int32_t));
        piece(&pieces, rows->pools[pool].data, rows->pools[pool].length);
    }
    frame_write(rows->kind, pieces.list, pieces.count);
    for (int bitmap = 0; bitmap < BITMAPS; bitmap++)
        memset(rows->bitmaps[bitmap], 0, bitmap_bytes);
    for (int pool = 0; pool < VARIABLE_COLUMNS; pool++)
        rows->pools[pool].length = 0;
    rows->count = 0;
}

void listings_start(struct listings *listings)
{
    memset(listings, 0, sizeof *listings);
    listings->each = allocated(LISTINGS_LIMIT * sizeof *listings->each);
    listings->paths.offsets = allocated((LISTINGS_LIMIT + 1) * sizeof(int32_t));
    listings->paths.offsets[0] = 0;
}

void listings_add(struct listings *listings, const char *directory, size_t directory_length, struct listing listing)
{
    memcpy(room(&listings->paths, directory_length), directory, directory_length);
    listings->each[listings->count++] = listing;
    listings->paths.offsets[listings->count] = (int32_t)listings->paths.length;
    if (listings->count == LISTINGS_LIMIT || listings->paths.length > POOL_LIMIT_BYTES)
        listings_flush(listings);
}

void listings_flush(struct listings *listings)
{
    if (listings->count == 0)
        return;
    struct pieces pieces = {.count = 1};
    uint64_t head[2] = {listings->count, listings->paths.length};
    piece(&pieces, head, sizeof head);
    piece(&pieces, listings->each, listings->count * sizeof *listings->each);
    piece(&pieces, listings->paths.offsets, (listings->count + 1) * sizeof(int32_t));
    piece(&pieces, listings->paths.data, listings->paths.length);
    frame_write(FRAME_LISTINGS, pieces.list, pieces.count);
    listings->count = 0;
    listings->paths.length = 0;
}

void listings_free(struct listings *listings)
{
    free(listings->each);
    free(listings->paths.offsets);
    free(listings->paths.data);
}

/* The length of the path of a name in a directory; of the directory itself (`name` NULL). The root's path is empty. */
static size_t joined_length(size_t directory_length, const char *name)
{
    return name == NULL ? directory_length : directory_length + (directory_length > 0) + strlen(name);
}

/* Write that path, without a NUL. */
static void join(uint8_t *place, const char *directory, size_t directory_length, const char *name)
{
    memcpy(place, directory, directory_length);
    if (name == NULL)
        return;
    place += directory_length;
    if (directory_length > 0)
        *place++ = '/';
    memcpy(place, name, strlen(name));
}

void problems_add(struct problems *problems, enum problem_kind kind, const char *directory, size_t directory_length,
                  const char *name, const char *operation, int error, const char *reason)
{
    size_t path_length = joined_length(directory_length, name);
    size_t operation_length = strlen(operation), reason_length = strlen(reason);
    const uint32_t head[5] = {(uint32_t)kind, (uint32_t)error, (uint32_t)path_length, (uint32_t)operation_length,
                              (uint32_t)reason_length};
    size_t needed = sizeof head + path_length + operation_length + reason_length;
    if (problems->length + needed > problems->capacity) {
        problems->capacity = 2 * problems->capacity + needed + 4096;
        problems->data = reallocated(problems->data, problems->capacity);
    }
    uint8_t *place = problems->data + problems->length;
    memcpy(place, head, sizeof head);
    place += sizeof head;
    join(place, directory, directory_length, name);
    place += path_length;
    memcpy(place, operation, operation_length);
    memcpy(place + operation_length, reason, reason_length);
    problems->length += needed;
    if (++problems->count == PROBLEMS_LIMIT)
        problems_flush(problems);
}

void problems_flush(struct problems *problems)
{
    if (problems->count == 0)
        return;
    uint64_t count = problems->count;
    struct iovec pieces[3] = {{NULL, 0}, {&count, sizeof count}, {problems->data, problems->length}};
    frame_write(FRAME_PROBLEMS, pieces, 3);
    problems->length = 0;
    problems->count = 0;
}

void findings_add(struct findings *findings, const char *directory, size_t directory_length, const char *name,
                  const void *value, size_t value_length)
{
    size_t path_length = joined_length(directory_length, name);
    const uint32_t head[2] = {(uint32_t)path_length, (uint32_t)value_length};
    size_t needed = sizeof head + path_length + value_length;
    if (findings->length + needed > findings->capacity) {
        findings->capacity = 2 * findings->capacity + needed + 4096;
        findings->data = reallocated(findings->data, findings->capacity);
    }
    uint8_t *place = findings->data + findings->length;
    memcpy(place, head, sizeof head);
    place += sizeof head;
    join(place, directory, directory_length, name);
    memcpy(place + path_length, value, value_length);
    findings->length += needed;
    if (++findings->count == FINDINGS_LIMIT || findings->length > POOL_LIMIT_BYTES)
        findings_flush(findings);
}

void findings_flush(struct findings *findings)
{
    if (findings->count == 0)
        return;
    struct iovec pieces[3] = {
        {NULL, 0}, {&findings->count, sizeof findings->count}, {findings->data, findings->length}};
    frame_write(FRAME_FINDINGS, pieces, 3);
    findings->length = 0;
    findings->count = 0;
}
