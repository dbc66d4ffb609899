/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_plot.c: the drawing of `reprise cluster simulate --svg`: hit rate, and mean TTFT on a logarithmic axis.
 *
 *   one value:    a bar for each policy           several:  a curve for each, over the axis
 *
 * Owns nothing. One thread.
 */
#include <math.h>
#include <string.h>

#include "cluster/cluster_runs.h"
#include "common/svg.h"

#define TOP (SVG_HEAD_HEIGHT + 30.0)
#define PANEL_HEIGHT 330.0
#define BOTTOM (TOP + PANEL_HEIGHT)
#define PANEL_WIDTH 500.0
#define LABELS_WIDTH 190.0
#define BAR_STEP 34.0
#define BAR_HEIGHT 20.0

typedef struct panel {
    FILE *to;
    double left, right, low, high; /* of the vertical axis: logarithms of seconds, or shares */
    bool seconds;
} panel;

static double value_of(const cluster_run *r, bool seconds) { return seconds ? fmax(r->result.ttft_mean_ms / 1e3,
                                                                                   1e-3)
                                                                            : cluster_hit_rate(&r->result); }

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static void begin(FILE *to, const cluster_runs *c, double height) {
    char subtitle[512];
    const rp_cluster_simulation *r = &c->runs[0].result;
    snprintf(subtitle, sizeof subtitle, "%.200s \xC2\xB7 %llu requests \xC2\xB7 %d nodes%s", file_name(c->source),
             (unsigned long long)r->requests, (int)c->base.nodes, c->base.no_queues ? " \xC2\xB7 without queues" : "");
    svg_begin(to, height, "Hit rate and time to first token by policy", subtitle);
}

/* ---- bars ---- */

static void draw_bars(FILE *to, const cluster_runs *c, double left, bool seconds) {
    static const svg_text_style head = {SVG_INK, "start", SVG_LABEL_PX + 2, true},
                                name = {SVG_INK, "end", SVG_LABEL_PX, false},
                                soft = {SVG_SOFT, "start", SVG_LABEL_PX, false};
    double most = 0, from = left + LABELS_WIDTH, width = PANEL_WIDTH - LABELS_WIDTH - 60;
    for (size_t i = 0; i < c->n; i++) most = fmax(most, value_of(&c->runs[i], seconds));
    svg_text(to, left, SVG_HEAD_HEIGHT - 20, &head,
             seconds ? "Mean TTFT of served requests, s" : "Hit rate: share of prompt tokens");
    for (size_t i = 0; i < c->n; i++) {
        double y = SVG_HEAD_HEIGHT + (double)i * BAR_STEP, v = value_of(&c->runs[i], seconds);
        char text[64], label[64];
        snprintf(text, sizeof text, seconds ? "%.4g" : "%.3f", v);
        svg_text(to, from - 8, y + 14, &name, cluster_run_name(c, &c->runs[i], label, sizeof label));
        svg_box(to, seconds ? SVG_FRESH : SVG_CACHED, from, y, most > 0 ? width * v / most : 0, BAR_HEIGHT, NULL);
        svg_text(to, from + (most > 0 ? width * v / most : 0) + 7, y + 14, &soft, text);
    }
}

/* ---- curves ---- */

static double y_of(const panel *p, double value) {
    double at = p->seconds ? log10(value) : value;
    return BOTTOM - PANEL_HEIGHT * (at - p->low) / (p->high - p->low);
}

/* The last policy, which is cost where it is compared, is the main curve. */
static int curve_of(const cluster_runs *c, size_t k) { return (int)((c->n / c->n_values - 1 - k) % SVG_CURVES); }

static void axis_number(double v, char *out, size_t n) {
    if (v >= 1e6) snprintf(out, n, "%gM", v / 1e6);
    else if (v >= 1e4) snprintf(out, n, "%gk", v / 1e3);
    else snprintf(out, n, "%g", v);
}

