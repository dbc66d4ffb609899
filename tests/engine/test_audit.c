/* SPDX-License-Identifier: Apache-2.0 */
/* test_audit.c: the auditor with the bundled model: a schema that reuse damages is detected and logged, or its quality
 * raised; good schemas are unchanged; the results outlive the engine; answers do not depend on the auditor.
 *
 *   towns-apart   subject in one module, statement in another: "The river is Quinbeck." and "The river is Yelpass."
 *                 contradict each other without the line before them                           mean KL 2.0 to 4.0 nats
 *   towns-whole   the same texts, one module per town                                           mean KL below 0.01
 *   facts         modules that name the town of their river themselves
 *   mixed         these, and one town apart: h2 and t2 depend on each other; each is harmless with other modules
 *
 * MAX_DIVERGENCE: of the tasks of docs/quality.md with answers as good as exact, not-stated is the worst: 0.21 to 0.26
 * nats.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/io.h"
#include "engine/background/audit_table.h"
#include "store/disk/disk_folder.h"
#include "support/cache_world.h"
#include "support/oracle_run.h"
#include "support/tiny_model.h"
#include "reprise_store.h"
#include "reprise_pml.h"

#define MAX_DIVERGENCE 0.5F

/* ---- schemas and prompts ---- */

#define N_TOWNS 4
static const char *const towns[N_TOWNS] = {"Vaskgate", "Norgen", "Rinholm", "Zordale"};
static const char *const rivers[N_TOWNS] = {"Quinbeck", "Yelpass", "Gilwater", "Ruskbank"};
static const char *const mayors[N_TOWNS] = {"Olan", "Yonena", "Mirina", "Selda"};

typedef enum kind { APART,
                    WHOLE,
                    FACTS,
                    MIXED,
                    N_KINDS } kind;
static const char *const kind_names[N_KINDS] = {"towns-apart", "towns-whole", "facts", "mixed"};

static void append(char *out, size_t bytes, const char *format, ...) {
    size_t n = strlen(out);
    va_list list;
    va_start(list, format);
    vsnprintf(out + n, bytes - n, format, list);
    va_end(list);
}

static void write_schema(kind k, char *out, size_t bytes) {
    snprintf(out, bytes, "<schema name=\"%s\"><system>Read the documents. ", kind_names[k]);
    for (int i = 0; i < N_TOWNS; i++) {
        if (k == FACTS || (k == MIXED && i != 2))
            append(out, bytes, "<module name=\"t%d\">The river of %s is %s. The mayor of %s is %s.</module> ", i,
                   towns[i], rivers[i], towns[i], mayors[i]);
        else
            append(
                out, bytes,
                k == APART || k == MIXED
                    ? "<module name=\"h%d\">This is about the town of %s.</module> <module name=\"t%d\">The river is "
                      "%s. "
                      "The mayor is %s.</module> "
                    : "<module name=\"t%d\">This is about the town of %s. <!-- %d --> The river is %s. The mayor is %s."
                      "</module> ",
                i, towns[i], i, rivers[i], mayors[i]);
    }
    append(out, bytes, "</system></schema>");
}

/* Imports by bits: h0 t0 h1 t1 ...; the question is about town `of`. */
static void write_prompt(kind k, unsigned imports, int of, bool river, const char *quality, char *out, size_t bytes) {
    snprintf(out, bytes, "<prompt schema=\"%s\"%s>", kind_names[k], quality);
    for (int i = 0; i < 2 * N_TOWNS; i++)
        if (imports >> i & 1 && (i % 2 || k == APART || (k == MIXED && i / 2 == 2)))
            append(out, bytes, "<%c%d/>", i % 2 ? 't' : 'h', i / 2);
    append(out, bytes, "<user>%s %s?</user></prompt>", river ? "What is the river of" : "Who is the mayor of",
           towns[of]);
}

#define BOTH(a, b) (3U << 2 * (a) | 3U << 2 * (b)) /* both modules of two towns */

