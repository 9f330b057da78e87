/* The metadata that Gluster keeps on a brick, and how to read it. */
#ifndef MIGRATOR_GLUSTER_H
#define MIGRATOR_GLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GLUSTER_GFID "trusted.gfid"
#define GLUSTER_GFID_BYTES 16
#define GLUSTER_MDATA "trusted.glusterfs.mdata"
#define GLUSTER_MDATA_BYTES 57
#define GLUSTER_MDATA_ROOM 64 /* for a buffer: longer values are of an unknown format */
#define GLUSTER_LINKTO "trusted.glusterfs.dht.linkto"
#define GLUSTER_VOLUME_ID "trusted.glusterfs.volume-id"
#define GLUSTER_BAD_FILE "trusted.bit-rot.bad-file"

#define ACL_ACCESS "system.posix_acl_access"
#define ACL_DEFAULT "system.posix_acl_default"

/* Times in nanoseconds since 1970; negative before. */
struct gluster_times {
    int64_t ctime_ns;
    int64_t mtime_ns;
    int64_t atime_ns;
};

/* 0, so false, only if the value cannot be read. */
enum gluster_mdata {
    MDATA_MALFORMED,    /* another length or version than known, or nanoseconds of a second or more */
    MDATA_READ,
    MDATA_OUT_OF_RANGE, /* a time beyond 64 bits of nanoseconds: limited to the nearest possible one */
};

/* Parse the value of trusted.glusterfs.mdata. `times` is unchanged if the value is malformed. */
enum gluster_mdata gluster_parse_mdata(const uint8_t *value, size_t length, struct gluster_times *times);

/* Seconds and nanoseconds as one number, limited to 64 bits; *cut is set to true if it was limited. */
int64_t gluster_nanoseconds(int64_t seconds, int64_t nanoseconds, bool *cut);

enum gluster_file {
    FILE_IS_DATA,
    FILE_IS_LINKTO,    /* points to the brick with the data: the mount does not show it */
    FILE_IS_MIGRATING, /* data in migration: its setgid and sticky bits are Gluster's, strip both */
    FILE_IS_AMBIGUOUS, /* empty, with the linkto attribute and a normal mode: only the mount knows */
};

/* The class of a regular file, by its st_mode, its size, and whether it has the linkto attribute. */
enum gluster_file gluster_classify(mode_t mode, uint64_t size, bool has_linkto);

/* Whether the mount hides the setgid and sticky bits of this data file: on a volume of several subvolumes, it treats a
 * file with both as one in migration (GlusterFS 10.3; a volume of one subvolume shows them). */
bool gluster_hides_marks(mode_t mode);

/* Whether an attribute counts operations that a copy lacks: of this copy (`dirty`), or of another one. */
bool gluster_is_pending(const char *name);

/* Whether the value of such an attribute counts any. */
bool gluster_counts_any(const uint8_t *value, size_t length);

/* Whether an attribute is user data: neither a file system's internal one nor the SELinux label. */
bool gluster_is_carried(const char *name);

/* The mount's inode number: the low 64 bits of the gfid, big-endian. */
uint64_t gluster_ino(const uint8_t gfid[GLUSTER_GFID_BYTES]);

#endif
