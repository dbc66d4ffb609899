/* SPDX-License-Identifier: Apache-2.0 */
/* bench_poisson.c: load of short requests with random arrivals, and a long prompt every few seconds.
 *
 * Latency counts from a request's scheduled arrival, not from its submission. Every prompt is new: words of its own
 * random stream, after a shared prefix if one is requested.
 */
#include <math.h>
#include <stdlib.h>

#include "bench/bench_loads.h"
#include "common/command.h"

#define SHORT 0
#define LONG 1

/* Streams of random numbers: arrivals, lengths, the shared prefix, and one for each prompt from here on. */
enum { ARRIVALS,
       LENGTHS,
       BEGINNING,
       FIRST_PROMPT };

typedef struct poisson {
    const bench_options *options;
    const bench_words *words;
    bench_driver *driver;
    uint64_t arrivals, lengths; /* generator states */
    uint64_t n_prompts;
} poisson;

static void poisson_submit(poisson *p, int kind, double due_ms) {
    const bench_options *o = p->options;
    uint64_t text = bench_random_stream(o->seed, FIRST_PROMPT + p->n_prompts++),
             beginning = bench_random_stream(o->seed, BEGINNING);
    int32_t n = kind == LONG ? o->long_tokens : bench_random_around(&p->lengths, o->prompt_tokens);
    bench_text t = {0};
    bench_text_add_random(&t, p->words, o->shared_tokens, &beginning);
    bench_text_add_random(&t, p->words, n, &text);
    rp_request r = rp_request_defaults();
    r.prompt = rp_prompt_text(bench_text_bytes(p->words, &t));
    r.max_tokens = bench_random_around(&p->lengths, o->max_tokens);
    r.ignore_eos = true;
    bench_submit(p->driver, &r, &(bench_place){.kind = kind, .due_ms = due_ms});
    free(t.bytes);
}

static double next_ms(poisson *p) { return bench_random_gap_ms(&p->arrivals, (double)p->options->rate); }

/* One request of each kind, before the measurement: touches memory, and fits the engine's cost model. */
static void warm_up(poisson *p) {
    poisson_submit(p, SHORT, cli_now_ms());
    if (p->options->long_every > 0) poisson_submit(p, LONG, cli_now_ms());
    bench_wait_alive(p->driver, 0);
    bench_driver_restart(p->driver);
}

int bench_poisson(bench_session *s) {
    const bench_options *o = s->options;
    poisson p = {.options = o, .words = s->words, .driver = s->driver};
    p.arrivals = bench_random_stream(o->seed, ARRIVALS);
    p.lengths = bench_random_stream(o->seed, LENGTHS);
    s->driver->tolerated = 1u << -RP_ERR_BUSY; /* the load may exceed the engine's capacity */
    s->driver->n_kinds = o->long_every > 0 ? 2 : 1;
    s->driver->kinds[SHORT].name = "short";
    s->driver->kinds[LONG].name = "long";
    warm_up(&p);
    double start = s->driver->start_ms, end = start + o->seconds * 1e3,
           every = o->long_every > 0 ? o->long_every * 1e3 : INFINITY;
    double due[] = {start + next_ms(&p), start + every / 2};
    while (!cli_interrupted()) {
        int kind = due[LONG] < due[SHORT] ? LONG : SHORT;
        if (due[kind] >= end) break;
        bench_wait_until(s->driver, due[kind]);
        if (cli_interrupted()) break;
        poisson_submit(&p, kind, due[kind]);
        due[kind] += kind == LONG ? every : next_ms(&p);
    }
    bench_wait_alive(s->driver, 0);
    return cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
}
