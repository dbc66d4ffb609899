/* SPDX-License-Identifier: Apache-2.0 */
/* test_audit_table.c: the auditor's figures: comparisons against a plain computation in long double, the table against
 * a naive one, its limits, its text form, and damaged texts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "base/memory.h"
#include "engine/background/audit_table.h"
#include "support/tiny_random.h"
#include "reprise_store.h"

/* ---- comparing ---- */

static long double log_sum(const float *x, int32_t n) {
    long double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += expl((long double)x[i]);
    return logl(sum);
}

static int32_t likeliest(const float *x, int32_t n) {
    int32_t top = 0;
    for (int32_t i = 1; i < n; i++) top = x[i] > x[top] ? i : top;
    return top;
}

static audit_distance compare_plainly(const float *e, const float *r, int32_t n) {
    long double log_e = log_sum(e, n), log_r = log_sum(r, n), kl = 0, mean = 0, squares = 0;
    for (int32_t i = 0; i < n; i++) {
        long double log_p = (long double)e[i] - log_e, log_q = (long double)r[i] - log_r;
        kl += expl(log_p) * (log_p - log_q);
        mean += ((long double)e[i] - (long double)r[i]) / n;
    }
    for (int32_t i = 0; i < n; i++) squares += powl((long double)e[i] - (long double)r[i] - mean, 2);
    return (audit_distance){likeliest(e, n) == likeliest(r, n), (double)kl, (double)sqrtl(squares / n)};
}

#define MOST_TOKENS 5000

static void distances_are_those_of_a_plain_computation(void **state) {
    (void)state;
    static float e[MOST_TOKENS], r[MOST_TOKENS];
    tiny_random random = {20261122};
    for (int round = 0; round < 300; round++) {
        int32_t n = 1 + (int32_t)tiny_random_below(&random, MOST_TOKENS);
        float scale = (float)(1 + tiny_random_below(&random, 12)), noise = (float)tiny_random_below(&random, 100) / 40,
              moved = (float)round;
        for (int32_t i = 0; i < n; i++) {
            e[i] = scale * tiny_random_normal(&random);
            r[i] = e[i] + noise * tiny_random_normal(&random) + moved; /* the same for all: no probability changes */
        }
        audit_distance is, want = compare_plainly(e, r, n);
        assert_true(audit_compare(e, r, n, &is));
        assert_int_equal(is.agrees, want.agrees);
        assert_true(fabs(is.kl - want.kl) <= 1e-9 + 1e-9 * want.kl);
        assert_true(fabs(is.distance - want.distance) <= 1e-9 + 1e-9 * want.distance);
        assert_true(is.kl >= 0);
    }
}

static void equal_logits_are_no_distance_and_odd_ones_no_sample(void **state) {
    (void)state;
    float e[4] = {1, -3, 80, 2}, r[4] = {1, -3, 80, 2};
    audit_distance d;
    assert_true(audit_compare(e, r, 4, &d));
    assert_true(d.agrees && d.kl == 0 && d.distance == 0);
    r[1] = NAN;
    assert_false(audit_compare(e, r, 4, &d));
    r[1] = -INFINITY;
    assert_false(audit_compare(e, r, 4, &d));
    assert_false(audit_compare(e, r, 0, &d));
}

/* ---- adding ---- */

static const audit_bound NONE;

static audit_origin origin(const char *schema, const char *const *modules, int32_t n) {
    return (audit_origin){.schema = schema, .modules = modules, .n_modules = n};
}

static audit_verdict add(audit_table *t, const audit_origin *o, double kl, const audit_bound *bound) {
    audit_verdict v;
    const audit_schema *s;
    audit_distance d = {kl < 0.1, kl, kl / 2};
    assert_int_equal(audit_table_add(t, o, &d, bound, &v, &s), RP_OK);
    return v;
}

static const audit_pair *find_pair(const audit_table *t, const char *first, const char *second) {
    for (size_t i = 0; i < t->n_pairs; i++)
        if (strcmp(t->pairs[i].first, first) == 0 && strcmp(t->pairs[i].second, second) == 0) return &t->pairs[i];
    return NULL;
}

