/* The program that is placed on hosts: `migrator-native walk ...`, `copy ...`, `digest ...`, `confine ...`. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "walk.h"

/* Weak: the program can be built without the copying part. */
int copy_main(int argc, char **argv) __attribute__((weak));
int digest_main(int argc, char **argv) __attribute__((weak));

int confine_main(int argc, char **argv);

int main(int argc, char **argv)
{
    /* A reader that has ended is an error of write(), with a message, not a silent end. */
    signal(SIGPIPE, SIG_IGN);
    /* The caller checks whether the program can be started on a host. */
    if (argc == 2 && strcmp(argv[1], "--version") == 0)
        return puts("migrator-native 1") < 0;
    if (argc >= 2 && strcmp(argv[1], "walk") == 0)
        return walk_main(argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "copy") == 0 && copy_main != NULL)
        return copy_main(argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "digest") == 0 && digest_main != NULL)
        return digest_main(argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "confine") == 0)
        return confine_main(argc - 1, argv + 1);
    fputs("usage: migrator-native walk|copy|digest|confine OPTIONS (it is started by migrator)\n", stderr);
    return 2;
}
