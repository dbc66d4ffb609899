/* SPDX-License-Identifier: Apache-2.0 */
/* test_reference_golden.c: the slow reference of the tests (tests/support/reference_model.h) gives the logits of
 * transformers for every family of tests/golden: two independent implementations agree.
 */
#define _POSIX_C_SOURCE 200809L /* unlink */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/gguf_variant.h"
#include "support/golden.h"
#include "support/oracle_run.h"
#include "support/reference_model.h"

/* Relative to the largest logit. transformers rounds to float after every step, the reference at the end. */
#define LIMIT 2e-5

typedef struct tally {
    int rows;
    double worst;
} tally;

/* Full causal attention. Returns the largest deviation of a stored row. */
static double run_prompt(const reference_model *r, const golden_model *m, const golden_prompt *p) {
    reference_kv *s = reference_kv_new(r);
    reference_sight *sights = reference_alloc((size_t)p->n_tokens, sizeof *sights);
    float *logits = reference_alloc((size_t)m->vocabulary, sizeof *logits);
    double worst = 0;
    for (int32_t i = 0; i < p->n_tokens; i++) {
        for (int32_t k = 0; k < i; k++) sights[k] = (reference_sight){.token = k, .distance = i - k};
        reference_kv_add(s, p->tokens[i], i, sights, (size_t)i, logits);
        int32_t row = i - golden_row_token(p, 0);
        if (row < 0) continue;
        double d = oracle_deviation(logits, golden_row(m, p, row), m->vocabulary);
        worst = d > worst ? d : worst;
    }
    free(logits);
    free(sights);
    reference_kv_free(s);
    return worst;
}

/* transformers picks long-rope's factors by the length of the prompt: the prompt is the whole context here. */
static void check_prompt(const golden_model *m, const gguf_file *f, const golden_prompt *p, tally *t) {
    reference_model *r = NULL;
    rp_error err = {0};
    if (reference_model_open(&r, f, p->n_tokens, &err)) fail_msg("%s: %s", m->name, err.message);
    assert_int_equal(reference_model_n_vocab(r), m->vocabulary);
    double d = run_prompt(r, m, p);
    printf("  %-20s %-6s %.2g\n", m->name, p->name, d);
    t->rows += p->rows;
    t->worst = d > t->worst ? d : t->worst;
    if (!(d < LIMIT)) print_error("%s, prompt '%s': logits deviate by %.3g\n", m->name, p->name, d);
    reference_model_close(r);
}

static void check_file(const golden_model *m, const char *path, tally *t) {
    gguf_file *f = NULL;
    rp_error err = {0};
    if (gguf_open(&f, path, &err)) fail_msg("%s", err.message);
    for (int32_t k = 0; k < m->n_prompts; k++) check_prompt(m, f, &m->prompts[k], t);
    gguf_close(f);
}

static void the_reference_gives_the_golden_logits(void **state) {
    golden *g = golden_open();
    tally t = {0};
    (void)state;
    for (int32_t i = 0; i < g->n_models; i++)
        if (!golden_is_recurrent(&g->models[i])) check_file(&g->models[i], g->models[i].path, &t);
    printf("reference: %d models, %d rows, worst deviation %.2g\n", g->n_models, t.rows, t.worst);
    assert_true(t.worst < LIMIT);
    golden_close(g);
}

/* Files with other layouts of the same content have the same result. */
static void check_variant(const golden *g, const char *name, const gguf_variant *v) {
    char path[64];
    tally t = {0};
    gguf_variant_write(golden_find(g, name)->path, v, path);
    check_file(golden_find(g, name), path, &t);
    unlink(path);
    assert_true(t.worst < LIMIT);
}

static void older_files_give_the_golden_logits(void **state) {
    golden *g = golden_open();
    (void)state;
    check_variant(g, "mixtral", &(gguf_variant){.split_experts = true});
    check_variant(g, "gpt-oss-mxfp4", &(gguf_variant){.without_key = "gpt-oss.rope.scaling.yarn_truncate"});
    golden_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_gives_the_golden_logits),
        cmocka_unit_test(older_files_give_the_golden_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