static void the_pair_that_does_harm_has_the_most_excess(void **state) {
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    tiny_random random = {7};
    audit_table *t = audit_table_new();
    for (int i = 0; i < 400; i++) {
        const char *modules[5];
        int32_t n = 0;
        bool has_b = false, has_d = false;
        for (int k = 4; k >= 0; k--) /* in any order: pairs are unordered */
            if (tiny_random_below(&random, 2)) {
                modules[n++] = names[k];
                has_b |= k == 1;
                has_d |= k == 3;
            }
        audit_origin o = origin("s", modules, n);
        if (n > 0) add(t, &o, has_b && has_d ? 1.0 : 0.01, &NONE);
    }
    assert_int_equal(t->n_pairs, 15);
    double most = 0;
    const audit_pair *worst = NULL;
    for (size_t i = 0; i < t->n_pairs; i++)
        if (audit_excess(&t->schemas[0], &t->pairs[i]) > most) {
            most = audit_excess(&t->schemas[0], &t->pairs[i]);
            worst = &t->pairs[i];
        }
    assert_ptr_equal(worst, find_pair(t, "b", "d"));
    assert_true(fabs(most - 0.99) < 1e-9); /* all with it 1.0, all without it 0.01 */
    audit_table_free(t);
}

static void a_schema_is_told_once_or_moved_up_step_by_step(void **state) {
    (void)state;
    audit_table *t = audit_table_new();
    const audit_bound tells = {0.5, false}, raises = {0.5, true};
    audit_origin o = origin("s", NULL, 0);
    for (int i = 1; i < AUDIT_LEAST_SAMPLES; i++) assert_int_equal(add(t, &o, 0.6, &tells), AUDIT_FINE);
    assert_int_equal(add(t, &o, 0.6, &tells), AUDIT_EXCEEDS);
    assert_int_equal(add(t, &o, 0.6, &tells), AUDIT_FINE);
    assert_true(t->schemas[0].exceeds);
    for (int i = 0; i < 8; i++) add(t, &o, 0, &tells);
    assert_false(t->schemas[0].exceeds);

    o.schema = "u";
    int32_t steps = 0;
    for (int i = 0; i < 100; i++) {
        audit_verdict v = add(t, &o, 0.6, &raises);
        if (v != AUDIT_RAISED) continue;
        steps++;
        assert_int_equal(t->schemas[1].raised, steps);
        assert_int_equal(t->schemas[1].now.samples, 0);
        assert_int_equal(t->schemas[1].all.samples, steps * AUDIT_LEAST_SAMPLES);
        add(t, &o, 9, &raises); /* planned before it was raised: not counted for the new quality */
        assert_int_equal(t->schemas[1].now.samples, 0);
        assert_int_equal(t->schemas[1].all.samples, ++i + 1);
        o.raised = o.level = steps;
        if (steps == 1) break;
    }
    assert_int_equal(steps, 1);
    for (int i = 0; i < 100; i++)
        if (add(t, &o, 0.6, &raises) == AUDIT_RAISED) o.raised = o.level = t->schemas[1].raised;
    assert_int_equal(t->schemas[1].raised, AUDIT_STEPS);

    o = origin("v", NULL, 0);
    o.level = AUDIT_LINK; /* raising to link has no effect */
    for (int i = 0; i < AUDIT_LEAST_SAMPLES; i++) add(t, &o, 0.6, &raises);
    assert_int_equal(t->schemas[2].raised, AUDIT_BLEND);
    audit_table_free(t);
}

/* "full KV" is a step for schemas some of whose judged samples had reduced KV, whichever of them came last. */
static void the_lowest_view_of_all_samples_decides(void **state) {
    (void)state;
    static const struct {
        int reduced; /* the sample with reduced KV; AUDIT_LEAST_SAMPLES: none */
        audit_step first;
    } cases[] = {{0, AUDIT_FULL_KV},
                 {3, AUDIT_FULL_KV},
                 {AUDIT_LEAST_SAMPLES - 1, AUDIT_FULL_KV},
                 {AUDIT_LEAST_SAMPLES, AUDIT_LINK}};
    const audit_bound raises = {0.5, true};
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        audit_table *t = audit_table_new();
        audit_origin o = origin("s", NULL, 0);
        for (int i = 0; i < AUDIT_LEAST_SAMPLES; i++) {
            o.level = i == cases[k].reduced ? AUDIT_AS_WRITTEN : AUDIT_FULL_KV;
            assert_int_equal(add(t, &o, 0.6, &raises), i == AUDIT_LEAST_SAMPLES - 1 ? AUDIT_RAISED : AUDIT_FINE);
        }
        assert_int_equal(t->schemas[0].raised, cases[k].first);
        o.raised = (int32_t)cases[k].first;
        for (int32_t step = o.raised + 1; step <= AUDIT_EXACT; o.raised = step++) {
            o.level = o.raised;
            for (int i = 0; i < AUDIT_LEAST_SAMPLES; i++) add(t, &o, 0.6, &raises);
            assert_int_equal(t->schemas[0].raised, step);
        }
        audit_table_free(t);
    }
}

