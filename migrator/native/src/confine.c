/* `migrator-native confine`: runs one program in a mount namespace that holds only one tree of the source and one of
 * the target.
 *
 *     confine [--source-root R] [--target-root R] [--tree T] [--file F ...] [--parent PID] [--system D] -- PROGRAM ARG...
 *
 * Requires root. PROGRAM sees `R/T` of the source at /source, read-only, `R/T` of the target at /target, and each F
 * (itself, its loader, its libraries) read-only under its own path; /dev/null and /dev/urandom; no /proc, no network,
 * no other process. All processes inside die with this process, or with that of --parent.
 *
 * With --system D, for scripts that need a shell and other programs, PROGRAM also sees the installed programs and their
 * libraries (/usr, /bin, /lib, ...), read-only; a /proc of only its own processes, read-only; an empty /tmp; and D,
 * writable, at /work. This process then ends when PROGRAM and all processes that it has started have ended. Its exit
 * code is that of PROGRAM, or 128 plus the signal's number if a signal ended PROGRAM.
 *
 * The exit code is that of PROGRAM; 125 if the confinement could not be set up, with one line on standard error:
 * `migrator-jail: STEP: ERRNO: TEXT: REASON`. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "confine.h"

#define SET_UP_FAILED 125
#define CAPABILITIES 64

int confine_main(int argc, char **argv);

static const int ENDING[] = {SIGTERM, SIGINT, SIGHUP};

/* The capabilities for copying any file with all attributes: owners, modes and contents of all users, security.*
 * attributes (sys_admin), quotas and reserved blocks as root has them elsewhere (sys_resource), devices, file
 * capabilities. */
static const int KEPT_CAPABILITIES[] = {
    CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER,       CAP_FSETID, CAP_KILL,
    CAP_SETGID, CAP_SETUID,       CAP_SYS_ADMIN,       CAP_SYS_RESOURCE, CAP_MKNOD,  CAP_SETFCAP,
};

_Noreturn void refuse(const char *step, int code, const char *text) {
    char line[512];
    const char *reason = code == 0 ? "refused" : strerror(code);
    int length = snprintf(line, sizeof line, "migrator-jail: %s: %d: %s: %s\n", step, code, text, reason);
    /* If no process reads the line, the exit code must suffice. */
    ssize_t written = write(STDERR_FILENO, line, (size_t)length);
    (void)written;
    _exit(SET_UP_FAILED);
}

static uint64_t process_number(const char *word) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(word, &end, 10);
    if (errno != 0 || *word < '0' || *word > '9' || *end != '\0')
        refuse(STEP_USAGE, 0, "the parent is not a process number");
    return value;
}

static void take(struct request *request, const char *option, const char *value) {
    if (strcmp(option, "--source-root") == 0)
        request->source_root = value;
    else if (strcmp(option, "--target-root") == 0)
        request->target_root = value;
    else if (strcmp(option, "--tree") == 0)
        request->tree = value;
    else if (strcmp(option, "--file") == 0)
        request->files[request->file_count++] = value;
    else if (strcmp(option, "--parent") == 0)
        request->parent_pid = process_number(value);
    else if (strcmp(option, "--system") == 0)
        request->work = value;
    else
        refuse(STEP_USAGE, 0, "an unknown option");
}

static struct request requested(int argc, char **argv) {
    struct request request = {.source_root = "", .target_root = "", .tree = "", .work = ""};
    request.files = calloc((size_t)argc, sizeof *request.files);
    if (request.files == NULL)
        refuse(STEP_NAMESPACE, ENOMEM, "the command line");
    int at = 1;
    while (at < argc && strcmp(argv[at], "--") != 0) {
        if (at + 1 == argc)
            refuse(STEP_USAGE, 0, "an option without a value");
        take(&request, argv[at], argv[at + 1]);
        at += 2;
    }
    if (at + 1 >= argc)
        refuse(STEP_USAGE, 0, "no program");
    request.argv = argv + at + 1;
    return request;
}

static void on_ending(void (*action)(int)) {
    for (size_t at = 0; at < sizeof ENDING / sizeof *ENDING; at++)
        signal(ENDING[at], action);
}

static void ended_in_set_up(int number) { _exit(128 + number); }

static void die_with_parent(void) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        refuse(STEP_NAMESPACE, errno, "prctl");
}

