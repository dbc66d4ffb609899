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
#include "eval/eval_report.h"
#include "common/svg.h"

#define TOP (SVG_HEAD_HEIGHT + 26.0)
#define PLOT_HEIGHT 440.0
#define BOTTOM (TOP + PLOT_HEIGHT)
#define PANEL_WIDTH ((SVG_WIDTH - 2 * SVG_MARGIN - 60.0) / 2)
#define NUMBERS_WIDTH 52.0 /* of a panel, left of its axis */
#define INSET 34.0         /* between the axes and the first and the last point */
#define LABEL_HEIGHT 15.0

/* Series of svg.h. */
enum { SERIES_PATH, SERIES_MODULE, SERIES_OTHER, N_SERIES };
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

typedef struct box {
    double x, y, w, h;
} box;

/* One diagram: the value that it shows of a point, and the ranges of its axes. */
typedef struct panel {
    FILE *to;
    const char *title;
    double left, right;       /* of the axis */
    double ms_low, ms_high;   /* logarithms */
    double low, high, step;
    const char *number;       /* format */
    bool shows_kl;
    box *taken; /* areas occupied by marks and labels */
    size_t n_taken;
} panel;

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
    return has_word(name, "path") ? SERIES_PATH : has_word(name, "module") ? SERIES_MODULE : SERIES_OTHER;
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

/* ---- axes ---- */

static const interval *panel_value_of(const panel *p, const setting_point *s) { return p->shows_kl ? &s->kl : &s->score; }

static double panel_x_of(const panel *p, double ms) {
    double width = p->right - p->left - 2 * INSET;
    if (p->ms_high <= p->ms_low) return (p->left + p->right) / 2;
    return p->left + INSET + width * (log10(ms) - p->ms_low) / (p->ms_high - p->ms_low);
}

static double panel_y_of(const panel *p, double value) { return BOTTOM - PLOT_HEIGHT * (value - p->low) / (p->high - p->low); }

/* The smallest of 1, 2, 5 times a power of ten with at most eight lines. */
static double eval_plot_grid_step(double range) {
    for (double decade = 1e-6;; decade *= 10)
        for (int step = 1; step <= 5; step += step == 1 ? 1 : 3)
            if (range / (step * decade) <= 8 || decade > 1e6) return step * decade;
}

static void set_range(panel *p, const setting_point *points, size_t n) {
    double low = panel_value_of(p, &points[0])->low, high = panel_value_of(p, &points[0])->high;
    p->ms_low = p->ms_high = log10(points[0].ms);
    for (size_t i = 1; i < n; i++) {
        low = fmin(low, panel_value_of(p, &points[i])->low);
        high = fmax(high, panel_value_of(p, &points[i])->high);
        p->ms_high = fmax(p->ms_high, log10(points[i].ms));
    }
    if (p->shows_kl) low = 0;
    p->step = eval_plot_grid_step(fmax(high - low, 1e-3));
    p->low = p->shows_kl ? 0 : p->step * (floor(low / p->step) - (low / p->step - floor(low / p->step) < 0.3));
    p->high = p->step * (ceil(high / p->step) + (ceil(high / p->step) - high / p->step < 0.3));
    if (p->high <= p->low) p->high = p->low + p->step;
}

static void draw_axes(const panel *p) {
    static const svg_text_style number = {SVG_SOFT, "end", SVG_LABEL_PX, false}, tick = {SVG_SOFT, "middle", SVG_LABEL_PX, false};
    static const svg_text_style title = {SVG_INK, "start", 15, true};
    char text[32];
    svg_text(p->to, p->left - NUMBERS_WIDTH, TOP - 14, &title, p->title);
    for (int i = 0; p->low + i * p->step <= p->high + p->step / 100; i++) {
        double y = panel_y_of(p, p->low + i * p->step);
        snprintf(text, sizeof text, "%g%s", round((p->low + i * p->step) * 1e6) / 1e6, p->number);
        svg_grid_line(p->to, p->left, y, p->right, y);
        svg_text(p->to, p->left - 8, y + 4, &number, text);
    }
    svg_line(p->to, p->left, BOTTOM, p->right, BOTTOM);
    for (double decade = 1e-3; decade < 1e7; decade *= 10)
        for (int step = 1; step <= 5; step += step == 1 ? 1 : 3) {
            double x = panel_x_of(p, step * decade);
            if (x < p->left || x > p->right) continue;
            snprintf(text, sizeof text, "%g", round(step * decade * 1e6) / 1e6);
            svg_grid_line(p->to, x, TOP, x, BOTTOM);
            svg_text(p->to, x, BOTTOM + 19, &tick, text);
        }
    svg_text(p->to, (p->left + p->right) / 2, BOTTOM + 40, &tick, "time to first token, ms (logarithmic)");
}

