/* `migrator-native digest`: reads the content of listed files and reports a digest of each.
 *
 *     digest --tree DIRECTORY [--brick] [--times mdata] [--bwlimit BYTES_PER_S] < LIST
 *
 * copy_list.c describes the list; only its names count. For each file that was read and did not change meanwhile, one line
 * without its name is written:
 *
 *     D INDEX INO SIZE MTIME_NS CTIME_NS XXH3_128
 *
 * INDEX is the position in the list; the facts are those that the mount shows (of a brick: the inode from the gfid, the
 * times from trusted.glusterfs.mdata with --times mdata). Lines of progress are those of copy_events.c. There is no line for all others: the caller reads those through the
 * mounts, which report what is wrong. The exit code is 0 after the whole list.
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

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "copy.h"
#include "gluster.h"

#define READ_BYTES ((size_t)1 << 20)

int digest_main(int argc, char **argv);

struct reader {
    struct copier *copier; /* for the pace */
    bool brick;
    bool times_from_mdata;
    int tree;
    int directory;
    const struct record *last;
    XXH3_state_t *state;
    unsigned char *buffer;
};

/* The facts of a file that change with its content, as the mount shows them. */
struct facts {
    uint64_t ino;
    int64_t size;
    int64_t mtime_ns;
    int64_t ctime_ns;
};

static bool enter_directory(struct reader *reader, const struct record *record) {
    size_t length = record->directory_length;
    if (reader->last != NULL && reader->last->directory_length == length &&
        memcmp(reader->last->name, record->name, length) == 0)
        return reader->directory >= 0;
    if (reader->directory >= 0 && reader->directory != reader->tree)
        close(reader->directory);
    reader->last = record;
    reader->directory = open_beneath(reader->tree, record->name, length, false);
    return reader->directory >= 0;
}

static int open_file(const struct reader *reader, const char *name) {
    int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int fd = openat(reader->directory, name, flags | O_NOATIME);
    return fd < 0 && errno == EPERM ? openat(reader->directory, name, flags) : fd;
}

/* The facts of a brick's file: false for a link-to file, one in migration, or one whose facts are not known. */
static bool brick_facts(const struct reader *reader, int fd, struct facts *facts) {
    uint8_t gfid[GLUSTER_GFID_BYTES], mdata[GLUSTER_MDATA_ROOM];
    if (fgetxattr(fd, GLUSTER_LINKTO, NULL, 0) >= 0 || (errno != ENODATA && errno != EOPNOTSUPP))
        return false;
    if (fgetxattr(fd, GLUSTER_GFID, gfid, sizeof gfid) != GLUSTER_GFID_BYTES)
        return false;
    facts->ino = gluster_ino(gfid);
    if (!reader->times_from_mdata)
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

static bool read_facts(const struct reader *reader, int fd, struct facts *facts) {
    struct stat found;
    if (fstat(fd, &found) < 0 || !S_ISREG(found.st_mode))
        return false;
    memset(facts, 0, sizeof *facts);
    facts->ino = found.st_ino;
    facts->size = found.st_size;
    facts->mtime_ns = time_ns(&found.st_mtim);
    facts->ctime_ns = time_ns(&found.st_ctim);
    return !reader->brick || brick_facts(reader, fd, facts);
}

/* Whether exactly `size` bytes could be read; a file that grows is not read on. */
static bool read_content(const struct reader *reader, int fd, int64_t size) {
    int64_t at = 0;
    XXH3_128bits_reset(reader->state);
    for (;;) {
        ssize_t got = pread(fd, reader->buffer, READ_BYTES, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got == 0 && at == size;
        XXH3_128bits_update(reader->state, reader->buffer, (size_t)got);
        at += got;
        pace(reader->copier, (size_t)got);
        if (at > size)
            return false;
    }
}

static void digest_file(const struct reader *reader, int fd, size_t index) {
    struct facts before, after;
    XXH128_canonical_t digest;
    if (!read_facts(reader, fd, &before))
        return;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    if (!read_content(reader, fd, before.size) || !read_facts(reader, fd, &after) ||
        memcmp(&before, &after, sizeof before) != 0)
        return;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(reader->state));
    printf("D %zu %" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64 " ", index, before.ino, before.size, before.mtime_ns,
           before.ctime_ns);
    for (size_t at = 0; at < sizeof digest.digest; at++)
        printf("%02x", digest.digest[at]);
    putchar('\n');
}

static bool take_words(int argc, char **argv, struct reader *reader, struct options *options, const char **tree) {
    for (int at = 1; at < argc; at++) {
        if (strcmp(argv[at], "--brick") == 0)
            reader->brick = true;
        else if (strcmp(argv[at], "--times") == 0 && at + 1 < argc && strcmp(argv[++at], "mdata") == 0)
            reader->times_from_mdata = true;
        else if (strcmp(argv[at], "--tree") == 0 && at + 1 < argc)
            *tree = argv[++at];
        else if (strcmp(argv[at], "--bwlimit") == 0 && at + 1 < argc)
            options->bwlimit_bytes_per_s = strtoull(argv[++at], NULL, 10);
        else
            return false;
    }
    return *tree != NULL;
}

static int digest_list(struct reader *reader, const struct list *list) {
    for (size_t index = 0; index < list->count; index++) {
        const struct record *record = &list->records[index];
        int fd = enter_directory(reader, record) ? open_file(reader, last_component(record)) : -1;
        if (fd < 0)
            continue;
        digest_file(reader, fd, index);
        close(fd);
        if (fflush(stdout) != 0)
            return EXIT_NOBODY_LISTENS;
    }
    return EXIT_LIST_DONE;
}

int digest_main(int argc, char **argv) {
    struct options options = {0};
    struct copier copier = {.options = &options};
    struct reader reader = {.copier = &copier, .directory = -1};
    struct list list;
    const char *tree = NULL;
    if (!take_words(argc, argv, &reader, &options, &tree)) {
        fputs("usage: migrator-native digest --tree DIRECTORY [--brick] [--times mdata] [--bwlimit BYTES_PER_S] < LIST\n", stderr);
        return EXIT_USAGE;
    }
    reader.tree = open_tree(tree);
    if (reader.tree < 0) {
        perror("migrator-native digest: the tree");
        return EXIT_NO_TREE;
    }
    start_events(&options);
    int code = read_list(STDIN_FILENO, &list) ? EXIT_LIST_DONE : EXIT_BAD_LIST;
    reader.state = XXH3_createState();
    reader.buffer = malloc(READ_BYTES);
    if (reader.state == NULL || reader.buffer == NULL)
        code = EXIT_NO_MEMORY;
    if (code == EXIT_LIST_DONE)
        code = digest_list(&reader, &list);
    XXH3_freeState(reader.state);
    free(reader.buffer);
    free(list.records);
    free(list.text);
    return code;
}
