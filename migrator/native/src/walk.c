#define _GNU_SOURCE
#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "gluster.h"

#define BLOCK_ROWS 16384u
#define WORKERS_LIMIT 256u

enum { IS_BRICK = 1, HAS_VOLUME_ID = 2, HAS_ROOT_GFID = 4 };

struct hello {
    uint32_t version;
    uint32_t flags;
    uint8_t volume_id[16];
    uint8_t root_gfid[16];
    uint64_t unused;
    uint64_t device;
};

static const uint8_t ROOT_GFID[16] = {[15] = 1};

static _Noreturn void usage(const char *what)
{
    fprintf(stderr,
            "migrator-native walk: %s\n"
            "usage: migrator-native walk --brick PATH --times mdata|file [--only-trees] [--distributed] [--listings]\n"
            "                            [--marks] [--marks-only] [--own] [--workers N] [--block-rows N]\n"
            "       migrator-native walk --brick PATH --report directories|without-acl|link-marks|strange|names [--wanted N] [--only N]\n"
            "       migrator-native walk --mount PATH [--only-trees] [--distributed] [--listings] [--workers N] [--block-rows N]\n"
            "                            [--begin N] [--hidden N] [--mounted N] [--uids MAP] [--gids MAP]\n",
            what);
    exit(2);
}

static uint32_t number(const char *text, const char *option, uint32_t limit)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || value < 1 || value > limit) {
        char what[128];
        snprintf(what, sizeof what, "%s is a number from 1 to %u", option, limit);
        usage(what);
    }
    return (uint32_t)value;
}

static unsigned cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (unsigned)CPU_COUNT(&set);
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (unsigned)count : 1;
}

