/* The reading end of a copy: answers requests of the writing end (copy_ends.h), each channel by a thread of its own. It
 * reads the source by the functions of a copy with one end, and ends with its input. */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "copy_ends.h"

#define OUTBOX_BYTES ((size_t)256 << 10)
#define LINE_ROOM 4096

/* What a channel has to send. */
struct outbox {
    uint32_t channel;
    size_t length;
    unsigned char bytes[OUTBOX_BYTES];
};

struct channel {
    bool started;
    bool given;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    char request[LINE_ROOM];
    struct copier copier;
};

static struct channel *channels[MOST_CHANNELS];
static pthread_mutex_t sending = PTHREAD_MUTEX_INITIALIZER;

/* A part, from two pieces of memory. The writing end has gone if that fails, and nobody waits for more. */
static void send_part(uint32_t channel, const void *one, size_t one_length, const void *other, size_t other_length) {
    struct part part = {.channel = channel, .length = (uint32_t)(one_length + other_length)};
    struct iovec pieces[] = {
        {.iov_base = &part, .iov_len = sizeof part},
        {.iov_base = (void *)(uintptr_t)one, .iov_len = one_length},
        {.iov_base = (void *)(uintptr_t)other, .iov_len = other_length},
    };
    pthread_mutex_lock(&sending);
    for (size_t at = 0; at < sizeof pieces / sizeof *pieces;) {
        ssize_t sent = writev(STDOUT_FILENO, &pieces[at], (int)(sizeof pieces / sizeof *pieces - at));
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            _exit(EXIT_NOBODY_LISTENS);
        for (; at < sizeof pieces / sizeof *pieces && (size_t)sent >= pieces[at].iov_len; at++)
            sent -= (ssize_t)pieces[at].iov_len;
        if (at < sizeof pieces / sizeof *pieces) {
            pieces[at].iov_base = (char *)pieces[at].iov_base + sent;
            pieces[at].iov_len -= (size_t)sent;
        }
    }
    pthread_mutex_unlock(&sending);
}

static void flush(struct outbox *outbox) {
    if (outbox->length > 0)
        send_part(outbox->channel, outbox->bytes, outbox->length, NULL, 0);
    outbox->length = 0;
}

static void post(struct outbox *outbox, const void *bytes, size_t length) {
    if (length > OUTBOX_BYTES - outbox->length) {
        send_part(outbox->channel, outbox->bytes, outbox->length, bytes, length);
        outbox->length = 0;
        return;
    }
    memcpy(outbox->bytes + outbox->length, bytes, length);
    outbox->length += length;
}

/* In place of pwrite(): a piece of content. */
int send_piece(struct copier *copier, const unsigned char *bytes, size_t length, off_t offset) {
    const struct piece_message message = {.offset = offset, .length = length};
    post(copier->outbox, &message, sizeof message);
    post(copier->outbox, bytes, length);
    return 0;
}

static struct source_error last_error(const struct copier *copier) {
    struct source_error error = {.code = copier->failed_errno};
    snprintf(error.operation, sizeof error.operation, "%s", copier->failed_operation == NULL ? "stat" : copier->failed_operation);
    return error;
}

static void send_attributes(struct outbox *outbox, const struct attributes *attributes) {
    for (size_t at = 0; at < attributes->kept_count; at++) {
        const struct xattr *one = &attributes->kept[at];
        const struct attribute_message message = {.name_length = (uint32_t)strlen(one->name), .value_length = (uint32_t)one->length};
        post(outbox, &message, sizeof message);
    }
    for (size_t at = 0; at < attributes->kept_count; at++)
        post(outbox, attributes->kept[at].name, strlen(attributes->kept[at].name) + 1);
    /* Values follow each other, in the order in which they are kept. */
    post(outbox, attributes->values, attributes->values_length);
}

static void send_entry(struct copier *copier, size_t index, enum result result, bool has_content) {
    const struct attributes *attributes = &copier->attributes;
    struct entry_message message;
    memset(&message, 0, sizeof message);
    message.index = index;
    message.result = result;
    if (result != RESULT_FINE) {
        message.error = last_error(copier);
        post(copier->outbox, &message, sizeof message);
        return;
    }
    bool is_symlink = S_ISLNK(attributes->facts.st_mode);
    message.has_content = has_content;
    message.facts = attributes->facts;
    message.mtime_ns = attributes->mtime_ns;
    message.atime_ns = attributes->atime_ns;
    message.attributes = (uint32_t)attributes->kept_count;
    for (size_t at = 0; at < attributes->kept_count; at++)
        message.names_length += (uint32_t)strlen(attributes->kept[at].name) + 1;
    message.values_length = (uint32_t)attributes->values_length;
    message.text_length = is_symlink ? (uint32_t)strlen(copier->link_text) : 0;
    post(copier->outbox, &message, sizeof message);
    send_attributes(copier->outbox, attributes);
    post(copier->outbox, copier->link_text, message.text_length);
}

/* -1, or RANGE_CUT, as copy_range. */
static int read_and_send(struct copier *copier, int in, off_t *copied) {
    const struct record *record = copier->record;
    if (copier->options->kind != KIND_RANGES)
        return copy_content(copier, in, -1, &copier->attributes.facts, copied);
    begin_digest(copier);
    return copy_range(copier, in, -1, record->offset, record->offset + record->length);
}

