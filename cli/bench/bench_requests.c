/* SPDX-License-Identifier: Apache-2.0 */
/* bench_requests.c: see bench_requests.h. One thread. */
#include "bench/bench_requests.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"

#define LENGTH_MAX 100000000

typedef struct line_reader {
    const char *path;
    int number;
} line_reader;

static int line_reader_wrong(const line_reader *at, const char *what) {
    return cli_fail(CLI_FAILED, "%s:%d: %s", at->path, at->number, what);
}

static int line_reader_read_length(const line_reader *at, const json_t *object, const char *field, int32_t least,
                                   int32_t *out) {
    const json_t *value = json_object_get(object, field);
    json_int_t v = json_integer_value(value);
    if (!json_is_integer(value) || v < least || v > LENGTH_MAX)
        return cli_fail(CLI_FAILED, "%s:%d: \"%s\": expected a whole number from %d to %d", at->path, at->number, field,
                        (int)least, LENGTH_MAX);
    *out = (int32_t)v;
    return CLI_OK;
}

static void add_id(bench_requests *r, uint64_t id) {
    if (r->n_ids == r->cap_ids) {
        r->cap_ids = r->cap_ids == 0 ? 1024 : 2 * r->cap_ids;
        r->ids = cli_realloc(r->ids, r->cap_ids * sizeof *r->ids);
    }
    r->ids[r->n_ids++] = id;
}

static int bench_requests_read_ids(bench_requests *r, const line_reader *at, const json_t *ids) {
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return line_reader_wrong(at, "\"hash_ids\": expected a list of whole numbers, 0 or more");
        add_id(r, (uint64_t)json_integer_value(id));
    }
    return CLI_OK;
}

/* Ids as closed ranges, at most `most` of them. */
static int bench_requests_read_ranges(bench_requests *r, const line_reader *at, const json_t *ranges, size_t most) {
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(ranges); i++) {
        const json_t *range = json_array_get(ranges, i), *first = json_array_get(range, 0);
        const json_t *last = json_array_size(range) == 2 ? json_array_get(range, 1) : first;
        json_int_t from = json_integer_value(first), to = json_integer_value(last);
        if (json_array_size(range) > 2 || !json_is_integer(first) || !json_is_integer(last) || from < 0 || to < from)
            return line_reader_wrong(
                at, "\"hash_ranges\": expected a list of [first, last] or [one] of whole numbers, 0 or more");
        if ((uint64_t)(to - from) >= most - n)
            return line_reader_wrong(at, "\"hash_ranges\" has more ids than \"input_length\" has blocks");
        for (json_int_t id = from; id <= to; id++, n++) add_id(r, (uint64_t)id);
    }
    return CLI_OK;
}

/* The ids of a request's blocks. A trace of ranges names whole blocks only: the rest of its input is left out. */
static int bench_requests_read_blocks(bench_requests *r, const line_reader *at, const json_t *object,
                                      bench_request *item) {
    const json_t *ids = json_object_get(object, "hash_ids"), *ranges = json_object_get(object, "hash_ranges");
    size_t blocks = ((size_t)item->input_tokens + (size_t)r->block - 1) / (size_t)r->block;
    item->first_id = r->n_ids;
    int status = ids ? bench_requests_read_ids(r, at, ids) : bench_requests_read_ranges(r, at, ranges, blocks);
    item->n_ids = r->n_ids - item->first_id;
    if (status != CLI_OK) return status;
    if (!ids && item->n_ids > 0 && item->n_ids < blocks) item->input_tokens = (int32_t)item->n_ids * r->block;
    else if (item->n_ids < blocks)
        return cli_fail(CLI_FAILED, "%s:%d: \"hash_ids\" has %zu ids, but %d input tokens need one per %d tokens: %zu",
                        at->path, at->number, item->n_ids, (int)item->input_tokens, (int)r->block, blocks);
    return CLI_OK;
}

/* FNV-1a; 0 for no name. */
static uint64_t session_number(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    if (!name || !name[0]) return 0;
    for (; *name; name++) hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    return hash ? hash : 1;
}

static int read_object(bench_requests *r, const line_reader *at, const json_t *object) {
    bench_request item = {0};
    if (!json_is_object(object))
        return line_reader_wrong(at, "expected an object {\"input_length\", \"output_length\", \"hash_ids\"}");
    int status = line_reader_read_length(at, object, "input_length", 1, &item.input_tokens);
    if (status == CLI_OK) status = line_reader_read_length(at, object, "output_length", 0, &item.output_tokens);
    if (status == CLI_OK) status = bench_requests_read_blocks(r, at, object, &item);
    item.timestamp_ms = json_number_value(json_object_get(object, "timestamp"));
    item.session = session_number(json_string_value(json_object_get(object, "session")));
    r->items[r->n++] = item;
    return status;
}

static int bench_requests_read_line(bench_requests *r, const line_reader *at, const char *line, size_t n) {
    json_error_t error;
    if (strspn(line, " \t\r") >= n) return CLI_OK;
    json_t *object = json_loadb(line, n, 0, &error);
    if (object == NULL)
        return cli_fail(CLI_FAILED, "%s:%d:%d: not JSON: %s", at->path, at->number, error.column, error.text);
    int status = read_object(r, at, object);
    json_decref(object);
    return status;
}

int bench_requests_read(bench_requests *r, const char *path, int32_t block, size_t limit) {
    char *bytes = NULL;
    size_t n = 0, lines = 1;
    line_reader at = {path, 1};
    *r = (bench_requests){.block = block};
    int status = cli_read(path, &bytes, &n);
    if (status != CLI_OK) return status;
    for (size_t i = 0; i < n; i++) lines += bytes[i] == '\n';
    r->items = cli_alloc(lines * sizeof *r->items);
    for (size_t i = 0; i < n && status == CLI_OK && (limit == 0 || r->n < limit); at.number++) {
        const char *end = memchr(bytes + i, '\n', n - i);
        size_t length = end != NULL ? (size_t)(end - bytes) - i : n - i;
        status = bench_requests_read_line(r, &at, bytes + i, length);
        i += length + 1;
    }
    free(bytes);
    if (status == CLI_OK && r->n == 0)
        return cli_fail(CLI_FAILED, "%s: no requests: expected one JSON object per line", path);
    return status;
}

void bench_requests_free(bench_requests *r) {
    free(r->items);
    free(r->ids);
    *r = (bench_requests){0};
}

/* ---- requests as text ---- */

int bench_requests_check_scale(int32_t scale) {
    if (BENCH_REQUEST_BLOCK % scale == 0) return CLI_OK;
    return cli_fail(CLI_WRONG_USE, "--scale '%d': give a power of two up to %d", (int)scale,
                    BENCH_REQUEST_BLOCK);
}

int32_t bench_request_scaled(int32_t tokens, int32_t scale) { return tokens / scale > 0 ? tokens / scale : 1; }

bench_text bench_request_text(const bench_requests *r, const bench_request *q, const bench_words *w, int32_t scale) {
    int32_t block = BENCH_REQUEST_BLOCK / scale, left = bench_request_scaled(q->input_tokens, scale);
    bench_text t = {0};
    for (size_t i = 0; left > 0; i++) {
        int32_t n = left < block ? left : block;
        bench_text_add_block(&t, w, r->ids[q->first_id + i], n);
        left -= n;
    }
    return t;
}
