/* Reports on standard output. The lines contain no names, so no file name can imitate a line.
 *
 *     P FILES BYTES                            so far, a few times a second and at the end
 *     F INDEX PROBLEM SIDE ERRNO OPERATION     of the path at INDEX of the list: vanished, moved, changed or bad
 *     D INDEX ...                              the digest of its content (digest.c)
 *
 * Lines of different paths are in any order.
 *
 * A new limit, in bytes per second (0: none), arrives as the value of a SIGURG. Other programs ignore that signal. Here it
 * stays blocked, so that it interrupts no system call. */

#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "copy.h"

#define TICK_NS 250000000
#define LONGEST_SLEEP_NS 100000000
#define NS_PER_S 1000000000

static _Atomic uint64_t files;
static _Atomic uint64_t bytes_written;
static _Atomic int64_t printed_at_ns;
static _Atomic bool stopped;
static bool reporting; /* not at a reading end: its output is the content */
static sigset_t urgent;

/* Of the output. */
static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;
static char waiting[1 << 15];
static size_t waiting_length;

/* Of the limit; the one that waits for it lets all others wait. */
static pthread_mutex_t pacing = PTHREAD_MUTEX_INITIALIZER;
static int64_t paced_from_ns;
static uint64_t paced_bytes;
static _Atomic uint64_t limit_bytes_per_s;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)NS_PER_S + now.tv_nsec;
}

static void flush_lines(void) {
    size_t at = 0;
    while (at < waiting_length) {
        ssize_t written = write(STDOUT_FILENO, waiting + at, waiting_length - at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            _exit(EXIT_NOBODY_LISTENS);
        at += (size_t)written;
    }
    waiting_length = 0;
}

static void add_line(const char *format, va_list arguments) {
    if (sizeof waiting - waiting_length < 512)
        flush_lines();
    waiting_length += (size_t)vsnprintf(waiting + waiting_length, sizeof waiting - waiting_length, format, arguments);
}

/* Write a line, of less than 512 bytes, at the next flush. */
void print_event(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&printing);
    add_line(format, arguments);
    pthread_mutex_unlock(&printing);
    va_end(arguments);
}

/* Write a line at once, after those that wait. */
void print_request(const char *line) {
    pthread_mutex_lock(&printing);
    flush_lines();
    waiting_length = (size_t)snprintf(waiting, sizeof waiting, "%s\n", line);
    flush_lines();
    pthread_mutex_unlock(&printing);
}

/* As print_event, for the holder of `printing`. */
__attribute__((format(printf, 1, 2))) static void print_event_held(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add_line(format, arguments);
    va_end(arguments);
}

void count_file(void) { atomic_fetch_add(&files, 1); }

void start_events(const struct options *options) {
    reporting = true;
    limit_bytes_per_s = options->bwlimit_bytes_per_s;
    paced_from_ns = printed_at_ns = now_ns();
    sigemptyset(&urgent);
    sigaddset(&urgent, SIGURG);
    sigprocmask(SIG_BLOCK, &urgent, NULL);
}

static void print_progress(void) {
    print_event_held("P %" PRIu64 " %" PRIu64 "\n", atomic_load(&files), atomic_load(&bytes_written));
    flush_lines();
}

/* Report progress, at intervals. */
void tick(void) {
    int64_t now = now_ns();
    int64_t printed = atomic_load(&printed_at_ns);
    if (!reporting || now - printed < TICK_NS || !atomic_compare_exchange_strong(&printed_at_ns, &printed, now))
        return;
    pthread_mutex_lock(&printing);
    print_progress();
    pthread_mutex_unlock(&printing);
}

/* Bytes that are ahead of the limit, or behind it, stay so under a new one. */
static void take_new_limit(void) {
    static const struct timespec at_once;
    siginfo_t news;
    while (sigtimedwait(&urgent, &news, &at_once) == SIGURG) {
        uint64_t limit = (uint64_t)(uintptr_t)news.si_value.sival_ptr;
        if (news.si_code != SI_QUEUE || limit == limit_bytes_per_s)
            continue;
        int64_t now = now_ns();
        double ahead = (double)paced_bytes - (double)(now - paced_from_ns) / NS_PER_S * (double)limit_bytes_per_s;
        paced_bytes = ahead > 0 ? (uint64_t)ahead : 0;
        double ahead_s = limit > 0 ? ahead / (double)limit : 0;
        paced_from_ns = ahead_s > 0 ? now : now + (int64_t)((ahead_s < -1 ? -1 : ahead_s) * NS_PER_S);
        limit_bytes_per_s = limit;
    }
}

