/* `migrator-native copy`: copies listed paths of a tree with all attributes to the same paths of another tree.
 *
 *     copy --source DIRECTORY --target DIRECTORY --kind KIND [OPTION...] < LIST
 *
 * With one of the trees alone it is one end of a copy (copy_ends.h).
 *
 * KIND is the content of the list: directories (made with attributes but without times), files (all that are not
 * directories), ranges (parts of big files), directory-times (the directories again, to set their times). copy_list.c
 * describes the list, copy_events.c the output.
 *
 * It runs as root inside a mount namespace of its own that holds only the two trees; without root it does what is
 * permitted. No path is followed through a symlink on either side. A file is written under a temporary name in its
 * directory (copy_places.c) and renamed: a name has either its old content or its complete new content. With
 * --own-names, for trees that no user can access yet, a new file is made under its own name: until it is complete, its
 * time is not that of the source. Only the part files of ranges are synced, because their marks survive a crash: a chunk
 * counts as done after a syncfs that follows the end of this program. If that does not reach the target's disks
 * (--fsync), each file is synced before it gets its time. Write-back of big files starts during the copy. With --in-flight,
 * that many paths are copied at the same time, each by a thread: every call on a network file system waits for a server,
 * and a sync for disks. Directories are made in the order of the list, and so are the names of link groups. Errors of
 * write and close are reported. The program may be killed at any time and run again with the same list.
 *
 * A file is read in its current state, not as it was listed. A file that changes while it is read is copied again, at
 * most TRIES times; then the last copy stays, with the time from before, and is reported as changed. On a brick, times
 * are those of trusted.glusterfs.mdata (--times mdata), or the listed one of a file without it. Link-to files and files in migration are reported as moved and
 * not copied. No trusted.* attribute is ever carried. */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "copy_ends.h"

int copy_main(int argc, char **argv);

#define MOST_IN_FLIGHT 256

struct flag {
    const char *name;
    bool *value;
};

struct number {
    const char *name;
    uint64_t *value;
};

static bool take_kind(const char *word, enum kind *kind) {
    static const char *const words[] = {"directories", "files", "ranges", "directory-times"};
    for (size_t at = 0; at < sizeof words / sizeof *words; at++)
        if (strcmp(word, words[at]) == 0) {
            *kind = (enum kind)at;
            return true;
        }
    return false;
}

static bool take_number(const char *word, uint64_t *value) {
    char *end;
    errno = 0;
    *value = strtoull(word, &end, 10);
    return errno == 0 && *word >= '0' && *word <= '9' && *end == '\0' && *value <= INT64_MAX;
}

