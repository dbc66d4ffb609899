/* SPDX-License-Identifier: Apache-2.0 */
/* test_span_watch.c: what an engine reports of its store (rp_cluster_options.on_spans), mirrored in a table.
 *
 * Random requests over shared beginnings, modules, reduced modules, adapters and tenants, with budgets that evict in
 * RAM and on disk, removals, new versions of a schema, damaged records and restarts. After each round the table equals
 * the store and the tree, whose names are computed here from whole paths, and so do the blocks of plain text of a
 * tenant, or of none (on_blocks): tokens, parents before them. Before a request the table and rp_plan_names_of tell how
 * many tokens it will find.
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
#include <pthread.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/log.h"
#include "store/index/span_tree_internal.h"
#include "engine/core/commands.h"
#include "engine/core/engine_state.h"
#include "engine/core/identity.h"
#include "store/span_store_internal.h"
#include "support/lora_file.h"
#include "support/must.h"
#include "support/seed.h"
#include "support/store_folder.h"
#include "support/tiny_model.h"
#include "support/tiny_random.h"
#include "reprise_cluster.h"
#include "reprise_pml.h"
#include "support/experiments.h"
#include "reprise_adapter.h"

#define SEED 20261125
#define BRANCHES 3
#define PIECE 90 /* tokens after which a text may branch; not a multiple of 64 */
#define MOST_PIECES 6
#define SLOTS ((size_t)1 << 17)
#define RESTARTS 4
#define ROUNDS 12  /* between two restarts */
#define REQUESTS 4 /* in a round */

static const uint8_t secret[RP_CLUSTER_KEY_BYTES] = {9, 8, 7};
static const int32_t invocation[] = {17, 300, 45};

static char path[64] = "/tmp/reprise-watch-XXXXXX";
static rp_model *model;
static rp_adapter *plain, *activated;
static uint64_t seed;

/* ---- the mirror ---- */

typedef struct held {
    rp_name name;
    uint32_t tiers;
    uint32_t block_tiers; /* as reported with its tokens */
    bool used, seen;      /* seen: by the check */
} held;

/* Of a name that was reported as a block. */
typedef struct block_text {
    rp_name parent;
    int32_t tokens[SPAN_NAME_TOKENS];
} block_text;

typedef struct world {
    rp_engine *engine;
    pthread_mutex_t lock;
    held *table;       /* [SLOTS], open addressing; nothing is removed */
    block_text *texts; /* [SLOTS], of its slots */
    size_t n_batches, largest_batch, n_found[3], n_gone;
    size_t n_blocks; /* changes of blocks */
    const char *blocks_tenant;
    base_key plain_root;
    char dir[STORE_FOLDER_BYTES]; /* "": no disk */
    int32_t n_schemas;            /* versions of `s` so far */
    bool is_damaged;              /* records on disk */
} world;

static held *find(world *w, const rp_name *name) {
    uint64_t h;
    memcpy(&h, name->bytes, sizeof(h));
    for (size_t i = (size_t)h & (SLOTS - 1);; i = (i + 1) & (SLOTS - 1))
        if (!w->table[i].used || memcmp(&w->table[i].name, name, sizeof(*name)) == 0) return &w->table[i];
}

static uint32_t tiers_of(world *w, const rp_name *name) {
    pthread_mutex_lock(&w->lock);
    const uint32_t tiers = find(w, name)->tiers;
    pthread_mutex_unlock(&w->lock);
    return tiers;
}

static void mirror(void *user, const rp_span_change *changes, size_t n) {
    world *w = user;
    pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < n; i++) {
        held *h = find(w, &changes[i].name);
        h->name = changes[i].name;
        h->tiers = changes[i].tiers;
        h->used = true;
    }
    w->n_batches++;
    w->largest_batch = BASE_MAX(w->largest_batch, n);
    pthread_mutex_unlock(&w->lock);
}

