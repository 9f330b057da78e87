/* The walk of a mount: many calls in flight, since each waits for a server, and results in an order that can be resumed.
 *
 * A directory is done when all of its entries are written. Its children wait for that, on a stack of the worker that read
 * it: they follow in the same stream. Other workers get them only after all rows have been written. If other workers are
 * idle, they also get names of the directory that is being read: a directory of 10^6 files is not read by one worker. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "walk.h"

/* What other workers get of a directory takes about this long, so that its frames are not many. */
#define PART_NS 4000000u
#define PART_NAMES_LEAST 16u
#define PART_NAMES_MOST 2048u
#define ENTRY_NS 50000u /* the first guess */
#define SETTLED_EACH_NS 1000000000u
#define LISTINGS_LIMIT 2048u
#define LISTINGS_BYTES (1u << 20)

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool is_short(struct worker *worker)
{
    return queue_is_short(&worker->walk->queue);
}

/* Put a chain of tasks, which are counted already, on the worker's own stack. */
static void keep(struct worker *worker, struct task *first, size_t count)
{
    if (count == 0)
        return;
    struct task *last = first;
    while (last->next != NULL)
        last = last->next;
    last->next = worker->own;
    worker->own = first;
    worker->own_count += count;
}

/* A directory has been read, and its rows are written or will be before anything that follows from here. */
static void directory_done(struct worker *worker, struct task *task, struct task *found, size_t found_count,
                           struct listing names)
{
    if (worker->walk->listings)
        listings_add(&worker->listings, task->path, task->path_length, names);
    queue_expect(&worker->walk->queue, found_count);
    keep(worker, found, found_count);
    queue_done(&worker->walk->queue, task);
}

/* One part of a reading is written. */
static void part_done(struct worker *worker, struct reading *reading)
{
    if (atomic_fetch_sub(&reading->parts, 1) > 1)
        return;
    directory_done(worker, reading->task, reading->found, reading->found_count, reading->names);
    pthread_mutex_destroy(&reading->lock);
    free(reading);
}

/* Write everything that was found, report the directories that are done by it, and share own ones with idle workers. */
static void settle(struct worker *worker)
{
    rows_flush(&worker->files);
    rows_flush(&worker->directories);
    problems_flush(&worker->problems);
    /* Before the parts: the last one of a reading may report the directory at once, after the one above it. */
    listings_flush(&worker->listings);
    for (size_t index = 0; index < worker->unsettled_count; index++)
        part_done(worker, worker->unsettled[index]);
    worker->unsettled_count = 0;
    listings_flush(&worker->listings);
    worker->settled_ns = now_ns();
    if (worker->own_count > 1 && is_short(worker)) {
        queue_offer(&worker->walk->queue, worker->number, worker->own->next, worker->own_count - 1);
        worker->own->next = NULL;
        worker->own_count = 1;
    }
}

static bool is_due(struct worker *worker)
{
    if (is_short(worker) && (worker->own_count > 1 || worker->unsettled_count > 0))
        return true;
    return 2 * worker->files.count >= worker->files.capacity ||
           2 * worker->directories.count >= worker->directories.capacity ||
           worker->listings.count >= LISTINGS_LIMIT || worker->listings.paths.length >= LISTINGS_BYTES ||
           now_ns() - worker->settled_ns >= SETTLED_EACH_NS;
}

/* The worker has read its part of a directory: it is done once this is written. */
static void part_read(struct worker *worker, struct reading *reading)
{
    pthread_mutex_lock(&reading->lock);
    if (worker->found_count > 0) {
        struct task *last = worker->found;
        while (last->next != NULL)
            last = last->next;
        last->next = reading->found;
        reading->found = worker->found;
        reading->found_count += worker->found_count;
    }
    pthread_mutex_unlock(&reading->lock);
    worker->found = NULL;
    worker->found_count = 0;
    if (worker->unsettled_count == worker->unsettled_capacity) {
        worker->unsettled_capacity = 2 * worker->unsettled_capacity + 16;
        worker->unsettled = reallocated(worker->unsettled, worker->unsettled_capacity * sizeof *worker->unsettled);
    }
    worker->unsettled[worker->unsettled_count++] = reading;
}

static struct reading *reading_made(struct task *task, ino_t inode)
{
    struct reading *reading = allocated(sizeof *reading);
    memset(reading, 0, sizeof *reading);
    pthread_mutex_init(&reading->lock, NULL);
    atomic_init(&reading->parts, 1);
    reading->task = task;
    reading->inode = inode;
    return reading;
}

