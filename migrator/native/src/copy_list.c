/* Reads the list: records on standard input, each `FIELDS:NAME` and a NUL byte.
 *
 * FIELDS are numbers after a letter, and may be empty: s size in bytes, m mtime in ns (signed), l link group, o and n
 * the range's offset and length in bytes. r alone: ranges copy the content. NAME is relative to the tree, and its
 * components are plain. `s5368709120,m1700000000123456789,o0,n1073741824:big/file` */

#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "copy.h"

/* The input, up to a number of bytes. */
static char *read_all(int fd, size_t *length, uint64_t most) {
    size_t room = 1 << 16;
    char *text = malloc(room);
    *length = 0;
    while (text != NULL) {
        if (*length == room) {
            room *= 2;
            char *grown = realloc(text, room);
            if (grown == NULL)
                break;
            text = grown;
        }
        uint64_t left = most - *length;
        ssize_t got = left == 0 ? 0 : read(fd, text + *length, left < room - *length ? (size_t)left : room - *length);
        if (got == 0)
            return text;
        if (got < 0 && errno != EINTR)
            break;
        if (got > 0)
            *length += (size_t)got;
    }
    free(text);
    return NULL;
}

static bool is_plain(const char *name) {
    if (*name == '\0')
        return false;
    for (;;) {
        size_t length = strcspn(name, "/");
        if (length == 0 || length > 255 || (length == 1 && name[0] == '.') || (length == 2 && memcmp(name, "..", 2) == 0))
            return false;
        if (name[length] == '\0')
            return true;
        name += length + 1;
    }
}

static bool take_field(struct record *record, char letter, const char *digits) {
    if (letter == 'r') {
        record->in_ranges = true;
        return *digits == '\0';
    }
    char *end;
    errno = 0;
    if (letter == 'm') {
        record->mtime_ns = strtoll(digits, &end, 10);
        record->has_mtime = true;
    } else {
        if (digits[0] < '0' || digits[0] > '9')
            return false;
        uint64_t number = strtoull(digits, &end, 10);
        switch (letter) {
        case 's':
            record->size = number;
            record->has_size = true;
            break;
        case 'l':
            record->group = number;
            record->has_group = true;
            break;
        case 'o':
            record->offset = number;
            record->has_range = true;
            break;
        case 'n':
            record->length = number;
            break;
        default:
            return false;
        }
    }
    return errno == 0 && end != digits && *end == '\0';
}

static bool take_record(struct record *record, char *text, size_t length) {
    char *colon = memchr(text, ':', length);
    if (colon == NULL)
        return false;
    *colon = '\0';
    memset(record, 0, sizeof *record);
    record->name = colon + 1;
    record->name_length = length - (size_t)(colon + 1 - text);
    if (!is_plain(record->name))
        return false;
    const char *slash = strrchr(record->name, '/');
    record->directory_length = slash == NULL ? 0 : (size_t)(slash - record->name);
    char *rest;
    for (char *field = strtok_r(text, ",", &rest); field != NULL; field = strtok_r(NULL, ",", &rest))
        if (!take_field(record, field[0], field + 1))
            return false;
    return record->offset <= UINT64_MAX / 4 && record->length <= UINT64_MAX / 4;
}

/* Read the whole list, whose size is bounded by that of a chunk; it ends after this many bytes (0: with the input). The
 * caller frees it in any case. */
bool read_list(int fd, struct list *list, uint64_t bytes) {
    size_t length;
    memset(list, 0, sizeof *list);
    list->text = read_all(fd, &length, bytes == 0 ? UINT64_MAX : bytes);
    if (list->text == NULL)
        return false;
    if (bytes > 0 && length != bytes)
        return false;
    if (length > 0 && list->text[length - 1] != '\0')
        return false;
    size_t count = 0;
    for (size_t at = 0; at < length; at += strlen(list->text + at) + 1)
        count++;
    list->records = calloc(count + 1, sizeof *list->records);
    if (list->records == NULL)
        return false;
    for (size_t at = 0; at < length; list->count++) {
        size_t one = strlen(list->text + at);
        if (!take_record(&list->records[list->count], list->text + at, one))
            return false;
        at += one + 1;
    }
    return true;
}
