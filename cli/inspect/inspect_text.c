/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_text.c: models, schemas and mosaics as aligned columns.
 *
 *   schema cities: packed layout, path scope, 312 positions
 *     tokens  position  key
 *   *     12         0  9f3c2b1a00112233  ├─ system
 *   ^ imported by the prompt               ^ the tree, then the start of the text, as far as the line allows
 *
 * Numbers come first because their width is fixed; the tree may then have any depth. Lines use box-drawing characters
 * in a UTF-8 locale. Owns nothing. One thread.
 */
#include "inspect/inspect_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/console.h"
#include "common/text.h"
#include "reprise_tools.h"

#define LINE_CELLS 120      /* if standard output is not a terminal */
#define LABEL_CELLS_MAX 48  /* maximum width of the tree's column */
#define PREVIEW_CELLS_MIN 8 /* a shorter preview is not printed */
#define COLUMNS_CELLS 38    /* before the tree's column */
#define DEPTH_MAX 512       /* limit; PML nests less deeply */

/* ---- Models ---- */

static void print_size(const char *label, uint64_t bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    size_t unit = 0;
    for (; v >= 1024.0 && unit + 1 < sizeof units / sizeof units[0]; unit++) v /= 1024.0;
    printf("%-15s %.*f %s\n", label, unit == 0 || v >= 100.0 ? 0 : 1, v, units[unit]);
}

static void inspect_text_print_row(const char *label, const char *value) {
    printf("%-15s ", label);
    int cells = cli_text_cells(value);
    cli_print_fit(stdout, value, cells, 0);
    fputc('\n', stdout);
}

/* One row for all that the model's file advises. */
static void inspect_text_sampling(const rp_model *model) {
    rp_sampling s = rp_sampling_defaults();
    const uint32_t advised = rp_model_sampling(model, &s);
    const char *before = "";
    if (advised == 0) return;
    printf("%-15s ", "sampling");
    if (advised & RP_ADVISES_TEMPERATURE) printf("%stemperature %g", before, (double)s.temperature), before = ", ";
    if (advised & RP_ADVISES_TOP_K) printf("%stop_k %d", before, (int)s.top_k), before = ", ";
    if (advised & RP_ADVISES_TOP_P) printf("%stop_p %g", before, (double)s.top_p), before = ", ";
    if (advised & RP_ADVISES_MIN_P) printf("%smin_p %g", before, (double)s.min_p), before = ", ";
    if (advised & RP_ADVISES_REPEAT_PENALTY)
        printf("%srepeat_penalty %g", before, (double)s.repeat_penalty), before = ", ";
    if (advised & RP_ADVISES_REPEAT_LAST) printf("%srepeat_last %d", before, (int)s.repeat_last);
    printf(" (the file's advice)\n");
}

void inspect_text_model(const rp_model *model, const rp_memory *memory) {
    rp_model_info info = {.struct_size = sizeof(info)}, *m = &info;
    rp_model_describe(model, m);
    inspect_text_print_row("name", m->name[0] != '\0' ? m->name : "(none)");
    inspect_text_print_row("architecture", m->architecture);
    printf("%-15s %llu\n", "parameters", (unsigned long long)m->parameters);
    inspect_text_print_row("weights", m->weights);
    print_size("weight bytes", m->weight_bytes);
    printf("%-15s %d of width %d, feed-forward %d\n", "layers", (int)m->n_layers, (int)m->n_embd, (int)m->n_ff);
    if (m->n_heads > 0)
        printf("%-15s %d of %d dimensions, %d for keys and values\n", "heads", (int)m->n_heads, (int)m->head_dim,
               (int)m->n_kv_heads);
    if (m->n_experts > 0)
        printf("%-15s %d, %d active per token\n", "experts", (int)m->n_experts, (int)m->n_experts_used);
    printf("%-15s %d tokens\n", "vocabulary", (int)m->n_vocab);
    printf("%-15s %d positions, %s%s\n", "context", (int)m->n_ctx_train, m->positions,
           m->movable || m->n_recurrent_layers > 0 ? "" : ": modules cannot be shifted (fixed layouts only)");
    if (m->n_recurrent_layers > 0) {
        printf("%-15s %d of %d layers: modules are text of the prompt, or reused with --module-states last%s\n",
               "recurrent", (int)m->n_recurrent_layers, (int)m->n_layers, m->states_compose ? " or composed" : "");
        print_size("checkpoint", m->state_bytes);
    }
    if (m->window > 0)
        printf("%-15s %d tokens, in %d of %d layers\n", "window", (int)m->window, (int)m->n_window_layers,
               (int)m->n_layers);
    printf("%-15s %d values, pooling %s%s\n", "embeddings", (int)(m->n_scores > 0 ? m->n_scores : m->n_embd),
           m->pooling, m->is_encoder ? "; an encoder: it generates no text" : "");
    print_size("memory (no KV)", memory->weights + memory->file + memory->activations);
    print_size("KV per token", m->kv_bytes_per_token);
    inspect_text_print_row("chat format", m->chat_format);
    if (m->chat_format_guessed) inspect_text_print_row("", "(guessed: the model's chat template is unknown)");
    inspect_text_sampling(model);
    inspect_text_print_row("fingerprint", m->fingerprint);
}