static void another_text_begins_anew(void **state) {
    (void)state;
    static const char *const modules[] = {"a"};
    audit_table *t = audit_table_new();
    audit_origin o = origin("s", modules, 1);
    for (int i = 0; i < 5; i++) add(t, &o, 1, &NONE);
    o.tenant = 3;
    add(t, &o, 1, &NONE);
    assert_int_equal(t->n_schemas, 2);
    o.tenant = 0;
    assert_non_null(audit_table_find(t, 0, &o.version, "s"));
    o.version.bytes[0] = 1;
    assert_null(audit_table_find(t, 0, &o.version, "s"));
    add(t, &o, 1, &NONE);
    assert_int_equal(t->n_schemas, 2);
    assert_int_equal(audit_table_find(t, 0, &o.version, "s")->all.samples, 1);
    assert_int_equal(t->n_pairs, 2);
    assert_int_equal(find_pair(t, "a", "a")->figures.samples + t->pairs[1].figures.samples, 2);
    audit_table_free(t);
}

/* ---- bounds ---- */

static void what_was_added_to_longest_ago_goes_first(void **state) {
    (void)state;
    enum { N = 3 * AUDIT_MAX_SCHEMAS };
    static uint64_t used[N]; /* when; 0: not in the table */
    tiny_random random = {99};
    audit_table *t = audit_table_new();
    size_t n = 0, most_pairs = 0;
    for (uint64_t now = 1; now < 4000; now++) {
        uint64_t i = tiny_random_below(&random, N);
        char schema[16], module[16];
        snprintf(schema, sizeof(schema), "s%d", (int)i);
        snprintf(module, sizeof(module), "m%d", (int)tiny_random_below(&random, 20));
        const char *modules[] = {module, "z"};
        audit_origin o = origin(schema, modules, 2);
        add(t, &o, 0.1, &NONE);
        n += used[i] == 0;
        used[i] = now;
        if (n > AUDIT_MAX_SCHEMAS) {
            uint64_t oldest = i;
            for (uint64_t k = 0; k < N; k++)
                if (used[k] && used[k] < used[oldest]) oldest = k;
            used[oldest] = 0;
            n--;
        }
        assert_int_equal(t->n_schemas, n);
        most_pairs = t->n_pairs > most_pairs ? t->n_pairs : most_pairs;
        if (now % 100) continue;
        for (uint64_t k = 0; k < N; k++) {
            snprintf(schema, sizeof(schema), "s%d", (int)k);
            assert_int_equal(audit_table_find(t, 0, &o.version, schema) != NULL, used[k] != 0);
        }
    }
    assert_int_equal(most_pairs, AUDIT_MAX_PAIRS);
    rp_audit *report; /* every pair has its schema */
    assert_int_equal(audit_table_report(t, &report, NULL), RP_OK);
    for (size_t i = 0; i < report->n_pairs; i++) assert_true(report->pairs[i].schema < report->n_schemas);
    rp_audit_free(report);
    audit_table_free(t);
}

static void pairs_of_many_modules_come_in_turns(void **state) {
    (void)state;
    enum { N = 3 * AUDIT_MOST_MODULES };
    static char names[N][8];
    const char *modules[N];
    bool seen[N] = {false};
    audit_table *t = audit_table_new();
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "m%d", i);
        modules[i] = names[i];
    }
    audit_origin o = origin("s", modules, N);
    for (int k = 0; k < N; k++) {
        add(t, &o, 0.1, &NONE);
        for (int i = 0; i < N; i++) {
            const audit_pair *p = find_pair(t, names[i], names[i]);
            seen[i] |= p && p->used == t->n_added;
        }
    }
    for (int i = 0; i < N; i++) assert_true(seen[i]);
    audit_table_free(t);
}

/* ---- as text ---- */

