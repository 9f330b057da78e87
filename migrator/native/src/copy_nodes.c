/* Everything but regular files: directories, symlinks, FIFOs, sockets, devices, and further names of one file. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "copy.h"

#define CREATED_MODE 0600

/* Set the missing attributes of an existing entry on the target. 1: something was changed, 0: nothing, -1: failed(). */
int dress_existing(struct copier *copier, const char *name, const struct stat *existing, int64_t mtime_ns, bool with_time) {
    bool changed = false;
    if (stand_in(copier, WHERE_TARGET) < 0 ||
        dress(copier, (struct handle){.fd = -1, .name = name}, existing, &changed) < 0)
        return -1;
    if ((with_time && !same_time(copier, existing, mtime_ns)) || !same_atime(copier, existing)) {
        changed = true;
        if (dress_times(copier, name, mtime_ns) < 0)
            return -1;
    }
    return changed;
}

/* Set the attributes of a new node under its temporary name, and rename it into place. */
static enum result finish_node(struct copier *copier, const char *temporary, const char *name, bool with_time) {
    bool changed = false;
    if (stand_in(copier, WHERE_TARGET) < 0 ||
        dress(copier, (struct handle){.fd = -1, .name = temporary}, NULL, &changed) < 0 ||
        (with_time && dress_times(copier, temporary, copier->attributes.mtime_ns) < 0)) {
        unlinkat(copier->target_directory, temporary, 0);
        return RESULT_FAILED;
    }
    if (put_in_place(copier, temporary, name) < 0)
        return RESULT_FAILED;
    count_file();
    return RESULT_FINE;
}

static enum result target_failed(struct copier *copier, const char *operation) {
    failed(copier, SIDE_TARGET, operation);
    return RESULT_FAILED;
}

/* Decide whether to keep an existing node or to copy it again. It counts as a file if anything was changed. */
static enum result keep_node(struct copier *copier, const char *name, const struct stat *existing, bool with_time) {
    int touched = dress_existing(copier, name, existing, copier->attributes.mtime_ns, with_time);
    if (touched > 0)
        count_file();
    return touched < 0 ? RESULT_FAILED : RESULT_FINE;
}

/* Whether a path has a component `..`. */
static bool climbs(const char *path) {
    for (const char *at = path; (at = strstr(at, "/..")) != NULL; at++)
        if (at[3] == '/' || at[3] == '\0')
            return true;
    return false;
}

/* The text of a symlink on the target, as expected_link() of fs/rules.py defines it, in place; the new length, or -1 if there
 * is no room for it. */
static ssize_t rewrite(const struct options *options, char *text, ssize_t length) {
    if (options->links_from == NULL)
        return length;
    size_t from = strlen(options->links_from), to = strlen(options->links_to);
    if (strncmp(text, options->links_from, from) != 0 || (text[from] != '/' && text[from] != '\0') || climbs(text))
        return length;
    size_t rest = (size_t)length - from;
    if (to + rest >= LINK_TEXT_ROOM)
        return -1;
    memmove(text + to, text + from, rest + 1);
    memcpy(text, options->links_to, to);
    return (ssize_t)(to + rest);
}

