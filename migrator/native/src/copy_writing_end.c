/* The writing end of a copy: requests of its threads, and the messages that a thread of its own receives for them
 * (copy_ends.h). It believes the other end in nothing but entries and their content: names are those of the list, and the
 * attributes are judged again. */

#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "copy_ends.h"

#define RING_BYTES ((size_t)1 << 20)
#define LINE_ROOM 4096
#define READ_BYTES ((size_t)256 << 10)

/* Bytes of one channel that have arrived and were not taken. */
struct ring {
    uint32_t channel;
    pthread_mutex_t lock;
    pthread_cond_t news;
    pthread_cond_t room;
    size_t begin;
    size_t length;
    size_t size;
    bool grows; /* for all that was requested */
    unsigned char *bytes;
};

/* A thread has two channels: entries are requested ahead, and the content of a big file does not wait for them. So entries
 * must not wait for the thread: it may wait for content behind them. The content waits, which holds up the other end. */
struct inbox {
    struct ring entries;
    struct ring content;
    size_t requested;           /* entries that were not taken */
    struct ring *content_comes; /* where the content of the last entry was not taken; NULL: nowhere */
    bool moved;
    char operation[OPERATION_ROOM];
};

static struct ring *_Atomic rings[MOST_CHANNELS];
static _Atomic uint32_t ring_count;
static _Atomic bool over;

static bool open_ring(struct ring *ring, bool grows) {
    uint32_t channel = atomic_fetch_add(&ring_count, 1);
    if (channel >= MOST_CHANNELS)
        return false;
    ring->channel = channel;
    ring->grows = grows;
    ring->size = RING_BYTES;
    if ((ring->bytes = malloc(ring->size)) == NULL)
        return false;
    pthread_mutex_init(&ring->lock, NULL);
    pthread_cond_init(&ring->news, NULL);
    pthread_cond_init(&ring->room, NULL);
    rings[channel] = ring;
    return true;
}

/* Inboxes stay until the end: the thread that receives may use them. */
struct inbox *make_inbox(void) {
    struct inbox *inbox = calloc(1, sizeof *inbox);
    return inbox != NULL && open_ring(&inbox->entries, true) && open_ring(&inbox->content, false) ? inbox : NULL;
}

static bool grow_ring(struct ring *ring) {
    unsigned char *bytes = malloc(2 * ring->size);
    if (bytes == NULL)
        return false;
    size_t before_end = ring->size - ring->begin < ring->length ? ring->size - ring->begin : ring->length;
    memcpy(bytes, ring->bytes + ring->begin, before_end);
    memcpy(bytes + before_end, ring->bytes, ring->length - before_end);
    free(ring->bytes);
    ring->bytes = bytes;
    ring->begin = 0;
    ring->size *= 2;
    return true;
}

static void deliver(struct ring *ring, const unsigned char *bytes, size_t length) {
    pthread_mutex_lock(&ring->lock);
    while (length > 0) {
        while (ring->length == ring->size)
            if (!ring->grows)
                pthread_cond_wait(&ring->room, &ring->lock);
            else if (!grow_ring(ring))
                _exit(EXIT_NO_MEMORY);
        size_t at = (ring->begin + ring->length) % ring->size;
        size_t room = ring->size - ring->length;
        size_t some = room < ring->size - at ? room : ring->size - at;
        if (some > length)
            some = length;
        memcpy(ring->bytes + at, bytes, some);
        ring->length += some;
        bytes += some;
        length -= some;
        pthread_cond_signal(&ring->news);
    }
    pthread_mutex_unlock(&ring->lock);
}

static void *receive(void *argument) {
    static unsigned char bytes[READ_BYTES];
    struct part part;
    size_t have = 0, left = 0; /* of the part's head; of its content */
    struct ring *ring = NULL;
    for (;;) {
        ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        for (size_t at = 0; at < (size_t)got;) {
            if (left == 0) {
                size_t some = sizeof part - have < (size_t)got - at ? sizeof part - have : (size_t)got - at;
                memcpy((char *)&part + have, bytes + at, some);
                have += some;
                at += some;
                if (have < sizeof part)
                    continue;
                have = 0;
                left = part.length;
                ring = part.channel < MOST_CHANNELS ? rings[part.channel] : NULL;
                if (ring == NULL)
                    _exit(EXIT_BAD_LIST);
                continue;
            }
            size_t some = left < (size_t)got - at ? left : (size_t)got - at;
            deliver(ring, bytes + at, some);
            at += some;
            left -= some;
        }
    }
    over = true;
    for (size_t channel = 0; channel < MOST_CHANNELS; channel++)
        if ((ring = rings[channel]) != NULL) {
            pthread_mutex_lock(&ring->lock);
            pthread_cond_signal(&ring->news);
            pthread_mutex_unlock(&ring->lock);
        }
    return argument;
}

