/* SPDX-License-Identifier: Apache-2.0 */
/* bench_replay.c: replays the requests of a file, as fast as they are answered.
 *
 * Lengths are divided by a scale, and each hash id becomes a block of words: equal prefixes of ids are equal tokens.
 * tools/ideal_cache compares the hits with those of an ideal cache.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/bench_loads.h"
#include "bench/bench_requests.h"
#include "common/command.h"

typedef struct replay {
    bench_session *session;
} replay;

int bench_replay_check(const bench_options *o) {
    if (o->load != BENCH_REPLAY && o->requests != NULL)
        return cli_fail(CLI_WRONG_USE, "--requests %s: only --load replay uses it: give that too", o->requests);
    if (o->load == BENCH_REPLAY && o->requests == NULL)
        return cli_fail(CLI_WRONG_USE, "--load replay needs a trace: give --requests FILE");
    return bench_requests_check_scale(o->scale);
}

static int32_t replay_scaled(const replay *p, int32_t tokens) {
    return bench_request_scaled(tokens, p->session->options->scale);
}

static void replay_submit(replay *p, size_t i) {
    const bench_request *q = &p->session->requests.items[i];
    bench_text t = bench_request_text(&p->session->requests, q, p->session->words, p->session->options->scale);
    rp_request r = rp_request_defaults();
    r.prompt = rp_prompt_text(bench_text_bytes(p->session->words, &t));
    r.max_tokens = replay_scaled(p, q->output_tokens);
    r.ignore_eos = true;
    bench_submit(p->session->driver, &r, &(bench_place){.due_ms = cli_now_ms(), .tag = (int64_t)i});
    free(t.bytes);
}

static void bench_replay_on_ended(void *user, const bench_call *c, const rp_result *r, const rp_error *err) {
    replay *p = user;
    int32_t expected = p->session->words->n_first + replay_scaled(p, p->session->requests.items[c->tag].input_tokens);
    if (r != NULL && r->prompt_tokens != expected)
        bench_fault(p->session->driver, "request %lld: expected %d tokens, but the vocabulary joined its words to %d",
                    (long long)c->tag, (int)r->prompt_tokens, (int)expected);
    if (p->session->options->json) bench_report_request(c, r, err);
}

static int replay_all(replay *p) {
    bench_driver *d = p->session->driver;
    cli_progress progress = {0};
    bench_driver_restart(d);
    for (size_t i = 0; i < p->session->requests.n && !cli_interrupted(); i++) {
        replay_submit(p, i);
        bench_wait_alive(d, p->session->options->parallel - 1);
        cli_progress_draw(&progress, "replaying", "requests", i + 1, p->session->requests.n);
    }
    bench_wait_alive(d, 0);
    cli_progress_clear(&progress);
    return cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
}

int bench_replay(bench_session *s) {
    replay p = {.session = s};
    bench_driver *d = s->driver;
    d->n_kinds = 1;
    d->kinds[0].name = "requests";
    d->on_ended = bench_replay_on_ended;
    d->user = &p;
    int status = replay_all(&p);
    d->on_ended = NULL;
    return status;
}
