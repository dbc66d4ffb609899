/* SPDX-License-Identifier: Apache-2.0 */
/* eval_plot_kv.c: the drawing of `reprise eval --svg-kv`: bytes of KV and quality of each reduction and KV format.
 *
 *   modules   right |   snapkv o--o--o all       sequences   | o--o--o all
 *               %   |     [] kivi2                           |
 *                   +-- bytes, log --                        +-----------
 *
 * A method is a curve over the shares that it was measured with; a format is a square, in both panels if text has it,
 * too. A mark is the mean over the tasks. Bytes are those of the slots: in pools and records, cells of 64 slots round
 * them up. Owns nothing. One thread.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/console.h"
#include "common/loader.h"
#include "common/svg.h"
#include "eval/eval_panel.h"
#include "eval/eval_report.h"

#define KV_MARK 10.0 /* size of the area of a mark */

/* The mean over the tasks of a setting. */
typedef struct kv_point {
    const eval_setting *setting;
    double bytes;       /* of the KV, in % of the base's */
    double right, half; /* %, and half of its 95 % interval */
} kv_point;

typedef enum kv_panel { KV_MODULES,
                        KV_SEQUENCES } kv_panel;

static bool reduces(const eval_setting *s, kv_panel panel) {
    return panel == KV_MODULES ? s->keep[0] != '\0' : s->kv_keep[0] != '\0';
}
static const char *method_of(const eval_setting *s, kv_panel panel) {
    if (panel == KV_MODULES) return s->keep_method ? s->keep_method : rp_keep_method_name(0);
    return s->kv_method[0] ? s->kv_method : rp_kv_method_name(0);
}

/* Is it a mark of its own in this panel: reuse in some format, of all slots? */
static bool is_format(const eval_setting *s, kv_panel panel) {
    const rp_kv_format f = s->kv_format;
    const bool of_text = f == RP_KV_F16 || f == RP_KV_F32 || f == RP_KV_INT8;
    return s->has_kv_format && !reduces(s, KV_MODULES) && !reduces(s, KV_SEQUENCES) && (panel == KV_MODULES || of_text);
}

/* The base: the first setting with all KV in f16, reused. NULL: none. */
static const eval_setting *base_of(const eval_report *r) {
    for (size_t i = 0; i < r->n_rows; i++) {
        const eval_setting *s = r->rows[i].of;
        if (r->rows[i].kv_bytes > 0 && !s->has_kv_format && !reduces(s, KV_MODULES) && !reduces(s, KV_SEQUENCES))
            return s;
    }
    return NULL;
}

static const eval_row *row_of(const eval_report *r, const char *task, const eval_setting *s) {
    for (size_t i = 0; i < r->n_rows; i++)
        if (r->rows[i].of == s && strcmp(r->rows[i].task, task) == 0) return &r->rows[i];
    return NULL;
}

/* Of all tasks: false: none has the setting. */
static bool make_kv_point(const eval_report *r, const eval_setting *base, const eval_setting *s, kv_point *out) {
    double n = 0, squares = 0;
    *out = (kv_point){.setting = s};
    for (size_t i = 0; i < r->n_rows; i++) {
        const eval_row *row = &r->rows[i], *full = row_of(r, row->task, base);
        if (row->of != s || row->perplexity || !full || full->kv_bytes <= 0) continue;
        const double half = 50 * (row->score.high - row->score.low);
        out->bytes += 100 * row->kv_bytes / full->kv_bytes * row->kept_share;
        out->right += 100 * row->score.mean;
        squares += half * half;
        n++;
    }
    if (n == 0 || out->bytes <= 0) return false;
    out->bytes /= n;
    out->right /= n;
    out->half = sqrt(squares) / n;
    return true;
}

/* Points of the settings, each once; returns their number. */
static size_t make_kv_points(const eval_report *r, const eval_setting *base, kv_point *points) {
    size_t n = 0;
    for (size_t i = 0; i < r->n_rows; i++) {
        size_t k = 0;
        while (k < n && points[k].setting != r->rows[i].of) k++;
        if (k == n && make_kv_point(r, base, r->rows[i].of, &points[n])) n++;
    }
    return n;
}

