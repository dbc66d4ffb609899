/* SPDX-License-Identifier: Apache-2.0 */
/* eval_report.c: see eval_report.h. No state. */
#include "eval/eval_report.h"

#include <string.h>

#include "common/json_out.h"
#include "common/text.h"

/* ---- cells, shared by all text formats ---- */

enum { COLUMNS = 10,
       CELL_BYTES = 64 };
static const char *const headings[COLUMNS] = {"task", "setting", "items", "score", "95 % interval",
                                              "agreement", "KL", "first token", "reused", "recomputed"};

static void bytes_text(char *out, double bytes) {
    if (bytes >= 1024 * 1024) snprintf(out, CELL_BYTES, "%.1f MiB", bytes / (1024 * 1024));
    else snprintf(out, CELL_BYTES, "%.0f KiB", bytes / 1024);
}

static void score_text(char *score, char *interval, const eval_row *r) {
    if (r->perplexity) {
        snprintf(score, CELL_BYTES, "ppl %.3f", r->score.mean);
        snprintf(interval, CELL_BYTES, "%.3f to %.3f", r->score.low, r->score.high);
        return;
    }
    snprintf(score, CELL_BYTES, "%.1f %%", 100 * r->score.mean);
    snprintf(interval, CELL_BYTES, "%.1f to %.1f", 100 * r->score.low, 100 * r->score.high);
}

static void fill_cells(char cells[COLUMNS][CELL_BYTES], const eval_row *r) {
    char bytes[CELL_BYTES];
    snprintf(cells[0], CELL_BYTES, "%.60s", r->task);
    snprintf(cells[1], CELL_BYTES, "%.60s", r->setting);
    snprintf(cells[2], CELL_BYTES, "%zu", r->items);
    score_text(cells[3], cells[4], r);
    snprintf(cells[5], CELL_BYTES, "%.1f %%", 100 * r->agreement.mean);
    snprintf(cells[6], CELL_BYTES, r->kl.mean >= 0.001 || r->kl.mean == 0 ? "%.3f" : "%.1e", r->kl.mean);
    snprintf(cells[7], CELL_BYTES, "%.1f ms", r->ttft_ms);
    bytes_text(bytes, r->kv_bytes);
    snprintf(cells[8], CELL_BYTES, "%.0f %%, %.40s", 100 * r->cached_share, bytes);
    if (r->probed_tokens > 0) snprintf(cells[9], CELL_BYTES, "%.0f of %.0f", r->recomputed_tokens, r->probed_tokens);
    else snprintf(cells[9], CELL_BYTES, "%.0f", r->recomputed_tokens);
}

/* ---- formats ---- */

static void write_table(const eval_report *r, FILE *to) {
    int widths[COLUMNS];
    char cells[COLUMNS][CELL_BYTES];
    bool grouped = r->n_rows > 1 && strcmp(r->rows[0].task, r->rows[1].task) == 0;
    for (int c = 0; c < COLUMNS; c++) widths[c] = (int)strlen(headings[c]);
    for (size_t i = 0; i < r->n_rows; i++) {
        fill_cells(cells, &r->rows[i]);
        for (int c = 0; c < COLUMNS; c++) {
            int n = cli_text_cells(cells[c]);
            if (n > widths[c]) widths[c] = n;
        }
    }
    for (int c = 0; c < COLUMNS; c++)
        fprintf(to, c < 2 ? "%-*s" : "%*s", widths[c], headings[c]), fputs(c + 1 < COLUMNS ? "  " : "\n", to);
    for (size_t i = 0; i < r->n_rows; i++) {
        fill_cells(cells, &r->rows[i]);
        bool again = i > 0 && strcmp(r->rows[i].task, r->rows[i - 1].task) == 0;
        if (again) cells[0][0] = '\0';
        else if (i > 0 && grouped) fputc('\n', to);
        for (int c = 0; c < COLUMNS; c++) {
            int pad = widths[c] - cli_text_cells(cells[c]);
            if (c >= 2) fprintf(to, "%*s", pad, "");
            cli_print_fit(to, cells[c], widths[c], c < 2 && c + 1 < COLUMNS ? widths[c] : 0);
            fputs(c + 1 < COLUMNS ? "  " : "\n", to);
        }
    }
}

