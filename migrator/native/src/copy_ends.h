/* A copy with two ends: `copy --source` alone is the reading end, on a host that has the source, `copy --target` alone the
 * writing end, on one that has the target. Both get the same options and the same list, and then the output of the other
 * end: standard input continues after the list (--list-bytes).
 *
 * The writing end decides and reports everything, as a copy with one end does. Beside its events it prints requests, which
 * the caller passes to the reading end:
 *
 *     Q CHANNEL e INDEX...     the entries at these positions of the list, small files with their content
 *     Q CHANNEL c INDEX        one entry with its whole content, or its range
 *
 * Each thread of the writing end has two channels, one for each kind of request, and at most one open request in each. The
 * reading end has a thread for each channel. Its output consists of parts of channels; a channel is a sequence of the messages below. No message has a name
 * of a path: the writing end takes names from its own list alone. Both ends are one program on one architecture. */

#ifndef MIGRATOR_COPY_ENDS_H
#define MIGRATOR_COPY_ENDS_H

#include "copy.h"

/* What a thread requests at a time in the order of the list. */
#define REQUESTED_AT_ONCE 64
/* The content of a smaller file comes with its entry. */
#define SMALL_FILE_BYTES ((off_t)64 << 10)
#define OPERATION_ROOM 32
#define DIGEST_BYTES 16
#define MOST_CHANNELS 512

struct part {
    uint32_t channel;
    uint32_t length;
};

/* An error of a call on the source. */
struct source_error {
    int32_t code;
    char operation[OPERATION_ROOM];
};

/* An entry, followed by a pair of lengths for each attribute, their names and values, and the text of a symlink. */
struct entry_message {
    uint64_t index;
    uint32_t result;      /* all but RESULT_FINE: nothing follows */
    uint32_t has_content; /* pieces and an end follow */
    struct source_error error;
    struct stat facts;
    int64_t mtime_ns;
    int64_t atime_ns;
    uint32_t attributes;
    uint32_t names_length; /* with a NUL after each */
    uint32_t values_length;
    uint32_t text_length;
};

struct attribute_message {
    uint32_t name_length; /* without the NUL */
    uint32_t value_length;
};

/* A piece of content, followed by its bytes; length 0: the end follows. Between pieces are holes. */
struct piece_message {
    int64_t offset;
    uint64_t length;
};

struct end_message {
    int64_t copied; /* where the reading ended */
    uint32_t failed;
    uint32_t cut; /* a range is shorter than listed */
    uint32_t moved; /* it changed, since it is in migration */
    uint32_t digested;
    struct source_error error;
    struct stat after;
    int64_t after_mtime_ns;
    struct facts digested_facts;
    uint8_t digest[DIGEST_BYTES]; /* of what was read, with zeros for holes */
};

/* copy_reading_end.c */
_Noreturn void serve(struct copier *first);
int send_piece(struct copier *copier, const unsigned char *bytes, size_t length, off_t offset);

/* copy_writing_end.c */
/* NULL without memory. It is never freed. */
struct inbox *make_inbox(void);
bool start_receiving(void);
/* Request entries, in this order; all that were requested before have been taken. */
void request_entries(struct copier *copier, const size_t *indices, size_t count);
/* Put the entry at a position of the list, which was requested, into `attributes`. */
enum result take_entry(struct copier *copier, size_t index);
/* As take_entry, but request it, with its content. */
enum result take_again(struct copier *copier);
bool content_follows(const struct copier *copier);
bool was_moved(const struct copier *copier);
/* As copy_content and copy_range, from the messages of the other end; `after` gets the facts after that. */
int receive_content(struct copier *copier, int out, off_t *copied, struct attributes *after);
int receive_range(struct copier *copier, int out, uint64_t offset, uint64_t end, struct attributes *after);

#endif
