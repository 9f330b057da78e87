/* `migrator-native digest`: reads the content of listed files and reports a digest of each. `copy --digest` reports the same
 * of what it copies, by the functions here.
 *
 *     digest --tree DIRECTORY [--brick] [--times mdata] [--target] [--bwlimit BYTES_PER_S] < LIST
 *
 * copy_list.c describes the list; only its names count. For each file that was read and did not change meanwhile, one line
 * without its name is written. With --target nothing is asked about a file after it was read, which would be a request to a
 * server: a walk that follows shows whether it has changed since, and a reading counts only if it has not.
 *
 *     D INDEX INO SIZE MTIME_NS CTIME_NS XXH3_128
 *
 * INDEX is the position in the list; the facts are those that the mount shows (of a brick: the inode from the gfid, the
 * times from trusted.glusterfs.mdata with --times mdata). Lines of
 * progress are those of copy_events.c. There is no line for all others: the caller reads those through the mounts, which
 * report what is wrong. The exit code is 0 after the whole list.
 *
 * No path is followed through a symlink. What this machine has cached of a file is dropped before it is read, and again
 * after it: the content comes from the servers' disks, and the caches of a server in production keep what users need. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "copy.h"
#include "gluster.h"
#include "xxh3.h"

int digest_main(int argc, char **argv);

static bool enter_directory(struct copier *copier, const struct record *record) {
    size_t length = record->directory_length;
    const struct record *last = copier->record;
    copier->record = record;
    if (last != NULL && last->directory_length == length && memcmp(last->name, record->name, length) == 0)
        return copier->source_directory >= 0;
    if (copier->source_directory >= 0 && copier->source_directory != copier->source_tree)
        close(copier->source_directory);
    copier->source_directory = open_beneath(copier->source_tree, record->name, length, false);
    return copier->source_directory >= 0;
}

/* Whether a file on a brick has an attribute, or that is unknown. */
static bool may_have(int fd, const char *name) {
    return fgetxattr(fd, name, NULL, 0) >= 0 || (errno != ENODATA && errno != EOPNOTSUPP);
}

/* The facts of a brick's file: false for a link-to file, one in migration, a corrupted one, or one whose facts are not known. */
static bool brick_facts(const struct copier *copier, int fd, struct facts *facts) {
    uint8_t gfid[GLUSTER_GFID_BYTES], mdata[GLUSTER_MDATA_ROOM];
    if (may_have(fd, GLUSTER_LINKTO) || may_have(fd, GLUSTER_BAD_FILE))
        return false;
    if (fgetxattr(fd, GLUSTER_GFID, gfid, sizeof gfid) != GLUSTER_GFID_BYTES)
        return false;
    facts->ino = gluster_ino(gfid);
    if (!copier->options->times_from_mdata)
        return true;
    ssize_t length = fgetxattr(fd, GLUSTER_MDATA, mdata, sizeof mdata);
    if (length < 0)
        return errno == ENODATA;
    struct gluster_times times;
    if (gluster_parse_mdata(mdata, (size_t)length, &times) != MDATA_READ)
        return false;
    facts->mtime_ns = times.mtime_ns;
    facts->ctime_ns = times.ctime_ns;
    return true;
}

static bool read_facts(const struct copier *copier, int fd, struct facts *facts) {
    struct stat found;
    if (fstat(fd, &found) < 0 || !S_ISREG(found.st_mode))
        return false;
    memset(facts, 0, sizeof *facts);
    facts->ino = found.st_ino;
    facts->size = found.st_size;
    facts->mtime_ns = time_ns(&found.st_mtim);
    facts->ctime_ns = time_ns(&found.st_ctim);
    return !copier->options->brick || brick_facts(copier, fd, facts);
}

bool make_digest(struct copier *copier) { return (copier->digest = XXH3_createState()) != NULL; }

void free_digest(struct copier *copier) { XXH3_freeState(copier->digest); }

/* Begin a file's digest. This and what follows have no effect without make_digest. */
void begin_digest(struct copier *copier) {
    if (copier->digest != NULL)
        XXH3_128bits_reset(copier->digest);
}

void add_to_digest(struct copier *copier, const unsigned char *bytes, size_t length) {
    if (copier->digest != NULL)
        XXH3_128bits_update(copier->digest, bytes, length);
}

/* A hole, of any length: the zeros stay in the processor's cache, so a terabyte takes a minute or two. */
void add_hole_to_digest(struct copier *copier, off_t length) {
    static const unsigned char zeros[1 << 16];
    for (; copier->digest != NULL && length > 0; length -= (off_t)sizeof zeros) {
        add_to_digest(copier, zeros, length < (off_t)sizeof zeros ? (size_t)length : sizeof zeros);
        tick();
    }
}

void digest_value(const struct copier *copier, uint8_t *value) {
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(copier->digest));
    memcpy(value, digest.digest, sizeof digest.digest);
}

