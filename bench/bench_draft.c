/* SPDX-License-Identifier: Apache-2.0 */
/* bench_draft.c: decode with a draft model, as a function of the acceptance.
 *
 *   bench_draft MODEL.gguf DRAFT.gguf [--threads N] [--tokens N] [--cached N] [--answers N] [--rounds N]
 *               [--draft N] [--temperature PERCENT] [--acceptance PERCENT]
 *
 * Acceptance cannot be chosen for models of random weights, nor for any pair. So the draft model computes as ever, and
 * each token that it drafts is then replaced: by the token of the answer, known from a run without drafts, with a given
 * probability, else by a wrong one (reprise_test.h). The steps cost what they would cost with a pair of that
 * acceptance, and answers are compared with those of the run without drafts.
 *
 * --answers (1) answers of --tokens (128) are decoded at once, after --cached (256) tokens each; runs with and without
 * drafts take turns, --rounds (3) times. On a machine with other work the ratio of CPU times is the steadier one.
 * --draft (-1): rp_request.n_draft. --temperature (100): at 0 random weights repeat themselves, and prompt lookup
 * drafts. Public interface only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "reprise_test.h"
#include "support.h"

#define MOST_ANSWERS 64
#define MOST_ROUNDS 32

typedef struct bench {
    rp_engine *engine;
    int n_answers, n_tokens, n_draft;
    float temperature;
    bench_text prompts[MOST_ANSWERS];
    rp_result *known[MOST_ANSWERS];
} bench;

typedef struct outcome {
    double seconds, cpu_seconds; /* from submission to the end; of all threads */
    int64_t tokens, drafted, accepted;
} outcome;

/* All answers at once. share < 0: without drafts. */
static outcome run(bench *b, float share) {
    rp_job *jobs[MOST_ANSWERS];
    rp_request_experiment known[MOST_ANSWERS];
    rp_error err;
    outcome out = {0};
    const double start = bench_now_s();
    const clock_t cpu = clock();
    for (int i = 0; i < b->n_answers; i++) {
        rp_request q = rp_request_defaults();
        q.prompt = rp_prompt_text(b->prompts[i].bytes);
        q.max_tokens = b->n_tokens;
        q.ignore_eos = true;
        q.sampling.temperature = b->temperature;
        q.sampling.seed = (uint64_t)i + 1;
        if (share >= 0) {
            known[i] = (rp_request_experiment){.struct_size = sizeof(known[i]),
                                               .known = b->known[i]->tokens,
                                               .n_known = b->known[i]->n_tokens,
                                               .known_share = share};
            q.n_draft = b->n_draft;
            q.experiment = &known[i];
        }
        if (rp_engine_submit(b->engine, &q, &jobs[i], &err)) bench_die("submit", &err);
    }
    for (int i = 0; i < b->n_answers; i++) {
        rp_result *r;
        if (rp_job_result(jobs[i], &r, &err)) bench_die("run", &err);
        out.tokens += r->n_tokens;
        out.drafted += r->model_drafted_tokens;
        out.accepted += r->model_accepted_tokens;
        if (b->known[i] &&
            (r->n_tokens != b->known[i]->n_tokens ||
             memcmp(r->tokens, b->known[i]->tokens, (size_t)r->n_tokens * sizeof(*r->tokens)) != 0))
            bench_die("an answer changed", NULL);
        if (b->known[i]) rp_result_free(r);
        else b->known[i] = r;
        rp_job_free(jobs[i]);
    }
    out.seconds = bench_now_s() - start;
    out.cpu_seconds = (double)(clock() - cpu) / CLOCKS_PER_SEC;
    return out;
}

int main(int argc, char **argv) {
    static const float shares[] = {0, 0.3f, 0.5f, 0.6f, 0.7f, 0.8f, 0.9f, 1};
    static bench b;
    rp_model *model, *draft = NULL;
    rp_error err;
    rp_engine_options o = rp_engine_options_defaults();
    unsigned seed = 7;
    bench_name = "bench_draft";
    o.n_threads = bench_number_after(argc, argv, "--threads", 2);
    b.n_tokens = bench_number_after(argc, argv, "--tokens", 128);
    b.n_answers = bench_number_after(argc, argv, "--answers", 1);
    b.n_draft = bench_number_after(argc, argv, "--draft", RP_DRAFT_AUTO);
    b.temperature = (float)bench_number_after(argc, argv, "--temperature", 100) / 100;
    const int only = bench_number_after(argc, argv, "--acceptance", -1);
    const int cached = bench_number_after(argc, argv, "--cached", 256);
    const int rounds = bench_number_after(argc, argv, "--rounds", 3);
    if (argc < 3 || argv[1][0] == '-' || argv[2][0] == '-' || o.n_threads < 1 || b.n_tokens < 8 || cached < 1 ||
        b.n_answers < 1 || b.n_answers > MOST_ANSWERS || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: bench_draft MODEL.gguf DRAFT.gguf [--threads N] [--tokens N] [--cached N] "
                        "[--answers N] [--rounds N] [--draft N] [--temperature PERCENT] "
                        "[--acceptance PERCENT]\n");
        return 2;
    }
    if (rp_model_open(&model, argv[1], NULL, &err) || rp_model_open(&draft, argv[2], NULL, &err))
        bench_die("model", &err);
    o.max_sequences = b.n_answers;
    o.draft_model = draft;
    if (rp_engine_new(&b.engine, model, &o, &err)) bench_die("engine", &err);
    if (rp_engine_prepare(b.engine, NULL, NULL, &err)) bench_die("weights", &err);
    for (int i = 0; i < b.n_answers; i++) bench_text_add_words(&b.prompts[i], model, (size_t)cached, &seed);
    run(&b, -1);
    run(&b, 0.9f); /* the costs of steps are measured */
    printf("%d answers of %d tokens after %d, %d threads; tokens a second of all answers\n\n", b.n_answers, b.n_tokens,
           cached, o.n_threads);
    printf("| acceptance | without | with drafts | ratio | of CPU time | drafted by the model | accepted |\n");
    printf("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        if (only >= 0 && (int)(shares[i] * 100 + 0.5f) != only) continue;
        double plain[MOST_ROUNDS], drafted[MOST_ROUNDS], cpu[MOST_ROUNDS];
        outcome last = {0};
        for (int k = 0; k < rounds; k++) {
            const outcome without = run(&b, -1);
            last = run(&b, shares[i]);
            plain[k] = (double)without.tokens / without.seconds;
            cpu[k] = without.cpu_seconds / last.cpu_seconds;
            drafted[k] = (double)last.tokens / last.seconds;
        }
        const double x = bench_median(plain, (size_t)rounds), y = bench_median(drafted, (size_t)rounds);
        printf("| %.2f | %.1f | %.1f | %.2f | %.2f | %lld | %lld |\n", (double)shares[i], x, y, y / x,
               bench_median(cpu, (size_t)rounds), (long long)last.drafted, (long long)last.accepted);
        fflush(stdout);
    }
    for (int i = 0; i < b.n_answers; i++) rp_result_free(b.known[i]), bench_text_free(&b.prompts[i]);
    rp_engine_free(b.engine);
    rp_model_close(draft);
    rp_model_close(model);
    return 0;
}
