/* SPDX-License-Identifier: Apache-2.0 */
/* cache_verify.c: `reprise cache verify`: reads and checks every byte of a store. Owns its options, output and JSON.
 * One thread. */
#include <stdlib.h>
#include <string.h>

#include "cache/cache_store.h"
#include "common/command.h"
#include "common/json_out.h"
#include "common/loader.h"
#include "common/text.h"
#include "reprise_store.h"
#include "reprise_tools.h"
#include "reprise_pml.h"

typedef struct verify_options {
    cache_store_args store;
    const char *model, *chat_format, *tenant, *kv_f16_layers, *keep, *keep_method;
    cli_list schemas;
    int32_t sample, seed, ctx, threads, states;
    bool json;
} verify_options;

static const cli_option table[] = {
    CACHE_STORE_ROWS(verify_options, store),
    {.name = "model",
     .letter = 'm',
     .kind = CLI_TEXT,
     .value = "FILE",
     .offset = offsetof(verify_options, model),
     .help = "recompute a sample of the records with this model (GGUF) and compare every byte of their KV"},
    {.name = "sample",
     .kind = CLI_INT,
     .value = "N",
     .offset = offsetof(verify_options, sample),
     .min = 0,
     .max = INT32_MAX,
     .help = "with --model: number of records to recompute; 0: all (32)"},
    {.name = "seed",
     .kind = CLI_INT,
     .value = "N",
     .offset = offsetof(verify_options, seed),
     .min = 0,
     .max = INT32_MAX,
     .help = "with --model: random seed of the sample (0)"},
    {.name = "schema",
     .kind = CLI_LIST,
     .value = "FILE",
     .offset = offsetof(verify_options, schemas),
     .help = "with --model: recompute the modules of this schema, too; may be repeated"},
    {.name = "tenant",
     .kind = CLI_TEXT,
     .value = "NAME",
     .offset = offsetof(verify_options, tenant),
     .help = "with --model: tenant of the records to recompute (the shared ones)"},
    {.name = "ctx",
     .kind = CLI_INT,
     .value = "N",
     .offset = offsetof(verify_options, ctx),
     .min = 0,
     .max = INT32_MAX,
     .help = "with --model: context size in tokens; 0: the model's training context (0)"},
    {.name = "threads",
     .kind = CLI_INT,
     .value = "N",
     .offset = offsetof(verify_options, threads),
     .min = 0,
     .max = 1024,
     .help = "with --model: number of threads; 0: one per processor (0)"},
    {.name = "kv-format",
     .kind = CLI_CHOICE,
     .value = CLI_KV_FORMATS,
     .offset = offsetof(verify_options, states),
     .choices = cli_kv_formats,
     .help = "with --model: KV cache format of the recomputation (f16)"},
    {.name = "kv-f16-layers",
     .kind = CLI_TEXT,
     .value = "LIST",
     .offset = offsetof(verify_options, kv_f16_layers),
     .help = "with --model: " CLI_KV_F16_HELP},
    {.name = "keep",
     .kind = CLI_TEXT,
     .value = "SHARE|auto",
     .offset = offsetof(verify_options, keep),
     .help = "with --model: " CLI_KEEP_HELP},
    {.name = "keep-method",
     .kind = CLI_TEXT,
     .value = "METHOD",
     .offset = offsetof(verify_options, keep_method),
     .help = "with --model: " CLI_KEEP_METHOD_HELP},
    {.name = "chat-format",
     .kind = CLI_TEXT,
     .value = "NAME",
     .offset = offsetof(verify_options, chat_format),
     .help = "with --model: chat template name (from the model's metadata)"},
    {.name = "json", .kind = CLI_FLAG, .offset = offsetof(verify_options, json), .help = "print JSON"},
    {.name = NULL},
};

#define CLI_LEFTOVERS 3 /* leftovers of a crash, without damage */

static int verify_main(int argc, char **argv);