static bool is_kept(int capability) {
    for (size_t at = 0; at < sizeof KEPT_CAPABILITIES / sizeof *KEPT_CAPABILITIES; at++)
        if (KEPT_CAPABILITIES[at] == capability)
            return true;
    return false;
}

/* Inheritable capabilities pass the bounding set at exec: a program of root would regain them. Ambient ones are cleared
 * too. */
static void forget_inheritable(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, data) < 0)
        refuse(STEP_NAMESPACE, errno, "capget");
    for (size_t at = 0; at < _LINUX_CAPABILITY_U32S_3; at++)
        data[at].inheritable = 0;
    if (syscall(SYS_capset, &header, data) < 0)
        refuse(STEP_NAMESPACE, errno, "capset");
}

/* Drop all capabilities except those for copying files. */
static void drop_privileges(void) {
    for (int capability = 0; capability < CAPABILITIES; capability++) {
        if (is_kept(capability))
            continue;
        /* EINVAL beyond the last capability that this kernel knows. */
        prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
        if (prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1)
            refuse(STEP_NAMESPACE, EPERM, "a capability cannot be dropped");
    }
    forget_inheritable();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        refuse(STEP_NAMESPACE, errno, "no_new_privs");
}

static void end_all(int number) { kill(-1, number); }

/* Act as the first process of the namespace: it reaps orphaned processes, and the kernel ends all others with it. So it
 * waits for the last one, and forwards the signals that request its end. */
static _Noreturn void attend(pid_t program) {
    int result = SET_UP_FAILED;
    int status;
    pid_t ended;
    on_ending(end_all);
    while ((ended = wait(&status)) >= 0 || errno == EINTR)
        if (ended == program)
            result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    _exit(result);
}

static _Noreturn void be_confined(const struct request *request, int alive) {
    struct pollfd parent = {.fd = alive};
    die_with_parent();
    if (poll(&parent, 1, 0) != 0)
        _exit(SET_UP_FAILED); /* the parent died before this process could be tied to it */
    build_root(request);
    drop_privileges();
    on_ending(SIG_DFL);
    if (*request->work != '\0') {
        pid_t program = fork();
        if (program < 0)
            refuse(STEP_NAMESPACE, errno, "fork");
        if (program > 0)
            attend(program);
    }
    execv(request->argv[0], request->argv);
    refuse(STEP_PROGRAM, errno, "the program cannot be started");
}

static pid_t inside;

/* A new limit for the program: see copy_events.c. */
static void pass_on(int number, siginfo_t *news, void *context) {
    (void)context;
    if (news->si_code == SI_QUEUE)
        sigqueue(inside, number, news->si_value);
}

/* Fork into the namespaces and wait; returns the status of the program. */
static int run(const struct request *request) {
    int ends[2]; /* the child holds the first end; the second end proves that this process lives */
    int status;
    die_with_parent();
    if (request->parent_pid != 0 && (uint64_t)getppid() != request->parent_pid)
        refuse(STEP_NAMESPACE, 0, "the program that asked for this stream is gone");
    if (unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC) < 0)
        refuse(STEP_NAMESPACE, errno, "unshare");
    if (pipe2(ends, O_CLOEXEC) < 0)
        refuse(STEP_NAMESPACE, errno, "pipe");
    /* TERM to the group reaches the program too: the program decides how to end, and this process reports its
     * status. */
    on_ending(ended_in_set_up);
    /* The first child after the new pid namespace is its init: when it dies, the kernel ends all processes in it. */
    pid_t child = fork();
    if (child < 0)
        refuse(STEP_NAMESPACE, errno, "fork");
    if (child == 0) {
        close(ends[1]);
        be_confined(request, ends[0]);
    }
    on_ending(SIG_IGN);
    const struct sigaction passing = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};
    inside = child;
    sigaction(SIGURG, &passing, NULL);
    /* The program must see the end of its input, and its reader the end of its output. */
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    close(ends[0]);
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            refuse(STEP_NAMESPACE, errno, "wait");
    return status;
}

int confine_main(int argc, char **argv) {
    struct request request = requested(argc, argv);
    /* As an interpreter sets it for its programs: a file that exceeds the size limit is an error of write(). */
    signal(SIGXFSZ, SIG_IGN);
    int status = run(&request);
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    int number = WTERMSIG(status);
    signal(number, SIG_DFL);
    kill(getpid(), number);
    return 128 + number;
}
