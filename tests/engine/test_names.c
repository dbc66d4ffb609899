/* SPDX-License-Identifier: Apache-2.0 */
/* test_names.c: names of a request's KV (reprise_cluster.h): an engine that plans only, over a model that was opened
 * for its vocabulary, gives the names, tokens, positions and bytes of an engine that computes, for chats, PML,
 * documents, built prompts, tokens, tenants, quality levels and adapters. Names depend on the key, the tenant and every
 * token before them. What such an engine refuses; an engine's load.
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/file.h"
#include "support/gguf_variant.h"
#include "support/lora_file.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/store_folder.h"
#include "support/tiny_model.h"
#include "reprise_cluster.h"
#include "reprise_tools.h"
#include "reprise_pml.h"
#include "reprise_store.h"
#include "reprise_test.h"
#include "reprise_adapter.h"

#define N_LONG 700 /* tokens */
#define N_CASES 14

static const uint8_t secret[RP_CLUSTER_KEY_BYTES] = {1, 2, 3, 4, 5},
                     other_secret[RP_CLUSTER_KEY_BYTES] = {1, 2, 3, 4, 6};

static const char schema_text[] =
    "<schema name='s'>You are a guide.\n<module name='plan'>Plan a trip of <param name='days' len='24'/> to "
    "<union><module name='miami'>Miami, "
    "with beaches and long evenings.</module><module name='lisbon'>Lisbon.</module></union></module><module "
    "name='diet' cache='false'>No meat"
    "!</module><module name='talk'><user>Is it open?</user><assistant>Yes.</assistant></module></schema>";
static const char prompt_text[] =
    "<prompt schema='s'><plan days='three'><miami/></plan><talk/><user>Where do I surf? Name a beach for each "
    "day.</user></prompt>";

static char path[64] = "/tmp/reprise-names-XXXXXX", adapter_path[64], activated_path[64];
static rp_model *whole, *vocabulary;
static rp_engine *node, *router;
static int32_t long_tokens[N_LONG];
static const int32_t invocation[] = {17, 300, 45};

static rp_engine *open_engine(rp_model *m, rp_engine_options o) {
    rp_error err = {0};
    rp_engine *e = NULL;
    o.n_threads = 1;
    o.n_ctx = 4096;
    must(rp_engine_new(&e, m, &o, &err), &err);
    must(rp_schema_parse(e, schema_text, strlen(schema_text), "s.xml", NULL, NULL, NULL, &err), &err);
    return e;
}

static rp_engine_options plain_options(void) {
    rp_engine_options o = rp_engine_options_defaults();
    static const rp_cluster_options cluster = {.struct_size = sizeof(cluster), .key = secret};
    o.cluster = &cluster;
    return o;
}

static rp_cluster_options router_cluster(const char *identity) {
    return (rp_cluster_options){
        .struct_size = sizeof(rp_cluster_options), .key = secret, .plans_only = true, .identity = identity};
}

static rp_engine *open_planner(rp_model *m, const rp_cluster_options *cluster) {
    rp_engine_options o = rp_engine_options_defaults();
    o.cluster = cluster;
    return open_engine(m, o);
}

static rp_engine *open_router(rp_model *m, const char *identity) {
    const rp_cluster_options cluster = router_cluster(identity);
    return open_planner(m, &cluster);
}

static rp_model *open_as(const char *file, bool vocabulary_only) {
    rp_model_options o = rp_model_options_defaults();
    rp_model *m = NULL;
    rp_error err = {0};
    o.vocabulary_only = vocabulary_only;
    must(rp_model_open(&m, file, &o, &err), &err);
    return m;
}

static int setup(void **state) {
    rp_error err = {0};
    tiny_model_shape shape = tiny_model_defaults();
    lora_shape lora = lora_defaults(3);
    (void)state;
    int fd = mkstemp(path);
    if (fd < 0) abort();
    close(fd);
    shape.n_ctx = 4096;
    must(tiny_model_write(path, &shape, &err), &err);
    whole = open_as(path, false);
    vocabulary = open_as(path, true);
    lora_file_write(path, &lora, adapter_path);
    lora.invocation = invocation;
    lora.n_invocation = 3;
    lora_file_write(path, &lora, activated_path);
    for (int32_t i = 0; i < N_LONG; i++) long_tokens[i] = 20 + i * 7919 % 400;
    memcpy(long_tokens + 300, invocation, sizeof invocation);
    node = open_engine(whole, plain_options());
    router = open_router(vocabulary, rp_engine_identity(node));
    return 0;
}