/* ---- an engine ---- */

static rp_model *model;

static int open_model(void **state) {
    (void)state;
    const char *tree = getenv("REPRISE_SOURCE_DIR");
    char path[512];
    rp_error err;
    snprintf(path, sizeof(path), "%s/models/reprise-mini.gguf", tree ? tree : ".");
    if (rp_model_open(&model, path, NULL, &err)) fail_msg("%s", err.message);
    return 0;
}

static int close_model(void **state) {
    (void)state;
    rp_model_close(model);
    return 0;
}

static rp_engine_options options(int32_t every, bool raises) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    o.n_ctx = 512;
    o.audit_every = every;
    o.max_divergence = MAX_DIVERGENCE;
    o.audit_raises = raises;
    return o;
}

static rp_engine *open_engine(const rp_engine_options *o) {
    rp_engine *e;
    rp_error err;
    char pml[4096];
    if (rp_engine_new(&e, model, o, &err)) fail_msg("%s", err.message);
    for (int k = 0; k < N_KINDS; k++) {
        write_schema((kind)k, pml, sizeof(pml));
        if (rp_schema_parse(e, pml, strlen(pml), kind_names[k], NULL, NULL, NULL, &err)) fail_msg("%s", err.message);
    }
    return e;
}

static rp_result *ask(rp_engine *e, const char *prompt) {
    rp_request r = rp_request_defaults();
    r.prompt = rp_prompt_pml(prompt);
    r.max_tokens = 4;
    return tiny_model_answer(e, &r);
}

static void ask_once(rp_engine *e, kind k, unsigned imports, int of, bool river) {
    char prompt[1024];
    write_prompt(k, imports, of, river, "", prompt, sizeof(prompt));
    rp_result_free(ask(e, prompt));
    assert_true(rp_engine_drain(e, -1));
}

/* Two towns at a time, each of them queried, `rounds` times. */
static void ask_pairs(rp_engine *e, kind k, int rounds) {
    for (int i = 0; i < rounds; i++) {
        int a = i % N_TOWNS, b = (a + 1 + i / N_TOWNS % (N_TOWNS - 1)) % N_TOWNS;
        ask_once(e, k, BOTH(a, b), i % 2 ? a : b, i % 3 == 0);
    }
}

static rp_audit *audit(rp_engine *e) {
    rp_audit *a;
    assert_int_equal(rp_engine_audit(e, &a, NULL), RP_OK);
    return a;
}

static const rp_audit_schema *find_schema(const rp_audit *a, kind k) {
    for (size_t i = 0; i < a->n_schemas; i++)
        if (strcmp(a->schemas[i].name, kind_names[k]) == 0) return &a->schemas[i];
    return NULL;
}

/* ---- finding ---- */

static void a_schema_that_reuse_spoils_is_found_and_good_ones_are_not(void **state) {
    (void)state;
    rp_engine_options o = options(1, false);
    rp_engine *e = open_engine(&o);
    for (int k = 0; k < MIXED; k++) ask_pairs(e, (kind)k, 12);
    rp_audit *a = audit(e);
    assert_int_equal(a->sampled, 36);
    assert_int_equal(a->audited, 36);
    assert_int_equal(a->dropped + a->waiting, 0);
    assert_int_equal(a->n_schemas, MIXED);
    for (int k = 0; k < MIXED; k++) {
        const rp_audit_schema *s = find_schema(a, (kind)k);
        assert_int_equal(s->all.samples, 12);
        print_message("%s: mean KL %.4f, largest %.4f, %d of 12 agree, distance %.3f\n", s->name, s->all.mean_kl,
                      s->all.max_kl, (int)s->all.agreed, s->all.mean_distance);
        assert_int_equal(s->exceeds, k == APART);
        assert_string_equal(s->raised_to, "");
        assert_string_equal(s->owner, "");
        if (k != APART) assert_true(s->all.mean_kl < MAX_DIVERGENCE / 10);
        else assert_true(s->all.mean_kl > 2 * MAX_DIVERGENCE && s->all.agreed < 9);
    }
    rp_audit_free(a);
    rp_engine_free(e);
}

