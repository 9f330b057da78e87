/* Directories that wait to be read: one stack for each worker. A worker whose stack is empty takes from the far end of
 * another. */
#ifndef MIGRATOR_WALK_QUEUE_H
#define MIGRATOR_WALK_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct reading;

/* One directory to read, from its beginning or (`inode` not 0) from an offset on; or some of its names, which another
 * worker has listed (`reading`). */
struct task {
    struct task *next; /* towards the end that other workers take from */
    struct task *previous;
    int32_t tree;
    ino_t inode;
    int64_t offset;
    struct reading *reading;
    char *names; /* each ends with NUL; freed with the task */
    size_t names_length;
    size_t path_length;
    char path[]; /* relative to the brick's root, "" for the root itself; ends with NUL */
};

struct stack {
    pthread_mutex_t lock;
    struct task *top;
    struct task *bottom;
    char padding[64]; /* each stack has its own cache line */
};

struct queue {
    struct stack *stacks;
    unsigned workers;
    atomic_size_t waiting;    /* in all stacks */
    atomic_size_t unfinished; /* waiting, or being read */
    atomic_uint idle;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

void queue_start(struct queue *queue, unsigned workers);

/* Free the memory of queue_start; no worker may be left. */
void queue_free(struct queue *queue);

/* A task for `directory/name`. */
struct task *task_made(const char *directory, size_t directory_length, const char *name, int32_t tree);

/* Push a chain of tasks, linked by `next`; the first one is taken first. The queue then owns them. */
void queue_push(struct queue *queue, unsigned worker, struct task *first, size_t count);

/* Count tasks that a worker keeps for itself: the walk is not done before they are. */
void queue_expect(struct queue *queue, size_t count);

/* As queue_push, for tasks that are counted already. */
void queue_offer(struct queue *queue, unsigned worker, struct task *first, size_t count);

/* Whether more workers wait for a task than there are tasks. */
bool queue_is_short(struct queue *queue);

/* A task that waits now; NULL if there is none. */
struct task *queue_try(struct queue *queue, unsigned worker);

/* The next task; waits for one. NULL when every task of every worker is done. */
struct task *queue_take(struct queue *queue, unsigned worker);

/* Finish a taken task: its children have been pushed. */
void queue_done(struct queue *queue, struct task *task);

#endif