static audit_table *full_table(void) {
    static char names[AUDIT_MAX_SCHEMAS][2 * AUDIT_NAME_BYTES], paths[40][2 * AUDIT_NAME_BYTES];
    audit_table *t = audit_table_new();
    for (int i = 0; i < AUDIT_MAX_SCHEMAS; i++) {
        memset(names[i], 'n', sizeof(names[i]) - 1); /* too long: it is cut */
        names[i][snprintf(names[i], 10, "s%d", i)] = '-';
        for (int k = 0; k < 8; k++) {
            memset(paths[k], 'p', sizeof(paths[k]) - 1);
            paths[k][snprintf(paths[k], 10, "m%d", k)] = '/';
        }
        const char *modules[] = {paths[i % 8], paths[(i + 3) % 8]};
        audit_origin o = origin(names[i], modules, 2);
        o.tenant = (uint32_t)i % 3;
        o.level = i % AUDIT_EXACT;
        add(t, &o, 0.125 * i, &(audit_bound){0.01, true});
    }
    t->sampled = 1000;
    t->audited = 900;
    t->dropped = 7;
    return t;
}

static bool same_figures(const audit_figures *a, const audit_figures *b) { return memcmp(a, b, sizeof(*a)) == 0; }

static void what_is_read_is_what_was_written(void **state) {
    (void)state;
    audit_table *t = full_table(), *again;
    base_key model = {{1, 2, 3}}, whose;
    base_buffer text = BASE_BUFFER(AUDIT_MAX_FILE), twice = BASE_BUFFER(AUDIT_MAX_FILE);
    assert_int_equal(audit_table_write(t, &model, &text), RP_OK); /* the fullest table fits */
    assert_int_equal(audit_table_read(&again, &whose, text.data, text.len), RP_OK);
    assert_true(base_key_equal(&model, &whose));
    assert_int_equal(again->n_schemas, t->n_schemas);
    assert_int_equal(again->n_pairs, t->n_pairs);
    assert_int_equal(again->audited, 900);
    unsigned lowest = 0;
    for (size_t i = 0; i < t->n_schemas; i++) {
        const audit_schema *a = &t->schemas[i], *b = audit_table_find(again, a->tenant, &a->version, a->name);
        assert_non_null(b);
        assert_true(same_figures(&a->all, &b->all) && same_figures(&a->now, &b->now) && a->raised == b->raised &&
                    a->lowest == b->lowest);
        lowest |= 1U << a->lowest;
    }
    assert_true(lowest & (lowest - 1)); /* several steps */
    assert_int_equal(audit_table_write(again, &model, &twice), RP_OK);
    assert_int_equal(text.len, twice.len);
    base_buffer_free(&text);
    base_buffer_free(&twice);
    audit_table_free(t);
    audit_table_free(again);
}

/* Parses a damaged text from a block of its own size, to let a sanitizer detect reads past the end. */
static int read_copy(const char *text, size_t n) {
    audit_table *t;
    base_key model;
    char *copy = malloc(n ? n : 1);
    memcpy(copy, text, n);
    int rc = audit_table_read(&t, &model, copy, n);
    assert_true(rc ? !t : t != NULL);
    audit_table_free(t);
    free(copy);
    return rc;
}

static void a_damaged_text_is_none(void **state) {
    (void)state;
    audit_table *t = audit_table_new();
    static const char *const modules[] = {"a", "b/c"};
    audit_origin o = origin("s", modules, 2);
    base_key model = {{9}};
    base_buffer text = BASE_BUFFER(AUDIT_MAX_FILE);
    tiny_random random = {5};
    add(t, &o, 0.25, &NONE);
    assert_int_equal(audit_table_write(t, &model, &text), RP_OK);
    assert_int_equal(read_copy(text.data, text.len), RP_OK);
    for (size_t n = 0; n < text.len; n++) assert_int_equal(read_copy(text.data, n), RP_ERR_FORMAT);
    for (size_t i = 0; i < text.len; i++) {
        char was = text.data[i];
        text.data[i] = (char)(was ^ (char)(1 << tiny_random_below(&random, 8)));
        assert_int_equal(read_copy(text.data, text.len), RP_ERR_FORMAT);
        text.data[i] = was;
    }
    char version[] = "reprise audit 3\n", garbage[300];
    assert_int_equal(read_copy(version, sizeof(version) - 1), RP_ERR_FORMAT);
    for (size_t i = 0; i < sizeof(garbage); i++) garbage[i] = (char)tiny_random_u64(&random);
    assert_int_equal(read_copy(garbage, sizeof(garbage)), RP_ERR_FORMAT);
    base_buffer_free(&text);
    audit_table_free(t);
}