static void mirror_blocks(void *user, const rp_block_change *changes, size_t n) {
    world *w = user;
    static const rp_name none;
    pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < n; i++) {
        const rp_block_change *c = &changes[i];
        held *h = find(w, &c->name);
        assert_true(h->used);
        if (c->tiers && memcmp(&c->parent, &none, sizeof(none)) != 0)
            assert_true(find(w, &c->parent)->block_tiers != 0);
        h->block_tiers = c->tiers;
        block_text *text = &w->texts[h - w->table];
        text->parent = c->parent;
        memcpy(text->tokens, c->tokens, sizeof(text->tokens));
    }
    w->n_blocks += n;
    pthread_mutex_unlock(&w->lock);
}

/* ---- the truth: on the engine's thread ---- */

static uint32_t tiers_in_store(const span_store *s, const base_key *key) {
    const uint32_t i = span_store_find(s, key);
    if (i == SPAN_STORE_NONE) return 0;
    const span_entry *e = span_store_entry(s, i);
    const span_place *disk = &e->places[TIER_DISK];
    return (e->span ? RP_TIER_RAM : 0) |
           (disk->is_there && disk->is_written && !disk->is_unreadable ? RP_TIER_DISK : 0);
}

static void expect(world *w, const rp_name *name, uint32_t tiers) {
    if (tiers == 0) return;
    held *h = find(w, name);
    if (h->tiers != tiers)
        fail_msg("seed %llu: a name is in tiers %u, but was reported in %u", (unsigned long long)seed, tiers, h->tiers);
    assert_false(h->seen); /* no two entries have the same name */
    h->seen = true;
    w->n_found[tiers - 1]++;
}

/* A name of text: with its block, if it is the tenant's plain text. */
static void expect_text(world *w, const rp_name *name, uint32_t tiers, bool is_plain, const rp_name *parent,
                        const int32_t *tokens) {
    const held *h = find(w, name);
    expect(w, name, tiers);
    if (h->block_tiers != (is_plain ? tiers : 0))
        fail_msg("seed %llu: a block is in tiers %u, but was reported in %u", (unsigned long long)seed,
                 is_plain ? tiers : 0, h->block_tiers);
    if (!is_plain || !tiers) return;
    assert_memory_equal(&w->texts[h - w->table].parent, parent, sizeof(*parent));
    assert_memory_equal(w->texts[h - w->table].tokens, tokens, sizeof(w->texts->tokens));
}

static void expect_module(void *user, const store_item *item) {
    world *w = user;
    const record *about = &item->row.record;
    if (about->kind == RECORD_TEXT) return;
    const rp_name name = span_name_of(w->engine->cluster_key, &about->key);
    expect(w, &name, tiers_in_store(w->engine->store, &about->key));
}

/* A path's tokens, from the root on; end: those of its last node included. */
typedef struct whole_path {
    int32_t *tokens, *positions;
} whole_path;

static void expect_below(world *w, const span_node *n, const base_key *root, int32_t depth, whole_path p) {
    for (size_t i = 0; i < n->n_children; i++) {
        const span_node *child = n->children[i];
        const int32_t from = depth + child->at, end = from + child->n_tokens;
        const uint32_t tiers = tiers_in_store(w->engine->store, &child->key);
        int32_t tokens[MOST_PIECES * PIECE * 4], positions[MOST_PIECES * PIECE * 4];
        assert_true(end < (int32_t)BASE_ARRAY_LEN(positions));
        memcpy(tokens, p.tokens, (size_t)from * sizeof(int32_t)); /* a sibling uses the arrays, too */
        memcpy(positions, p.positions, (size_t)from * sizeof(int32_t));
        for (int32_t k = 0; k < child->n_tokens; k++)
            tokens[from + k] = child->tokens[k], positions[from + k] = child->pos + k;
        span_chain chain = span_chain_begin(w->engine->cluster_key, root);
        bool is_plain = base_key_equal(root, &w->plain_root);
        rp_name parent = {{0}};
        for (int32_t m = SPAN_NAME_TOKENS; m <= end; m += SPAN_NAME_TOKENS) {
            span_chain_next(&chain, tokens + m - SPAN_NAME_TOKENS, positions + m - SPAN_NAME_TOKENS);
            for (int32_t k = m - SPAN_NAME_TOKENS; k < m; k++) is_plain &= positions[k] == k;
            if (m > from) expect_text(w, &chain.name, tiers, is_plain, &parent, tokens + m - SPAN_NAME_TOKENS);
            parent = chain.name;
        }
        if (tiers) expect_below(w, child, root, from, (whole_path){tokens, positions});
    }
}

