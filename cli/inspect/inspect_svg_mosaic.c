/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_svg_mosaic.c: a prompt's mosaic.
 *
 *    plan 10 tokens                 labels of tiles that are too narrow for them, each at its leader line
 *    |          duration 3 tokens   (further left is further up, so no line crosses a label)
 *    |          |
 *   [  ][ miami ][]////[ prompt ]   a lane: cached and fresh tiles, hatched gaps
 *   0        100       200          its axis
 *
 *   [ prompt         ][ ask ]       the next lane continues where the first one ended, as on the server's page
 *   200      300
 *
 * A tile that crosses the end of a lane is drawn in pieces; the widest one has its label. No label is omitted. Owns
 * nothing. One thread.
 */
#include <stdlib.h>
#include <string.h>

#include "common/console.h"
#include "inspect/inspect_svg.h"
#include "inspect/inspect_text.h"
#include "common/svg.h"
#include "reprise_tools.h"

#define LANE_HEIGHT 76.0
#define HATCH_HEIGHT 9.0 /* marks inexact KV along a tile's lower edge */
#define ROW_HEIGHT 18.0  /* of labels above a lane */
#define LABEL_ROOM 170.0 /* to the right of the last tile, for its label */
#define TILE_LABEL_MIN 44.0
#define TOKEN_WIDTH 3.5 /* minimum pixels per token, unless that needs more than MAX_LANES */
#define MAX_LANES 8

/* The part of a tile on one lane. */
typedef struct piece {
    const rp_inspect_tile *tile;
    int32_t from, to; /* positions */
    bool has_label;
    int row; /* of its label above the lane; -1: inside */
} piece;

typedef struct lane {
    svg_scale scale;
    double y;
    piece *pieces; /* by position */
    int n_pieces, n_rows;
} lane;

typedef struct mosaic {
    FILE *to;
    const rp_inspection *in;
    rp_inspect_tile *tiles; /* by position */
    lane lanes[MAX_LANES];
    int n_lanes;
    int32_t end; /* after the last tile */
} mosaic;

static const char *tile_name(const rp_inspect_tile *t) { return t->path[0] != '\0' ? t->path : "anonymous text"; }

static double piece_width(const lane *l, const piece *p) { return (double)(p->to - p->from) * l->scale.per_position; }

/* A label inside a tile may be truncated, but must keep some characters. */
static bool label_fits_inside(const lane *l, const piece *p) {
    double name = svg_text_width(tile_name(p->tile), SVG_LABEL_PX + 1) + 14;
    double width = piece_width(l, p);
    return width >= name || width >= 2 * TILE_LABEL_MIN + 20;
}

static char *outside_label(const rp_inspect_tile *t) {
    const char *name = tile_name(t);
    size_t bytes = strlen(name) + 32;
    char *label = cli_alloc(bytes), *cut;
    snprintf(label, bytes, "%s \xC2\xB7 %d", name, (int)t->n_tokens);
    cut = svg_text_cut(label, SVG_LABEL_PX, LABEL_ROOM);
    free(label);
    return cut;
}

/* From right to left each label takes the lowest row where it ends before all labels placed so far in that row or above
 * it. Placed labels are further right, so a leader line on its way up crosses no label. An empty row fits every
 * label. */
static void place_labels(lane *l) {
    double *limit = cli_alloc((size_t)(l->n_pieces + 1) * sizeof *limit);
    for (int r = 0; r <= l->n_pieces; r++) limit[r] = SVG_WIDTH;
    for (int i = l->n_pieces - 1; i >= 0; i--) {
        piece *p = &l->pieces[i];
        p->row = -1;
        if (!p->has_label || label_fits_inside(l, p)) continue;
        char *label = outside_label(p->tile);
        double x = svg_x(&l->scale, p->from) + piece_width(l, p) / 2;
        double right = x + svg_text_width(label, SVG_LABEL_PX) + 12;
        free(label);
        int r = 0;
        while (r < l->n_pieces && right > limit[r]) r++;
        for (int q = 0; q <= r; q++) limit[q] = x;
        p->row = r;
        if (r >= l->n_rows) l->n_rows = r + 1;
    }
    free(limit);
}