/* Lines of a version with a valid end line. */
static base_buffer forge(int version, const char *lines) {
    base_buffer text = BASE_BUFFER(AUDIT_MAX_FILE);
    char hex[2 * BASE_KEY_BYTES + 1];
    base_hash h;
    base_key end;
    assert_int_equal(base_buffer_printf(&text, "reprise audit %d\n%s", version, lines), RP_OK);
    base_hash_init(&h, version == 1 ? "reprise audit 1" : "reprise audit 2");
    base_hash_bytes(&h, text.data, text.len);
    base_hash_final(&h, &end);
    base_key_hex(&end, hex, 2 * BASE_KEY_BYTES);
    assert_int_equal(base_buffer_printf(&text, "end\t%s\n", hex), RP_OK);
    return text;
}

static int read_version(int version, const char *lines) {
    base_buffer text = forge(version, lines);
    int rc = read_copy(text.data, text.len);
    base_buffer_free(&text);
    return rc;
}

static int read_forged(const char *lines) { return read_version(2, lines); }

#define VERSION "0000000000000000000000000000000000000000000000000000000000000000"
#define FIGURES "2\t1\t0\t0\t0"

/* A file as version 1 wrote it: steps are counted from link:8 on, and no lowest level is known. */
static void version_1_is_read(void **state) {
    (void)state;
    static const char *const names[] = {"", "link:8", "blend:15", "exact"};
    for (int raised = 0; raised <= 4; raised++) {
        char lines[512];
        audit_table *t = NULL;
        rp_audit *report;
        base_key model;
        snprintf(lines, sizeof(lines),
                 "calls\t9\t8\t1\nschema\t0\t" VERSION "\t%x\t" FIGURES "\t" FIGURES "\tname\npair\t" FIGURES
                 "\ta\tb\n",
                 (unsigned)raised);
        base_buffer text = forge(1, lines);
        assert_int_equal(audit_table_read(&t, &model, text.data, text.len), raised > 3 ? RP_ERR_FORMAT : RP_OK);
        base_buffer_free(&text);
        if (!t) continue;
        assert_int_equal(t->schemas[0].lowest, AUDIT_STEPS);
        assert_int_equal(t->schemas[0].now.samples, 2);
        assert_int_equal(audit_table_report(t, &report, NULL), RP_OK);
        assert_string_equal(report->schemas[0].raised_to, names[raised]);
        rp_audit_free(report);
        audit_table_free(t);
    }
    assert_int_equal(read_version(1, "schema\t0\t" VERSION "\t1\t1\t" FIGURES "\t" FIGURES "\tname\n"),
                     RP_ERR_FORMAT); /* of version 2 */
}

