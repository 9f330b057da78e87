/* The end of a copy: it is synced if need be, closed, and gets its time and its name. A sync waits for disks, or for a
 * server: many are in flight at once, each in a thread. Their results are reported by a thread that copies. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "copy.h"

#define IN_FLIGHT 16

enum state { IDLE, GIVEN, ENDED };

/* One copy in flight; `copier` is a copy of the one that copies, with its own directory and errors. */
struct flight {
    enum state state;
    bool has_thread;
    size_t index;
    struct made made;
    struct copier copier;
};

static struct flight flights[IN_FLIGHT];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

/* Returns the result of the copy, or RESULT_FAILED. */
enum result finish(struct copier *copier, const struct made *made) {
    enum result result = made->result;
    const char *name = made->temporary[0] != '\0' ? made->temporary : made->name;
    bool is_copied = result == RESULT_FINE || result == RESULT_CHANGED;
    bool whole = is_copied;
    /* Through the descriptor that has written: BeeGFS syncs only the files that a session has open on the servers. */
    if (whole && copier->options->fsync && fsync(made->out) < 0)
        whole = (failed(copier, SIDE_TARGET, "sync"), false);
    if (close(made->out) < 0 && whole)
        whole = (failed(copier, SIDE_TARGET, "close"), false);
    whole = whole && dress_times(copier, name, made->mtime_ns) == 0;
    if (!whole && !made->is_part)
        unlinkat(copier->target_directory, name, 0);
    if (!whole)
        return is_copied ? RESULT_FAILED : result;
    if (name != made->name && put_in_place(copier, name, made->name) < 0)
        return RESULT_FAILED;
    count_file();
    return result;
}

static void *fly(void *argument) {
    struct flight *flight = argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (flight->state != GIVEN)
            pthread_cond_wait(&given, &lock);
        pthread_mutex_unlock(&lock);
        enum result result = finish(&flight->copier, &flight->made);
        close(flight->copier.target_directory);
        pthread_mutex_lock(&lock);
        flight->made.result = result;
        flight->state = ENDED;
        pthread_cond_signal(&ended);
    }
    return NULL;
}

/* Report a copy that has ended, with its errors, as one of this thread. */
static void land(struct copier *copier, struct flight *flight) {
    struct copier *other = &flight->copier;
    enum result result = flight->made.result;
    flight->state = IDLE;
    copier->failed_side = other->failed_side;
    copier->failed_operation = other->failed_operation;
    copier->failed_errno = other->failed_errno;
    report(copier, flight->index, result);
}

/* An idle flight. Those that have ended are reported first. */
static struct flight *next_idle(struct copier *copier) {
    for (;;) {
        struct flight *idle = NULL;
        for (struct flight *one = flights; one < flights + IN_FLIGHT; one++) {
            if (one->state == ENDED)
                land(copier, one);
            if (one->state == IDLE && (idle == NULL || one->has_thread))
                idle = one;
        }
        if (idle != NULL)
            return idle;
        pthread_cond_wait(&ended, &lock);
    }
}

/* As finish, but in a thread: RESULT_LATER, and the result is reported later. */
enum result finish_beside(struct copier *copier, const struct made *made) {
    pthread_mutex_lock(&lock);
    struct flight *flight = next_idle(copier);
    pthread_t thread;
    int directory = fcntl(copier->target_directory, F_DUPFD_CLOEXEC, 0);
    if (!flight->has_thread && directory >= 0)
        flight->has_thread = pthread_create(&thread, NULL, fly, flight) == 0;
    bool flies = flight->has_thread && directory >= 0;
    if (flies) {
        flight->index = (size_t)(copier->record - copier->list->records);
        flight->made = *made;
        flight->copier = *copier;
        flight->copier.target_directory = directory;
        flight->state = GIVEN;
        pthread_cond_broadcast(&given);
    } else if (directory >= 0) {
        close(directory);
    }
    pthread_mutex_unlock(&lock);
    return flies ? RESULT_LATER : finish(copier, made);
}

/* Wait for all copies in flight, and report them. */
void end_finishing(struct copier *copier) {
    pthread_mutex_lock(&lock);
    for (struct flight *one = flights; one < flights + IN_FLIGHT; one++) {
        while (one->state == GIVEN)
            pthread_cond_wait(&ended, &lock);
        if (one->state == ENDED)
            land(copier, one);
    }
    pthread_mutex_unlock(&lock);
}
