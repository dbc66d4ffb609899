/* SPDX-License-Identifier: Apache-2.0 */
/* bench_requests.h: recorded requests of a production service, in the format of the Mooncake traces (Qin et al., 2024):
 * one JSON object a line:
 *
 *   {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2, ..., 13]}
 *
 * Lengths are in tokens; an id covers 512 tokens of input, the last one fewer: equal ids are equal tokens after equal
 * prefixes. The timestamp is in milliseconds; a replay as fast as requests are answered ignores it. "session" is a
 * name of the conversation or the agent's run. In place of "hash_ids", a line may have "hash_ranges", ids as closed
 * ranges [[first, last], [one]]; input after the last whole block may then have no id, and is left out.
 */
#ifndef CLI_BENCH_REQUESTS_H
#define CLI_BENCH_REQUESTS_H

#include "bench/bench_words.h"

#define BENCH_REQUEST_BLOCK 512 /* tokens per id, unless the caller knows better */

typedef struct bench_request {
    int32_t input_tokens, output_tokens;
    double timestamp_ms;    /* 0 if the file has none */
    size_t first_id, n_ids; /* in bench_requests.ids */
    uint64_t session;       /* a hash of its name; 0: none */
} bench_request;

typedef struct bench_requests {
    bench_request *items;
    size_t n;
    uint64_t *ids;
    size_t n_ids, cap_ids;
    int32_t block; /* tokens per id */
} bench_requests;

/* The first `limit` lines of a file, 0: all. block: tokens per id. Returns an exit status; errors contain FILE:LINE.
 * Free it in any case. */
int bench_requests_read(bench_requests *r, const char *path, int32_t block, size_t limit);
void bench_requests_free(bench_requests *r);

/* Checks a scale: blocks must stay whole tokens. Returns an exit status. */
int bench_requests_check_scale(int32_t scale);
/* A length divided by a scale, at least 1 for a positive length. */
int32_t bench_request_scaled(int32_t tokens, int32_t scale);
/* The words of a request's input: each id is a block, the same one in every request. */
bench_text bench_request_text(const bench_requests *r, const bench_request *q, const bench_words *w, int32_t scale);

#endif