static void forged_lines_are_none(void **state) {
    (void)state;
    assert_int_equal(read_forged(""), RP_OK);
    assert_int_equal(read_forged("schema\t0\t" VERSION "\t0\t0\t" FIGURES "\t" FIGURES "\tname\n"), RP_OK);
    assert_int_equal(read_forged("pair\t" FIGURES "\ta\tb\n"), RP_ERR_FORMAT); /* of no schema */
    assert_int_equal(read_forged("schema\t0\t" VERSION "\t5\t0\t" FIGURES "\t" FIGURES "\tname\n"),
                     RP_ERR_FORMAT); /* no such step */
    assert_int_equal(read_forged("schema\t0\t" VERSION "\t0\t5\t" FIGURES "\t" FIGURES "\tname\n"), RP_ERR_FORMAT);
    assert_int_equal(read_forged("schema\t0\t" VERSION "\t0\t0\t1\t2\t0\t0\t0\t" FIGURES "\tname\n"),
                     RP_ERR_FORMAT); /* 2 of 1 agreed */
    assert_int_equal(read_forged("schema\t0\t" VERSION "\t0\t0\t1\t1\t7ff8000000000000\t0\t0\t" FIGURES "\tn\n"),
                     RP_ERR_FORMAT); /* NaN */
    assert_int_equal(read_forged("schema\t0\t" VERSION "\t0\t0\t" FIGURES "\t" FIGURES "\tname\tmore\n"),
                     RP_ERR_FORMAT);
    assert_int_equal(read_forged("schema\t0\t" VERSION "\t0\t0\t" FIGURES "\t" FIGURES "\t\n"), RP_ERR_FORMAT);
    assert_int_equal(read_forged("schema\t100000000\t" VERSION "\t0\t0\t" FIGURES "\t" FIGURES "\tname\n"),
                     RP_ERR_FORMAT);
    assert_int_equal(read_forged("schema\t0\t" VERSION "\t0\t0\t" FIGURES "\t" FIGURES "\tna\x1bme\n"), RP_ERR_FORMAT);
    assert_int_equal(read_forged("other\t1\n"), RP_ERR_FORMAT);
    assert_int_equal(read_forged("calls\t1\n"), RP_ERR_FORMAT);
    assert_int_equal(read_forged("calls\t1\t1\t1"), RP_ERR_FORMAT);
    base_buffer many = BASE_BUFFER(AUDIT_MAX_FILE);
    assert_int_equal(base_buffer_append_str(&many, ""), RP_OK);
    for (int i = 0; i <= AUDIT_MAX_SCHEMAS; i++)
        assert_int_equal(
            base_buffer_printf(&many, "schema\t%x\t" VERSION "\t0\t0\t" FIGURES "\t" FIGURES "\tname\n", (unsigned)i),
            RP_OK);
    assert_int_equal(read_forged(many.data), RP_ERR_FORMAT);
    base_buffer_free(&many);
}

/* ---- KV formats ---- */

static void a_format_falls_back_once_with_leave(void **state) {
    (void)state;
    static const audit_bound bounds[] = {{0, true}, {0.1, false}, {0.1, true}};
    for (size_t k = 0; k < sizeof(bounds) / sizeof(bounds[0]); k++) {
        audit_format f = {.format = RP_KV_F16};
        const audit_distance far = {false, 0.2, 1}, near = {true, 0, 0};
        for (int i = 0; i < AUDIT_LEAST_SAMPLES - 1; i++)
            assert_int_equal(audit_format_add(&f, RP_KV_INT8, &far, &bounds[k]), AUDIT_FINE);
        assert_int_equal(audit_format_add(&f, RP_KV_INT8, &far, &bounds[k]), k == 0   ? AUDIT_FINE
                                                                             : k == 1 ? AUDIT_EXCEEDS
                                                                                      : AUDIT_RAISED);
        assert_int_equal(f.exceeds, k == 1);
        assert_int_equal(f.falls_back, k == 2);
        assert_int_equal(audit_format_add(&f, RP_KV_INT8, &far, &bounds[k]),
                         AUDIT_FINE); /* logged once; planned before */
        for (int i = 0; i < 20; i++) assert_int_equal(audit_format_add(&f, RP_KV_INT8, &near, &bounds[k]), AUDIT_FINE);
        assert_false(f.exceeds);
        assert_int_equal(f.falls_back, k == 2);
        assert_int_equal(f.format, RP_KV_INT8);
        assert_int_equal(f.figures.samples, AUDIT_LEAST_SAMPLES + 21);
        assert_int_equal(f.figures.agreed, 20);
    }
}

static void formats_are_kept_and_reported(void **state) {
    (void)state;
    audit_table *t = full_table(), *again;
    base_key model = {{4}}, whose;
    base_buffer text = BASE_BUFFER(AUDIT_MAX_FILE);
    const audit_distance d = {false, 0.25, 0.5};
    rp_audit *report;
    t->text = (audit_format){.format = RP_KV_INT8, .falls_back = true, .figures = {9, 3, 4.5, 1.5, 2}};
    for (size_t i = 0; i < t->n_schemas; i += 2) audit_format_add(&t->schemas[i].kv, RP_KV_K4V2, &d, &NONE);
    assert_int_equal(audit_table_write(t, &model, &text), RP_OK); /* the fullest table fits */
    assert_int_equal(audit_table_read(&again, &whose, text.data, text.len), RP_OK);
    assert_true(same_figures(&again->text.figures, &t->text.figures) && again->text.falls_back &&
                again->text.format == RP_KV_INT8);
    for (size_t i = 0; i < t->n_schemas; i++) {
        const audit_schema *a = &t->schemas[i], *b = audit_table_find(again, a->tenant, &a->version, a->name);
        assert_true(same_figures(&a->kv.figures, &b->kv.figures) && a->kv.format == b->kv.format && !b->kv.falls_back);
    }
    assert_int_equal(audit_table_report(again, &report, NULL), RP_OK);
    assert_int_equal(report->n_formats, 1 + (t->n_schemas + 1) / 2);
    assert_true(report->formats[0].schema == RP_AUDIT_TEXT && report->formats[0].falls_back &&
                report->formats[0].figures.agreed == 3);
    assert_string_equal(report->formats[0].format, "int8");
    assert_string_equal(report->formats[1].format, "k4v2");
    rp_audit_free(report);
    base_buffer_free(&text);
    audit_table_free(t);
    audit_table_free(again);
}

