/* bench_requests.h: requests of a production service, as the Mooncake traces have them (Qin et al., 2024): one JSON object a line,
 *
 *   {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]}
 *
 * lengths in tokens, one id for each 512 tokens of input begun: equal ids are equal tokens behind equal beginnings.
 */
#ifndef CLI_BENCH_REQUESTS_H
#define CLI_BENCH_REQUESTS_H

#include <stddef.h>
#include <stdint.h>

#define BENCH_REQUEST_BLOCK 512 /* tokens that an id stands for */

typedef struct bench_request {
    int32_t input_tokens, output_tokens;
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

#endif