static int teardown(void **state) {
    (void)state;
    rp_engine_free(node);
    rp_engine_free(router);
    rp_model_close(whole);
    rp_model_close(vocabulary);
    unlink(path);
    unlink(adapter_path);
    unlink(activated_path);
    return 0;
}

/* ---- requests ---- */

/* Two requests that differ in nothing but what belongs to a model: adapters. */
typedef struct pair {
    rp_request q[2];
    rp_adapter *adapters[2];
    rp_builder *built;
} pair;

static const rp_message chat[] = {
    {RP_ROLE_SYSTEM, "You answer shortly, and never in verse, whatever is asked of you.", 65},
    {RP_ROLE_USER,
     "Which of the two rivers is longer, and by how much? Give the sources that you used for each of the figures.",
     107},
};

static rp_adapter *open_adapter(rp_model *m, const char *file) {
    rp_adapter *a = NULL;
    rp_error err = {0};
    must(rp_adapter_open(&a, m, file, &err), &err);
    return a;
}

static rp_builder *build_documents(void) {
    static const char text[] = "The first river is four thousand kilometres long; the second is not half as long, says "
                               "the survey of last year. ";
    rp_error err = {0};
    rp_builder *p = NULL;
    must(rp_builder_new(&p, NULL, &err), &err);
    for (int i = 0; i < 3; i++) {
        char document[1024] = "";
        for (int k = 0; k < 5; k++)
            snprintf(document + strlen(document), sizeof(document) - strlen(document), "%d. %s", i * 10 + k, text);
        must(rp_builder_append_document(p, document, strlen(document)), &err);
    }
    must(rp_builder_append_text(p, "Compare the rivers.", 19), &err);
    return p;
}

static void give_tokens(pair *p, const int32_t *tokens, int32_t n) {
    for (int i = 0; i < 2; i++) p->q[i].prompt = rp_prompt_tokens(tokens, (size_t)n);
}

static void give_adapters(pair *p, const char *file) {
    rp_model *models[] = {whole, vocabulary};
    for (int i = 0; i < 2; i++) p->q[i].adapter = p->adapters[i] = open_adapter(models[i], file);
    give_tokens(p, long_tokens, N_LONG);
}

static pair make_pair(int number) {
    pair p = {.q = {rp_request_defaults(), rp_request_defaults()}};
    switch (number) {
    case 0: give_tokens(&p, long_tokens, N_LONG); break;
    case 1: give_tokens(&p, long_tokens, 1); break;
    case 2: give_adapters(&p, adapter_path); break;
    case 3: give_adapters(&p, activated_path); break;
    case 4: p.built = build_documents(); break;
    default: break;
    }
    for (int i = 0; i < 2; i++) {
        rp_request *q = &p.q[i];
        q->max_tokens = 3;
        q->ignore_eos = true;
        if (number == 4) q->prompt = rp_prompt_built(p.built);
        if (number == 5 || number == 6) q->prompt = rp_prompt_messages(chat, 2);
        if (number == 6) q->tenant = "a tenant";
        if (number >= 7) q->prompt = rp_prompt_pml(prompt_text);
        if (number == 8) q->quality = (rp_quality){RP_QUALITY_LINK, 2};
        if (number == 9) q->quality = (rp_quality){RP_QUALITY_BLEND, 20};
        if (number == 10) q->quality = (rp_quality){RP_QUALITY_EXACT, 0};
        if (number == 11) q->reuse = RP_REUSE_EXACT;
        if (number == 12) q->reuse = RP_REUSE_OFF;
        if (number == 13) q->prompt.schema = schema_text, q->kv_format = "int8";
    }
    return p;
}

static void free_pair(pair *p) {
    rp_builder_free(p->built);
    for (int i = 0; i < 2; i++)
        if (p->adapters[i]) rp_adapter_close(p->adapters[i]);
}

static rp_plan_names *names_of(rp_engine *e, const rp_request *q) {
    rp_plan_names *names = NULL;
    rp_error err = {0};
    must(rp_plan_names_of(e, q, &names, &err), &err);
    return names;
}

static bool same_names(const rp_plan_names *a, const rp_plan_names *b) {
    return a->n_items == b->n_items && a->prompt_tokens == b->prompt_tokens && a->max_tokens == b->max_tokens &&
           (a->n_items == 0 || memcmp(a->items, b->items, (size_t)a->n_items * sizeof(*a->items)) == 0);
}