/* ---- The tree ---- */

typedef struct tree_signs {
    const char *branch, *last, *line, *space, *taken;
} tree_signs;

static tree_signs choose_signs(void) {
    if (cli_locale_is_utf8()) return (tree_signs){"\u251C\u2500 ", "\u2514\u2500 ", "\u2502  ", "   ", "\u25CF"};
    return (tree_signs){"|- ", "`- ", "|  ", "   ", "*"};
}

static int node_depth(const rp_inspect_node *n) {
    return n->depth < 0 ? 0 : n->depth < DEPTH_MAX ? n->depth
                                                   : DEPTH_MAX - 1;
}

/* is_last[i]: no later node has the same parent. Iterates backwards and records, for each depth, whether a sibling was
 * seen. */
static bool *inspect_text_find_last(const rp_inspection *in) {
    bool *is_last = cli_alloc((size_t)in->n_nodes * sizeof *is_last);
    bool seen[DEPTH_MAX] = {false};
    int deepest = -1;
    for (int32_t i = in->n_nodes - 1; i >= 0; i--) {
        int d = node_depth(&in->nodes[i]);
        while (deepest > d) seen[deepest--] = false;
        deepest = d;
        is_last[i] = !seen[d];
        seen[d] = true;
    }
    return is_last;
}

/* "module plan", "user", "param duration (4)". Freed by the caller. */
static char *inspect_node_label(const rp_inspect_node *n) {
    size_t bytes = strlen(n->kind) + strlen(n->name) + 2;
    char *label = cli_alloc(bytes);
    snprintf(label, bytes, "%s%s%s", n->kind, n->name[0] != '\0' ? " " : "", n->name);
    return label;
}

static int label_cells(const rp_inspect_node *n) {
    char *label = inspect_node_label(n);
    int depth = node_depth(n);
    int cells = cli_text_cells(label) + 3 * depth;
    free(label);
    return cells;
}

static int label_column(const rp_inspection *in) {
    int widest = 0;
    for (int32_t i = 0; i < in->n_nodes; i++) {
        int cells = label_cells(&in->nodes[i]);
        if (cells > widest) widest = cells;
    }
    return widest < LABEL_CELLS_MAX ? widest : LABEL_CELLS_MAX;
}

/* open[d]: the branch at depth d continues below this line. */
static void print_branch(const rp_inspect_node *n, bool is_last, bool *open, const tree_signs *signs) {
    int depth = node_depth(n);
    for (int d = 1; d < depth; d++) fputs(open[d] ? signs->line : signs->space, stdout);
    if (depth > 0) fputs(is_last ? signs->last : signs->branch, stdout);
    open[depth] = !is_last;
}

static void print_columns(const rp_inspect_node *n, bool taken, const tree_signs *signs) {
    bool is_module = strcmp(n->kind, "module") == 0;
    const char *key = n->key[0] != '\0' ? n->key : is_module && !n->cached ? "not cached"
                                                                           : "";
    cli_print_fit(stdout, taken ? signs->taken : " ", 1, 1);
    if (n->n_tokens == 0 && key[0] == '\0') /* texts, roles and scaffolds have no numbers of their own */
        printf(" %8s  %8s  %-16s  ", "", "", key);
    else
        printf(" %8d  %8d  %-16s  ", (int)n->n_tokens, (int)n->position, key);
}

