/* What Gluster keeps beside the data on a brick, and how it is to be read. */
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
#define GLUSTER_MDATA_ROOM 64 /* for a buffer: a longer value is not one that is known */
#define GLUSTER_LINKTO "trusted.glusterfs.dht.linkto"
#define GLUSTER_VOLUME_ID "trusted.glusterfs.volume-id"

#define ACL_ACCESS "system.posix_acl_access"
#define ACL_DEFAULT "system.posix_acl_default"

/* Times in nanoseconds since 1970; negative before. */
struct gluster_times {
    int64_t ctime_ns;
    int64_t mtime_ns;
    int64_t atime_ns;
};

/* 0, so false, only where the value cannot be read. */
enum gluster_mdata {
    MDATA_MALFORMED,    /* another length or version than known, or nanoseconds of a second or more */
    MDATA_READ,
    MDATA_OUT_OF_RANGE, /* a time that 64 bits of nanoseconds cannot hold: cut to the nearest they can */
};

/* Parse the value of trusted.glusterfs.mdata. `times` is untouched where it is malformed. */
enum gluster_mdata gluster_parse_mdata(const uint8_t *value, size_t length, struct gluster_times *times);

/* Seconds and nanoseconds as one number, cut to what 64 bits hold; *cut is set to true where it was. */
int64_t gluster_nanoseconds(int64_t seconds, int64_t nanoseconds, bool *cut);

enum gluster_file {
    FILE_IS_DATA,
    FILE_IS_LINKTO,    /* points to the brick that has the data: not shown by the mount */
    FILE_IS_MIGRATING, /* data, being moved: its setgid and sticky bits are Gluster's, strip both */
    FILE_IS_AMBIGUOUS, /* empty, with the linkto attribute and a normal mode: the mount knows */
};

/* What a regular file is, by its st_mode, its size, and whether it has the linkto attribute. */
enum gluster_file gluster_classify(mode_t mode, uint64_t size, bool has_linkto);

/* Whether the mount hides the setgid and sticky bits of this data file: where a volume has several subvolumes, it takes a file
 * with both for one that is being moved (GlusterFS 10.3; a volume of one subvolume shows them). */
bool gluster_hides_marks(mode_t mode);

/* Whether an attribute is somebody's data: not a file system's internal one, and not the SELinux label. */
bool gluster_is_carried(const char *name);

/* The mount's inode number: the low 64 bits of the gfid, big-endian. */
uint64_t gluster_ino(const uint8_t gfid[GLUSTER_GFID_BYTES]);

#endif
