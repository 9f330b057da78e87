/* After another program has copied files from a brick: their times, which it took from the brick's own file system, and
 * the names that were no data there. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "copy.h"

/* Set the time that the volume shows, where the copy has the brick's. A copy that has neither is of an older content: a
 * new time would hide that. */
enum result settle(struct copier *copier, const struct record *record) {
    const char *name = last_component(record);
    struct attributes *seen = &copier->attributes;
    struct stat existing;
    if (fstatat(copier->source_directory, name, &seen->facts, AT_SYMLINK_NOFOLLOW) < 0)
        return source_failed(copier, "stat");
    bool is_directory = S_ISDIR(seen->facts.st_mode);
    if (stand_in(copier, WHERE_SOURCE) < 0)
        return RESULT_FAILED;
    if (read_attributes(copier, (struct handle){.fd = -1, .name = name}, seen) < 0) {
        errno = copier->failed_errno;
        return source_failed(copier, copier->failed_operation);
    }
    if (is_moved(copier, seen))
        return RESULT_MOVED;
    if (S_ISLNK(seen->facts.st_mode) && !copier->options->symlink_times)
        return RESULT_FINE;
    if (fstatat(copier->target_directory, name, &existing, AT_SYMLINK_NOFOLLOW) < 0) {
        /* It was told already that this one did not arrive, or it is of a kind that the target does not make. */
        if (errno == ENOENT)
            return RESULT_FINE;
        failed(copier, SIDE_TARGET, "stat");
        return RESULT_FAILED;
    }
    if ((existing.st_mode & S_IFMT) != (seen->facts.st_mode & S_IFMT))
        return RESULT_CHANGED;
    int64_t wanted = record->has_mtime && is_directory ? record->mtime_ns : seen->mtime_ns;
    if (same_time(copier, &existing, wanted))
        return RESULT_FINE;
    bool copied_now = same_time(copier, &existing, time_ns(&seen->facts.st_mtim)) &&
                      (!S_ISREG(seen->facts.st_mode) || existing.st_size == seen->facts.st_size);
    if (!is_directory && !copied_now)
        return RESULT_CHANGED;
    return dress_times(copier, name, wanted) < 0 ? RESULT_FAILED : RESULT_FINE;
}
