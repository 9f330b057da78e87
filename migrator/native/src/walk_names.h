/* The names of one directory that were met already: a Gluster mount can list an entry twice during renames. */
#ifndef MIGRATOR_WALK_NAMES_H
#define MIGRATOR_WALK_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct names {
    char *data;
    size_t length, capacity;
    uint64_t *slots; /* the place of a name in `data`, plus one; 0: free */
    size_t slot_count;
    size_t count;
};

/* Forget all names. */
void names_clear(struct names *names);

/* Remember a name; false if it was there. */
bool names_add(struct names *names, const char *name);

void names_free(struct names *names);

#endif