static void write_markdown(const eval_report *r, FILE *to) {
    char cells[COLUMNS][CELL_BYTES];
    for (int c = 0; c < COLUMNS; c++) fprintf(to, "| %s ", headings[c]);
    fputs("|\n|", to);
    for (int c = 0; c < COLUMNS; c++) fputs(c < 2 ? " --- |" : " ---: |", to);
    fputc('\n', to);
    for (size_t i = 0; i < r->n_rows; i++) {
        fill_cells(cells, &r->rows[i]);
        for (int c = 0; c < COLUMNS; c++) {
            fputs("| ", to);
            for (const char *p = cells[c]; *p; p++) fputs(*p == '|' ? "\\|" : (char[2]){*p, '\0'}, to);
            fputc(' ', to);
        }
        fputs("|\n", to);
    }
}

/* A field, in quotes if necessary (RFC 4180). */
static void csv_text(FILE *to, const char *s) {
    bool quotes = strpbrk(s, ",\"\r\n") != NULL;
    if (quotes) fputc('"', to);
    for (; *s; s++) {
        if (*s == '"') fputc('"', to);
        fputc(*s, to);
    }
    if (quotes) fputc('"', to);
}

static void csv_mean(FILE *to, eval_mean m) { fprintf(to, ",%.6g,%.6g,%.6g", m.mean, m.low, m.high); }

static void write_csv(const eval_report *r, FILE *to) {
    fputs("task,setting,metric,items,score,score_low,score_high,agreement,agreement_low,agreement_high,kl,kl_low,kl_"
          "high,ttft_ms,"
          "cached_share,kv_bytes,kept_share,recomputed_tokens,probed_tokens,focused,quality_ms\n",
          to);
    for (size_t i = 0; i < r->n_rows; i++) {
        const eval_row *row = &r->rows[i];
        csv_text(to, row->task);
        fputc(',', to);
        csv_text(to, row->setting);
        fprintf(to, ",%s,%zu", row->metric, row->items);
        csv_mean(to, row->score);
        csv_mean(to, row->agreement);
        csv_mean(to, row->kl);
        fprintf(to, ",%.3f,%.4f,%.0f,%.4f,%.1f,%.1f,%.4f,%.3f\n", row->ttft_ms, row->cached_share, row->kv_bytes,
                row->kept_share, row->recomputed_tokens, row->probed_tokens, row->focused, row->quality_ms);
    }
}

static json_t *json_mean(eval_mean m) {
    json_t *o = json_object();
    cli_json_set(o, "mean", json_real(m.mean));
    cli_json_set(o, "low", json_real(m.low));
    cli_json_set(o, "high", json_real(m.high));
    return o;
}

static json_t *json_row(const eval_row *r) {
    json_t *o = json_object();
    cli_json_set(o, "task", cli_json_text(r->task));
    cli_json_set(o, "setting", cli_json_text(r->setting));
    cli_json_set(o, "metric", cli_json_text(r->metric));
    cli_json_set(o, "items", json_integer((json_int_t)r->items));
    cli_json_set(o, "score", json_mean(r->score));
    cli_json_set(o, "agreement", json_mean(r->agreement));
    cli_json_set(o, "kl", json_mean(r->kl));
    cli_json_set(o, "ttft_ms", cli_json_real(r->ttft_ms));
    cli_json_set(o, "cached_share", cli_json_real(r->cached_share));
    cli_json_set(o, "kv_bytes", json_integer((json_int_t)r->kv_bytes));
    cli_json_set(o, "kept_share", json_real(r->kept_share));
    cli_json_set(o, "recomputed_tokens", cli_json_real(r->recomputed_tokens));
    cli_json_set(o, "probed_tokens", cli_json_real(r->probed_tokens));
    cli_json_set(o, "focused", cli_json_real(r->focused));
    cli_json_set(o, "quality_ms", cli_json_real(r->quality_ms));
    return o;
}

static void write_json(const eval_report *r, FILE *to) {
    json_t *o = json_object(), *rows = json_array();
    cli_json_set(o, "model", cli_json_text(r->model));
    cli_json_set(o, "fingerprint", cli_json_text(r->fingerprint));
    cli_json_set(o, "resamples", json_integer(r->resamples));
    cli_json_set(o, "seed", json_integer((json_int_t)r->seed));
    for (size_t i = 0; i < r->n_rows; i++) cli_json_append(rows, json_row(&r->rows[i]));
    cli_json_set(o, "rows", rows);
    json_dumpf(o, to, JSON_INDENT(1));
    fputc('\n', to);
    json_decref(o);
}

void eval_report_write(const eval_report *r, eval_format format, FILE *to) {
    switch (format) {
    case EVAL_TABLE: write_table(r, to); break;
    case EVAL_MARKDOWN: write_markdown(r, to); break;
    case EVAL_CSV: write_csv(r, to); break;
    case EVAL_JSON: write_json(r, to); break;
    }
}