/* The first module of a prompt, t0, is always exact. A question about a town in one module gets the answer of an exact
 * run. */
static void the_pair_that_must_be_read_together_stands_out(void **state) {
    (void)state;
    enum { T0 = 1 << 1,
           T1 = 1 << 3,
           H2 = 1 << 4,
           T2 = 1 << 5,
           T3 = 1 << 7 };
    static const struct {
        unsigned imports;
        int of;
    } asked[] = {
        {T0 | H2 | T2, 2},
        {T0 | H2 | T2 | T3, 2},
        {T0 | T1 | H2 | T2, 2},
        {T0 | H2 | T3, 3},
        {T0 | T1 | H2, 1},
        {T0 | T1 | H2 | T3, 3},
        {T0 | H2 | T3, 0},
        {T0 | T2 | T3, 3},
        {T0 | T1 | T2 | T3, 3},
        {T0 | T1 | T3, 3},
    };
    rp_engine_options o = options(1, false);
    rp_engine *e = open_engine(&o);
    for (int i = 0; i < 20; i++) ask_once(e, MIXED, asked[i % 10].imports, asked[i % 10].of, i / 10);
    rp_audit *a = audit(e);
    const rp_audit_pair *worst = NULL;
    for (size_t i = 0; i < a->n_pairs; i++) {
        const rp_audit_pair *p = &a->pairs[i];
        print_message("%s + %s: %d samples, mean KL %.4f, excess %.4f\n", p->first, p->second, (int)p->figures.samples,
                      p->figures.mean_kl, p->excess_kl);
        if (!worst || p->excess_kl > worst->excess_kl) worst = p;
    }
    assert_string_equal(worst->first, "h2");
    assert_string_equal(worst->second, "t2");
    assert_true(worst->excess_kl > MAX_DIVERGENCE);
    rp_audit_free(a);
    rp_engine_free(e);
}

/* ---- moving up ---- */

static void a_schema_is_moved_up_until_it_is_near_enough(void **state) {
    (void)state;
    rp_engine_options o = options(1, true);
    rp_engine *e = open_engine(&o);
    char prompt[1024], quality[RP_QUALITY_BYTES];
    ask_pairs(e, WHOLE, 8);
    ask_pairs(e, APART, 8);
    rp_audit *a = audit(e);
    assert_string_equal(find_schema(a, WHOLE)->raised_to, "");
    assert_string_equal(find_schema(a, APART)->raised_to, "link:8");
    assert_int_equal(find_schema(a, APART)->now.samples, 0);
    double before = find_schema(a, APART)->all.mean_kl;
    rp_audit_free(a);

    write_prompt(APART, BOTH(0, 1), 0, true, "", prompt, sizeof(prompt));
    rp_result *r = ask(e, prompt);
    assert_string_equal(r->quality.reason, "audit");
    assert_string_equal(rp_quality_text(r->quality.asked, quality), "reuse");
    assert_string_equal(rp_quality_text(r->quality.used, quality), "link:8");
    assert_true(r->quality.recomputed_tokens > 0);
    rp_result_free(r);
    assert_true(rp_engine_drain(e, -1));

    for (int i = 0; i < 40; i++) ask_pairs(e, APART, 1); /* enough for every quality step */
    a = audit(e);
    const rp_audit_schema *s = find_schema(a, APART);
    print_message("%.4f nats; then %s: %.4f (%d samples)\n", before, s->raised_to, s->now.mean_kl, (int)s->now.samples);
    assert_true(s->now.mean_kl < MAX_DIVERGENCE && s->now.mean_kl < before / 4);
    assert_true(s->now.samples > 0 || strcmp(s->raised_to, "exact") == 0); /* exact prompts are no samples */
    rp_audit_free(a);

    /* An explicit quality of a request or its prompt is not changed, and not sampled. */
    a = audit(e);
    uint64_t sampled = a->sampled;
    rp_audit_free(a);
    write_prompt(APART, BOTH(0, 1), 0, true, " quality=\"reuse\"", prompt, sizeof(prompt));
    r = ask(e, prompt);
    assert_string_equal(rp_quality_text(r->quality.used, quality), "reuse");
    assert_string_equal(r->quality.reason, "");
    rp_result_free(r);
    a = audit(e);
    assert_int_equal(a->sampled, sampled);
    rp_audit_free(a);
    rp_engine_free(e);
}