bool start_receiving(void) {
    pthread_t thread;
    return pthread_create(&thread, NULL, receive, NULL) == 0;
}

/* The next bytes of the channel. Ends the program if the other end is gone: its caller knows why, and copies again. */
static void take(struct ring *ring, void *place, size_t length) {
    unsigned char *bytes = place;
    pthread_mutex_lock(&ring->lock);
    while (length > 0) {
        while (ring->length == 0) {
            if (over)
                _exit(EXIT_OTHER_END_LOST);
            pthread_cond_wait(&ring->news, &ring->lock);
        }
        size_t some = ring->length < ring->size - ring->begin ? ring->length : ring->size - ring->begin;
        if (some > length)
            some = length;
        memcpy(bytes, ring->bytes + ring->begin, some);
        ring->begin = (ring->begin + some) % ring->size;
        ring->length -= some;
        bytes += some;
        length -= some;
        pthread_cond_signal(&ring->room);
    }
    pthread_mutex_unlock(&ring->lock);
}

/* The other end is the same program: whatever else arrives was not written by it. */
static _Noreturn void refuse(void) {
    fputs("migrator-native copy: the other end sends what this one cannot read\n", stderr);
    _exit(EXIT_BAD_LIST);
}

static void take_error(struct copier *copier, const struct source_error *error) {
    struct inbox *inbox = copier->inbox;
    memcpy(inbox->operation, error->operation, sizeof inbox->operation);
    for (char *letter = inbox->operation; *letter != '\0'; letter++)
        if (!((*letter >= 'a' && *letter <= 'z') || *letter == ' ' || *letter == '-') || letter == inbox->operation + OPERATION_ROOM - 1)
            refuse();
    errno = error->code;
    failed(copier, SIDE_SOURCE, inbox->operation);
}

static void take_attributes(struct copier *copier, struct ring *ring, const struct entry_message *message) {
    struct attributes *attributes = &copier->attributes;
    attributes->facts = message->facts;
    attributes->mtime_ns = message->mtime_ns;
    attributes->atime_ns = message->atime_ns;
    attributes->link_to = attributes->corrupted = false;
    drop_attributes(attributes);
    if (message->attributes > XATTR_LIST_MAX || message->names_length > XATTR_LIST_MAX || message->text_length >= LINK_TEXT_ROOM ||
        message->values_length > INT_MAX || !add_attribute_room(attributes, message->names_length, message->values_length))
        refuse();
    struct attribute_message *lengths = calloc(message->attributes + 1, sizeof *lengths);
    if (lengths == NULL)
        refuse();
    take(ring, lengths, message->attributes * sizeof *lengths);
    take(ring, attributes->names, message->names_length);
    size_t name_at = 0, values = 0;
    for (size_t at = 0; at < message->attributes; at++) {
        const char *name = attributes->names + name_at;
        name_at += (size_t)lengths[at].name_length + 1;
        values += lengths[at].value_length;
        if (name_at > message->names_length || values > message->values_length || memchr(name, '\0', lengths[at].name_length + 1) != name + lengths[at].name_length ||
            !may_carry(copier->options, name, lengths[at].value_length))
            refuse();
        take(ring, attributes->values + attributes->values_length, lengths[at].value_length);
        if (!keep_attribute(attributes, name, lengths[at].value_length))
            refuse();
    }
    if (values != message->values_length)
        refuse();
    free(lengths);
    take(ring, copier->link_text, message->text_length);
    copier->link_text[message->text_length] = '\0';
    if (strlen(copier->link_text) != message->text_length || S_ISLNK(message->facts.st_mode) != (message->text_length > 0))
        refuse();
}

/* The next piece, whose bytes have to be taken by take_bytes; false at the end, which is taken. */
static bool next_piece(struct copier *copier, struct piece_message *piece, struct end_message *end) {
    struct inbox *inbox = copier->inbox;
    struct ring *ring = inbox->content_comes;
    take(ring, piece, sizeof *piece);
    if (piece->length > COPY_BUFFER_BYTES || piece->offset < 0)
        refuse();
    if (piece->length > 0)
        return true;
    take(ring, end, sizeof *end);
    inbox->content_comes = NULL;
    inbox->moved = end->moved != 0;
    return false;
}

static void take_bytes(struct copier *copier, const struct piece_message *piece) {
    take(copier->inbox->content_comes, copier->buffer, piece->length);
}

static void drop_content(struct copier *copier) {
    struct piece_message piece;
    struct end_message end;
    while (copier->inbox->content_comes != NULL)
        if (next_piece(copier, &piece, &end))
            take_bytes(copier, &piece);
}

static enum result take_next(struct copier *copier, struct ring *ring, size_t *index) {
    struct entry_message message;
    drop_content(copier);
    take(ring, &message, sizeof message);
    *index = message.index;
    if (message.result > RESULT_NOT_A_FILE)
        refuse();
    if (message.result != RESULT_FINE) {
        take_error(copier, &message.error);
        return (enum result)message.result;
    }
    take_attributes(copier, ring, &message);
    if (message.has_content != 0)
        copier->inbox->content_comes = ring;
    return RESULT_FINE;
}