static void send_content(struct copier *copier, int in) {
    struct end_message end;
    struct attributes after;
    off_t copied = 0;
    memset(&end, 0, sizeof end);
    int read = read_and_send(copier, in, &copied);
    copier->digested = false;
    if (read >= 0 && copier->options->digest && copier->options->kind != KIND_RANGES)
        end_digest(copier, in);
    bool fine = read >= 0 && read_again(copier, in, &after) == 0;
    if (fine && !is_same_moment(&copier->attributes, &after)) {
        struct attributes *again = &copier->attributes;
        again->facts = after.facts;
        fine = read_attributes(copier, (struct handle){.fd = in, .name = NULL}, again) == 0;
        end.moved = fine && is_moved(copier, again);
    }
    end.failed = !fine;
    if (fine) {
        end.copied = copied;
        end.cut = read == RANGE_CUT;
        end.after = after.facts;
        end.after_mtime_ns = after.mtime_ns;
        end.digested = copier->digested;
        end.digested_facts = copier->digested_facts;
    } else {
        end.error = last_error(copier);
    }
    digest_value(copier, end.digest);
    const struct piece_message none = {.length = 0};
    post(copier->outbox, &none, sizeof none);
    post(copier->outbox, &end, sizeof end);
}

static bool is_small(const struct copier *copier, const struct record *record) {
    return copier->options->kind == KIND_FILES && !record->in_ranges && !(record->has_group && copier->options->hard_links) &&
           copier->attributes.facts.st_size < SMALL_FILE_BYTES;
}

static void answer(struct copier *copier, size_t index, bool with_content) {
    const struct record *record = &copier->list->records[index];
    int in = -1;
    copier->record = record;
    copier->failed_operation = NULL;
    copier->failed_errno = 0;
    enum result result;
    if (enter(copier, record) < 0)
        result = copier->failed_errno == ENOENT ? RESULT_VANISHED : RESULT_FAILED;
    else
        result = look_up(copier, record, &in);
    bool content = in >= 0 && (with_content || is_small(copier, record));
    send_entry(copier, index, result, content);
    if (content)
        send_content(copier, in);
    if (in >= 0)
        close(in);
}

/* False for a line that is no request. */
static bool answer_request(struct copier *copier, const char *request) {
    bool with_content = *request == 'c';
    if (!with_content && *request != 'e')
        return false;
    const char *at = request + 1;
    while (*at == ' ') {
        char *end;
        unsigned long long index = strtoull(at + 1, &end, 10);
        if (end == at + 1 || index >= copier->list->count)
            return false;
        answer(copier, (size_t)index, with_content);
        at = end;
    }
    flush(copier->outbox);
    return *at == '\0';
}

static void *serve_channel(void *argument) {
    struct channel *channel = argument;
    char request[LINE_ROOM];
    /* As copy_beside: a working directory of its own. */
    if (unshare(CLONE_FS) < 0)
        _exit(EXIT_NO_MEMORY);
    for (;;) {
        pthread_mutex_lock(&channel->lock);
        while (!channel->given)
            pthread_cond_wait(&channel->news, &channel->lock);
        /* The next one may arrive as soon as this one is answered. */
        memcpy(request, channel->request, sizeof request);
        channel->given = false;
        pthread_mutex_unlock(&channel->lock);
        if (!answer_request(&channel->copier, request))
            _exit(EXIT_BAD_LIST);
    }
    return NULL;
}

static struct channel *open_channel(const struct copier *first, size_t number) {
    struct channel *channel = calloc(1, sizeof *channel);
    if (channel == NULL)
        return NULL;
    struct copier *copier = &channel->copier;
    *copier = (struct copier){.options = first->options, .list = first->list, .source_tree = first->source_tree, .target_tree = -1, .source_directory = -1, .target_directory = -1};
    copier->outbox = calloc(1, sizeof *copier->outbox);
    copier->link_text = malloc(LINK_TEXT_ROOM);
    bool made = copier->outbox != NULL && copier->link_text != NULL && make_digest(copier) &&
                posix_memalign((void **)&copier->buffer, 4096, COPY_BUFFER_BYTES) == 0;
    if (!made)
        return NULL; /* the program ends */
    copier->outbox->channel = (uint32_t)number;
    pthread_mutex_init(&channel->lock, NULL);
    pthread_cond_init(&channel->news, NULL);
    channels[number] = channel;
    channel->started = pthread_create(&channel->thread, NULL, serve_channel, channel) == 0;
    return channel->started ? channel : NULL;
}

/* Answer requests until the input ends; then nobody waits for those that are being answered. */
_Noreturn void serve(struct copier *first) {
    char line[LINE_ROOM];
    /* Nothing else is read from it: the list was read to its last byte. */
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *end = NULL, *newline = strchr(line, '\n');
        unsigned long number = strncmp(line, "Q ", 2) == 0 ? strtoul(line + 2, &end, 10) : MOST_CHANNELS;
        if (newline == NULL || end == NULL || *end != ' ' || number >= MOST_CHANNELS)
            _exit(EXIT_BAD_LIST);
        *newline = '\0';
        struct channel *channel = channels[number] != NULL ? channels[number] : open_channel(first, number);
        if (channel == NULL)
            _exit(EXIT_NO_MEMORY);
        pthread_mutex_lock(&channel->lock);
        bool idle = !channel->given;
        if (idle)
            strcpy(channel->request, end + 1);
        channel->given = idle;
        pthread_cond_signal(&channel->news);
        pthread_mutex_unlock(&channel->lock);
        if (!idle)
            _exit(EXIT_BAD_LIST);
    }
    _exit(EXIT_LIST_DONE);
}