/* Give some names of the directory to other workers. */
static void give(struct worker *worker, struct reading *reading, const struct place *places, size_t count)
{
    struct task *part = task_made("", 0, reading->task->path, reading->task->tree);
    size_t length = 0;
    for (size_t index = 0; index < count; index++)
        length += strlen(places[index].name) + 1;
    part->reading = reading;
    part->inode = reading->inode;
    part->names = allocated(length);
    for (size_t index = 0; index < count; index++) {
        size_t bytes = strlen(places[index].name) + 1;
        memcpy(part->names + part->names_length, places[index].name, bytes);
        part->names_length += bytes;
    }
    atomic_fetch_add(&reading->parts, 1);
    queue_push(&worker->walk->queue, worker->number, part, 1);
}

static size_t part_names(const struct worker *worker)
{
    size_t count = PART_NS / (worker->entry_ns > 0 ? worker->entry_ns : 1);
    return count < PART_NAMES_LEAST ? PART_NAMES_LEAST : count > PART_NAMES_MOST ? PART_NAMES_MOST : count;
}

static void read_names(struct worker *worker, const struct task *task, const struct place *places, size_t count)
{
    uint64_t began_ns = now_ns();
    for (size_t index = 0; index < count; index++)
        entry_read(worker, task, places[index].name);
    if (count > 0)
        worker->entry_ns = (3 * worker->entry_ns + (now_ns() - began_ns) / count) / 4;
}

/* Read all names of a directory, or give them to idle workers. Returns the reading if others have a part in it. */
static struct reading *read_listing(struct worker *worker, struct task *task, int fd, ino_t inode)
{
    struct reading *reading = NULL;
    size_t length;
    int64_t next = 0;
    names_clear(&worker->names_met);
    while ((length = piece_read(worker, task, fd)) > 0) {
        size_t count = names_listed(worker, task, length, &next);
        for (size_t at = 0, some; at < count; at += some) {
            some = part_names(worker);
            some = some < count - at ? some : count - at;
            if (some < PART_NAMES_LEAST || !is_short(worker)) {
                read_names(worker, task, worker->places + at, some);
                continue;
            }
            if (reading == NULL)
                reading = reading_made(task, inode);
            give(worker, reading, worker->places + at, some);
        }
    }
    return reading;
}

static void read_directory(struct worker *worker, struct task *task)
{
    struct reading *reading = NULL;
    struct stat facts;
    int fd;
    worker->names_read = (struct listing){0};
    if (directory_enter(worker, task, &fd, &facts))
        reading = read_listing(worker, task, fd, facts.st_ino);
    if (fd >= 0 && task->path_length == 0)
        close(fd);
    if (reading != NULL) {
        reading->names = worker->names_read;
        part_read(worker, reading);
        return;
    }
    struct task *found = worker->found;
    size_t found_count = worker->found_count;
    worker->found = NULL;
    worker->found_count = 0;
    directory_done(worker, task, found, found_count, worker->names_read);
}

/* Read the names that another worker has listed. */
static void read_part(struct worker *worker, struct task *part)
{
    struct stat facts;
    int fd;
    if (directory_enter(worker, part, &fd, &facts)) {
        uint64_t began_ns = now_ns(), count = 0;
        for (const char *name = part->names; name < part->names + part->names_length; name += strlen(name) + 1) {
            entry_read(worker, part, name);
            count++;
        }
        worker->entry_ns = (3 * worker->entry_ns + (now_ns() - began_ns) / count) / 4;
    }
    if (fd >= 0 && part->path_length == 0)
        close(fd);
    part_read(worker, part->reading);
    queue_done(&worker->walk->queue, part);
}

static struct task *next_task(struct worker *worker)
{
    struct queue *queue = &worker->walk->queue;
    for (;;) {
        struct task *task = worker->own;
        if (task != NULL) {
            worker->own = task->next;
            task->next = NULL;
            worker->own_count--;
            return task;
        }
        if ((task = queue_try(queue, worker->number)) != NULL)
            return task;
        settle(worker);
        if (worker->own == NULL)
            return queue_take(queue, worker->number);
    }
}

void worker_run_in_order(struct worker *worker)
{
    struct task *task;
    worker->entry_ns = ENTRY_NS;
    worker->settled_ns = now_ns();
    while ((task = next_task(worker)) != NULL) {
        if (task->reading != NULL)
            read_part(worker, task);
        else
            read_directory(worker, task);
        if (is_due(worker))
            settle(worker);
    }
    names_free(&worker->names_met);
    free(worker->unsettled);
}
