#include "walk_names.h"

#include <stdlib.h>
#include <string.h>

#include "frames.h"
#include "xxh3.h"

#define FIRST_SLOTS 256u
/* A table that was grown for a wide directory is not kept for small ones: clearing it would cost more than reading them. */
#define KEPT_SLOTS 4096u

void names_clear(struct names *names)
{
    if (names->slot_count > KEPT_SLOTS)
        names_free(names);
    names->length = names->count = 0;
    if (names->slot_count > 0)
        memset(names->slots, 0, names->slot_count * sizeof *names->slots);
}

/* The slot of a name, or the free one where it belongs. */
static uint64_t *slot_of(struct names *names, const char *name)
{
    size_t at = XXH3_64bits(name, strlen(name)) & (names->slot_count - 1);
    while (names->slots[at] != 0 && strcmp(names->data + names->slots[at] - 1, name) != 0)
        at = (at + 1) & (names->slot_count - 1);
    return &names->slots[at];
}

static void grow(struct names *names)
{
    names->slot_count = names->slot_count > 0 ? 2 * names->slot_count : FIRST_SLOTS;
    names->slots = reallocated(names->slots, names->slot_count * sizeof *names->slots);
    memset(names->slots, 0, names->slot_count * sizeof *names->slots);
    for (size_t at = 0; at < names->length; at += strlen(names->data + at) + 1)
        *slot_of(names, names->data + at) = at + 1;
}

bool names_add(struct names *names, const char *name)
{
    if (2 * names->count >= names->slot_count)
        grow(names);
    uint64_t *slot = slot_of(names, name);
    if (*slot != 0)
        return false;
    size_t bytes = strlen(name) + 1;
    if (names->length + bytes > names->capacity) {
        names->capacity = 2 * names->capacity + bytes + 4096;
        names->data = reallocated(names->data, names->capacity);
    }
    memcpy(names->data + names->length, name, bytes);
    *slot = names->length + 1;
    names->length += bytes;
    names->count++;
    return true;
}

void names_free(struct names *names)
{
    free(names->data);
    free(names->slots);
    memset(names, 0, sizeof *names);
}