static int32_t sum_of(const rp_plan_names *n, bool modules) {
    int32_t sum = 0;
    for (int32_t i = 0; i < n->n_items; i++)
        if (n->items[i].is_module == modules) sum += n->items[i].n_tokens;
    return sum;
}

/* ---- names ---- */

static void test_router_names_as_the_node(void **state) {
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        pair p = make_pair(i);
        rp_plan_names *a = names_of(node, &p.q[0]), *b = names_of(router, &p.q[1]);
        if (!same_names(a, b)) fail_msg("request %d: %d names, and %d by the router", i, a->n_items, b->n_items);
        assert_int_equal(a->n_items > 0, i != 1 && i != 12);
        rp_plan_names_free(a);
        rp_plan_names_free(b);
        free_pair(&p);
    }
}

/* What the second run of a request finds is what its names promise, in multiples of the text's. */
static void test_names_count_what_is_found(void **state) {
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        pair p = make_pair(i);
        rp_result *r[2];
        rp_error err = {0};
        for (int k = 0; k < 2; k++) must(rp_engine_run(node, &p.q[0], &r[k], &err), &err);
        rp_plan_names *n = names_of(node, &p.q[0]);
        const int32_t modules = sum_of(n, true), text = sum_of(n, false), cached = r[1]->cached_tokens;
        assert_int_equal(n->prompt_tokens, r[1]->prompt_tokens);
        if (i == 9) { /* blend chooses the tokens to compute again when it has probed all of them */
            assert_true(modules > 0 && text == 0 && cached <= modules && cached >= modules * 3 / 4 - 1);
        } else if (modules + text > cached || cached - modules - text >= 2 * RP_NAME_TOKENS)
            fail_msg("request %d: %d tokens of modules and %d of text have names, but %d were found", i, modules, text,
                     cached);
        for (int k = 0; k < 2; k++) rp_result_free(r[k]);
        rp_plan_names_free(n);
        free_pair(&p);
    }
}

static void test_text_names(void **state) {
    (void)state;
    rp_request q = rp_request_defaults();
    int32_t changed[N_LONG];
    q.prompt = rp_prompt_tokens(long_tokens, N_LONG);
    rp_plan_names *n = names_of(node, &q);
    assert_int_equal(n->n_items, (N_LONG - 1) / RP_NAME_TOKENS);
    for (int32_t i = 0; i < n->n_items; i++) {
        assert_false(n->items[i].is_module);
        assert_int_equal(n->items[i].n_tokens, RP_NAME_TOKENS);
        assert_int_equal(n->items[i].position, i * RP_NAME_TOKENS);
        assert_true(n->items[i].bytes > 0);
        for (int32_t k = 0; k < i; k++) assert_memory_not_equal(&n->items[i].name, &n->items[k].name, RP_NAME_BYTES);
    }
    for (int32_t at = 0; at < N_LONG - 1; at += 37) { /* names before a change stay, all others change */
        memcpy(changed, long_tokens, sizeof(changed));
        changed[at] ^= 1;
        q.prompt = rp_prompt_tokens(changed, N_LONG);
        rp_plan_names *other = names_of(router, &q);
        for (int32_t i = 0; i < n->n_items; i++)
            assert_int_equal(memcmp(&n->items[i].name, &other->items[i].name, RP_NAME_BYTES) == 0,
                             (i + 1) * RP_NAME_TOKENS <= at);
        rp_plan_names_free(other);
    }
    q.prompt = rp_prompt_tokens(long_tokens, N_LONG);
    q.experiment = &(rp_request_experiment){.struct_size = sizeof(rp_request_experiment),
                                            .first_position = 1}; /* other positions are other KV */
    rp_plan_names *moved = names_of(router, &q);
    for (int32_t i = 0; i < n->n_items; i++)
        assert_memory_not_equal(&n->items[i].name, &moved->items[i].name, RP_NAME_BYTES);
    rp_plan_names_free(moved);
    rp_plan_names_free(n);
}