static void wait_for_limit(size_t bytes) {
    paced_bytes += limit_bytes_per_s == 0 ? 0 : bytes;
    for (;;) {
        take_new_limit();
        if (limit_bytes_per_s == 0)
            return;
        int64_t now = now_ns();
        int64_t due = paced_from_ns + (int64_t)((double)paced_bytes / (double)limit_bytes_per_s * NS_PER_S);
        if (due <= now) {
            /* Unused bandwidth is not saved up. */
            if (now - due > NS_PER_S) {
                paced_from_ns = now;
                paced_bytes = 0;
            }
            return;
        }
        int64_t rest = due - now < LONGEST_SLEEP_NS ? due - now : LONGEST_SLEEP_NS;
        struct timespec pause = {.tv_sec = 0, .tv_nsec = rest};
        nanosleep(&pause, NULL);
        tick();
    }
}

/* Count written bytes of content, and enforce the limit: in any second at most the limit, plus one piece of each thread. */
void pace(size_t bytes) {
    atomic_fetch_add(&bytes_written, bytes);
    tick();
    /* Without a limit, one thread takes the news for all. */
    if (atomic_load(&limit_bytes_per_s) == 0) {
        if (pthread_mutex_trylock(&pacing) != 0)
            return;
    } else {
        pthread_mutex_lock(&pacing);
    }
    wait_for_limit(bytes);
    pthread_mutex_unlock(&pacing);
}

/* Record the error of a system call for report_problem. Always returns -1. */
int failed(struct copier *copier, enum side side, const char *operation) {
    copier->failed_errno = errno;
    copier->failed_side = side;
    copier->failed_operation = operation;
    return -1;
}

static bool is_of_connection(int code) {
    switch (code) {
    case ENOTCONN:
    case ECONNABORTED:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENODEV:
    case ESHUTDOWN:
    case ETIMEDOUT:
    case ESTALE:
        return true;
    default:
        return false;
    }
}

/* Whether the next paths would fail too. A file system also returns ENOSPC for an attribute that is too big for it, and
 * one unreadable file of the source proves nothing about others. */
static bool concerns_all(const struct copier *copier) {
    int code = copier->failed_errno;
    /* A stale source file was just moved to another brick, or replaced. If the mount itself is stale, the check of the
     * tree before the next try reports that. */
    if (is_of_connection(code))
        return code != ESTALE || copier->failed_side == SIDE_TARGET;
    if (copier->failed_side == SIDE_SOURCE)
        return false;
    bool full = code == ENOSPC || code == EDQUOT;
    if (full && strstr(copier->failed_operation, "xattr") != NULL)
        return false;
    return full || code == EROFS || code == EIO;
}

/* Whether an error was reported that concerns all paths: the program ends once the paths in flight have come to an end. */
bool is_stopped(void) { return atomic_load(&stopped); }

/* After an error that concerns all, others are not reported: nobody counts on this list any more. */
void report_problem(const struct copier *copier, size_t index, enum problem problem) {
    static const char *const words[] = {"vanished", "moved", "changed", "bad"};
    bool by_call = problem == PROBLEM_VANISHED || problem == PROBLEM_BAD;
    pthread_mutex_lock(&printing);
    if (is_stopped()) {
        pthread_mutex_unlock(&printing);
        return;
    }
    print_event_held("F %zu %s %s %d %s\n", index, words[problem], by_call && copier->failed_side == SIDE_TARGET ? "target" : "source",
         by_call ? copier->failed_errno : 0, by_call ? copier->failed_operation : "-");
    if (problem == PROBLEM_BAD && concerns_all(copier)) {
        print_progress();
        fprintf(stderr, "migrator-native copy: %s on the %s: %s\n", copier->failed_operation,
                copier->failed_side == SIDE_TARGET ? "target" : "source", strerror(copier->failed_errno));
        atomic_store(&stopped, true);
    }
    pthread_mutex_unlock(&printing);
}

void end_events(void) {
    pthread_mutex_lock(&printing);
    print_progress();
    pthread_mutex_unlock(&printing);
}
