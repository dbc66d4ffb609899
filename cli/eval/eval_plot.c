/* SPDX-License-Identifier: Apache-2.0 */
/* eval_plot.c: the drawing of `reprise eval --svg`: cost and quality of each setting.
 *
 *   right |        blend T   T exact        KL | T reuse
 *     %   | reuse T      o   o                 | o   T link
 *         |       o link I   I                 | I   o      exact
 *         |       I                            |     I       o
 *         +-- TTFT, log ms --                  +-----------------
 *
 * A setting's mark is the mean over the tasks: of their medians of TTFT, of scores, of divergences. Its interval is the
 * root of the tasks' squared half widths over their number: tasks are independent samples. Settings are not points of a
 * curve, so no line connects them. Owns nothing. One thread.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/console.h"
#include "eval/eval_panel.h"
#include "eval/eval_report.h"
#include "common/svg.h"

/* Series of svg.h. */
enum { SERIES_PATH,
       SERIES_MODULE,
       SERIES_OTHER,
       N_SERIES };
static const char *const series_names[N_SERIES] = {"scope path", "scope module", "others"};

/* A mean and its interval. */
typedef struct interval {
    double mean, low, high;
} interval;

typedef struct setting_point {
    const char *name;
    int series;
    double ms;
    interval score, kl;
} setting_point;

/* ---- points ---- */

static bool has_word(const char *name, const char *word) {
    size_t n = strlen(word);
    for (const char *p = name;; p++) {
        size_t length = strcspn(p, "+");
        if (length == n && memcmp(p, word, n) == 0) return true;
        p += length;
        if (*p == '\0') return false;
    }
}

static int series_of(const char *name) {
    if (has_word(name, "fixed") || has_word(name, "scaffold") || has_word(name, "off")) return SERIES_OTHER;
    return has_word(name, "path") ? SERIES_PATH : has_word(name, "module") ? SERIES_MODULE
                                                                           : SERIES_OTHER;
}

static int by_time(const void *a, const void *b) {
    const setting_point *x = a, *y = b;
    return (x->ms > y->ms) - (x->ms < y->ms);
}

/* Adds a task's mean; low and high accumulate squared half widths until interval_finish. */
static void interval_add(interval *sum, const eval_mean *m, double scale) {
    sum->mean += scale * m->mean;
    sum->low += scale * scale * (m->mean - m->low) * (m->mean - m->low);
    sum->high += scale * scale * (m->high - m->mean) * (m->high - m->mean);
}

static void interval_finish(interval *sum, double n_tasks) {
    sum->mean /= n_tasks;
    sum->low = sum->mean - sqrt(sum->low) / n_tasks;
    sum->high = sum->mean + sqrt(sum->high) / n_tasks;
}

/* A setting's point over all tasks; false: no task has it. Perplexities and shares have no common mean: only rows of
 * the first one's kind count. */
static bool make_point(const eval_report *r, setting_point *p) {
    double tasks = 0;
    for (size_t t = 0; t < r->n_rows; t++) {
        const eval_row *row = &r->rows[t];
        if (strcmp(row->setting, p->name) != 0 || row->perplexity != r->rows[0].perplexity) continue;
        p->ms += row->ttft_ms;
        interval_add(&p->score, &row->score, row->perplexity ? 1 : 100);
        interval_add(&p->kl, &row->kl, 1);
        tasks++;
    }
    if (tasks == 0) return false;
    p->ms /= tasks;
    interval_finish(&p->score, tasks);
    interval_finish(&p->kl, tasks);
    return true;
}

static size_t make_points(const eval_report *r, setting_point *points) {
    size_t n = 0;
    for (size_t i = 0; i < r->n_rows; i++) {
        const char *name = r->rows[i].setting;
        size_t k = 0;
        while (k < n && strcmp(points[k].name, name) != 0) k++;
        if (k < n) continue;
        points[n] = (setting_point){.name = name, .series = series_of(name)};
        n += make_point(r, &points[n]);
    }
    qsort(points, n, sizeof *points, by_time);
    return n;
}

/* ---- the drawing ---- */

/* One diagram: of scores or of divergences. */
static void draw_panel(eval_panel *p, const setting_point *points, size_t n, bool shows_kl) {
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        const interval *v = shows_kl ? &points[i].kl : &points[i].score;
        low = fmin(low, v->low);
        high = fmax(high, v->high);
    }
    eval_panel_set_ranges(p, points[0].ms, points[n - 1].ms, low, high, shows_kl);
    eval_panel_draw_axes(p);
    for (size_t i = 0; i < n; i++) {
        const interval *v = shows_kl ? &points[i].kl : &points[i].score;
        double x = eval_panel_x(p, points[i].ms), y = eval_panel_y(p, v->mean), top = eval_panel_y(p, v->high),
               bottom = eval_panel_y(p, fmax(v->low, p->low));
        svg_whisker(p->to, points[i].series, x, bottom, top);
        svg_mark(p->to, points[i].series, x, y);
        eval_panel_take(p, (eval_panel_box){x - 6, y - 6, 12, 12});
        eval_panel_take(p, (eval_panel_box){x - 5, top - 1, 10, bottom - top + 2});
    }
    for (size_t i = 0; i < n; i++)
        eval_panel_draw_label(p, points[i].ms, shows_kl ? points[i].kl.mean : points[i].score.mean, false,
                              points[i].name);
}

static size_t n_tasks(const eval_report *r) {
    size_t n = 0;
    for (size_t i = 0; i < r->n_rows; i++) n += i == 0 || strcmp(r->rows[i].task, r->rows[i - 1].task) != 0;
    return n;
}

void eval_plot_write(const eval_report *r, FILE *to) {
    setting_point *points = cli_alloc((r->n_rows + 1) * sizeof *points);
    size_t n = make_points(r, points), tasks = n_tasks(r);
    bool perplexity = r->n_rows > 0 && r->rows[0].perplexity;
    double x = SVG_MARGIN;
    char subtitle[256];
    const char *slash = strrchr(r->model, '/');
    snprintf(subtitle, sizeof subtitle,
             "%.120s \xC2\xB7 %zu task%s \xC2\xB7 means of the tasks with 95 %% intervals, every module cached",
             slash ? slash + 1 : r->model, tasks, tasks == 1 ? "" : "s");
    svg_begin(to, EVAL_PANEL_END, "Answer quality against time to first token", subtitle);
    for (int k = 0; k < N_SERIES; k++) x = svg_mark_legend(to, x, k, series_names[k]);
    static const char cost[] = "time to first token, ms (logarithmic)";
    eval_panel score = eval_panel_make(to, 0, perplexity ? "Perplexity" : "Correct answers", cost);
    eval_panel kl = eval_panel_make(to, 1,
                                    perplexity ? "KL divergence of a token from exact, nats"
                                               : "KL divergence of the first token from exact, nats",
                                    cost);
    score.unit = perplexity ? "" : " %";
    if (n > 0) draw_panel(&score, points, n, false);
    if (n > 0) draw_panel(&kl, points, n, true);
    eval_panel_free(&score);
    eval_panel_free(&kl);
    svg_end(to);
    free(points);
}
