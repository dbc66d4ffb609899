/* SPDX-License-Identifier: Apache-2.0 */
/* bench_requests.h: requests of a production service, as the Mooncake traces have them (Qin et al., 2024): one JSON object a line,
 *
 *   {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]}
 *
 * lengths in tokens, one id for each 512 tokens of input begun: equal ids are equal tokens behind equal beginnings. The timestamp is in milliseconds; who sends requests as fast as they are answered does not look at it.
 */
#ifndef CLI_BENCH_REQUESTS_H
#define CLI_BENCH_REQUESTS_H

#include "bench/bench_words.h"

#define BENCH_REQUEST_BLOCK 512 /* tokens that an id stands for */

typedef struct bench_request {
    int32_t input_tokens, output_tokens;
    double timestamp_ms; /* 0 where the file has none */
    size_t first_id, n_ids; /* in bench_requests.ids */
} bench_request;

typedef struct bench_requests {
    bench_request *items;
    size_t n;
    uint64_t *ids;
    size_t n_ids, cap_ids;
} bench_requests;

/* The first `limit` lines of a file, 0: all. Returns an exit status; errors say FILE:LINE. Free it in any case. */
int bench_requests_read(bench_requests *r, const char *path, size_t limit);
void bench_requests_free(bench_requests *r);

/* Wrong use of a scale: blocks stay whole tokens. Returns an exit status. */
int bench_requests_check_scale(int32_t scale);
/* Lengths are divided by a scale, but never to nothing. */
int32_t bench_request_scaled(int32_t tokens, int32_t scale);
/* The words of a request's input: each id is a block, always the same one. */
bench_text bench_request_text(const bench_requests *r, const bench_request *q, const bench_words *w, int32_t scale);

#endif