static void print_node(const rp_inspect_node *n, int column, int line) {
    int indent = 3 * node_depth(n);
    int room = column > indent + 4 ? column - indent : 4;
    char *label = inspect_node_label(n);
    int rest = line - COLUMNS_CELLS - indent - room - 2;
    bool preview = n->preview[0] != '\0' && rest >= PREVIEW_CELLS_MIN;
    cli_print_fit(stdout, label, room, preview ? room + 2 : 0);
    if (preview) cli_print_fit(stdout, n->preview, rest, 0);
    fputc('\n', stdout);
    free(label);
}

void inspect_text_tree(const rp_inspection *in, bool with_prompt) {
    tree_signs signs = choose_signs();
    int line = cli_terminal_cells(stdout, LINE_CELLS), column = label_column(in);
    bool *is_last = inspect_text_find_last(in), open[DEPTH_MAX] = {false};
    printf("schema ");
    cli_print_safe(stdout, in->schema, strlen(in->schema));
    printf(": %s layout, %s scope, %d positions\n\n", in->layout, in->scope, (int)in->schema_positions);
    printf("  %8s  %8s  %-16s  %s\n", "tokens", "position", "key",
           with_prompt ? "part (marked: used by the prompt)" : "part");
    for (int32_t i = 0; i < in->n_nodes; i++) {
        const rp_inspect_node *n = &in->nodes[i];
        print_columns(n, with_prompt && n->taken, &signs);
        print_branch(n, is_last[i], open, &signs);
        print_node(n, column, line);
    }
    free(is_last);
}

/* ---- Tiles ---- */

static int by_position(const void *a, const void *b) {
    const rp_inspect_tile *x = a, *y = b;
    return (x->position > y->position) - (x->position < y->position);
}

rp_inspect_tile *inspect_sorted_tiles(const rp_inspection *in) {
    rp_inspect_tile *tiles = cli_alloc((size_t)in->n_tiles * sizeof *tiles);
    if (in->n_tiles > 0) memcpy(tiles, in->tiles, (size_t)in->n_tiles * sizeof *tiles);
    qsort(tiles, (size_t)in->n_tiles, sizeof *tiles, by_position);
    return tiles;
}

static void print_tile(const rp_inspect_tile *t, int line) {
    char shift[16] = "";
    if (t->is_view) snprintf(shift, sizeof shift, t->shift != 0 ? "%+d" : "%d", (int)t->shift);
    printf("%10d  %8d  %-6s  %8s  %-5s  ", (int)t->position, (int)t->n_tokens, t->is_view ? "cached" : "fresh", shift,
           t->exact ? "yes" : "no");
    cli_print_fit(stdout, t->path[0] != '\0' ? t->path : "(anonymous)", line > 60 ? line - 47 : 13, 0);
    fputc('\n', stdout);
}

void inspect_text_tiles(const rp_inspection *in) {
    int line = cli_terminal_cells(stdout, LINE_CELLS);
    long cached = 0, fresh = 0;
    int32_t end = 0;
    rp_inspect_tile *tiles = inspect_sorted_tiles(in);
    for (int32_t i = 0; i < in->n_tiles; i++) *(tiles[i].is_view ? &cached : &fresh) += tiles[i].n_tokens;
    printf("\nprompt: %d positions, %ld cached and %ld fresh tokens\n\n", (int)in->prompt_positions, cached, fresh);
    printf("%10s  %8s  %-6s  %8s  %-5s  %s\n", "position", "tokens", "source", "shift", "exact", "part");
    for (int32_t i = 0; i < in->n_tiles; i++) {
        if (tiles[i].position > end) printf("%10d  %8d  gap\n", (int)end, (int)(tiles[i].position - end));
        print_tile(&tiles[i], line);
        if (tiles[i].position + tiles[i].n_tokens > end) end = tiles[i].position + tiles[i].n_tokens;
    }
    free(tiles);
}