static void check_table(rp_engine *e, void *user) {
    world *w = user;
    const span_tree *t = e->tree;
    span_reporter_flush(e->reporter);
    if (engine_salt(e, w->blocks_tenant, &w->plain_root, NULL)) abort();
    pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < SLOTS; i++) w->table[i].seen = false;
    span_store_each(e->store, expect_module, w);
    for (size_t i = 0; i < t->n_roots; i++)
        expect_below(w, t->roots[i], &t->roots[i]->key, 0, (whole_path){(int32_t[1]){0}, (int32_t[1]){0}});
    for (size_t i = 0; i < SLOTS; i++) {
        if (w->table[i].used && w->table[i].tiers == 0) w->n_gone++;
        if (w->table[i].block_tiers != 0 && !w->table[i].seen)
            fail_msg("seed %llu: a block was reported that nothing has", (unsigned long long)seed);
        if (w->table[i].tiers != 0 && !w->table[i].seen)
            fail_msg("seed %llu: a name was reported that nothing has", (unsigned long long)seed);
    }
    pthread_mutex_unlock(&w->lock);
}

/* ---- engines ---- */

/* A schema of two modules, one of which is reduced; each version has other texts. */
static void load_schema(world *w) {
    char text[4096], filler[1024] = "";
    rp_error err = {0};
    for (int i = 0; i < 20; i++)
        snprintf(filler + strlen(filler), sizeof(filler) - strlen(filler), "word %d of %d. ", i * 37 % 101,
                 w->n_schemas);
    snprintf(text, sizeof(text),
             "<schema name='s'>Version %d. <module name='a'>First: <param name='p' len='8'/> %s</module><module "
             "name='b' keep='30%%'>Second: "
             "%s%s</module><module name='c'>Third.</module></schema>",
             w->n_schemas++, filler, filler, filler);
    must(rp_schema_parse(w->engine, text, strlen(text), "s.xml", NULL, NULL, NULL, &err), &err);
}

static void open_world(world *w, tiny_random *r) {
    rp_engine_options o = rp_engine_options_defaults();
    rp_error err = {0};
    memset(w->table, 0, SLOTS * sizeof(*w->table));
    o.n_threads = 1;
    o.chunk_tokens = 128;
    o.kv_budget_bytes = (40 + tiny_random_below(r, 60)) * 16384; /* columns of 64 tokens */
    o.store_dir = w->dir[0] ? w->dir : NULL;
    o.store_budget_bytes = 5 << 20;
    o.store_write = tiny_random_below(r, 2) ? RP_STORE_WRITE_THROUGH : RP_STORE_WRITE_BACK;
    w->blocks_tenant = tiny_random_below(r, 3) ? NULL : "t";
    const rp_cluster_options cluster = {
        .struct_size = sizeof(cluster),
        .key = secret,
        .on_spans = mirror,
        .spans_user = w,
        .on_blocks = mirror_blocks,
        .blocks_user = w,
        .blocks_tenant = w->blocks_tenant,
    };
    o.cluster = &cluster;
    must(rp_engine_new(&w->engine, model, &o, &err), &err);
    load_schema(w);
}

static void check(world *w) {
    rp_error err = {0};
    must(engine_do(w->engine, check_table, w, &err), &err);
}

/* ---- requests ---- */