static enum result copy_symlink(struct copier *copier, const char *name) {
    char there[LINK_TEXT_ROOM], temporary[NAME_ROOM];
    struct stat existing;
    bool with_time = copier->options->symlink_times;
    char *text = copier->link_text;
    ssize_t length = rewrite(copier->options, text, (ssize_t)strlen(text));
    if (length < 0) {
        errno = ENAMETOOLONG;
        return target_failed(copier, "make symlink");
    }
    ssize_t there_length = readlinkat(copier->target_directory, name, there, sizeof there);
    if (there_length == length && memcmp(text, there, (size_t)length) == 0 &&
        fstatat(copier->target_directory, name, &existing, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(existing.st_mode))
        return keep_node(copier, name, &existing, with_time);
    temporary_name(copier, name, temporary);
    if (symlinkat(text, copier->target_directory, temporary) < 0 &&
        (errno != EEXIST || make_way(copier, name, temporary) < 0 ||
         symlinkat(text, copier->target_directory, temporary) < 0))
        return target_failed(copier, "make symlink");
    return finish_node(copier, temporary, name, with_time);
}

static enum result copy_special(struct copier *copier, const char *name) {
    const struct stat *facts = &copier->attributes.facts;
    bool is_device = S_ISBLK(facts->st_mode) || S_ISCHR(facts->st_mode);
    const struct options *options = copier->options;
    if ((is_device && !options->devices) || (S_ISFIFO(facts->st_mode) && !options->fifos) ||
        (S_ISSOCK(facts->st_mode) && !options->sockets))
        return RESULT_FINE; /* as the plan has announced */
    char temporary[NAME_ROOM];
    struct stat existing;
    mode_t type = facts->st_mode & S_IFMT;
    if (fstatat(copier->target_directory, name, &existing, AT_SYMLINK_NOFOLLOW) == 0 && (existing.st_mode & S_IFMT) == type &&
        (!is_device || existing.st_rdev == facts->st_rdev))
        return keep_node(copier, name, &existing, true);
    temporary_name(copier, name, temporary);
    dev_t device = is_device ? facts->st_rdev : 0;
    if (mknodat(copier->target_directory, temporary, type | CREATED_MODE, device) < 0 &&
        (errno != EEXIST || make_way(copier, name, temporary) < 0 ||
         mknodat(copier->target_directory, temporary, type | CREATED_MODE, device) < 0))
        return target_failed(copier, "make node");
    return finish_node(copier, temporary, name, true);
}

/* Make a directory under its final name at once: it cannot have half-written content. Its time is set last, by a list
 * of its own. */
static enum result copy_directory(struct copier *copier, const struct record *record) {
    const char *name = last_component(record);
    bool with_time = copier->options->kind == KIND_DIRECTORY_TIMES;
    int64_t mtime_ns = record->has_mtime ? record->mtime_ns : copier->attributes.mtime_ns;
    struct stat existing;
    if (fstatat(copier->target_directory, name, &existing, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT)
            return target_failed(copier, "stat");
        existing.st_mode = 0;
    } else if (!S_ISDIR(existing.st_mode) && unlinkat(copier->target_directory, name, 0) < 0) {
        return target_failed(copier, "remove what is in the way");
    }
    if (!S_ISDIR(existing.st_mode)) {
        if (mkdirat(copier->target_directory, name, CREATED_DIRECTORY_MODE) < 0 && errno != EEXIST)
            return target_failed(copier, "make directory");
        if (fstatat(copier->target_directory, name, &existing, AT_SYMLINK_NOFOLLOW) < 0)
            return target_failed(copier, "stat");
        if (!S_ISDIR(existing.st_mode)) {
            errno = ENOTDIR;
            return target_failed(copier, "make directory");
        }
    }
    return dress_existing(copier, name, &existing, mtime_ns, with_time) < 0 ? RESULT_FAILED : RESULT_FINE;
}

/* Read the attributes of any path except a regular file, in its current state. */
enum result read_node(struct copier *copier, const struct record *record) {
    const char *name = last_component(record);
    struct attributes *seen = &copier->attributes;
    if (fstatat(copier->source_directory, name, &seen->facts, AT_SYMLINK_NOFOLLOW) < 0)
        return source_failed(copier, "stat");
    if (S_ISREG(seen->facts.st_mode))
        return RESULT_NOT_A_FILE; /* it has become one since it was checked */
    if (stand_in(copier, WHERE_SOURCE) < 0)
        return RESULT_FAILED;
    if (read_attributes(copier, (struct handle){.fd = -1, .name = name}, seen) < 0) {
        errno = copier->failed_errno;
        return source_failed(copier, copier->failed_operation);
    }
    if (!S_ISLNK(seen->facts.st_mode))
        return RESULT_FINE;
    ssize_t length = readlinkat(copier->source_directory, name, copier->link_text, LINK_TEXT_ROOM - 1);
    if (length < 0)
        return source_failed(copier, "read link");
    copier->link_text[length] = '\0';
    return RESULT_FINE;
}

/* Make any path except a regular file, with the attributes that were read. */
enum result write_node(struct copier *copier, const struct record *record) {
    const char *name = last_component(record);
    mode_t mode = copier->attributes.facts.st_mode;
    if (S_ISDIR(mode))
        return copy_directory(copier, record);
    return S_ISLNK(mode) ? copy_symlink(copier, name) : copy_special(copier, name);
}

static struct first_name *slot_of(const struct copier *copier, uint64_t group) {
    size_t mask = copier->first_names_room - 1;
    size_t at = (size_t)(group * UINT64_C(0x9e3779b97f4a7c15) >> 32) & mask;
    while (copier->first_names[at].taken && copier->first_names[at].group != group)
        at = (at + 1) & mask;
    return &copier->first_names[at];
}

/* Record that this path is on the target in its current state: the next names of its group are linked to it. */
void remember_first(struct copier *copier, const struct record *record, size_t index) {
    if (!record->has_group || copier->first_names_room == 0)
        return;
    const struct stat *facts = &copier->attributes.facts;
    *slot_of(copier, record->group) = (struct first_name){
        .group = record->group, .index = index, .device = facts->st_dev, .inode = facts->st_ino, .taken = true};
}

static int link_here(struct copier *copier, int directory, const char *first, const char *name) {
    struct stat there, here;
    char temporary[NAME_ROOM];
    int target = copier->target_directory;
    if (fstatat(directory, first, &there, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    /* A rename over another name of the same file does nothing, and leaves both (rename(2)). */
    if (fstatat(target, name, &here, AT_SYMLINK_NOFOLLOW) == 0 && here.st_dev == there.st_dev && here.st_ino == there.st_ino)
        return 1;
    temporary_name(copier, name, temporary);
    if (linkat(directory, first, target, temporary, 0) < 0 &&
        (errno != EEXIST || make_way(copier, name, temporary) < 0 || linkat(directory, first, target, temporary, 0) < 0)) {
        bool copy_instead = errno == ENOENT || errno == EMLINK || errno == EXDEV || errno == EPERM;
        return copy_instead ? 0 : failed(copier, SIDE_TARGET, "link");
    }
    if (put_in_place(copier, temporary, name) < 0)
        return -1;
    count_file();
    return 1;
}

int link_to_first(struct copier *copier, const struct record *record, const struct stat *seen) {
    if (!record->has_group || copier->first_names_room == 0)
        return 0;
    const struct first_name *known = slot_of(copier, record->group);
    const char *name = last_component(record);
    struct stat read;
    if (!known->taken)
        return 0;
    if (seen == NULL)
        seen = fstatat(copier->source_directory, name, &read, AT_SYMLINK_NOFOLLOW) < 0 ? NULL : &read;
    /* They were one file when they were listed; check that they still are. */
    if (seen == NULL || S_ISDIR(seen->st_mode) || seen->st_dev != known->device || seen->st_ino != known->inode)
        return 0;
    const struct record *first = &copier->list->records[known->index];
    int directory = open_beneath(copier->target_tree, first->name, first->directory_length, false);
    if (directory < 0)
        return 0;
    int linked = link_here(copier, directory, last_component(first), name);
    if (directory != copier->target_tree)
        close(directory);
    return linked;
}