static bool take_options(int argc, char **argv, struct options *options) {
    uint64_t granularity_ns = 1;
    bool times_seen = false;
    const struct flag flags[] = {
        {"--brick", &options->brick},
        {"--distributed", &options->distributed},
        {"--privileged", &options->privileged},
        {"--digest", &options->digest},
        {"--own-names", &options->own_names},
        {"--recopy", &options->recopy},
        {"--fsync", &options->fsync},
        {"--sparse", &options->sparse},
        {"--hard-links", &options->hard_links},
        {"--acls", &options->acls},
        {"--default-acls", &options->default_acls},
        {"--user-xattrs", &options->user_xattrs},
        {"--security-xattrs", &options->security_xattrs},
        {"--atimes", &options->atimes},
        {"--symlink-times", &options->symlink_times},
        {"--symlink-owner", &options->symlink_owner},
        {"--devices", &options->devices},
        {"--fifos", &options->fifos},
        {"--sockets", &options->sockets},
    };
    const struct number numbers[] = {
        {"--granularity-ns", &granularity_ns},
        {"--bwlimit", &options->bwlimit_bytes_per_s},
        {"--in-flight", &options->in_flight},
        {"--name-seed", &options->name_seed},
        {"--list-bytes", &options->list_bytes},
        {"--max-xattr-bytes", &options->max_xattr_bytes},
        {"--max-xattr-name-bytes", &options->max_xattr_name_bytes},
        {"--max-acl-entries", &options->max_acl_entries},
    };
    bool kind_seen = false;
    for (int at = 1; at < argc; at++) {
        const char *word = argv[at];
        bool taken = false;
        for (size_t flag = 0; flag < sizeof flags / sizeof *flags && !taken; flag++)
            if (strcmp(word, flags[flag].name) == 0)
                taken = *flags[flag].value = true;
        if (taken)
            continue;
        if (at + 1 == argc)
            return false;
        const char *value = argv[++at];
        if (strcmp(word, "--source") == 0)
            taken = (options->source = value) != NULL;
        else if (strcmp(word, "--target") == 0)
            taken = (options->target = value) != NULL;
        else if (strcmp(word, "--uids") == 0)
            taken = take_id_map(value, &options->owners.users);
        else if (strcmp(word, "--gids") == 0)
            taken = take_id_map(value, &options->owners.groups);
        else if (strcmp(word, "--links-from") == 0)
            taken = (options->links_from = value) != NULL;
        else if (strcmp(word, "--links-to") == 0)
            taken = (options->links_to = value) != NULL;
        else if (strcmp(word, "--kind") == 0)
            taken = kind_seen = take_kind(value, &options->kind);
        else if (strcmp(word, "--times") == 0)
            taken = times_seen = (options->times_from_mdata = strcmp(value, "mdata") == 0) || strcmp(value, "file") == 0;
        for (size_t number = 0; number < sizeof numbers / sizeof *numbers && !taken; number++)
            if (strcmp(word, numbers[number].name) == 0)
                taken = take_number(value, numbers[number].value);
        if (!taken)
            return false;
    }
    if (options->in_flight > MOST_IN_FLIGHT)
        options->in_flight = MOST_IN_FLIGHT;
    options->granularity_ns = granularity_ns > 0 ? (int64_t)granularity_ns : 1;
    /* On anything but a brick, mdata would be a user's own attribute. */
    /* Of two ends, each has one tree. */
    bool two_ends = options->list_bytes > 0;
    return two_ends == ((options->source == NULL) != (options->target == NULL)) &&
           (options->source != NULL || options->target != NULL) && kind_seen && options->name_seed <= INT64_MAX &&
           options->in_flight > 0 && (options->brick || (!options->times_from_mdata && !options->distributed)) &&
           (!options->brick || times_seen) && (options->links_from == NULL) == (options->links_to == NULL);
}

enum result look_up(struct copier *copier, const struct record *record, int *in) {
    *in = -1;
    if (copier->options->kind == KIND_RANGES)
        return open_range(copier, record, in);
    bool listed_as_directory = copier->options->kind != KIND_FILES;
    /* open_file and read_node refuse each other's types. A path that is swapped at every turn is given up after TRIES
     * turns. */
    enum result result = RESULT_NOT_A_FILE;
    for (int turn = 0; turn < TRIES && result == RESULT_NOT_A_FILE; turn++) {
        if (!listed_as_directory || turn > 0)
            result = open_file(copier, record, in);
        if (result == RESULT_NOT_A_FILE)
            result = read_node(copier, record);
    }
    return result;
}

/* Make a path on the target, whose attributes were read. */
static enum result write_path(struct copier *copier, const struct record *record, int in) {
    if (copier->options->kind == KIND_RANGES)
        return write_range(copier, record, in);
    return S_ISREG(copier->attributes.facts.st_mode) ? write_file(copier, record, in) : write_node(copier, record);
}

enum result copy_path(struct copier *copier, const struct record *record, size_t index) {
    bool far = copier->inbox != NULL; /* the other end has read the path */
    bool ranges = copier->options->kind == KIND_RANGES;
    copier->record = record;
    enum result result = far ? take_entry(copier, index) : RESULT_FINE;
    if (result != RESULT_FINE && result != RESULT_VANISHED)
        return result;
    if (enter(copier, record) < 0) {
        bool gone = copier->failed_side == SIDE_SOURCE && copier->failed_errno == ENOENT;
        return gone || result == RESULT_VANISHED ? RESULT_VANISHED : RESULT_FAILED;
    }
    if (result == RESULT_FINE && !ranges) {
        int linked = link_to_first(copier, record, far ? &copier->attributes.facts : NULL);
        if (linked != 0)
            return linked < 0 ? RESULT_FAILED : RESULT_FINE;
    }
    int in = -1;
    if (!far)
        result = look_up(copier, record, &in);
    if (result == RESULT_FINE)
        result = write_path(copier, record, in);
    if (in >= 0)
        close(in);
    if (ranges)
        return result;
    bool arrived = result == RESULT_FINE || result == RESULT_CHANGED;
    if (arrived)
        remember_first(copier, record, index);
    if (result == RESULT_VANISHED || (arrived && record->in_ranges))
        remove_leftover(copier, last_component(record));
    return result;
}