const cli_command cli_cache_verify = {
    .name = "cache verify",
    .summary = "check every byte of every record and the index; with a model, recompute records",
    .synopsis = "--store DIR [-m MODEL [--sample N] [--schema FILE]...] [--json]",
    .notes =
        "Checksums prove that a record is as written; --model proves that the model computes the same KV. Text is "
        "recomputed from its\n"
        "first token, modules from the --schema that has them. Text after modules cannot be recomputed, because a "
        "store does not hold\n"
        "which modules preceded it; the number of such records is printed.\n"
        "Changes nothing. Works while an engine has the store open, but then does not compare files with the index.\n"
        "exit status: 0 no errors, 1 damaged records, 2 usage error, 3 nothing is damaged, but a process that was\n"
        "killed left something: 'reprise cache gc' puts it right\n",
    .options = table,
    .main = verify_main,
};

typedef struct verify_state {
    cache_progress progress; /* first member: cache_on_progress casts to it */
    json_t *findings;        /* NULL: text output */
    uint64_t n, n_damaged;
} verify_state;

static void on_finding(void *user, const rp_store_finding *f) {
    verify_state *s = user;
    cli_progress_clear(&s->progress.bar);
    s->n++;
    s->n_damaged += rp_store_flaw_is_damage(f->flaw);
    if (s->findings != NULL) {
        json_t *o = json_object();
        cli_json_set(o, "flaw", cli_json_text(rp_store_flaw_name(f->flaw)));
        cli_json_set(o, "reason", cli_json_text(f->reason));
        cli_json_set(o, "path", cli_json_text(f->path));
        cli_json_set(o, "message", cli_json_text(f->message));
        cli_json_append(s->findings, o);
        return;
    }
    printf("%-12s ", f->reason[0] != '\0' ? f->reason : rp_store_flaw_name(f->flaw));
    cli_print_safe(stdout, f->message, strlen(f->message));
    putchar('\n');
}

static json_t *recomputed_object(const rp_store_recomputed *r) {
    json_t *o = json_object();
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"candidates", r->candidates},
                   {"checked", r->checked},
                   {"different", r->different},
                   {"unreadable", r->unreadable},
                   {"unknown_module", r->unknown_module},
                   {"unknown_scope", r->unknown_scope},
                   {"no_memory", r->no_memory}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        cli_json_set(o, numbers[i].name, json_integer((json_int_t)numbers[i].value));
    return o;
}

static int cache_verify_print_json(const verify_options *o, const rp_store_verification *v,
                                   const rp_store_recomputed *r, const verify_state *s) {
    json_t *object = json_object(), *flaws = json_object();
    cli_json_set(object, "store", cli_json_text(o->store.store));
    cli_json_set(object, "records", json_integer((json_int_t)v->records));
    cli_json_set(object, "bytes", json_integer((json_int_t)v->bytes));
    cli_json_set(object, "well", json_boolean(s->n == 0));
    cli_json_set(object, "damaged", json_boolean(s->n_damaged > 0));
    cli_json_set(object, "index_compared", json_boolean(v->is_whole));
    for (int i = 0; i < RP_N_STORE_FLAWS; i++)
        cli_json_set(flaws, rp_store_flaw_name((rp_store_flaw)i), json_integer((json_int_t)v->flaws[i]));
    cli_json_set(object, "flaws", flaws);
    if (o->model != NULL) cli_json_set(object, "recomputed", recomputed_object(r));
    cli_json_set(object, "findings", s->findings);
    return cli_json_print(object);
}

static int cache_verify_print_summary(const verify_options *o, const rp_store_verification *v,
                                      const rp_store_recomputed *r, const verify_state *s) {
    char records[CACHE_TEXT_BYTES], size[CACHE_TEXT_BYTES], wrong[CACHE_TEXT_BYTES];
    printf("%s, %s read: %s\n", cache_count_text(v->records, "record", records), cache_bytes_text(v->bytes, size),
           s->n == 0 ? "no errors" : cache_count_text(s->n, "finding", wrong));
    if (s->n > 0 && s->n_damaged == 0)
        printf("nothing is damaged: 'reprise cache gc' removes the leftovers of a crash\n");
    if (!v->is_whole) printf("an engine has the store open: files and index were not compared\n");
    if (o->model != NULL) {
        printf("%s of %llu of this model recomputed: %llu differ\n", cache_count_text(r->checked, "record", records),
               (unsigned long long)r->candidates, (unsigned long long)r->different);
        if (r->unknown_scope > 0)
            printf("%s not recomputed: text after modules (a store does not hold which modules preceded it) or text of "
                   "another tenant\n",
                   cache_count_text(r->unknown_scope, "record", records));
        if (r->unknown_module > 0)
            printf("%s not recomputed: modules whose schema was not given: add --schema FILE\n",
                   cache_count_text(r->unknown_module, "record", records));
        if (r->no_memory > 0)
            printf("%llu exceed the context or the memory: raise --ctx\n", (unsigned long long)r->no_memory);
    }
    return cli_finish_output();
}

