/* SPDX-License-Identifier: Apache-2.0 */
/* svg.h: elements of the drawings of `reprise inspect --svg`, `reprise eval --svg` and `reprise cache simulate --svg`.
 *
 * Lengths are in pixels of the drawing; y grows downwards. Token positions grow to the right: x = left + (position -
 * first) * scale. Colours are those of web/frame.css (tests/cli/test_palette.py compares them): --ram for cached,
 * --fresh for fresh, --series-N for curves and marks; further marks use hatches and outlines. Viewers that support
 * prefers-color-scheme can show a dark background.
 */
#ifndef CLI_SVG_H
#define CLI_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SVG_WIDTH 1200.0
#define SVG_MARGIN 40.0
#define SVG_HEAD_HEIGHT 124.0 /* title, subtitle, legend */
#define SVG_AXIS_HEIGHT 56.0
#define SVG_LABEL_PX 12.0 /* font size of labels */

/* Classes of the style sheet, for boxes and texts. */
#define SVG_CACHED "cached"
#define SVG_FRESH "fresh"
#define SVG_EXTENT "extent"   /* light: a module with everything inside it */
#define SVG_CHOICE "choice"   /* dashed: a union */
#define SVG_GAP "gap"         /* dashed and hatched */
#define SVG_INEXACT "inexact" /* a hatch over a tile's lower edge */
#define SVG_ON_CACHED "on-cached"
#define SVG_ON_FRESH "on-fresh"
#define SVG_INK "ink"
#define SVG_SOFT "soft"

typedef struct svg_scale {
    double left, per_position;
    int32_t first, positions; /* `first` is drawn at `left` */
} svg_scale;

/* The scale on which `positions` from 0 on fill the width from `left` to `right`. */
svg_scale svg_scale_make(int32_t positions, double left, double right);
double svg_x(const svg_scale *s, int32_t position);

/* Opens the drawing: style, background, title and subtitle (any text; svg_begin escapes both). */
void svg_begin(FILE *to, double height, const char *title, const char *subtitle);
void svg_end(FILE *to);

/* A box. tooltip: any text, or NULL. */
void svg_box(FILE *to, const char *class_name, double x, double y, double w, double h, const char *tooltip);

/* Text with the first line's baseline at y. anchor: "start", "middle" or "end". bold, size in pixels. */
typedef struct svg_text_style {
    const char *class_name, *anchor;
    double size;
    bool bold;
} svg_text_style;
void svg_text(FILE *to, double x, double y, const svg_text_style *style, const char *text);
void svg_line(FILE *to, double x1, double y1, double x2, double y2);

/* A conservative estimate of a text's width at this font size. */
double svg_text_width(const char *text, double size);
/* A copy of text, truncated to `width` with an ellipsis; "" if not even three characters fit. Freed by the caller. */
char *svg_text_cut(const char *text, double size, double width);

/* One entry of the legend at x; returns the next entry's x. */
double svg_legend(FILE *to, double x, const char *class_name, const char *text);

/* Ticks and numbers below y, and light grid lines up to `top`. */
void svg_axis(FILE *to, const svg_scale *s, double top, double y);

/* A curve through n points, with a mark at each. number: its colour and dashes, below SVG_CURVES; the first is the main
 * curve. */
#define SVG_CURVES 8
typedef struct svg_point {
    double x, y;
} svg_point;
void svg_curve(FILE *to, int number, const svg_point *points, size_t n);
double svg_curve_legend(FILE *to, double x, int number, const char *text);
/* A single mark, and its interval as a line between two heights. */
void svg_mark(FILE *to, int number, double x, double y);
void svg_whisker(FILE *to, int number, double x, double low, double high);
double svg_mark_legend(FILE *to, double x, int number, const char *text);
/* A mark of another kind than those of curves. */
void svg_square(FILE *to, double x, double y);
double svg_square_legend(FILE *to, double x, const char *text);
void svg_grid_line(FILE *to, double x1, double y1, double x2, double y2);
void svg_leader(FILE *to, double x1, double y1, double x2, double y2); /* from a mark to its label */

#endif