/* ---- marks and labels ---- */

static bool panel_is_free(const panel *p, box b) {
    if (b.x < p->left || b.x + b.w > p->right + 8 || b.y < TOP - 8 || b.y + b.h > BOTTOM) return false;
    for (size_t i = 0; i < p->n_taken; i++) {
        const box *o = &p->taken[i];
        if (b.x < o->x + o->w && o->x < b.x + b.w && b.y < o->y + o->h && o->y < b.y + b.h) return false;
    }
    return true;
}

/* Next to its mark; if that area is occupied, above or below, with a leader line to the mark. */
static void panel_draw_label(panel *p, const setting_point *s) {
    static const svg_text_style style = {SVG_INK, "start", SVG_LABEL_PX, false};
    double w = svg_text_width(s->name, SVG_LABEL_PX), x = panel_x_of(p, s->ms), mark_y = panel_y_of(p, panel_value_of(p, s)->mean), y = mark_y - LABEL_HEIGHT / 2;
    box place = {x + 9, y, w, LABEL_HEIGHT};
    bool is_away = false;
    for (int i = 0; i < 240; i++) {
        double away = (i / 4 + 1) / 2 * (i / 4 % 2 ? -1 : 1) * 8.0; /* 0, -8, 8, -16, 16 ... */
        double sides[] = {x + 9, x - 9 - w, x + 24, x - 24 - w};
        box candidate = {sides[i % 4], y + away, w, LABEL_HEIGHT};
        if (!panel_is_free(p, candidate)) continue;
        place = candidate;
        is_away = i >= 4 && fabs(away) > LABEL_HEIGHT / 2;
        break;
    }
    p->taken[p->n_taken++] = place;
    double near = place.x > x ? place.x - 2 : place.x + w + 2;
    if (is_away) svg_leader(p->to, x, mark_y, near, place.y + LABEL_HEIGHT / 2);
    svg_text(p->to, place.x, place.y + LABEL_HEIGHT - 4, &style, s->name);
}

static void draw_panel(panel *p, const setting_point *points, size_t n) {
    set_range(p, points, n);
    draw_axes(p);
    p->taken = cli_alloc(3 * n * sizeof *p->taken);
    for (size_t i = 0; i < n; i++) {
        const interval *v = panel_value_of(p, &points[i]);
        double x = panel_x_of(p, points[i].ms), y = panel_y_of(p, v->mean), top = panel_y_of(p, v->high), bottom = panel_y_of(p, fmax(v->low, p->low));
        svg_whisker(p->to, points[i].series, x, bottom, top);
        svg_mark(p->to, points[i].series, x, y);
        p->taken[p->n_taken++] = (box){x - 6, y - 6, 12, 12};
        p->taken[p->n_taken++] = (box){x - 5, top - 1, 10, bottom - top + 2};
    }
    for (size_t i = 0; i < n; i++) panel_draw_label(p, &points[i]);
    free(p->taken);
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
    double x = SVG_MARGIN, second = SVG_MARGIN + PANEL_WIDTH + 60;
    char subtitle[256];
    const char *slash = strrchr(r->model, '/');
    snprintf(subtitle, sizeof subtitle, "%.120s \xC2\xB7 %zu task%s \xC2\xB7 means of the tasks with 95 %% intervals, every module cached", slash ? slash + 1 : r->model, tasks,
             tasks == 1 ? "" : "s");
    svg_begin(to, BOTTOM + 60, "Answer quality against time to first token", subtitle);
    for (int k = 0; k < N_SERIES; k++) x = svg_mark_legend(to, x, k, series_names[k]);
    panel score = {.to = to, .title = perplexity ? "Perplexity" : "Correct answers", .left = SVG_MARGIN + NUMBERS_WIDTH,
                   .right = SVG_MARGIN + PANEL_WIDTH, .number = perplexity ? "" : " %"};
    panel kl = {.to = to, .title = "KL divergence of the first token from exact, nats", .left = second + NUMBERS_WIDTH,
                .right = second + PANEL_WIDTH, .number = "", .shows_kl = true};
    if (perplexity) kl.title = "KL divergence of a token from exact, nats";
    if (n > 0) draw_panel(&score, points, n);
    if (n > 0) draw_panel(&kl, points, n);
    svg_end(to);
    free(points);
}
