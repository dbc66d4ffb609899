/* SPDX-License-Identifier: Apache-2.0 */
/* bench_soak.h: shared by the files of the load `soak`: requests of all kinds, drawn at random. */
#ifndef CLI_BENCH_SOAK_H
#define CLI_BENCH_SOAK_H

#include "bench/bench_loads.h"

#define SOAK_SCHEMAS 4    /* the first one is never replaced */
#define SOAK_MODULES 6    /* of a schema; the last two exclude each other, the first has a parameter */
#define SOAK_BEGINNINGS 8 /* shared prefixes of texts */
#define SOAK_KNOWN 8      /* recurring prompts: half of them texts, half with modules */

enum { SOAK_TEXT,
       SOAK_MODULAR }; /* kinds of requests */

/* A drawn request. Zero-initialise; soak_draft_free. */
typedef struct soak_draft {
    rp_request request;
    int kind;
    int known;          /* 1 + index of the recurring prompt; 0: none */
    int32_t stop_after; /* bench_call.stop_after */
    bench_text text;
    char *document;
} soak_draft;

typedef struct soak_source {
    const bench_words *words;
    uint64_t state; /* of the random generator */
    int32_t unit;   /* tokens: a prompt or an answer has up to 10 units */
    uint64_t seed, versions[SOAK_SCHEMAS];
} soak_source;

/* A schema's document in its current version. Freed by the caller. */
char *soak_schema(const soak_source *s, int schema);
void soak_draw(soak_source *s, soak_draft *out);
void soak_draft_free(soak_draft *d);

#endif