static bool say_hello(struct walk *walk)
{
    struct hello hello = {.version = FRAME_VERSION, .device = walk->device};
    struct stat store;
    if (fgetxattr(walk->root, GLUSTER_VOLUME_ID, hello.volume_id, 16) == 16)
        hello.flags |= HAS_VOLUME_ID;
    else
        memset(hello.volume_id, 0, 16);
    if (fgetxattr(walk->root, GLUSTER_GFID, hello.root_gfid, 16) == 16)
        hello.flags |= HAS_ROOT_GFID;
    else
        memset(hello.root_gfid, 0, 16);
    bool is_brick = hello.flags == (HAS_VOLUME_ID | HAS_ROOT_GFID) && memcmp(hello.root_gfid, ROOT_GFID, 16) == 0 &&
                    fstatat(walk->root, ".glusterfs", &store, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(store.st_mode);
    if (is_brick)
        hello.flags |= IS_BRICK;
    struct iovec pieces[2] = {{NULL, 0}, {&hello, sizeof hello}};
    frame_write(FRAME_HELLO, pieces, 2);
    return is_brick;
}

/* The numbers of paths of each kind on stdin, after the user trees. */
struct counts {
    uint32_t begin, hidden, mounted, wanted, only;
};

static struct walk *sorted_for;

static int by_tree(const void *left, const void *right)
{
    return strcmp(sorted_for->trees[*(const int32_t *)left], sorted_for->trees[*(const int32_t *)right]);
}

static int by_path(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* The next paths on stdin. */
static char **paths_read(char **at, uint32_t count)
{
    char **paths = allocated(count * sizeof *paths);
    for (uint32_t index = 0; index < count; index++) {
        paths[index] = *at;
        *at += strlen(*at) + 1;
    }
    return paths;
}

/* The user trees from stdin, each ended by NUL; then the directories to begin with, the hidden paths and the mount
 * points. */
static void read_paths(struct walk *walk, struct counts counts)
{
    size_t length = 0, capacity = 65536;
    char *data = allocated(capacity);
    for (;;) {
        if (length == capacity)
            data = reallocated(data, capacity *= 2);
        ssize_t count = read(STDIN_FILENO, data + length, capacity - length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            die("cannot read the user trees from stdin: %s", strerror(errno));
        if (count == 0)
            break;
        length += (size_t)count;
    }
    if (length > 0 && data[length - 1] != '\0')
        usage("the paths on stdin do not end with NUL: they are not whole");
    walk->tree_names = data;
    size_t trees = 0;
    for (size_t at = 0; at < length; at += strlen(data + at) + 1)
        trees++;
    size_t others = (size_t)counts.begin + counts.hidden + counts.mounted + counts.wanted + counts.only;
    if (trees < others)
        usage("there are fewer paths on stdin than the options announce");
    trees -= others;
    char *at = data;
    walk->tree_count = trees;
    walk->trees = paths_read(&at, (uint32_t)trees);
    walk->tree_numbers = allocated(trees * sizeof *walk->tree_numbers);
    for (size_t index = 0; index < trees; index++)
        walk->tree_numbers[index] = (int32_t)index;
    walk->begin = paths_read(&at, walk->begin_count = counts.begin);
    walk->hidden = paths_read(&at, walk->hidden_count = counts.hidden);
    walk->mounted = paths_read(&at, walk->mounted_count = counts.mounted);
    walk->gfids = paths_read(&at, counts.wanted);
    walk->only = paths_read(&at, walk->only_count = counts.only);
    qsort(walk->hidden, walk->hidden_count, sizeof *walk->hidden, by_path);
    qsort(walk->mounted, walk->mounted_count, sizeof *walk->mounted, by_path);
    sorted_for = walk;
    qsort(walk->tree_numbers, trees, sizeof *walk->tree_numbers, by_tree);
    char **sorted = allocated(trees * sizeof *sorted);
    for (size_t index = 0; index < trees; index++)
        sorted[index] = walk->trees[walk->tree_numbers[index]];
    free(walk->trees);
    walk->trees = sorted;
}

/* Whether names cost a request each: clients of BeeGFS and of GlusterFS with entry-timeout=0 keep none. File systems with
 * disks of their own keep all, and there to open an entry would take longer than to find it twice. */
static bool asks_by_name(int root)
{
    static const uint32_t LOCAL[] = {XFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC};
    struct statfs facts;
    /* Attributes of an entry that is only pinned are reached through /proc. */
    if (fstatfs(root, &facts) != 0 || access("/proc/self/fd", X_OK) != 0)
        return false;
    for (size_t index = 0; index < sizeof LOCAL / sizeof *LOCAL; index++)
        if ((uint32_t)facts.f_type == LOCAL[index])
            return false;
    return true;
}

static void *run(void *argument)
{
    /* A current directory of its own: entries are read by their last components only. */
    if (unshare(CLONE_FS) != 0)
        die("cannot give a thread a current directory of its own: %s", strerror(errno));
    worker_run(argument);
    return NULL;
}

static void walk_with(struct walk *walk, unsigned count)
{
    struct worker *workers = allocated(count * sizeof *workers);
    pthread_t *threads = allocated(count * sizeof *threads);
    struct totals sum = {0};
    memset(workers, 0, count * sizeof *workers);
    queue_start(&walk->queue, count);
    if (walk->only_count == 0 && walk->begin_count == 0)
        queue_push(&walk->queue, 0, task_made("", 0, "", NO_TREE), 1);
    for (size_t index = 0; index < walk->begin_count; index++) {
        const char *path = walk->begin[index];
        queue_push(&walk->queue, 0, task_made("", 0, path, tree_above(walk, path)), 1);
    }
    for (unsigned index = 0; index < count; index++) {
        struct worker *worker = &workers[index];
        worker->walk = walk;
        worker->number = index;
        rows_start(&worker->files, FRAME_ROWS, walk->block_rows);
        rows_start(&worker->directories, FRAME_DIRECTORIES, walk->block_rows);
        listings_start(&worker->listings);
        int error = pthread_create(&threads[index], NULL, run, worker);
        if (error != 0)
            die("cannot start a thread: %s", strerror(error));
    }
    for (unsigned index = 0; index < count; index++)
        pthread_join(threads[index], NULL);
    if (walk->report == REPORT_NAMES)
        wanted_end(walk);
    for (unsigned index = 0; index < count; index++) {
        const uint64_t *counted = (const uint64_t *)&workers[index].totals;
        for (size_t field = 0; field < sizeof sum / sizeof(uint64_t); field++)
            ((uint64_t *)&sum)[field] += counted[field];
    }
    free(workers);
    free(threads);
    queue_free(&walk->queue);
    struct iovec pieces[2] = {{NULL, 0}, {&sum, sizeof sum}};
    frame_write(FRAME_END, pieces, 2);
}

int walk_main(int argc, char **argv)
{
    static const struct option OPTIONS[] = {
        {"brick", required_argument, NULL, 'b'},
        {"mount", required_argument, NULL, 'm'},
        {"times", required_argument, NULL, 't'},
        {"only-trees", no_argument, NULL, 'o'},
        {"own", no_argument, NULL, 'p'},
        {"distributed", no_argument, NULL, 'd'},
        {"listings", no_argument, NULL, 'l'},
        {"marks", no_argument, NULL, 'g'},
        {"marks-only", no_argument, NULL, 'k'},
        {"report", required_argument, NULL, 'R'},
        {"wanted", required_argument, NULL, 'W'},
        {"only", required_argument, NULL, 'O'},
        {"begin", required_argument, NULL, 'B'},
        {"hidden", required_argument, NULL, 'H'},
        {"mounted", required_argument, NULL, 'M'},
        {"workers", required_argument, NULL, 'w'},
        {"block-rows", required_argument, NULL, 'r'},
        {"uids", required_argument, NULL, 'u'},
        {"gids", required_argument, NULL, 'G'},
        {NULL, 0, NULL, 0},
    };
    static struct walk walk = {.block_rows = BLOCK_ROWS};
    const char *root = NULL, *times = NULL;
    unsigned workers = 0;
    struct counts counts = {0};
    int option;
    while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
        switch (option) {
        case 'b': root = optarg; break;
        case 'm': root = optarg; walk.plain = true; break;
        case 't': times = optarg; break;
        case 'o': walk.only_trees = true; break;
        case 'p': walk.own = true; break;
        case 'd': walk.distributed = true; break;
        case 'l': walk.listings = true; break;
        case 'g': walk.marks = true; break;
        case 'k': walk.marks = walk.marks_only = true; break;
        case 'R':
            if (!report_named(optarg, &walk.report))
                usage("--report is not known");
            break;
        case 'W': counts.wanted = number(optarg, "--wanted", INT32_MAX); break;
        case 'O': counts.only = number(optarg, "--only", INT32_MAX); break;
        case 'B': counts.begin = number(optarg, "--begin", INT32_MAX); break;
        case 'H': counts.hidden = number(optarg, "--hidden", INT32_MAX); break;
        case 'M': counts.mounted = number(optarg, "--mounted", INT32_MAX); break;
        case 'w': workers = number(optarg, "--workers", WORKERS_LIMIT); break;
        case 'r': walk.block_rows = number(optarg, "--block-rows", 1u << 20); break;
        case 'u':
            if (!take_id_map(optarg, &walk.owners.users))
                usage("--uids is a list of FROM:TO in order of FROM");
            break;
        case 'G':
            if (!take_id_map(optarg, &walk.owners.groups))
                usage("--gids is a list of FROM:TO in order of FROM");
            break;
        default: usage("an option is not known");
        }
    }
    if ((walk.plain || walk.report != REPORT_ROWS) && times == NULL)
        times = "file";
    if (root == NULL || times == NULL || optind != argc)
        usage("--brick and --times are needed, or --mount, and nothing else");
    if (strcmp(times, "mdata") != 0 && strcmp(times, "file") != 0)
        usage("--times is mdata or file");
    walk.times_from_mdata = strcmp(times, "mdata") == 0;
    if (!walk.plain && counts.begin + counts.hidden + counts.mounted > 0)
        usage("--begin, --hidden and --mounted are for mounts");
    if (walk.report != REPORT_ROWS ? walk.plain : counts.wanted + counts.only > 0)
        usage("--report is for bricks, --wanted and --only for reports");
    read_paths(&walk, counts);

    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    struct stat facts;
    walk.root = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (walk.root < 0 || fstat(walk.root, &facts) != 0)
        die("cannot open %s: %s", root, strerror(errno));
    walk.device = facts.st_dev;
    walk.pins = walk.plain && asks_by_name(walk.root);
    if (!say_hello(&walk) && !walk.plain) {
        fprintf(stderr, "migrator-native: %s is not a brick's root: is its file system mounted?\n", root);
        return 3;
    }
    if (walk.report == REPORT_NAMES)
        wanted_start(&walk, walk.gfids, counts.wanted);
    /* A directory is reported after the one above it: one worker reads them. */
    if (walk.report == REPORT_DIRECTORIES || walk.only_count > 0)
        workers = 1;
    if (workers == 0)
        workers = cores() < WORKERS_LIMIT ? cores() : WORKERS_LIMIT;
    walk_with(&walk, workers);
    free(walk.begin);
    free(walk.hidden);
    free(walk.mounted);
    free(walk.gfids);
    free(walk.only);
    free(walk.tree_names);
    free(walk.trees);
    free(walk.tree_numbers);
    return 0;
}