/* Pieces of all tiles; the widest one of a tile has its label. */
static void mosaic_cut_tiles(mosaic *m) {
    for (int k = 0; k < m->n_lanes; k++) m->lanes[k].pieces = cli_alloc((size_t)m->in->n_tiles * sizeof(piece));
    for (int32_t i = 0; i < m->in->n_tiles; i++) {
        const rp_inspect_tile *t = &m->tiles[i];
        piece *widest = NULL;
        for (int k = 0; k < m->n_lanes; k++) {
            lane *l = &m->lanes[k];
            int32_t from = t->position > l->scale.first ? t->position : l->scale.first,
                    end = l->scale.first + l->scale.positions;
            int32_t to = t->position + t->n_tokens < end ? t->position + t->n_tokens : end;
            if (from >= to) continue;
            piece *p = &l->pieces[l->n_pieces++];
            *p = (piece){.tile = t, .from = from, .to = to};
            if (widest == NULL || to - from > widest->to - widest->from) widest = p;
        }
        if (widest != NULL) widest->has_label = true;
    }
}

/* One lane over the whole width if tokens are wide enough, otherwise as many lanes of one scale as necessary. Leaves a
 * margin on the right if the last tile cannot hold its own label. */
static void choose_lanes(mosaic *m) {
    double right = SVG_WIDTH - SVG_MARGIN;
    int32_t n = m->in->n_tiles, fit = (int32_t)((right - SVG_MARGIN) / TOKEN_WIDTH);
    m->n_lanes = m->end <= fit ? 1 : (m->end + fit - 1) / fit < MAX_LANES ? (m->end + fit - 1) / fit
                                                                          : MAX_LANES;
    int32_t each = m->end > 0 ? (m->end + m->n_lanes - 1) / m->n_lanes : 1;
    svg_scale scale = svg_scale_make(each, SVG_MARGIN, right);
    if (n > 0 && (double)m->tiles[n - 1].n_tokens * scale.per_position < 2 * TILE_LABEL_MIN + 20)
        scale = svg_scale_make(each, SVG_MARGIN, SVG_WIDTH - LABEL_ROOM - 16);
    for (int k = 0; k < m->n_lanes; k++) {
        m->lanes[k].scale = scale;
        m->lanes[k].scale.first = k * each;
        if (k == m->n_lanes - 1 && m->n_lanes > 1) m->lanes[k].scale.positions = m->end - k * each;
    }
}

static void draw_inside(FILE *to, const lane *l, const rp_inspect_tile *t, double x, double w) {
    const char *ink = t->is_view ? SVG_ON_CACHED : SVG_ON_FRESH;
    const svg_text_style name = {ink, "start", SVG_LABEL_PX + 1, true}, small = {ink, "start", SVG_LABEL_PX - 1, false};
    char *cut = svg_text_cut(tile_name(t), name.size, w - 12);
    svg_text(to, x + 7, l->y + 22, &name, cut);
    free(cut);
    char text[64];
    snprintf(text, sizeof text, "%d token%s", (int)t->n_tokens, t->n_tokens == 1 ? "" : "s");
    if (svg_text_width(text, small.size) > w - 12) snprintf(text, sizeof text, "%d", (int)t->n_tokens);
    svg_text(to, x + 7, l->y + 40, &small, text);
    if (!t->is_view || t->shift == 0) return;
    snprintf(text, sizeof text, "shift %+d", (int)t->shift);
    if (svg_text_width(text, small.size) > w - 12) snprintf(text, sizeof text, "%+d", (int)t->shift);
    if (svg_text_width(text, small.size) <= w - 12) svg_text(to, x + 7, l->y + 57, &small, text);
}

static void draw_outside(FILE *to, const lane *l, const piece *p, double x) {
    static const svg_text_style style = {SVG_INK, "start", SVG_LABEL_PX, false};
    double y = l->y - 8 - p->row * ROW_HEIGHT;
    char *label = outside_label(p->tile);
    svg_line(to, x, l->y, x, y - 9);
    svg_text(to, x + 4, y, &style, label);
    free(label);
}

static void draw_piece(FILE *to, const lane *l, const piece *p) {
    const rp_inspect_tile *t = p->tile;
    double x = svg_x(&l->scale, p->from), full = piece_width(l, p), w = full > 3 ? full - 1 : full;
    size_t bytes = strlen(tile_name(t)) + 160;
    char *tooltip = cli_alloc(bytes);
    snprintf(tooltip, bytes, "%s: %d tokens at %d, %s%s, shift %d", tile_name(t), (int)t->n_tokens, (int)t->position,
             t->is_view ? "cached" : "fresh", t->exact ? "" : ", not exact", (int)t->shift);
    svg_box(to, t->is_view ? SVG_CACHED : SVG_FRESH, x, l->y, w, LANE_HEIGHT, tooltip);
    if (!t->exact) svg_box(to, SVG_INEXACT, x, l->y + LANE_HEIGHT - HATCH_HEIGHT, w, HATCH_HEIGHT, NULL);
    if (p->has_label && p->row >= 0) draw_outside(to, l, p, x + full / 2);
    else if (p->has_label) draw_inside(to, l, t, x, w);
    free(tooltip);
}