/* Requests whose names must not be equal, each to request 7. */
static void test_names_are_secret(void **state) {
    rp_cluster_options o = router_cluster(rp_engine_identity(node));
    rp_error err = {0};
    char identity[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    (void)state;
    o.key = other_secret;
    rp_engine *others[2] = {open_planner(vocabulary, &o), open_router(vocabulary, identity)};
    assert_string_equal(rp_engine_identity(others[1]), identity);
    assert_string_equal(rp_engine_identity(router), rp_engine_identity(node));
    pair p = make_pair(7);
    rp_plan_names *n = names_of(node, &p.q[0]);
    for (int k = 0; k < 2; k++) {
        rp_plan_names *other = names_of(others[k], &p.q[1]);
        assert_int_equal(n->n_items, other->n_items);
        for (int32_t i = 0; i < n->n_items; i++)
            assert_memory_not_equal(&n->items[i].name, &other->items[i].name, RP_NAME_BYTES);
        rp_plan_names_free(other);
        rp_engine_free(others[k]);
    }
    p.q[1].tenant = "b"; /* modules of a shared schema are shared; text is the tenant's */
    rp_plan_names *other = names_of(router, &p.q[1]);
    for (int32_t i = 0; i < n->n_items; i++)
        assert_int_equal(memcmp(&n->items[i].name, &other->items[i].name, RP_NAME_BYTES) == 0, n->items[i].is_module);
    rp_plan_names_free(other);
    rp_plan_names_free(n);
    free_pair(&p);
    rp_engine *nameless = open_engine(whole, rp_engine_options_defaults());
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_text("a");
    assert_int_equal(rp_plan_names_of(nameless, &q, &n, &err), RP_ERR_UNSUPPORTED);
    rp_engine_free(nameless);
}

/* Errors are those of a submitted request. */
static void test_errors(void **state) {
    (void)state;
    rp_request q = rp_request_defaults();
    rp_plan_names *n = NULL;
    rp_error err = {0};
    assert_int_equal(rp_plan_names_of(router, &q, &n, &err), RP_ERR_INVALID);
    q.prompt = rp_prompt_pml("<prompt schema='nobody'>a</prompt>");
    assert_int_equal(rp_plan_names_of(router, &q, &n, &err), RP_ERR_NAME);
    q = rp_request_defaults();
    q.prompt = rp_prompt_tokens(long_tokens, N_LONG);
    q.experiment = &(rp_request_experiment){.struct_size = sizeof(rp_request_experiment), .first_position = 4000};
    assert_int_equal(rp_plan_names_of(router, &q, &n, &err), RP_ERR_CONTEXT);
    assert_null(n);
    rp_plan_names_free(NULL);
}

/* ---- engines that plan only ---- */

static void test_plans_only_computes_nothing(void **state) {
    rp_request q = rp_request_defaults();
    rp_job *job = NULL;
    rp_result *result = NULL;
    rp_inspection *inspection = NULL;
    rp_error err = {0};
    (void)state;
    q.prompt = rp_prompt_text("a");
    assert_int_equal(rp_engine_submit(router, &q, &job, &err), RP_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "plans_only"));
    assert_int_equal(rp_engine_run(router, &q, &result, &err), RP_ERR_UNSUPPORTED);
    assert_int_equal(rp_schema_prefill(router, NULL, "s", NULL, NULL, &err), RP_ERR_UNSUPPORTED);
    assert_int_equal(rp_schema_submit(router, NULL, "s", NULL, NULL, &job, &err), RP_ERR_UNSUPPORTED);
    assert_int_equal(rp_engine_prepare(router, NULL, NULL, &err), RP_ERR_UNSUPPORTED);
    assert_int_equal(rp_engine_set_quota(router, "a", &(rp_quota){.kv_bytes = 1}, &err), RP_ERR_UNSUPPORTED);
    assert_true(rp_engine_drain(router, -1));
    must(rp_engine_inspect(router, NULL, "s", prompt_text, "p", &inspection, &err), &err);
    rp_inspection *of_node = NULL;
    must(rp_engine_inspect(node, NULL, "s", prompt_text, "p", &of_node, &err), &err);
    assert_int_equal(inspection->prompt_positions, of_node->prompt_positions);
    assert_int_equal(inspection->schema_positions, of_node->schema_positions);
    rp_inspection_free(inspection);
    rp_inspection_free(of_node);
    rp_engine_info info = {.struct_size = sizeof(info)}, of = {.struct_size = sizeof(of)};
    assert_int_equal(rp_engine_describe(router, &info), RP_OK);
    assert_int_equal(rp_engine_describe(node, &of), RP_OK);
    assert_int_equal(info.kv_bytes_per_token, of.kv_bytes_per_token);
    rp_memory memory = {.struct_size = sizeof(memory)};
    assert_int_equal(rp_engine_memory(router, &memory), RP_OK);
    assert_int_equal(memory.kv, 0);
    rp_store_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(rp_engine_store_stats(router, &stats), RP_OK);
}

