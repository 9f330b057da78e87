#include "walk_queue.h"

#include <stdlib.h>
#include <string.h>

#include "frames.h"

void queue_start(struct queue *queue, unsigned workers)
{
    memset(queue, 0, sizeof *queue);
    queue->workers = workers;
    queue->stacks = allocated(workers * sizeof *queue->stacks);
    memset(queue->stacks, 0, workers * sizeof *queue->stacks);
    for (unsigned index = 0; index < workers; index++)
        pthread_mutex_init(&queue->stacks[index].lock, NULL);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
}

void queue_free(struct queue *queue)
{
    free(queue->stacks);
    queue->stacks = NULL;
}

struct task *task_made(const char *directory, size_t directory_length, const char *name, int32_t tree)
{
    size_t name_length = strlen(name);
    size_t slash = directory_length > 0;
    struct task *task = allocated(sizeof *task + directory_length + slash + name_length + 1);
    memset(task, 0, sizeof *task);
    task->tree = tree;
    task->path_length = directory_length + slash + name_length;
    memcpy(task->path, directory, directory_length);
    if (slash)
        task->path[directory_length] = '/';
    memcpy(task->path + directory_length + slash, name, name_length + 1);
    return task;
}

void queue_push(struct queue *queue, unsigned worker, struct task *first, size_t count)
{
    queue_expect(queue, count);
    queue_offer(queue, worker, first, count);
}

void queue_expect(struct queue *queue, size_t count)
{
    atomic_fetch_add(&queue->unfinished, count);
}

void queue_offer(struct queue *queue, unsigned worker, struct task *first, size_t count)
{
    if (count == 0)
        return;
    struct stack *stack = &queue->stacks[worker];
    struct task *last = first;
    first->previous = NULL;
    while (last->next != NULL) {
        last->next->previous = last;
        last = last->next;
    }
    pthread_mutex_lock(&stack->lock);
    last->next = stack->top;
    if (stack->top != NULL)
        stack->top->previous = last;
    else
        stack->bottom = last;
    stack->top = first;
    pthread_mutex_unlock(&stack->lock);
    /* Add to the count before checking for idle workers: they mark themselves idle before they check the count. */
    atomic_fetch_add(&queue->waiting, count);
    if (atomic_load(&queue->idle) > 0) {
        pthread_mutex_lock(&queue->lock);
        pthread_cond_broadcast(&queue->changed);
        pthread_mutex_unlock(&queue->lock);
    }
}

static struct task *taken(struct queue *queue, unsigned from, bool own)
{
    struct stack *stack = &queue->stacks[from];
    pthread_mutex_lock(&stack->lock);
    struct task *task = own ? stack->top : stack->bottom;
    if (task != NULL) {
        if (task->previous != NULL)
            task->previous->next = task->next;
        else
            stack->top = task->next;
        if (task->next != NULL)
            task->next->previous = task->previous;
        else
            stack->bottom = task->previous;
        task->next = task->previous = NULL;
    }
    pthread_mutex_unlock(&stack->lock);
    if (task != NULL)
        atomic_fetch_sub(&queue->waiting, 1);
    return task;
}

bool queue_is_short(struct queue *queue)
{
    return atomic_load(&queue->idle) > atomic_load(&queue->waiting);
}

struct task *queue_try(struct queue *queue, unsigned worker)
{
    for (unsigned step = 0; step < queue->workers; step++) {
        struct task *task = taken(queue, (worker + step) % queue->workers, step == 0);
        if (task != NULL)
            return task;
    }
    return NULL;
}

struct task *queue_take(struct queue *queue, unsigned worker)
{
    for (;;) {
        struct task *task = queue_try(queue, worker);
        if (task != NULL)
            return task;
        pthread_mutex_lock(&queue->lock);
        atomic_fetch_add(&queue->idle, 1);
        while (atomic_load(&queue->waiting) == 0 && atomic_load(&queue->unfinished) > 0)
            pthread_cond_wait(&queue->changed, &queue->lock);
        atomic_fetch_sub(&queue->idle, 1);
        pthread_mutex_unlock(&queue->lock);
        if (atomic_load(&queue->unfinished) == 0)
            return NULL;
    }
}

void queue_done(struct queue *queue, struct task *task)
{
    free(task->names);
    free(task);
    if (atomic_fetch_sub(&queue->unfinished, 1) == 1) {
        pthread_mutex_lock(&queue->lock);
        pthread_cond_broadcast(&queue->changed);
        pthread_mutex_unlock(&queue->lock);
    }
}