static int32_t *random_text(tiny_random *r, int32_t *n) {
    const int32_t pieces = 1 + (int32_t)tiny_random_below(r, MOST_PIECES);
    int32_t *tokens = calloc(MOST_PIECES * PIECE, sizeof(*tokens));
    uint64_t state = 1;
    *n = pieces * PIECE - (int32_t)tiny_random_below(r, 30);
    for (int32_t p = 0; p < pieces; p++) {
        state = state * 31 + tiny_random_below(r, BRANCHES);
        for (int32_t i = 0; i < PIECE; i++)
            tokens[p * PIECE + i] = 20 + (int32_t)((state * 7919 + (uint64_t)i * 104729) % 400);
    }
    if (tiny_random_below(r, 4) == 0 && *n > PIECE + 3) memcpy(tokens + PIECE, invocation, sizeof(invocation));
    return tokens;
}

/* Tokens of the modules that are held as a whole, and of the held beginning of the text. */
static int32_t count_held(world *w, const rp_plan_names *n) {
    int32_t sum = 0, of_group = 0;
    bool is_held = true;
    for (int32_t i = 0; i < n->n_items; i++) {
        const rp_named_kv *kv = &n->items[i];
        assert_int_equal(kv->group > 0, kv->is_module);
        is_held &= tiers_of(w, &kv->name) != 0;
        of_group += kv->n_tokens;
        if (i + 1 < n->n_items && kv->is_module && n->items[i + 1].group == kv->group) continue;
        sum += is_held ? of_group : 0;
        of_group = 0;
        if (kv->is_module) is_held = true;
    }
    return sum;
}

/* Is what is found what was promised? The names of the last 64 tokens at most are missing, or of one switch of an
   adapter. */
static void check_found(world *w, const rp_request *q) {
    rp_plan_names *n = NULL;
    rp_result *result = NULL;
    rp_error err = {0};
    bool is_reduced = false;
    must(rp_plan_names_of(w->engine, q, &n, &err), &err);
    check(w); /* everything that happened is reported */
    const int32_t held_tokens = count_held(w, n);
    if (rp_engine_run(w->engine, q, &result, &err)) fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
    bool may_lack = w->is_damaged; /* damage is found when a record is read */
    for (int32_t i = 0; i < result->n_plan; i++) {
        may_lack |= strcmp(result->plan[i].reason, "memory") == 0;
        is_reduced |= result->plan[i].kept < 1;
    }
    const int32_t found = result->cached_tokens,
                  least = q->prompt.kind == RP_PROMPT_PML ? held_tokens : found / RP_NAME_TOKENS * RP_NAME_TOKENS;
    const bool is_exact = !may_lack && !is_reduced && q->adapter != activated;
    if (is_exact && (held_tokens < least || held_tokens > found || found - held_tokens >= RP_NAME_TOKENS))
        fail_msg("seed %llu: names promise %d tokens, but %d were found", (unsigned long long)seed, held_tokens, found);
    rp_result_free(result);
    rp_plan_names_free(n);
}

static void random_request(world *w, tiny_random *r) {
    static const char long_prompt[] =
        "<prompt schema='s'><a/><c/> Tell me more, and then a little more, and at the end all of it, in words I "
        "can say by heart tomorrow morning.</prompt>";
    static const char *const prompts[] = {"<prompt schema='s'><a p='x'/> What is first?</prompt>",
                                          "<prompt schema='s'><b/><c/> Which of them?</prompt>",
                                          long_prompt};
    static const char *const tenants[] = {NULL, NULL, "t"};
    rp_request q = rp_request_defaults();
    int32_t n, *tokens = random_text(r, &n);
    q.max_tokens = 1 + (int32_t)tiny_random_below(r, 40);
    q.ignore_eos = true;
    q.tenant = tenants[tiny_random_below(r, BASE_ARRAY_LEN(tenants))];
    if (tiny_random_below(r, 3) == 0) q.prompt = rp_prompt_pml(prompts[tiny_random_below(r, BASE_ARRAY_LEN(prompts))]);
    else q.prompt = rp_prompt_tokens(tokens, (size_t)n);
    if (q.prompt.kind == RP_PROMPT_TOKENS && tiny_random_below(r, 4) == 0)
        q.adapter = tiny_random_below(r, 2) ? plain : activated;
    if (tiny_random_below(r, 8) == 0) q.experiment = &experiment_no_prefix;
    check_found(w, &q);
    free(tokens);
}