/* Above focus is exact: the auditor's link:8 and blend:15 would be less. */
static void a_schema_with_focus_moves_up_to_exact(void **state) {
    (void)state;
    rp_engine_options o = options(1, true);
    rp_schema_options focus = rp_schema_options_defaults();
    rp_engine *e = open_engine(&o);
    rp_error err;
    char pml[4096], prompt[1024], quality[RP_QUALITY_BYTES];
    focus.quality = (rp_quality){RP_QUALITY_FOCUS, 1};
    write_schema(APART, pml, sizeof(pml));
    if (rp_schema_parse(e, pml, strlen(pml), kind_names[APART], NULL, &focus, NULL, &err)) fail_msg("%s", err.message);
    write_prompt(APART, BOTH(0, 1), 0, true, "", prompt, sizeof(prompt));
    rp_result *r = ask(e, prompt);
    assert_string_equal(rp_quality_text(r->quality.asked, quality), "focus:1");
    rp_result_free(r);
    assert_true(rp_engine_drain(e, -1));
    ask_pairs(e, APART, 8);
    rp_audit *a = audit(e);
    assert_string_equal(find_schema(a, APART)->raised_to, "exact");
    rp_audit_free(a);
    r = ask(e, prompt);
    assert_string_equal(rp_quality_text(r->quality.used, quality), "exact");
    assert_string_equal(r->quality.reason, "audit");
    rp_result_free(r);
    rp_engine_free(e);
}

/* ---- sampling, and its effect on answers ---- */

static void one_in_n_modular_requests_is_chosen(void **state) {
    (void)state;
    rp_engine_options o = options(3, false), off = options(0, false);
    rp_engine *e = open_engine(&o), *plain = open_engine(&off);
    char prompt[1024];
    for (int i = 0; i < 10; i++) {
        rp_request text = rp_request_defaults();
        text.prompt = rp_prompt_text("Tom had a red ball.");
        text.max_tokens = 2;
        rp_result_free(tiny_model_answer(e, &text)); /* not modular */
        write_prompt(WHOLE, 0, 1, i % 2, "", prompt, sizeof(prompt));
        rp_result_free(ask(e, prompt)); /* the schema's text alone: exact */
        write_prompt(WHOLE, BOTH(i % 4, (i + 1) % 4), i % 4, i % 2, "", prompt, sizeof(prompt));
        rp_result *audited = ask(e, prompt), *alone = ask(plain, prompt);
        assert_string_equal(audited->text, alone->text);
        rp_result_free(audited);
        rp_result_free(alone);
        assert_true(rp_engine_drain(e, -1));
    }
    rp_audit *a = audit(e), *none = audit(plain);
    assert_int_equal(a->sampled, 4);
    assert_int_equal(a->audited, 4);
    assert_int_equal(none->sampled + none->n_schemas, 0);
    rp_audit_free(a);
    rp_audit_free(none);
    rp_engine_free(e);
    rp_engine_free(plain);
}

static void *ask_many(void *arg) {
    char prompt[1024];
    for (int i = 0; i < 12; i++) {
        write_prompt(i % 2 ? APART : WHOLE, BOTH(i % 4, (i + 1) % 4), i % 4, true, "", prompt, sizeof(prompt));
        rp_result_free(ask(arg, prompt));
        rp_audit *a = audit(arg);
        assert_true(a->audited + a->dropped + a->waiting <= a->sampled);
        rp_audit_free(a);
    }
    return NULL;
}