void report(struct copier *copier, size_t index, enum result result) {
    switch (result) {
    case RESULT_FINE:
        return;
    case RESULT_VANISHED:
        report_problem(copier, index, PROBLEM_VANISHED);
        return;
    case RESULT_MOVED:
        report_problem(copier, index, PROBLEM_MOVED);
        return;
    case RESULT_CHANGED:
        report_problem(copier, index, PROBLEM_CHANGED);
        return;
    case RESULT_NOT_A_FILE:
        /* A file at one check and another type at the next, every time. */
        errno = EAGAIN;
        failed(copier, SIDE_SOURCE, "stat");
        report_problem(copier, index, PROBLEM_BAD);
        return;
    case RESULT_FAILED:
        report_problem(copier, index, PROBLEM_BAD);
        return;
    }
}

static bool make_room_for_groups(struct copier *copier) {
    size_t groups = 0;
    for (size_t at = 0; at < copier->list->count; at++)
        groups += copier->list->records[at].has_group;
    if (groups == 0 || !copier->options->hard_links)
        return true;
    copier->first_names_room = 16;
    while (copier->first_names_room < 2 * groups)
        copier->first_names_room *= 2;
    copier->first_names = calloc(copier->first_names_room, sizeof *copier->first_names);
    return copier->first_names != NULL;
}

static bool make_room(struct copier *copier) {
    const struct options *options = copier->options;
    /* What one end has read and the other has written is compared. */
    if ((options->digest || options->list_bytes > 0) && !make_digest(copier))
        return false;
    if ((copier->link_text = malloc(LINK_TEXT_ROOM)) == NULL)
        return false;
    if (options->source == NULL && (copier->inbox = make_inbox()) == NULL)
        return false;
    return posix_memalign((void **)&copier->buffer, 4096, COPY_BUFFER_BYTES) == 0;
}

static void release(struct copier *copier) {
    free(copier->buffer);
    free(copier->link_text);
    free_digest(copier);
    free(copier->attributes.names);
    free(copier->attributes.values);
    free(copier->attributes.kept);
    free(copier->existing.names);
    free(copier->existing.values);
    free(copier->existing.kept);
}

static void release_all(struct copier *copier, struct list *list) {
    release(copier);
    free(copier->first_names);
    free(list->records);
    free(list->text);
}

/* What a thread takes of the list at a time: neighbours are in one directory, whose new names the kernel makes one by one,
 * so that threads are to be in different ones. Less towards the end, that all end together. */
#define LEAST_AT_ONCE 4
#define MOST_AT_ONCE REQUESTED_AT_ONCE

static atomic_size_t taken;

/* The first path of a piece, and the path after it; the list's count if all are taken. */
static size_t take_piece(size_t count, size_t threads, size_t *end) {
    size_t from = atomic_load(&taken);
    do {
        size_t piece = (count - from) / (2 * threads);
        piece = piece < LEAST_AT_ONCE ? LEAST_AT_ONCE : piece > MOST_AT_ONCE ? MOST_AT_ONCE : piece;
        *end = piece < count - from ? from + piece : count;
    } while (from < count && !atomic_compare_exchange_weak(&taken, &from, *end));
    return from;
}

static bool is_of_group(const struct copier *copier, const struct record *record) {
    return record->has_group && copier->options->hard_links;
}

static void copy_at(struct copier *copier, size_t index) {
    report(copier, index, copy_path(copier, &copier->list->records[index], index));
    tick();
}

enum share { ALL, GROUPS, ALL_BUT_GROUPS };

/* Copy a part of the list in its order: at most MOST_AT_ONCE paths. */
static void copy_some(struct copier *copier, size_t from, size_t end, enum share share) {
    size_t indices[MOST_AT_ONCE], count = 0;
    for (size_t index = from; index < end && index < copier->list->count; index++)
        if (share == ALL || is_of_group(copier, &copier->list->records[index]) == (share == GROUPS))
            indices[count++] = index;
    if (count > 0 && copier->inbox != NULL)
        request_entries(copier, indices, count);
    for (size_t at = 0; at < count && !is_stopped(); at++)
        copy_at(copier, indices[at]);
}

