/* SPDX-License-Identifier: Apache-2.0 */
/* eval_panel.c: see eval_panel.h. */
#include "eval/eval_panel.h"

#include <math.h>
#include <stdlib.h>

#include "common/console.h"
#include "common/svg.h"

#define TOP (SVG_HEAD_HEIGHT + 26.0)
#define BOTTOM EVAL_PANEL_BOTTOM
#define PANEL_HEIGHT (BOTTOM - TOP)
#define BETWEEN 60.0
#define PANEL_WIDTH ((SVG_WIDTH - 2 * SVG_MARGIN - BETWEEN) / 2)
#define NUMBERS_WIDTH 52.0 /* of a panel, left of its axis */
#define INSET 34.0         /* between the axes and the first and the last point */
#define LABEL_HEIGHT 15.0
#define LINE_STEP 6.0 /* between the areas that a line occupies */

eval_panel eval_panel_make(FILE *to, int i, const char *title, const char *cost) {
    const double left = SVG_MARGIN + i * (PANEL_WIDTH + BETWEEN);
    return (eval_panel){
        .to = to, .title = title, .cost = cost, .left = left + NUMBERS_WIDTH, .right = left + PANEL_WIDTH, .unit = ""};
}

void eval_panel_free(eval_panel *p) { free(p->taken); }

double eval_panel_x(const eval_panel *p, double cost) {
    const double width = p->right - p->left - 2 * INSET;
    if (p->cost_high <= p->cost_low) return (p->left + p->right) / 2;
    return p->left + INSET + width * (log10(cost) - p->cost_low) / (p->cost_high - p->cost_low);
}

double eval_panel_y(const eval_panel *p, double value) {
    return BOTTOM - PANEL_HEIGHT * (value - p->low) / (p->high - p->low);
}

/* The smallest of 1, 2, 5 times a power of ten with at most eight lines. */
static double eval_panel_grid_step(double range) {
    for (double decade = 1e-6;; decade *= 10)
        for (int step = 1; step <= 5; step += step == 1 ? 1 : 3)
            if (range / (step * decade) <= 8 || decade > 1e6) return step * decade;
}

void eval_panel_set_ranges(eval_panel *p, double cost_low, double cost_high, double low, double high, bool from_zero) {
    p->cost_low = log10(cost_low);
    p->cost_high = log10(cost_high);
    if (from_zero) low = 0;
    p->step = eval_panel_grid_step(fmax(high - low, 1e-3));
    p->low = from_zero ? 0 : p->step * (floor(low / p->step) - (low / p->step - floor(low / p->step) < 0.3));
    p->high = p->step * (ceil(high / p->step) + (ceil(high / p->step) - high / p->step < 0.3));
    if (p->high <= p->low) p->high = p->low + p->step;
}

void eval_panel_draw_axes(const eval_panel *p) {
    static const svg_text_style number = {SVG_SOFT, "end", SVG_LABEL_PX, false},
                                tick = {SVG_SOFT, "middle", SVG_LABEL_PX, false};
    static const svg_text_style title = {SVG_INK, "start", 15, true};
    char text[32];
    svg_text(p->to, p->left - NUMBERS_WIDTH, TOP - 14, &title, p->title);
    for (int i = 0; p->low + i * p->step <= p->high + p->step / 100; i++) {
        double y = eval_panel_y(p, p->low + i * p->step);
        snprintf(text, sizeof text, "%g%s", round((p->low + i * p->step) * 1e6) / 1e6, p->unit);
        svg_grid_line(p->to, p->left, y, p->right, y);
        svg_text(p->to, p->left - 8, y + 4, &number, text);
    }
    svg_line(p->to, p->left, BOTTOM, p->right, BOTTOM);
    for (double decade = 1e-3; decade < 1e7; decade *= 10)
        for (int step = 1; step <= 5; step += step == 1 ? 1 : 3) {
            double x = eval_panel_x(p, step * decade);
            if (x < p->left || x > p->right) continue;
            snprintf(text, sizeof text, "%g", round(step * decade * 1e6) / 1e6);
            svg_grid_line(p->to, x, TOP, x, BOTTOM);
            svg_text(p->to, x, BOTTOM + 19, &tick, text);
        }
    svg_text(p->to, (p->left + p->right) / 2, BOTTOM + 40, &tick, p->cost);
}

void eval_panel_take(eval_panel *p, eval_panel_box b) {
    if (p->n_taken == p->most_taken) {
        p->most_taken = 2 * p->most_taken + 16;
        p->taken = cli_realloc(p->taken, p->most_taken * sizeof *p->taken);
    }
    p->taken[p->n_taken++] = b;
}

void eval_panel_take_line(eval_panel *p, double x1, double y1, double x2, double y2) {
    const int n = (int)(fmax(fabs(x2 - x1), fabs(y2 - y1)) / LINE_STEP) + 1;
    const double size = LINE_STEP / 2;
    for (int i = 0; i <= n; i++)
        eval_panel_take(
            p, (eval_panel_box){x1 + (x2 - x1) * i / n - size / 2, y1 + (y2 - y1) * i / n - size / 2, size, size});
}

static bool panel_is_free(const eval_panel *p, eval_panel_box b) {
    if (b.x < p->left || b.x + b.w > p->right + 8 || b.y < TOP - 8 || b.y + b.h > BOTTOM) return false;
    for (size_t i = 0; i < p->n_taken; i++) {
        const eval_panel_box *o = &p->taken[i];
        if (b.x < o->x + o->w && o->x < b.x + b.w && b.y < o->y + o->h && o->y < b.y + b.h) return false;
    }
    return true;
}

void eval_panel_draw_label(eval_panel *p, double cost, double value, bool left_first, const char *text) {
    static const svg_text_style style = {SVG_INK, "start", SVG_LABEL_PX, false};
    double w = svg_text_width(text, SVG_LABEL_PX), x = eval_panel_x(p, cost), mark_y = eval_panel_y(p, value),
           y = mark_y - LABEL_HEIGHT / 2;
    eval_panel_box place = {x + 9, y, w, LABEL_HEIGHT};
    bool is_away = false;
    for (int i = 0; i < 240; i++) {
        double away = (i / 4 + 1) / 2 * (i / 4 % 2 ? -1 : 1) * 8.0; /* 0, -8, 8, -16, 16 ... */
        double sides[] = {x + 9, x - 9 - w, x + 24, x - 24 - w};
        eval_panel_box candidate = {sides[(i % 4) ^ left_first], y + away, w, LABEL_HEIGHT};
        if (!panel_is_free(p, candidate)) continue;
        place = candidate;
        is_away = i >= 4 && fabs(away) > LABEL_HEIGHT / 2;
        break;
    }
    eval_panel_take(p, place);
    double near = place.x > x ? place.x - 2 : place.x + w + 2;
    if (is_away) svg_leader(p->to, x, mark_y, near, place.y + LABEL_HEIGHT / 2);
    svg_text(p->to, place.x, place.y + LABEL_HEIGHT - 4, &style, text);
}
