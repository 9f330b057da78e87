/* Finds directories in lists of paths: the user trees and what leads to them, what is hidden, and mount points. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "walk.h"

/* The position of the first tree that does not come before a path. */
static size_t first_from(const struct walk *walk, const char *path)
{
    size_t low = 0, high = walk->tree_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(walk->trees[middle], path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int32_t tree_of(const struct walk *walk, const char *path)
{
    size_t at = first_from(walk, path);
    return at < walk->tree_count && strcmp(walk->trees[at], path) == 0 ? walk->tree_numbers[at] : NO_TREE;
}

int32_t tree_above(const struct walk *walk, const char *path)
{
    int32_t tree = tree_of(walk, path);
    size_t length = strlen(path);
    char *above = allocated(length + 1);
    memcpy(above, path, length + 1);
    for (char *slash; tree == NO_TREE && (slash = strrchr(above, '/')) != NULL;) {
        *slash = '\0';
        tree = tree_of(walk, above);
    }
    free(above);
    return tree;
}

bool is_listed(char *const *paths, size_t count, const char *path)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(paths[middle], path);
        if (order == 0)
            return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

bool leads_to_tree(const struct walk *walk, const struct task *directory, const char *name)
{
    size_t above = directory->path_length, length = strlen(name);
    size_t slash = above > 0;
    char *path = allocated(above + slash + length + 2);
    memcpy(path, directory->path, above);
    path[above] = '/';
    memcpy(path + above + slash, name, length + 1);
    length += above + slash;
    bool leads = tree_of(walk, path) != NO_TREE;
    if (!leads) {
        /* Other names may be sorted between a directory and its entries ("a-b" before "a/b"). */
        memcpy(path + length, "/", 2);
        size_t at = first_from(walk, path);
        leads = at < walk->tree_count && strncmp(walk->trees[at], path, length + 1) == 0;
    }
    free(path);
    return leads;
}