static void what_is_chosen_is_compared_or_dropped(void **state) {
    (void)state;
    rp_engine_options o = options(1, true);
    rp_engine *e = open_engine(&o);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, ask_many, e);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_true(rp_engine_drain(e, -1));
    rp_audit *a = audit(e);
    assert_true(a->sampled > 0);
    assert_int_equal(a->audited + a->dropped, a->sampled);
    assert_int_equal(a->waiting, 0);
    rp_audit_free(a);
    rp_engine_free(e);
    e = open_engine(&o); /* freed while some are queued */
    char prompt[1024];
    write_prompt(APART, BOTH(0, 1), 0, true, "", prompt, sizeof(prompt));
    for (int i = 0; i < 3; i++) rp_result_free(ask(e, prompt));
    rp_engine_free(e);
}

static void values_are_checked(void **state) {
    (void)state;
    rp_engine *e;
    rp_error err;
    rp_engine_options o = options(-1, false);
    assert_int_equal(rp_engine_new(&e, model, &o, &err), RP_ERR_INVALID);
    o = options(1, false);
    o.max_divergence = -1;
    assert_int_equal(rp_engine_new(&e, model, &o, &err), RP_ERR_INVALID);
}

/* ---- on disk ---- */

static char dir[STORE_FOLDER_BYTES];

static int make_folder(void **state) {
    (void)state;
    store_folder_make(dir);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    store_folder_remove(dir);
    return 0;
}

/* The output of `reprise cache stat`; NULL: none. */
static rp_audit *kept(const char *key) {
    rp_audit *a;
    char text[65] = "";
    rp_store *c = cache_world_cache(dir, key, true);
    assert_int_equal(rp_store_read_audit(c, &a, text, NULL), RP_OK);
    assert_int_equal(strlen(text), a ? 64 : 0);
    rp_store_close(c);
    return a;
}

static void run_with_store(int rounds, const char *key, bool read_only, uint64_t known, uint64_t raised) {
    rp_engine_options o = options(1, true);
    o.store_dir = dir;
    o.store_key_file = key;
    o.store_read_only = read_only;
    rp_engine *e = open_engine(&o);
    rp_audit *a = audit(e);
    const rp_audit_schema *s = find_schema(a, APART);
    assert_int_equal(s ? s->all.samples : 0, known);
    assert_int_equal(s && s->raised_to[0], raised);
    rp_audit_free(a);
    ask_pairs(e, APART, rounds);
    rp_engine_free(e);
}

static void what_was_found_outlives_the_engine(void **state) {
    (void)state;
    char path[STORE_FOLDER_BYTES + 16];
    snprintf(path, sizeof(path), "%s/audit", dir);
    run_with_store(5, NULL, false, 0, 0);
    rp_audit *a = kept(NULL);
    assert_int_equal(find_schema(a, APART)->all.samples, 5);
    assert_true(a->n_pairs > 0);
    rp_audit_free(a);
    run_with_store(3, NULL, false, 5, 0);
    run_with_store(2, NULL, true, 8, 1); /* read-only: loaded, and nothing is written */
    run_with_store(1, NULL, false, 8, 1);
    a = kept(NULL);
    assert_int_equal(find_schema(a, APART)->all.samples, 9);
    assert_string_equal(find_schema(a, APART)->raised_to, "link:8");
    rp_audit_free(a);
    assert_int_equal(store_folder_count(dir, ".tmp"), 0);

    assert_int_equal(truncate(path, 100), 0);
    assert_null(kept(NULL));
    run_with_store(1, NULL, false, 0, 0); /* starts empty */
    a = kept(NULL);
    assert_int_equal(find_schema(a, APART)->all.samples, 1);
    rp_audit_free(a);
    store_folder_flip(dir, "audit");
    assert_null(kept(NULL));
}