static void test_options(void **state) {
    static const struct {
        bool on_spans, on_blocks, key, plans, store;
        const char *identity;
    } bad[] = {
        {.on_spans = true},
        {.on_spans = true, .key = true, .plans = true},
        {.on_blocks = true},
        {.on_blocks = true, .key = true, .plans = true},
        {.plans = true, .store = true},
        {.identity = "00"},
        {.plans = true, .identity = "00"},
        {.plans = true, .identity = "x123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
        {.plans = true, .identity = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0"},
    };
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(bad); i++) {
        rp_engine_options o = rp_engine_options_defaults();
        rp_engine *e = NULL;
        rp_error err = {0};
        const rp_cluster_options cluster = {
            .struct_size = sizeof(cluster),
            .key = bad[i].key ? secret : NULL,
            .on_spans = bad[i].on_spans ? (rp_on_spans)(uintptr_t)1 : NULL,
            .on_blocks = bad[i].on_blocks ? (rp_on_blocks)(uintptr_t)1 : NULL,
            .plans_only = bad[i].plans,
            .identity = bad[i].identity,
        };
        o.cluster = &cluster;
        o.store_dir = bad[i].store ? "/nowhere" : NULL;
        if (rp_engine_new(&e, whole, &o, &err) != RP_ERR_INVALID)
            fail_msg("options %zu: %d %s", i, err.code, err.message);
    }
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *e = NULL;
    rp_error err = {0};
    assert_int_equal(rp_engine_new(&e, vocabulary, &o, &err),
                     RP_ERR_UNSUPPORTED); /* it has no weights to compute with */
}

/* Without identity an engine that plans has its own: of the same file, on the same machine. */
static void test_own_identity(void **state) {
    (void)state;
    rp_engine *own = open_router(vocabulary, NULL), *full = open_router(whole, NULL);
    assert_string_equal(rp_engine_identity(own), rp_engine_identity(node));
    assert_string_equal(rp_engine_identity(full), rp_engine_identity(node));
    rp_engine_free(own);
    rp_engine_free(full);
}

/* A file without the shape of a model is refused with a message; its vocabulary can still be opened. */
static void test_file_without_shape(void **state) {
    static const gguf_variant no_heads = {.without_key = "llama.attention.head_count"};
    char file[64];
    const rp_cluster_options cluster = router_cluster(NULL);
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *e = NULL;
    rp_error err = {0};
    (void)state;
    gguf_variant_write(path, &no_heads, file);
    o.cluster = &cluster;
    rp_model *m = open_as(file, true);
    assert_int_equal(rp_engine_new(&e, m, &o, &err), RP_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "shape"));
    rp_model_close(m);
    unlink(file);
}

/* ---- load ---- */

static void test_load(void **state) {
    (void)state;
    rp_engine *e = open_engine(whole, plain_options());
    rp_engine_load load = {.struct_size = sizeof(load)}, none = {.struct_size = 0};
    rp_request q = rp_request_defaults();
    rp_result *r = NULL;
    rp_error err = {0};
    assert_int_equal(rp_engine_get_load(e, &none), RP_ERR_INVALID);
    assert_int_equal(rp_engine_get_load(e, &load), RP_OK);
    assert_true(load.knot_us[0] == 0 && load.gap_p95_us == 0 && load.queued_tokens == 0 && load.drain_us == 0);
    q.prompt = rp_prompt_tokens(long_tokens, N_LONG);
    q.max_tokens = 20;
    q.ignore_eos = true;
    must(rp_engine_run(e, &q, &r, &err), &err);
    rp_result_free(r);
    while (!rp_engine_drain(e, -1)) {}
    assert_int_equal(rp_engine_get_load(e, &load), RP_OK);
    assert_int_equal(load.running + load.waiting + load.decoding, 0);
    assert_int_equal(load.queued_tokens, 0);
    assert_int_equal(load.context_tokens, 0);
    assert_true(load.free_bytes > 0 && load.kv_bytes_per_token > 0 && load.max_running > 0 && load.chunk_tokens > 0);
    for (int k = 1; k < RP_COST_KNOTS; k++) assert_true(load.knot_us[k] >= load.knot_us[k - 1]);
    assert_true(load.knot_us[RP_COST_KNOTS - 1] > 0);
    assert_true(load.gap_p95_us > 0 && load.row_slot_us >= 0 && load.slot_us >= 0);
    rp_engine_free(e);
}

