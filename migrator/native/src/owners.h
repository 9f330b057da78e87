/* Owners whose numbers differ between source and target: pairs of ids, and ids in POSIX ACLs. */
#ifndef MIGRATOR_OWNERS_H
#define MIGRATOR_OWNERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct id_pair {
    uint32_t from, to;
};

/* In order of `from`. An id in no pair is the same on both sides. */
struct id_map {
    struct id_pair *pairs;
    size_t count;
};

struct owner_map {
    struct id_map users, groups;
};

/* Take "1000:2000,1001:2001", in order of the first numbers; false if it is malformed, or memory is lacking. The process
 * keeps the memory. */
bool take_id_map(const char *text, struct id_map *map);

uint32_t mapped_id(const struct id_map *map, uint32_t id);

/* Map the named users and groups of the attribute of a POSIX ACL in place, as `OwnerMap.acl` of fs/rules_owners.py: in the
 * kernel's order if any has another number. */
void map_acl(const struct owner_map *owners, void *value, size_t length);

#endif