/* The file would have names of schemas and modules in clear. */
static void an_encrypted_store_keeps_none(void **state) {
    (void)state;
    char key[STORE_FOLDER_BYTES];
    store_folder_key(dir, key, 1);
    run_with_store(2, key, false, 0, 0);
    assert_int_equal(store_folder_count(dir, "audit"), 0);
    assert_null(kept(key));
    unlink(key);
}

/* Each file operation fails in turn: the file is the old one or the new one. */
static void a_write_that_fails_leaves_a_whole_file(void **state) {
    (void)state;
    static const base_io_fault faults[] = {BASE_IO_EIO, BASE_IO_ENOSPC, BASE_IO_SHORT};
    char path[DISK_PATH_BYTES];
    disk_folder f;
    snprintf(path, sizeof(path), "%s/audit", dir);
    assert_int_equal(disk_folder_open(&f, dir, false, NULL), RP_OK);
    for (size_t k = 0; k < sizeof(faults) / sizeof(faults[0]); k++)
        for (uint64_t n = 1, last = 0; !last; n++) {
            base_buffer text = {0};
            assert_int_equal(disk_folder_write_audit(&f, "old", 3, NULL), RP_OK);
            base_io_count(BASE_IO_CHANGES);
            base_io_fault_at(n, faults[k], BASE_IO_CHANGES);
            int rc = disk_folder_write_audit(&f, "newer", 5, NULL);
            last = base_io_count(BASE_IO_CHANGES) < n;
            base_io_fault_at(0, BASE_IO_NO_FAULT, BASE_IO_CHANGES);
            assert_int_equal(base_file_read(path, 100, &text, NULL), RP_OK);
            if (rc == RP_OK) assert_string_equal(text.data, "newer");
            else assert_true(strcmp(text.data, "old") == 0 || strcmp(text.data, "newer") == 0);
            assert_true(!last || rc == RP_OK);
            base_buffer_free(&text);
        }
    disk_folder_close(&f);
}

/* A symbolic link in the store's folder is not followed. */
static void a_symbolic_link_is_not_read(void **state) {
    (void)state;
    char path[DISK_PATH_BYTES];
    disk_folder f;
    base_buffer text = {0};
    snprintf(path, sizeof(path), "%s/audit", dir);
    assert_int_equal(disk_folder_open(&f, dir, false, NULL), RP_OK);
    assert_int_equal(disk_folder_write_audit(&f, "old", 3, NULL), RP_OK);
    disk_folder_close(&f);
    assert_int_equal(disk_folder_read_audit(dir, 100, &text), RP_OK);
    assert_string_equal(text.data, "old");
    base_buffer_free(&text);
    unlink(path);
    assert_int_equal(symlink("lock", path), 0);
    text = (base_buffer){0};
    assert_int_not_equal(disk_folder_read_audit(dir, 100, &text), RP_OK);
    base_buffer_free(&text);
    unlink(path);
}

/* ---- reduced modules ---- */

/* Modules of more than 64 tokens that name their town in every sentence: whole they are harmless. */
static void write_long_schema(const char *attributes, char *out, size_t bytes) {
    snprintf(out, bytes, "<schema name=\"long\"%s><system>Read the documents. ", attributes);
    for (int i = 0; i < N_TOWNS; i++) {
        append(out, bytes,
               "<module name=\"t%d\">This is about the town of %s. The river of %s is %s. The mayor of %s is %s.", i,
               towns[i], towns[i], rivers[i], towns[i], mayors[i]);
        for (int k = 0; k < 6; k++)
            append(out, bytes, " The town of %s has a school, a bridge and an old mill.", towns[i]);
        append(out, bytes, "</module> ");
    }
    append(out, bytes, "</system></schema>");
}

/* Expected Attention drops what the bundled model needs (docs/quality.md): an eighth of the slots gives other
   answers. */