/* While a request decodes, others wait: all of their tokens are counted. */
static void test_load_of_a_queue(void **state) {
    (void)state;
    rp_engine_options o = plain_options();
    o.max_sequences = 1;
    rp_engine *e = open_engine(whole, o);
    rp_engine_load load = {.struct_size = sizeof(load)};
    rp_request q = rp_request_defaults();
    rp_job *jobs[3];
    int32_t other[2][N_LONG];
    rp_error err = {0};
    q.max_tokens = 3000; /* it runs until it is cancelled */
    q.ignore_eos = true;
    q.prompt = rp_prompt_tokens(long_tokens, N_LONG);
    must(rp_engine_submit(e, &q, &jobs[0], &err), &err);
    for (int i = 0; i < 2; i++) {
        for (int32_t k = 0; k < N_LONG; k++) other[i][k] = long_tokens[k] ^ (i + 1);
        q.prompt = rp_prompt_tokens(other[i], N_LONG);
        must(rp_engine_submit(e, &q, &jobs[1 + i], &err), &err);
    }
    do assert_int_equal(rp_engine_get_load(e, &load), RP_OK);
    while (load.decoding == 0 || load.queued_tokens < 2 * N_LONG ||
           load.drain_us == 0); /* which needs 16 measured steps */
    assert_int_equal(load.running, 1);
    assert_int_equal(load.waiting, 2);
    assert_int_equal(load.queued_tokens, 2 * N_LONG);
    assert_true(load.context_tokens >= N_LONG);
    for (int i = 2; i >= 0; i--) {
        rp_job_cancel(jobs[i]);
        rp_job_wait(jobs[i], -1);
        rp_job_free(jobs[i]);
    }
    do assert_int_equal(rp_engine_get_load(e, &load), RP_OK);
    while (load.queued_tokens > 0 || load.decoding > 0 || load.running + load.waiting > 0);
    rp_engine_free(e);
}

/* The prompts of two requests, computed or read from disk. Returns the tokens found. */
static int32_t run_two(rp_engine *e) {
    rp_request q = rp_request_defaults();
    rp_error err = {0};
    int32_t tokens[N_LONG], found = 0;
    q.prompt = rp_prompt_tokens(tokens, N_LONG);
    q.max_tokens = 1;
    for (int i = 0; i < 2; i++) {
        rp_result *r = NULL;
        for (int32_t k = 0; k < N_LONG; k++) tokens[k] = long_tokens[k] ^ i;
        must(rp_engine_run(e, &q, &r, &err), &err);
        found += r->cached_tokens;
        rp_result_free(r);
    }
    while (!rp_engine_drain(e, -1)) {}
    return found;
}

static void test_load_of_a_disk(void **state) {
    char dir[STORE_FOLDER_BYTES];
    rp_engine_options o = plain_options();
    rp_engine_load load = {.struct_size = sizeof(load)};
    (void)state;
    store_folder_make(dir);
    o.store_dir = dir;
    rp_engine *e = open_engine(whole, o);
    assert_int_equal(run_two(e), 0);
    assert_int_equal(rp_engine_get_load(e, &load), RP_OK);
    assert_true(load.read_byte_us == 0);
    rp_engine_free(e);
    e = open_engine(whole, o);
    const uint64_t start = base_clock_us();
    const int32_t found = run_two(e);
    const double us = (double)(base_clock_us() - start);
    assert_true(found > N_LONG);
    assert_int_equal(rp_engine_get_load(e, &load), RP_OK);
    assert_true(load.read_byte_us > 0);
    assert_true(load.read_byte_us * (double)load.kv_bytes_per_token * (double)found <= us);
    rp_engine_free(e);
    store_folder_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router_names_as_the_node),
        cmocka_unit_test(test_names_count_what_is_found),
        cmocka_unit_test(test_text_names),
        cmocka_unit_test(test_names_are_secret),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_plans_only_computes_nothing),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_own_identity),
        cmocka_unit_test(test_file_without_shape),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_load_of_a_queue),
        cmocka_unit_test(test_load_of_a_disk),
    };
    return cmocka_run_group_tests_name("names", tests, setup, teardown);
}
