/* SPDX-License-Identifier: Apache-2.0 */
/* cache_curves.c: the drawing of `reprise cache simulate --svg`: saved compute against size.
 *
 *   %  |        o---o     a curve for each policy, Reprise's in front
 *      |   o--'           sizes on a logarithmic axis, by their blocks
 *      +--1/8--1/4--1/2
 *
 * Owns nothing. One thread.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache_simulate.h"
#include "common/svg.h"
#include "reprise_tools.h"

#define LEFT (SVG_MARGIN + 46.0)
#define RIGHT (SVG_WIDTH - SVG_MARGIN)
#define TOP (SVG_HEAD_HEIGHT + 12.0)
#define PLOT_HEIGHT 430.0
#define BOTTOM (TOP + PLOT_HEIGHT)
#define LABEL_PX 64.0 /* minimum distance of two sizes' names */

/* From the rearmost to the foremost; the first one is svg.h's curve 0. */
static const rp_policy order[RP_N_POLICIES] = {RP_POLICY_REPRISE, RP_POLICY_LRU, RP_POLICY_ARC,
                                               RP_POLICY_S3_FIFO, RP_POLICY_LFU, RP_POLICY_OPTIMUM};

typedef struct plot {
    FILE *to;
    const cache_curves *c;
    double low, high; /* logarithms of the smallest and the largest number of blocks */
    double top;       /* per cent */
} plot;

static double plot_x_of(const plot *p, size_t i) {
    if (p->high <= p->low) return (LEFT + RIGHT) / 2;
    return LEFT + 24 + (RIGHT - LEFT - 48) * (log2((double)p->c->sizes[i].blocks) - p->low) / (p->high - p->low);
}

static double plot_y_of(const plot *p, double percent) { return BOTTOM - PLOT_HEIGHT * percent / p->top; }

/* The smallest of 1, 2, 5, 10, 20 per cent with at most ten lines. */
static double cache_curves_grid_step(double most) {
    static const double steps[] = {0.1, 0.2, 0.5, 1, 2, 5};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (most / steps[i] <= 10) return steps[i];
    return 10;
}

static double most_percent(const cache_curves *c) {
    double most = 0.1;
    for (size_t i = 0; i < c->n_sizes; i++)
        for (int k = 0; k < RP_N_POLICIES; k++) most = fmax(most, cache_saved_percent(&c->sizes[i].cells[k]));
    return most;
}

static void draw_grid(const plot *p, double step) {
    static const svg_text_style number = {SVG_SOFT, "end", SVG_LABEL_PX, false};
    for (int i = 0; i * step <= p->top * 1.0001; i++) {
        char text[24];
        snprintf(text, sizeof text, "%g %%", i * step);
        svg_grid_line(p->to, LEFT, plot_y_of(p, i * step), RIGHT, plot_y_of(p, i * step));
        svg_text(p->to, LEFT - 8, plot_y_of(p, i * step) + 4, &number, text);
    }
    svg_line(p->to, LEFT, BOTTOM, RIGHT, BOTTOM);
}

/* Omits a name that would overlap the previous one. */
static void draw_sizes(const plot *p) {
    static const svg_text_style name = {SVG_INK, "middle", SVG_LABEL_PX + 1, false},
                                soft = {SVG_SOFT, "middle", SVG_LABEL_PX - 1, false};
    double last = -LABEL_PX;
    for (size_t i = 0; i < p->c->n_sizes; i++) {
        const cache_size *s = &p->c->sizes[i];
        double x = plot_x_of(p, i);
        char blocks[32];
        snprintf(blocks, sizeof blocks, "%zu", s->blocks);
        svg_grid_line(p->to, x, TOP, x, BOTTOM);
        if (x - last < LABEL_PX) continue;
        svg_line(p->to, x, BOTTOM, x, BOTTOM + 5);
        svg_text(p->to, x, BOTTOM + 21, &name, s->text);
        if (strcmp(blocks, s->text) != 0) svg_text(p->to, x, BOTTOM + 37, &soft, blocks);
        last = x;
    }
    static const svg_text_style what = {SVG_SOFT, "middle", SVG_LABEL_PX, false};
    svg_text(p->to, (LEFT + RIGHT) / 2, BOTTOM + 60, &what, "cache size: fraction of the working set, and blocks");
}

static void draw_curves(const plot *p) {
    for (int k = RP_N_POLICIES; k-- > 0;) {
        svg_point points[CACHE_MAX_SIZES];
        for (size_t i = 0; i < p->c->n_sizes; i++)
            points[i] =
                (svg_point){plot_x_of(p, i), plot_y_of(p, cache_saved_percent(&p->c->sizes[i].cells[order[k]]))};
        svg_curve(p->to, k, points, p->c->n_sizes);
    }
}

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

void cache_curves_draw(FILE *to, const cache_curves *c) {
    double most = most_percent(c), step = cache_curves_grid_step(most), x = SVG_MARGIN;
    plot p = {to, c, log2((double)c->sizes[0].blocks), log2((double)c->sizes[c->n_sizes - 1].blocks),
              step * ceil(most / step)};
    char subtitle[512];
    snprintf(subtitle, sizeof subtitle, "%.200s \xC2\xB7 %zu requests \xC2\xB7 working set: %zu blocks of %d tokens",
             file_name(c->trace), c->n_requests, c->n_blocks, (int)c->block_tokens);
    svg_begin(to, BOTTOM + 80, "Saved compute by cache size", subtitle);
    for (int k = 0; k < RP_N_POLICIES; k++) x = svg_curve_legend(to, x, k, rp_policy_name(order[k]));
    draw_grid(&p, step);
    draw_sizes(&p);
    draw_curves(&p);
    svg_end(to);
}
