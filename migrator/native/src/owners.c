/* Owners whose numbers differ between source and target: pairs of ids, and ids in POSIX ACLs. */

#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "owners.h"

/* As linux/posix_acl_xattr.h and linux/posix_acl.h have them; all numbers are little-endian. */
#define ACL_VERSION 2
#define ACL_HEADER_BYTES 4
#define ACL_USER 0x02
#define ACL_GROUP 0x08

struct acl_entry {
    uint16_t tag, permissions;
    uint32_t id;
};

static bool take_id(const char **at, char end, uint32_t *id) {
    char *after;
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    unsigned long long value = strtoull(*at, &after, 10);
    if (errno != 0 || value > UINT32_MAX || (*after != end && !(end == ',' && *after == '\0')))
        return false;
    *id = (uint32_t)value;
    *at = after + (*after != '\0');
    return true;
}

bool take_id_map(const char *text, struct id_map *map) {
    size_t room = 1;
    for (const char *at = text; *at != '\0'; at++)
        room += *at == ',';
    map->pairs = malloc(room * sizeof *map->pairs);
    if (map->pairs == NULL)
        return false;
    while (*text != '\0') {
        struct id_pair *pair = &map->pairs[map->count];
        if (!take_id(&text, ':', &pair->from) || !take_id(&text, ',', &pair->to))
            return false;
        if (map->count > 0 && pair[-1].from >= pair->from)
            return false;
        map->count++;
    }
    return map->count > 0;
}

uint32_t mapped_id(const struct id_map *map, uint32_t id) {
    size_t low = 0, high = map->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (map->pairs[middle].from == id)
            return map->pairs[middle].to;
        if (map->pairs[middle].from < id)
            low = middle + 1;
        else
            high = middle;
    }
    return id;
}

static int by_tag_and_id(const void *left, const void *right) {
    struct acl_entry one, other;
    memcpy(&one, left, sizeof one); /* in a buffer they are anywhere */
    memcpy(&other, right, sizeof other);
    uint64_t first = (uint64_t)le16toh(one.tag) << 32 | le32toh(one.id);
    uint64_t second = (uint64_t)le16toh(other.tag) << 32 | le32toh(other.id);
    return first == second ? 0 : first < second ? -1 : 1;
}

void map_acl(const struct owner_map *owners, void *value, size_t length) {
    uint32_t version;
    if (length < ACL_HEADER_BYTES || (length - ACL_HEADER_BYTES) % sizeof(struct acl_entry) != 0)
        return;
    memcpy(&version, value, sizeof version);
    if (le32toh(version) != ACL_VERSION)
        return;
    size_t count = (length - ACL_HEADER_BYTES) / sizeof(struct acl_entry);
    char *first = (char *)value + ACL_HEADER_BYTES;
    bool changed = false;
    for (size_t at = 0; at < count; at++) {
        struct acl_entry entry;
        memcpy(&entry, first + at * sizeof entry, sizeof entry);
        uint16_t tag = le16toh(entry.tag);
        if (tag != ACL_USER && tag != ACL_GROUP)
            continue;
        uint32_t id = le32toh(entry.id);
        uint32_t mapped = mapped_id(tag == ACL_USER ? &owners->users : &owners->groups, id);
        changed = changed || mapped != id;
        entry.id = htole32(mapped);
        memcpy(first + at * sizeof entry, &entry, sizeof entry);
    }
    if (changed)
        qsort(first, count, sizeof(struct acl_entry), by_tag_and_id);
}