/* Recomputes records with a model of its own. Returns an exit status. */
static int cache_verify_recompute(const verify_options *o, rp_store *cache, verify_state *s, rp_store_recomputed *out) {
    cli_loaded l = {0};
    rp_error err;
    const char *fingerprint;
    cli_engine_args args = {.ctx = o->ctx,
                            .threads = o->threads,
                            .states = o->states,
                            .module_states = RP_MODULE_STATES_LAST, /* as in every setting that keeps them */
                            .kv_f16_layers = o->kv_f16_layers,
                            .keep = o->keep,
                            .keep_method = o->keep_method};
    rp_engine_options engine = cli_engine_options(&args);
    rp_store_recompute_options options = {
        .struct_size = sizeof(options), .sample = (size_t)o->sample, .seed = (uint64_t)o->seed, .tenant = o->tenant};
    int status = cli_load_model(&l, o->model, o->chat_format);
    if (status == CLI_OK && rp_model_fingerprint(l.model, o->threads, NULL, NULL, &fingerprint, &err) != RP_OK)
        status = cli_fail_library(&err);
    if (status == CLI_OK) status = cli_load_engine(&l, &engine, &(cli_list){.n = 0});
    for (size_t i = 0; i < o->schemas.n && status == CLI_OK; i++) {
        rp_schema_options of = {.struct_size = sizeof(of), .tenant = o->tenant};
        if (rp_schema_load(l.engine, o->schemas.items[i], &of, &l.schema, &err) != RP_OK ||
            rp_schema_prefill(l.engine, o->tenant, rp_schema_name(l.schema), NULL, NULL, &err) != RP_OK)
            status = cli_fail_library(&err);
    }
    if (status == CLI_OK) rp_engine_drain(l.engine, -1); /* reduces them */
    s->progress.what = "computing";
    if (status == CLI_OK &&
        rp_store_recompute(cache, l.engine, &options, cache_on_progress, on_finding, s, out, &err) != RP_OK)
        status = cache_store_fail(&err);
    cli_progress_clear(&s->progress.bar);
    cli_loaded_free(&l);
    return status;
}

static int cache_verify_verify(const verify_options *o, rp_store *cache) {
    verify_state s = {.progress = {.what = "reading"}, .findings = o->json ? json_array() : NULL};
    rp_store_verification v = {.struct_size = sizeof(v)};
    rp_store_recomputed r = {.struct_size = sizeof(r)};
    rp_error err;
    int rc = rp_store_verify(cache, cache_on_progress, on_finding, &s, &v, &err);
    cli_progress_clear(&s.progress.bar);
    int status = rc == RP_OK ? CLI_OK : cache_store_fail(&err);
    if (status == CLI_OK && o->model != NULL) status = cache_verify_recompute(o, cache, &s, &r);
    if (status != CLI_OK) {
        json_decref(s.findings);
        return status;
    }
    v.flaws[RP_STORE_OTHER_KV] = r.different;
    status = o->json ? cache_verify_print_json(o, &v, &r, &s) : cache_verify_print_summary(o, &v, &r, &s);
    if (status != CLI_OK || s.n == 0) return status;
    return s.n_damaged > 0 ? CLI_FAILED : CLI_LEFTOVERS;
}

static int verify_main(int argc, char **argv) {
    verify_options o = {.sample = 32};
    cli_parsed parsed = cli_options_parse(&cli_cache_verify, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    if (o.model == NULL && (o.schemas.n > 0 || o.tenant != NULL))
        return cli_fail(CLI_WRONG_USE, "--schema and --tenant need a model: give --model FILE");
    rp_store *cache = NULL;
    int status = cache_store_open(&cache, &o.store, true, false);
    if (status == CLI_OK) status = cache_verify_verify(&o, cache);
    rp_store_close(cache);
    return status;
}
