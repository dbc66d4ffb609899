/* SPDX-License-Identifier: Apache-2.0 */
/* eval_panel.h: a diagram of the drawings of `reprise eval`: a logarithmic axis of cost, a linear axis of quality, and
 * labels that avoid marks and one another. Heights are fixed; a drawing has two panels beside each other. One
 * thread. */
#ifndef CLI_EVAL_PANEL_H
#define CLI_EVAL_PANEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define EVAL_PANELS 2
#define EVAL_PANEL_BOTTOM 590.0 /* the axis of cost */
#define EVAL_PANEL_END 650.0    /* the drawing's height: with numbers and the axis' title */

typedef struct eval_panel_box {
    double x, y, w, h;
} eval_panel_box;

typedef struct eval_panel {
    FILE *to;
    const char *title, *cost;   /* above, and of the axis of cost */
    double left, right;         /* of the axis */
    double cost_low, cost_high; /* logarithms */
    double low, high, step;     /* of the axis of quality */
    const char *unit;           /* after each number of it */
    eval_panel_box *taken;      /* areas occupied by marks, curves and labels: n_taken of most_taken */
    size_t n_taken, most_taken;
} eval_panel;

/* The i-th panel, of EVAL_PANELS; freed by eval_panel_free. */
eval_panel eval_panel_make(FILE *to, int i, const char *title, const char *cost);
void eval_panel_free(eval_panel *p);
/* Ranges: cost_low > 0. from_zero: the axis of quality begins at 0, and ends close to high. */
void eval_panel_set_ranges(eval_panel *p, double cost_low, double cost_high, double low, double high, bool from_zero);
double eval_panel_x(const eval_panel *p, double cost);
double eval_panel_y(const eval_panel *p, double value);
void eval_panel_draw_axes(const eval_panel *p);
/* Marks an area as occupied; that along a line. */
void eval_panel_take(eval_panel *p, eval_panel_box b);
void eval_panel_take_line(eval_panel *p, double x1, double y1, double x2, double y2);
/* A label next to its mark, on its right side or first on its left; if that area is occupied, above or below, with a
   leader line to the mark. */
void eval_panel_draw_label(eval_panel *p, double cost, double value, bool left_first, const char *text);

#endif