/* Values are as far apart as they are in number: an axis of the options as they were given. */
static double x_of(const panel *p, const cluster_runs *c, size_t i) {
    double margin = 26;
    if (c->n_values < 2) return (p->left + p->right) / 2;
    return p->left + margin + (p->right - p->left - 2 * margin) * (double)i / (double)(c->n_values - 1);
}

static void set_range(panel *p, const cluster_runs *c) {
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < c->n; i++) {
        low = fmin(low, value_of(&c->runs[i], p->seconds));
        high = fmax(high, value_of(&c->runs[i], p->seconds));
    }
    p->low = p->seconds ? floor(log10(low)) : 0;
    p->high = p->seconds ? ceil(log10(high) + 1e-9) : ceil(high * 10 + 1e-9) / 10;
    if (p->high <= p->low) p->high = p->low + (p->seconds ? 1 : 0.1);
}

static void draw_axes(const panel *p, const cluster_runs *c) {
    static const svg_text_style number = {SVG_SOFT, "end", SVG_LABEL_PX, false},
                                middle = {SVG_SOFT, "middle", SVG_LABEL_PX, false},
                                head = {SVG_INK, "start", SVG_LABEL_PX + 2, true};
    double step = p->seconds ? 1 : p->high > 0.5 ? 0.1
                                                 : 0.05;
    char text[48];
    svg_text(p->to, p->left, TOP - 14, &head,
             p->seconds ? "Mean TTFT of served requests, s (logarithmic)" : "Hit rate: share of prompt tokens");
    for (int i = 0; p->low + i * step <= p->high + 1e-9; i++) {
        double v = p->low + i * step, y = BOTTOM - PANEL_HEIGHT * (v - p->low) / (p->high - p->low);
        snprintf(text, sizeof text, "%g", p->seconds ? pow(10, v) : v);
        svg_grid_line(p->to, p->left, y, p->right, y);
        svg_text(p->to, p->left - 8, y + 4, &number, text);
    }
    svg_line(p->to, p->left, BOTTOM, p->right, BOTTOM);
    for (size_t i = 0; i < c->n_values; i++) {
        axis_number(c->runs[i].value, text, sizeof text);
        svg_line(p->to, x_of(p, c, i), BOTTOM, x_of(p, c, i), BOTTOM + 5);
        svg_text(p->to, x_of(p, c, i), BOTTOM + 20, &middle, text);
    }
    svg_text(p->to, (p->left + p->right) / 2, BOTTOM + 42, &middle, c->axis);
}

static void draw_panel(FILE *to, const cluster_runs *c, double left, bool seconds) {
    panel p = {.to = to, .left = left + 48, .right = left + PANEL_WIDTH, .seconds = seconds};
    set_range(&p, c);
    draw_axes(&p, c);
    for (size_t k = c->n / c->n_values; k-- > 0;) {
        svg_point points[CLUSTER_MAX_VALUES];
        for (size_t i = 0; i < c->n_values; i++)
            points[i] = (svg_point){x_of(&p, c, i), y_of(&p, value_of(&c->runs[k * c->n_values + i], seconds))};
        svg_curve(to, curve_of(c, k), points, c->n_values);
    }
}

void cluster_runs_draw(FILE *to, const cluster_runs *c) {
    double right = SVG_WIDTH - SVG_MARGIN - PANEL_WIDTH, x = SVG_MARGIN;
    if (c->axis == NULL) {
        begin(to, c, SVG_HEAD_HEIGHT + (double)c->n * BAR_STEP + 30);
        draw_bars(to, c, SVG_MARGIN, false);
        draw_bars(to, c, right, true);
    } else {
        begin(to, c, BOTTOM + 66);
        for (size_t k = 0; k < c->n / c->n_values; k++) {
            char name[64];
            x = svg_curve_legend(to, x, curve_of(c, k),
                                 cluster_run_name(c, &c->runs[k * c->n_values], name, sizeof name));
        }
        draw_panel(to, c, SVG_MARGIN, false);
        draw_panel(to, c, right, true);
    }
    svg_end(to);
}