static void draw_gap(FILE *out, const lane *l, int32_t from, int32_t to) {
    static const svg_text_style style = {SVG_SOFT, "middle", SVG_LABEL_PX - 1, false};
    double x = svg_x(&l->scale, from), w = svg_x(&l->scale, to) - x;
    char text[48];
    snprintf(text, sizeof text, "gap of %d", (int)(to - from));
    svg_box(out, SVG_GAP, x + 0.5, l->y + 0.5, w > 2 ? w - 2 : w, LANE_HEIGHT - 1, text);
    if (svg_text_width(text, style.size) + 16 > w) return;
    svg_box(out, "ground", x + w / 2 - svg_text_width(text, style.size) / 2 - 4, l->y + LANE_HEIGHT / 2 - 10,
            svg_text_width(text, style.size) + 8, 20, NULL);
    svg_text(out, x + w / 2, l->y + LANE_HEIGHT / 2 + 4, &style, text);
}

static void draw_lane(FILE *to, const lane *l, int32_t prompt_end) {
    int32_t at = l->scale.first, end = l->scale.first + l->scale.positions;
    if (end > prompt_end) end = prompt_end;
    for (int i = 0; i < l->n_pieces; i++) {
        if (l->pieces[i].from > at) draw_gap(to, l, at, l->pieces[i].from);
        if (l->pieces[i].to > at) at = l->pieces[i].to;
    }
    if (end > at) draw_gap(to, l, at, end);
    for (int i = 0; i < l->n_pieces; i++) draw_piece(to, l, &l->pieces[i]);
}

static void inspect_svg_mosaic_draw_legend(FILE *to) {
    double x = svg_legend(to, SVG_MARGIN, SVG_CACHED, "cached: KV is reused");
    x = svg_legend(to, x, SVG_FRESH, "fresh: prefilled for this prompt");
    x = svg_legend(to, x, SVG_INEXACT, "lower edge: not exact (computed without some of the preceding tokens)");
    svg_legend(to, x, SVG_GAP, "gap");
}

static void mosaic_draw(const mosaic *m) {
    long cached = 0, fresh = 0;
    for (int32_t i = 0; i < m->in->n_tiles; i++) *(m->tiles[i].is_view ? &cached : &fresh) += m->tiles[i].n_tokens;
    size_t bytes = strlen(m->in->schema) + 64;
    char *title = cli_alloc(bytes), subtitle[256];
    snprintf(title, bytes, "Plan of a prompt for schema '%s'", m->in->schema);
    long percent = cached + fresh > 0 ? 100 * cached / (cached + fresh) : 0; /* rounded down: 100 means all */
    snprintf(
        subtitle, sizeof subtitle,
        "%s layout \xC2\xB7 %s scope \xC2\xB7 %d positions \xC2\xB7 %ld cached and %ld fresh tokens (%ld %% cached)",
        m->in->layout, m->in->scope, (int)m->end, cached, fresh, percent);
    svg_begin(m->to, m->lanes[m->n_lanes - 1].y + LANE_HEIGHT + 12 + SVG_AXIS_HEIGHT, title, subtitle);
    inspect_svg_mosaic_draw_legend(m->to);
    for (int k = 0; k < m->n_lanes; k++) {
        svg_axis(m->to, &m->lanes[k].scale, m->lanes[k].y - 6, m->lanes[k].y + LANE_HEIGHT + 12);
        draw_lane(m->to, &m->lanes[k], m->end);
    }
    svg_end(m->to);
    free(title);
}

void inspect_svg_mosaic(FILE *to, const rp_inspection *in) {
    mosaic m = {.to = to, .in = in, .tiles = inspect_sorted_tiles(in), .end = in->prompt_positions};
    for (int32_t i = 0; i < in->n_tiles; i++) {
        int32_t end = m.tiles[i].position + m.tiles[i].n_tokens;
        if (end > m.end) m.end = end;
    }
    choose_lanes(&m);
    mosaic_cut_tiles(&m);
    double y = SVG_HEAD_HEIGHT + 6;
    for (int k = 0; k < m.n_lanes; k++) {
        place_labels(&m.lanes[k]);
        m.lanes[k].y = y + m.lanes[k].n_rows * ROW_HEIGHT;
        y = m.lanes[k].y + LANE_HEIGHT + 12 + SVG_AXIS_HEIGHT;
    }
    mosaic_draw(&m);
    for (int k = 0; k < m.n_lanes; k++) free(m.lanes[k].pieces);
    free(m.tiles);
}