static void request(const struct ring *ring, char what, const size_t *indices, size_t count) {
    char line[LINE_ROOM];
    int length = snprintf(line, sizeof line, "Q %u %c", ring->channel, what);
    for (size_t at = 0; at < count; at++)
        length += snprintf(line + length, sizeof line - (size_t)length, " %zu", indices[at]);
    print_request(line);
}

void request_entries(struct copier *copier, const size_t *indices, size_t count) {
    struct inbox *inbox = copier->inbox;
    inbox->requested = count;
    request(&inbox->entries, 'e', indices, count);
}

enum result take_entry(struct copier *copier, size_t index) {
    size_t taken;
    enum result result = take_next(copier, &copier->inbox->entries, &taken);
    if (taken != index)
        refuse();
    return result;
}

enum result take_again(struct copier *copier) {
    size_t taken, index = (size_t)(copier->record - copier->list->records);
    drop_content(copier);
    request(&copier->inbox->content, 'c', &index, 1);
    enum result result = take_next(copier, &copier->inbox->content, &taken);
    if (taken != index)
        refuse();
    /* It is no file any more. */
    return result == RESULT_FINE && copier->inbox->content_comes == NULL ? RESULT_NOT_A_FILE : result;
}

bool content_follows(const struct copier *copier) { return copier->inbox->content_comes != NULL; }

bool was_moved(const struct copier *copier) { return copier->inbox->moved; }

/* The end of content: what this end has written is what the other end has read, or nothing. */
static int judge_end(struct copier *copier, const struct end_message *end, struct attributes *after) {
    uint8_t digest[DIGEST_BYTES];
    if (end->failed)
        return take_error(copier, &end->error), -1;
    digest_value(copier, digest);
    if (memcmp(digest, end->digest, sizeof digest) != 0) {
        errno = EBADMSG;
        return failed(copier, SIDE_SOURCE, "compare digests");
    }
    after->facts = end->after;
    after->mtime_ns = end->after_mtime_ns;
    copier->digested = end->digested && copier->options->digest;
    copier->digested_facts = end->digested_facts;
    return 0;
}

static int write_piece(struct copier *copier, int out, const struct piece_message *piece, off_t *written_back) {
    off_t end = piece->offset + (off_t)piece->length;
    take_bytes(copier, piece);
    add_to_digest(copier, copier->buffer, piece->length);
    if (write_at(copier, out, copier->buffer, piece->length, piece->offset) < 0)
        return -1;
    if (is_stopped()) {
        errno = ECANCELED;
        return failed(copier, SIDE_TARGET, "write");
    }
    if (end - *written_back < WRITTEN_BACK_BYTES)
        return 0;
    off_t from = *written_back;
    *written_back = end;
    return write_back(copier, out, from, end);
}

int receive_content(struct copier *copier, int out, off_t *copied, struct attributes *after) {
    struct piece_message piece;
    struct end_message end;
    off_t at = 0, written_back = 0;
    begin_digest(copier);
    while (next_piece(copier, &piece, &end)) {
        if (piece.offset < at)
            refuse();
        add_hole_to_digest(copier, piece.offset - at);
        if (write_piece(copier, out, &piece, &written_back) < 0)
            return -1;
        at = piece.offset + (off_t)piece.length;
    }
    if (end.failed)
        return judge_end(copier, &end, after);
    if (end.copied < at)
        refuse();
    add_hole_to_digest(copier, end.copied - at);
    if (end.copied > at && ftruncate(out, end.copied) < 0)
        return failed(copier, SIDE_TARGET, "truncate");
    *copied = end.copied;
    return judge_end(copier, &end, after);
}

int receive_range(struct copier *copier, int out, uint64_t offset, uint64_t range_end, struct attributes *after) {
    struct piece_message piece;
    struct end_message end;
    off_t at = (off_t)offset, stop = (off_t)range_end, written_back = at;
    enum result result = take_again(copier);
    if (result != RESULT_FINE) {
        errno = result == RESULT_VANISHED || result == RESULT_FAILED ? copier->failed_errno : EAGAIN;
        return failed(copier, SIDE_SOURCE, "open");
    }
    begin_digest(copier);
    while (next_piece(copier, &piece, &end)) {
        if (piece.offset < at || piece.offset + (off_t)piece.length > stop)
            refuse();
        if (clear(copier, out, at, piece.offset) < 0 || write_piece(copier, out, &piece, &written_back) < 0)
            return -1;
        at = piece.offset + (off_t)piece.length;
    }
    if (judge_end(copier, &end, after) < 0)
        return -1;
    if (end.cut)
        return RANGE_CUT;
    return clear(copier, out, at, stop);
}