static void forged_formats_are_none(void **state) {
    (void)state;
#define SCHEMA "schema\t0\t" VERSION "\t0\t0\t" FIGURES "\t" FIGURES "\tname\n"
    assert_int_equal(read_forged("text\t2\t1\t" FIGURES "\n" SCHEMA "kv\t5\t0\t" FIGURES "\n"), RP_OK);
    assert_int_equal(read_forged("text\tff\t1\t" FIGURES "\n"), RP_ERR_FORMAT); /* no such format */
    assert_int_equal(read_forged("text\t7\t1\t" FIGURES "\n" SCHEMA "kv\t3\t0\t" FIGURES "\n"),
                     RP_OK); /* removed ones */
    assert_int_equal(read_forged("text\t2\t2\t" FIGURES "\n"), RP_ERR_FORMAT);
    /* no samples */
    assert_int_equal(read_forged("text\t2\t1\t0\t0\t0\t0\t0\n"), RP_ERR_FORMAT);
    assert_int_equal(read_forged("text\t2\t1\t" FIGURES "\ntext\t2\t1\t" FIGURES "\n"), RP_ERR_FORMAT); /* twice */
    /* of no schema */
    assert_int_equal(read_forged("kv\t2\t1\t" FIGURES "\n"), RP_ERR_FORMAT);
    assert_int_equal(read_forged(SCHEMA "kv\t2\t1\t" FIGURES "\nkv\t2\t1\t" FIGURES "\n"), RP_ERR_FORMAT); /* twice */
    assert_int_equal(read_forged("text\t2\t1\t" FIGURES "\t1\n"), RP_ERR_FORMAT);
}

/* ---- no memory ---- */

static void no_memory_leaves_a_table_whole(void **state) {
    (void)state;
    static const char *const modules[] = {"a", "b", "c"};
    for (uint64_t n = 1;; n++) {
        audit_table *t = audit_table_new();
        audit_origin o = origin("s", modules, 3);
        audit_distance d = {true, 0.5, 0.5};
        audit_verdict v;
        const audit_schema *s;
        rp_audit *report = NULL;
        base_alloc_fail_at(n, 0);
        int added = audit_table_add(t, &o, &d, &NONE, &v, &s);
        int reported = audit_table_report(t, &report, NULL);
        base_alloc_fail_at(0, 0);
        rp_audit_free(report);
        audit_table_free(t);
        if (!added && !reported) return;
        assert_true((added ? added : reported) == RP_ERR_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances_are_those_of_a_plain_computation),
        cmocka_unit_test(equal_logits_are_no_distance_and_odd_ones_no_sample),
        cmocka_unit_test(the_pair_that_does_harm_has_the_most_excess),
        cmocka_unit_test(a_schema_is_told_once_or_moved_up_step_by_step),
        cmocka_unit_test(the_lowest_view_of_all_samples_decides),
        cmocka_unit_test(another_text_begins_anew),
        cmocka_unit_test(what_was_added_to_longest_ago_goes_first),
        cmocka_unit_test(pairs_of_many_modules_come_in_turns),
        cmocka_unit_test(what_is_read_is_what_was_written),
        cmocka_unit_test(a_damaged_text_is_none),
        cmocka_unit_test(version_1_is_read),
        cmocka_unit_test(forged_lines_are_none),
        cmocka_unit_test(a_format_falls_back_once_with_leave),
        cmocka_unit_test(formats_are_kept_and_reported),
        cmocka_unit_test(forged_formats_are_none),
        cmocka_unit_test(no_memory_leaves_a_table_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