static void print_digest(const struct copier *copier, const struct facts *facts) {
    XXH128_canonical_t digest;
    char hexadecimal[2 * sizeof digest.digest + 1];
    digest_value(copier, digest.digest);
    for (size_t at = 0; at < sizeof digest.digest; at++)
        snprintf(hexadecimal + 2 * at, 3, "%02x", digest.digest[at]);
    print_event("D %zu %" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64 " %s\n", (size_t)(copier->record - copier->list->records),
         facts->ino, facts->size, facts->mtime_ns, facts->ctime_ns, hexadecimal);
}

/* The whole content was added: read the facts that it belongs to, if the file has not changed since before. */
void end_digest(struct copier *copier, int in) {
    copier->digested = copier->digest != NULL && read_facts(copier, in, &copier->digested_facts);
}

/* Report the digest of the current file, which has not changed until after end_digest. */
void report_digest(const struct copier *copier) {
    if (copier->digested)
        print_digest(copier, &copier->digested_facts);
}

/* Whether [from, end) could be read. */
static bool read_span(struct copier *copier, int fd, off_t from, off_t end) {
    while (from < end) {
        size_t wanted = COPY_BUFFER_BYTES < (uint64_t)(end - from) ? COPY_BUFFER_BYTES : (size_t)(end - from);
        ssize_t got = pread(fd, copier->buffer, wanted, from);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        add_to_digest(copier, copier->buffer, (size_t)got);
        from += got;
        pace((size_t)got);
    }
    return true;
}

/* Whether exactly `size` bytes could be read; a file that grows is not read on. The digest is that of the whole content,
 * wherever its holes are: they are not read, but hashed as zeros. */
static bool read_content(struct copier *copier, int fd, off_t size) {
    struct stat found;
    if (fstat(fd, &found) < 0 || found.st_size != size)
        return false;
    off_t at = 0, data, data_end;
    begin_digest(copier);
    if (!holes_are_plausible(fd, &found))
        return read_span(copier, fd, 0, size);
    while (at < size && next_data(fd, at, size, &data, &data_end)) {
        add_hole_to_digest(copier, data - at);
        if (!read_span(copier, fd, data, data_end))
            return false;
        at = data_end;
    }
    add_hole_to_digest(copier, size - at);
    return true;
}

static void digest_file(struct copier *copier, int fd) {
    struct facts before, after;
    if (!read_facts(copier, fd, &before))
        return;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    if (!read_content(copier, fd, before.size))
        return;
    if (!copier->options->facts_once &&
        (!read_facts(copier, fd, &after) || memcmp(&before, &after, sizeof before) != 0))
        return;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    print_digest(copier, &before);
}

static bool take_words(int argc, char **argv, struct options *options) {
    for (int at = 1; at < argc; at++) {
        if (strcmp(argv[at], "--brick") == 0)
            options->brick = true;
        else if (strcmp(argv[at], "--target") == 0)
            options->facts_once = true;
        else if (strcmp(argv[at], "--times") == 0 && at + 1 < argc && strcmp(argv[++at], "mdata") == 0)
            options->times_from_mdata = true;
        else if (strcmp(argv[at], "--tree") == 0 && at + 1 < argc)
            options->source = argv[++at];
        else if (strcmp(argv[at], "--bwlimit") == 0 && at + 1 < argc)
            options->bwlimit_bytes_per_s = strtoull(argv[++at], NULL, 10);
        else
            return false;
    }
    return options->source != NULL;
}

static void digest_list(struct copier *copier) {
    for (size_t index = 0; index < copier->list->count; index++) {
        const struct record *record = &copier->list->records[index];
        int fd = enter_directory(copier, record) ? open_source(copier, last_component(record)) : -1;
        if (fd < 0)
            continue;
        digest_file(copier, fd);
        close(fd);
        tick();
    }
}

int digest_main(int argc, char **argv) {
    struct options options = {0};
    struct list list;
    struct copier copier = {.options = &options, .list = &list, .source_directory = -1};
    if (!take_words(argc, argv, &options)) {
        fputs("usage: migrator-native digest --tree DIRECTORY [--brick] [--times mdata] [--target] [--bwlimit BYTES_PER_S] < LIST\n", stderr);
        return EXIT_USAGE;
    }
    copier.source_tree = open_tree(options.source, false);
    if (copier.source_tree < 0) {
        perror("migrator-native digest: the tree");
        return EXIT_NO_TREE;
    }
    start_events(&options);
    int code = read_list(STDIN_FILENO, &list, 0) ? EXIT_LIST_DONE : EXIT_BAD_LIST;
    copier.buffer = malloc(COPY_BUFFER_BYTES);
    if (!make_digest(&copier) || copier.buffer == NULL)
        code = EXIT_NO_MEMORY;
    if (code == EXIT_LIST_DONE)
        digest_list(&copier);
    end_events();
    free_digest(&copier);
    free(copier.buffer);
    free(list.records);
    free(list.text);
    return code;
}