static rp_engine *open_long(int32_t every, bool raises, const char *folder, const char *attributes) {
    rp_engine_options o = options(every, raises);
    rp_engine *e;
    rp_error err;
    char pml[8192];
    o.n_ctx = 1024;
    o.keep_method = "expected";
    o.store_dir = folder;
    if (rp_engine_new(&e, model, &o, &err)) fail_msg("%s", err.message);
    write_long_schema(attributes, pml, sizeof(pml));
    if (rp_schema_parse(e, pml, strlen(pml), "long", NULL, NULL, NULL, &err)) fail_msg("%s", err.message);
    return e;
}

#define KEEPS " keep=\"12.5%\""

static void ask_long(oracle_run *r, rp_engine *e, int i, const char *quality, rp_reuse reuse) {
    char prompt[512];
    rp_request q = rp_request_defaults();
    snprintf(prompt, sizeof(prompt), "<prompt schema=\"long\"%s><t%d/><t%d/><user>%s %s?</user></prompt>", quality,
             i % N_TOWNS, (i + 1) % N_TOWNS, i % 2 ? "What is the river of" : "Who is the mayor of",
             towns[(i + i / N_TOWNS) % 2 ? i % N_TOWNS : (i + 1) % N_TOWNS]);
    q.prompt = rp_prompt_pml(prompt);
    q.max_tokens = 4;
    q.reuse = reuse;
    oracle_run_make(r, e, &q);
    if (r->rc) fail_msg("%s", r->err.message);
    assert_true(rp_engine_drain(e, -1));
}

/* Of the modules of a plan with full KV: why; reduced KV: its method; "mixed": not all of them. */
static const char *why_full(const oracle_run *r) {
    const char *why = NULL;
    for (int32_t i = 0; i < r->result->n_plan; i++) {
        const rp_plan_item *p = &r->result->plan[i];
        if (!p->is_view || p->module[0] != 't') continue; /* the schema's and the prompt's own text */
        assert_int_equal(p->kept < 1, p->kept_by[0] != '\0');
        assert_false(p->kept < 1 && p->full_reason[0]);
        const char *now = p->kept < 1 ? p->kept_by : p->full_reason;
        why = !why || strcmp(why, now) == 0 ? now : "mixed";
    }
    return why;
}

static void expect_raised(rp_engine *e, const char *step) {
    rp_audit *a = audit(e);
    assert_int_equal(a->n_schemas, 1);
    assert_string_equal(a->schemas[0].raised_to, step);
    rp_audit_free(a);
}

/* The same answers, byte for byte, as those of the schema without keep, hit or miss. */
static void expect_full_kv(rp_engine *e, rp_engine *plain, int n) {
    for (int i = 0; i < n; i++) {
        oracle_run r, off, expected;
        ask_long(&expected, plain, i, "", RP_REUSE_ON);
        ask_long(&r, e, i, "", RP_REUSE_ON);
        ask_long(&off, e, i, "", RP_REUSE_OFF);
        assert_string_equal(why_full(&r), "audit");
        assert_string_equal(why_full(&expected), "");
        assert_true(oracle_run_same(&r, &expected) && oracle_run_same(&off, &expected));
        oracle_run_free(&r), oracle_run_free(&off), oracle_run_free(&expected);
    }
}

