/* cache_verify.c: `reprise cache verify`: every byte of a store is read. Owns its options, lines and JSON. One thread. */
#include <stdlib.h>
#include <string.h>

#include "cache_store.h"
#include "command.h"
#include "json_out.h"
#include "text.h"

typedef struct verify_options {
    cache_store_args store;
    bool json;
} verify_options;

static const cli_option table[] = {
    CACHE_STORE_ROWS(verify_options, store),
    {.name = "json", .kind = CLI_FLAG, .offset = offsetof(verify_options, json), .help = "print one JSON object"},
    {.name = NULL},
};

#define CLI_LEFTOVERS 3 /* what a crash leaves, and no damage */

static int verify_main(int argc, char **argv);

const cli_command cli_cache_verify = {
    .name = "cache verify",
    .summary = "read every byte of every record, and compare the index",
    .synopsis = "--store DIR [--json]",
    .notes = "Changes nothing, and works while an engine has the store open; then files and index are not compared.\n"
             "exit status: 0 all is well, 1 something is damaged, 2 used wrongly, 3 nothing is damaged, but a process that was\n"
             "killed left something: 'reprise cache gc' puts it right\n",
    .options = table,
    .main = verify_main,
};

typedef struct verify_state {
    cache_progress progress; /* first: cache_on_progress takes it */
    json_t *findings;        /* NULL: lines */
    uint64_t n, n_damaged;
} verify_state;

static void on_finding(void *user, const rp_cache_finding *f) {
    verify_state *s = user;
    cli_progress_clear(&s->progress.bar);
    s->n++;
    s->n_damaged += rp_cache_flaw_is_damage(f->flaw);
    if (s->findings != NULL) {
        json_t *o = json_object();
        cli_json_set(o, "flaw", cli_json_text(rp_cache_flaw_name(f->flaw)));
        cli_json_set(o, "reason", cli_json_text(f->reason));
        cli_json_set(o, "path", cli_json_text(f->path));
        cli_json_set(o, "message", cli_json_text(f->message));
        cli_json_append(s->findings, o);
        return;
    }
    printf("%-12s ", f->reason[0] != '\0' ? f->reason : rp_cache_flaw_name(f->flaw));
    cli_print_safe(stdout, f->message, strlen(f->message));
    putchar('\n');
}

static int print_json(const verify_options *o, const rp_cache_verification *v, const verify_state *s) {
    json_t *object = json_object(), *flaws = json_object();
    cli_json_set(object, "store", cli_json_text(o->store.store));
    cli_json_set(object, "records", json_integer((json_int_t)v->records));
    cli_json_set(object, "bytes", json_integer((json_int_t)v->bytes));
    cli_json_set(object, "well", json_boolean(s->n == 0));
    cli_json_set(object, "damaged", json_boolean(s->n_damaged > 0));
    cli_json_set(object, "index_compared", json_boolean(v->is_whole));
    for (int i = 0; i < RP_N_CACHE_FLAWS; i++)
        cli_json_set(flaws, rp_cache_flaw_name((rp_cache_flaw)i), json_integer((json_int_t)v->flaws[i]));
    cli_json_set(object, "flaws", flaws);
    cli_json_set(object, "findings", s->findings);
    return cli_json_print(object);
}

static int print_summary(const rp_cache_verification *v, const verify_state *s) {
    char records[CACHE_TEXT_BYTES], size[CACHE_TEXT_BYTES], wrong[CACHE_TEXT_BYTES];
    printf("%s, %s read: %s\n", cache_count_text(v->records, "record", records), cache_bytes_text(v->bytes, size),
           s->n == 0 ? "all is well" : cache_count_text(s->n, "finding", wrong));
    if (s->n > 0 && s->n_damaged == 0) printf("nothing is damaged: 'reprise cache gc' removes what a crash left\n");
    if (!v->is_whole) printf("an engine has the store open: files and index were not compared\n");
    return cli_finish_output();
}

static int verify(const verify_options *o, rp_cache *cache) {
    verify_state s = {.progress = {.what = "reading"}, .findings = o->json ? json_array() : NULL};
    rp_cache_verification v;
    rp_error err;
    int rc = rp_cache_verify(cache, cache_on_progress, on_finding, &s, &v, &err);
    cli_progress_clear(&s.progress.bar);
    if (rc != RP_OK) {
        json_decref(s.findings);
        return cache_store_fail(&err);
    }
    int status = o->json ? print_json(o, &v, &s) : print_summary(&v, &s);
    if (status != CLI_OK || s.n == 0) return status;
    return s.n_damaged > 0 ? CLI_FAILED : CLI_LEFTOVERS;
}

static int verify_main(int argc, char **argv) {
    verify_options o = {.json = false};
    cli_parsed parsed = cli_options_parse(&cli_cache_verify, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    rp_cache *cache = NULL;
    int status = cache_store_open(&cache, &o.store, true, false);
    if (status == CLI_OK) status = verify(&o, cache);
    rp_cache_close(cache);
    return status;
}
