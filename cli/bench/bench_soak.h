/* SPDX-License-Identifier: Apache-2.0 */
/* bench_soak.h: what the files of the load `soak` share: calls of every sort, drawn at random. */
#ifndef CLI_BENCH_SOAK_H
#define CLI_BENCH_SOAK_H

#include "bench/bench_loads.h"

#define SOAK_SCHEMAS 4      /* the first one is never replaced */
#define SOAK_MODULES 6      /* of a schema; the last two exclude each other, the first has a parameter */
#define SOAK_BEGINNINGS 8   /* that texts share */
#define SOAK_KNOWN 8        /* prompts that are asked again and again: half texts, half of modules */

enum { SOAK_TEXT, SOAK_MODULAR }; /* kinds of calls */

/* A call as it was drawn. Zero-initialise; soak_draft_free. */
typedef struct soak_draft {
    rp_request request;
    int kind;
    int known;           /* 1 + which of the prompts that are asked again and again; 0: none */
    int32_t stop_after;  /* bench_call.stop_after */
    bench_text text;
    char *document;
} soak_draft;

typedef struct soak_source {
    const bench_words *words;
    uint64_t state; /* of random numbers */
    int32_t unit;   /* tokens: prompts and answers take up to 10 of them */
    uint64_t seed, versions[SOAK_SCHEMAS];
} soak_source;

/* A schema's document, of the version that stands in the source. Freed by the caller. */
char *soak_schema(const soak_source *s, int schema);
void soak_draw(soak_source *s, soak_draft *out);
void soak_draft_free(soak_draft *d);

#endif