static int by_bytes(const void *a, const void *b) {
    const kv_point *x = a, *y = b;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static void mark_kv_point(eval_panel *p, const kv_point *point) {
    const double x = eval_panel_x(p, point->bytes), y = eval_panel_y(p, point->right);
    eval_panel_take(p, (eval_panel_box){x - KV_MARK / 2, y - KV_MARK / 2, KV_MARK, KV_MARK});
}

/* Above the mark: all curves end there. */
static void draw_base_label(eval_panel *p, const kv_point *base) {
    static const svg_text_style style = {SVG_INK, "end", SVG_LABEL_PX, false};
    static const char text[] = "all, f16";
    const double x = eval_panel_x(p, base->bytes) + KV_MARK, y = eval_panel_y(p, base->right) - KV_MARK,
                 w = svg_text_width(text, SVG_LABEL_PX);
    svg_text(p->to, x, y, &style, text);
    eval_panel_take(p, (eval_panel_box){x - w, y - SVG_LABEL_PX, w, SVG_LABEL_PX});
}

/* A method's curve, from its smallest share to the base. */
static void draw_method(eval_panel *p, int number, const char *method, const kv_point *base, const kv_point *points,
                        size_t n, kv_panel panel) {
    svg_point *curve = cli_alloc((n + 1) * sizeof *curve);
    size_t n_curve = 0;
    for (size_t i = 0; i < n; i++)
        if (reduces(points[i].setting, panel) && strcmp(method_of(points[i].setting, panel), method) == 0)
            curve[n_curve++] = (svg_point){eval_panel_x(p, points[i].bytes), eval_panel_y(p, points[i].right)};
    curve[n_curve++] = (svg_point){eval_panel_x(p, base->bytes), eval_panel_y(p, base->right)};
    svg_curve(p->to, number % SVG_CURVES, curve, n_curve);
    for (size_t i = 1; i < n_curve; i++)
        eval_panel_take_line(p, curve[i - 1].x, curve[i - 1].y, curve[i].x, curve[i].y);
    free(curve);
}

/* Methods of the panel in the order of their first setting; the points are sorted by bytes. */
static void draw_kv_panel(eval_panel *p, const kv_point *base, const kv_point *points, size_t n, kv_panel panel,
                          const eval_report *r) {
    const char **methods = cli_alloc((r->n_rows + 1) * sizeof *methods);
    int n_methods = 0;
    for (size_t i = 0; i < r->n_rows; i++) {
        const eval_setting *s = r->rows[i].of;
        int k = 0;
        while (k < n_methods && reduces(s, panel) && strcmp(methods[k], method_of(s, panel)) != 0) k++;
        if (reduces(s, panel) && k == n_methods) methods[n_methods++] = method_of(s, panel);
    }
    eval_panel_draw_axes(p);
    for (int k = 0; k < n_methods; k++) draw_method(p, k, methods[k], base, points, n, panel);
    mark_kv_point(p, base);
    draw_base_label(p, base);
    for (size_t i = 0; i < n; i++) {
        if (is_format(points[i].setting, panel))
            svg_square(p->to, eval_panel_x(p, points[i].bytes), eval_panel_y(p, points[i].right));
        if (is_format(points[i].setting, panel) || reduces(points[i].setting, panel)) mark_kv_point(p, &points[i]);
    }
    for (int k = 0; k < n_methods; k++)
        for (size_t i = 0; i < n; i++)
            if (reduces(points[i].setting, panel) && strcmp(method_of(points[i].setting, panel), methods[k]) == 0) {
                eval_panel_draw_label(p, points[i].bytes, points[i].right, true, methods[k]);
                break;
            }
    for (size_t i = 0; i < n; i++) {
        const eval_setting *s = points[i].setting;
        if (is_format(s, panel))
            eval_panel_draw_label(p, points[i].bytes, points[i].right, false, cli_kv_formats[s->kv_format]);
    }
    free(methods);
}

static void draw_kv_panels(const eval_report *r, FILE *to, const kv_point *base, const kv_point *points, size_t n) {
    static const char *const titles[EVAL_PANELS] = {"Modules: correct answers", "Sequences: correct answers"};
    double low = base->right, high = base->right, least = base->bytes;
    for (size_t i = 0; i < n; i++) {
        low = fmin(low, points[i].right);
        high = fmax(high, points[i].right);
        least = fmin(least, points[i].bytes);
    }
    for (int i = 0; i < EVAL_PANELS; i++) {
        eval_panel p = eval_panel_make(to, i, titles[i], "bytes of the KV, % of f16 (logarithmic)");
        p.unit = " %";
        eval_panel_set_ranges(&p, least, base->bytes, low, high, false);
        p.low = fmax(p.low, 0);
        p.high = fmin(p.high, 100);
        draw_kv_panel(&p, base, points, n, (kv_panel)i, r);
        eval_panel_free(&p);
    }
}

void eval_plot_kv_write(const eval_report *r, FILE *to) {
    const eval_setting *base = base_of(r);
    kv_point *points = cli_alloc((r->n_rows + 1) * sizeof *points), full = {0};
    const size_t n = base ? make_kv_points(r, base, points) : 0;
    double half = 0;
    char subtitle[256];
    const char *slash = strrchr(r->model, '/');
    for (size_t i = 0; i < n; i++) half = fmax(half, points[i].half);
    snprintf(subtitle, sizeof subtitle,
             "%.120s \xC2\xB7 means of the tasks, 95 %% intervals of at most \xC2\xB1%.1f points",
             slash ? slash + 1 : r->model, half);
    svg_begin(to, EVAL_PANEL_END, "Answer quality against bytes of the KV", subtitle);
    svg_square_legend(to, svg_curve_legend(to, SVG_MARGIN, 0, "a method, shares of the slots"),
                      "a KV format, all slots");
    if (n > 0 && make_kv_point(r, base, base, &full)) {
        qsort(points, n, sizeof *points, by_bytes);
        draw_kv_panels(r, to, &full, points, n);
    }
    svg_end(to);
    free(points);
}