/* Removes an entry, as an operator may. */
static void remove_one(rp_engine *e, void *user) {
    tiny_random *r = user;
    const span_index *x = &e->store->places.index;
    if (x->n_entries == 0) return;
    const uint32_t i = (uint32_t)tiny_random_below(r, x->n_entries);
    if (!x->entries[i].used) return;
    const base_key key = x->entries[i].key;
    span_store_remove(e->store, &key);
}

static void run_rounds(world *w, tiny_random *r) {
    rp_error err = {0};
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < REQUESTS; i++) random_request(w, r);
        if (tiny_random_below(r, 3) == 0) must(engine_do(w->engine, remove_one, r, &err), &err);
        if (tiny_random_below(r, 4) == 0) load_schema(w);
        if (tiny_random_below(r, 3) == 0) rp_engine_drain(w->engine, -1); /* reduced KV */
        check(w);
    }
}

static void run_world(world *w, bool disk) {
    tiny_random r = {seed + disk};
    w->table = calloc(SLOTS, sizeof(*w->table));
    w->texts = calloc(SLOTS, sizeof(*w->texts));
    pthread_mutex_init(&w->lock, NULL);
    if (disk) store_folder_make(w->dir);
    for (int i = 0; i < (disk ? RESTARTS : 1); i++) {
        open_world(w, &r);
        check(w); /* what is on disk was reported before rp_engine_new returned */
        run_rounds(w, &r);
        rp_engine_free(w->engine);
        w->is_damaged = disk && i == RESTARTS - 2;
        if (w->is_damaged) store_folder_flip(w->dir, ".rps");
    }
    if (disk) store_folder_remove(w->dir);
    free(w->table);
    free(w->texts);
    pthread_mutex_destroy(&w->lock);
    assert_true(w->largest_batch <= SPAN_REPORT_CHANGES && w->n_blocks > 0);
}

static void test_without_disk(void **state) {
    world w = {.dir = ""};
    (void)state;
    run_world(&w, false);
    assert_true(w.n_found[0] > 0 && w.n_found[1] + w.n_found[2] == 0 && w.n_gone > 0);
}

static void test_with_disk(void **state) {
    world w = {.dir = ""};
    (void)state;
    run_world(&w, true);
    for (int i = 0; i < 3; i++) assert_true(w.n_found[i] > 0);
    assert_true(w.n_gone > 0);
}

/* ---- */

static rp_adapter *open_adapter(const lora_shape *s) {
    rp_adapter *a = NULL;
    rp_error err = {0};
    char file[64];
    lora_file_write(path, s, file);
    must(rp_adapter_open(&a, model, file, &err), &err);
    unlink(file);
    return a;
}

static int setup(void **state) {
    rp_error err = {0};
    tiny_model_shape shape = tiny_model_defaults();
    lora_shape lora = lora_defaults(3);
    (void)state;
    int fd = mkstemp(path);
    if (fd < 0) abort();
    close(fd);
    shape.n_ctx = 2048;
    must(tiny_model_write(path, &shape, &err), &err);
    must(rp_model_open(&model, path, NULL, &err), &err);
    plain = open_adapter(&lora);
    lora.invocation = invocation;
    lora.n_invocation = 3;
    activated = open_adapter(&lora);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    rp_adapter_close(plain);
    rp_adapter_close(activated);
    rp_model_close(model);
    unlink(path);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_disk),
        cmocka_unit_test(test_with_disk),
    };
    seed = test_seed("span_watch", SEED);
    return cmocka_run_group_tests_name("span_watch", tests, setup, teardown);
}