/* Copy paths of the list until all are taken, except names of link groups. */
static void copy_others(struct copier *copier) {
    size_t count = copier->list->count, from, end;
    while ((from = take_piece(count, copier->options->in_flight, &end)) < count)
        copy_some(copier, from, end, ALL_BUT_GROUPS);
}

static void *copy_beside(void *argument) {
    struct copier *copier = argument;
    /* Entries that cannot be opened are reached through a working directory of its own. Without it, the others copy. */
    if (unshare(CLONE_FS) == 0)
        copy_others(copier);
    return NULL;
}

/* One after the other, in the order of the list. */
static void copy_in_order(struct copier *copier, enum share share) {
    for (size_t from = 0; from < copier->list->count && !is_stopped(); from += MOST_AT_ONCE)
        copy_some(copier, from, from + MOST_AT_ONCE, share);
}

/* Many at the same time. Where a thread cannot be had, there are fewer. */
static void copy_in_flight(struct copier *copier, size_t count) {
    struct copier copiers[MOST_IN_FLIGHT];
    pthread_t threads[MOST_IN_FLIGHT];
    size_t started = 0;
    for (; started + 1 < count; started++) {
        struct copier *other = &copiers[started];
        *other = (struct copier){.options = copier->options, .list = copier->list, .source_tree = copier->source_tree, .target_tree = copier->target_tree, .source_directory = -1, .target_directory = -1};
        if (make_room(other) && pthread_create(&threads[started], NULL, copy_beside, other) == 0)
            continue;
        release(other);
        break;
    }
    copy_in_order(copier, GROUPS);
    copy_others(copier);
    for (size_t at = 0; at < started; at++)
        pthread_join(threads[at], NULL);
    for (size_t at = 0; at < started; at++)
        release(&copiers[at]);
}

static void copy_list(struct copier *copier) {
    const struct options *options = copier->options;
    size_t most = copier->list->count / LEAST_AT_ONCE + 1;
    size_t count = options->in_flight < most ? (size_t)options->in_flight : most;
    /* A directory is made before those in it. Without root, one that is closed too early could not be entered. */
    bool any_order = options->kind == KIND_FILES || options->kind == KIND_RANGES ||
                     (options->kind == KIND_DIRECTORY_TIMES && options->privileged);
    if (any_order && count > 1) {
        copy_in_flight(copier, count);
        return;
    }
    copy_in_order(copier, ALL);
}

static int usage(const char *message, int code) {
    fprintf(stderr, "migrator-native copy: %s\n", message);
    return code;
}

int copy_main(int argc, char **argv) {
    struct options options = {.in_flight = 1, .name_seed = UINT64_MAX, .max_xattr_bytes = INT64_MAX, .max_xattr_name_bytes = INT64_MAX, .max_acl_entries = INT64_MAX};
    struct list list;
    struct copier copier = {.options = &options, .list = &list, .source_directory = -1, .target_directory = -1};
    if (!take_options(argc, argv, &options))
        return usage("unknown or missing options (it is started by migrator)", EXIT_USAGE);
    umask(0);
    copier.source_tree = options.source == NULL ? -1 : open_tree(options.source, false);
    if (options.source != NULL && copier.source_tree < 0)
        return usage("the source's tree cannot be opened", EXIT_NO_TREE);
    copier.target_tree = options.target == NULL ? -1 : open_tree(options.target, true);
    if (options.target != NULL && copier.target_tree < 0)
        return usage("the target's tree cannot be opened", EXIT_NO_TREE);
    if (!read_list(STDIN_FILENO, &list, options.list_bytes)) {
        release_all(&copier, &list);
        return usage("the list of paths is malformed", EXIT_BAD_LIST);
    }
    if (!make_room_for_groups(&copier) || !make_room(&copier)) {
        release_all(&copier, &list);
        return usage("no memory", EXIT_NO_MEMORY);
    }
    if (options.target == NULL)
        serve(&copier);
    start_events(&options);
    if (options.source == NULL && !start_receiving()) {
        release_all(&copier, &list);
        return usage("no thread can be started", EXIT_NO_MEMORY);
    }
    copy_list(&copier);
    end_events();
    release_all(&copier, &list);
    return is_stopped() ? EXIT_STOPPED : EXIT_LIST_DONE;
}
