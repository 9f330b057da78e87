#define _DEFAULT_SOURCE
#include "gluster.h"

#include <string.h>
#include <sys/stat.h>

static const char *const INTERNAL_PREFIXES[] = {
    "trusted.gfid",     "trusted.glusterfs.", "trusted.afr.",         "trusted.ec.",
    "trusted.pgfid.",   "trusted.bit-rot.",   "trusted.SGI_ACL_",     "trusted.tier.",
    "trusted.distribute.", "trusted.io-stats-dump",
};

static uint64_t big_endian(const uint8_t *bytes)
{
    uint64_t word = 0;
    for (int index = 0; index < 8; index++)
        word = (word << 8) | bytes[index];
    return word;
}

static bool starts_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

int64_t gluster_nanoseconds(int64_t seconds, int64_t nanoseconds, bool *cut)
{
    int64_t whole;
    if (__builtin_mul_overflow(seconds, INT64_C(1000000000), &whole) ||
        __builtin_add_overflow(whole, nanoseconds, &whole)) {
        *cut = true;
        return seconds < 0 ? INT64_MIN : INT64_MAX;
    }
    return whole;
}

enum gluster_mdata gluster_parse_mdata(const uint8_t *value, size_t length, struct gluster_times *times)
{
    /* Version (1 byte), flags (8 bytes), then seconds and nanoseconds of ctime, mtime, atime; all big-endian. */
    if (length != GLUSTER_MDATA_BYTES || value[0] != 1)
        return MDATA_MALFORMED;
    int64_t read[3];
    bool cut = false;
    for (int index = 0; index < 3; index++) {
        const uint8_t *pair = value + 9 + 16 * index;
        uint64_t nanoseconds = big_endian(pair + 8);
        if (nanoseconds >= 1000000000u)
            return MDATA_MALFORMED;
        read[index] = gluster_nanoseconds((int64_t)big_endian(pair), (int64_t)nanoseconds, &cut);
    }
    times->ctime_ns = read[0];
    times->mtime_ns = read[1];
    times->atime_ns = read[2];
    return cut ? MDATA_OUT_OF_RANGE : MDATA_READ;
}

enum gluster_file gluster_classify(mode_t mode, uint64_t size, bool has_linkto)
{
    if (!has_linkto)
        return FILE_IS_DATA;
    if ((mode & 07777) == S_ISVTX)
        return FILE_IS_LINKTO;
    if ((mode & S_ISGID) && (mode & S_ISVTX))
        return FILE_IS_MIGRATING;
    return size == 0 ? FILE_IS_AMBIGUOUS : FILE_IS_DATA;
}

bool gluster_hides_marks(mode_t mode)
{
    return S_ISREG(mode) && (mode & S_ISGID) && (mode & S_ISVTX);
}

bool gluster_is_pending(const char *name)
{
    return starts_with(name, "trusted.afr.");
}

bool gluster_counts_any(const uint8_t *value, size_t length)
{
    for (size_t index = 0; index < length; index++)
        if (value[index] != 0)
            return true;
    return false;
}

bool gluster_is_carried(const char *name)
{
    if (starts_with(name, "user.") || strcmp(name, ACL_ACCESS) == 0 || strcmp(name, ACL_DEFAULT) == 0)
        return true;
    if (starts_with(name, "security."))
        return strcmp(name, "security.selinux") != 0;
    if (!starts_with(name, "trusted."))
        return false;
    for (size_t index = 0; index < sizeof INTERNAL_PREFIXES / sizeof *INTERNAL_PREFIXES; index++)
        if (starts_with(name, INTERNAL_PREFIXES[index]))
            return false;
    return true;
}

uint64_t gluster_ino(const uint8_t gfid[GLUSTER_GFID_BYTES])
{
    return big_endian(gfid + 8);
}