static void reduced_modules_are_moved_up_to_full_kv_first(void **state) {
    (void)state;
    rp_engine *e = open_long(1, true, dir, KEEPS), *plain = open_long(0, false, NULL, "");
    oracle_run r;
    ask_long(&r, e, 0, "", RP_REUSE_ON);
    assert_string_equal(why_full(&r), "new");
    oracle_run_free(&r);
    int n_asked = 1, n_reduced = 0;
    for (; n_asked < AUDIT_LEAST_SAMPLES; n_asked++) {
        expect_raised(e, "");
        ask_long(&r, e, n_asked, "", RP_REUSE_ON);
        n_reduced += strcmp(why_full(&r), "expected") == 0;
        oracle_run_free(&r);
    }
    assert_true(n_reduced >= 4);
    rp_audit *a = audit(e);
    print_message("reduced: mean KL %.4f\n", a->schemas[0].all.mean_kl);
    assert_true(a->schemas[0].all.mean_kl > 2 * MAX_DIVERGENCE && a->schemas[0].now.samples == 0);
    rp_audit_free(a);
    expect_raised(e, "full KV");
    expect_full_kv(e, plain, 2 * N_TOWNS);
    expect_raised(e, "full KV"); /* close enough */
    a = audit(e);
    print_message("full: mean KL %.4f\n", a->schemas[0].now.mean_kl);
    assert_true(a->schemas[0].now.samples >= AUDIT_LEAST_SAMPLES && a->schemas[0].now.mean_kl < MAX_DIVERGENCE / 10);
    rp_audit_free(a);

    ask_long(&r, e, 1, " quality=\"reuse\"", RP_REUSE_ON); /* an explicit quality is not changed */
    assert_string_equal(why_full(&r), "expected");
    oracle_run_free(&r);
    rp_engine_free(e);

    e = open_long(1, true, dir, KEEPS); /* the step is kept, although reduced KV is on disk */
    expect_raised(e, "full KV");
    expect_full_kv(e, plain, 3);
    rp_engine_free(e);
    e = open_long(0, false, dir, KEEPS); /* without the auditor keep applies again */
    ask_long(&r, e, 1, "", RP_REUSE_ON);
    assert_string_equal(why_full(&r), "expected");
    oracle_run_free(&r);
    rp_engine_free(e);
    rp_engine_free(plain);
}

static int count_reduced(rp_engine *e) {
    rp_store *store;
    rp_store_listing *list;
    int n = 0;
    assert_int_equal(rp_store_attach(&store, e, NULL), RP_OK);
    assert_int_equal(rp_store_list(store, NULL, NULL, &list, NULL), RP_OK);
    for (size_t i = 0; i < list->n_entries; i++) n += list->entries[i].kind == RP_STORE_REDUCED;
    rp_store_listing_free(list);
    rp_store_close(store);
    return n;
}

/* Modules of a schema at "full KV" are no longer reduced in the background. */
static void what_is_not_used_is_not_reduced(void **state) {
    (void)state;
    rp_engine *e = open_long(1, true, NULL, KEEPS);
    oracle_run r;
    for (int i = 0; i < 2 * N_TOWNS; i++) ask_long(&r, e, 0, "", RP_REUSE_ON), oracle_run_free(&r);
    expect_raised(e, "full KV");
    const int n = count_reduced(e);
    assert_true(n > 0);
    for (int i = 0; i < N_TOWNS; i++) ask_long(&r, e, i, "", RP_REUSE_ON), oracle_run_free(&r);
    assert_int_equal(count_reduced(e), n);
    rp_engine_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_symbolic_link_is_not_read, make_folder, remove_folder),
        cmocka_unit_test(a_schema_that_reuse_spoils_is_found_and_good_ones_are_not),
        cmocka_unit_test(the_pair_that_must_be_read_together_stands_out),
        cmocka_unit_test(a_schema_is_moved_up_until_it_is_near_enough),
        cmocka_unit_test(a_schema_with_focus_moves_up_to_exact),
        cmocka_unit_test(one_in_n_modular_requests_is_chosen),
        cmocka_unit_test(what_is_chosen_is_compared_or_dropped),
        cmocka_unit_test(values_are_checked),
        cmocka_unit_test_setup_teardown(reduced_modules_are_moved_up_to_full_kv_first, make_folder, remove_folder),
        cmocka_unit_test(what_is_not_used_is_not_reduced),
        cmocka_unit_test_setup_teardown(what_was_found_outlives_the_engine, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_write_that_fails_leaves_a_whole_file, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(an_encrypted_store_keeps_none, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
