/* inspect_svg_mosaic.c: a prompt's mosaic.
 *
 *    plan 10 tokens                 labels of tiles that are too narrow for them, each at its leader line
 *    |          duration 3 tokens   (further left is further up, so no line crosses a label)
 *    |          |
 *   [  ][ miami ][]////[ prompt ]   one lane: cached and fresh tiles, hatched gaps
 *   0        100       200          the axis
 *
 * Owns nothing. One thread.
 */
#include <stdlib.h>
#include <string.h>

#include "console.h"
#include "inspect_svg.h"
#include "inspect_text.h"
#include "svg.h"

#define LANE_HEIGHT 76.0
#define HATCH_HEIGHT 9.0  /* the mark of inexact states, along a tile's lower edge */
#define ROW_HEIGHT 18.0   /* of labels above the lane */
#define ROWS_MAX 24
#define LABEL_ROOM 170.0  /* to the right of the last tile, if its label needs it */
#define TILE_LABEL_MIN 44.0

typedef struct mosaic {
    FILE *to;
    const rp_inspection *in;
    rp_inspect_tile *tiles; /* by position */
    int *rows;              /* of each tile's label above the lane; -1: it stands in the tile or nowhere */
    int n_rows;
    svg_scale scale;
    double lane_y;
    int32_t end;            /* behind the last tile */
} mosaic;

static const char *tile_name(const rp_inspect_tile *t) { return t->path[0] != '\0' ? t->path : "anonymous text"; }

static double tile_width(const mosaic *m, const rp_inspect_tile *t) { return (double)t->n_tokens * m->scale.per_position; }

/* Inside, a name may be cut, but not to nothing. */
static bool label_fits_inside(const mosaic *m, const rp_inspect_tile *t) {
    double name = svg_text_width(tile_name(t), SVG_LABEL_PX + 1) + 14;
    double width = tile_width(m, t);
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

/* From right to left each label takes the lowest row where it ends before everything placed so far in that row or above it.
 * What was placed stands further right, so a leader line on its way up meets no label. */
static void place_labels(mosaic *m) {
    double limit[ROWS_MAX];
    for (int r = 0; r < ROWS_MAX; r++) limit[r] = SVG_WIDTH;
    m->n_rows = 0;
    for (int32_t i = m->in->n_tiles - 1; i >= 0; i--) {
        const rp_inspect_tile *t = &m->tiles[i];
        m->rows[i] = -1;
        if (label_fits_inside(m, t)) continue;
        char *label = outside_label(t);
        double x = svg_x(&m->scale, t->position) + tile_width(m, t) / 2;
        double right = x + svg_text_width(label, SVG_LABEL_PX) + 12;
        free(label);
        int r = 0;
        while (r < ROWS_MAX && right > limit[r]) r++;
        if (r == ROWS_MAX) continue; /* its tooltip remains */
        for (int q = 0; q <= r; q++) limit[q] = x;
        m->rows[i] = r;
        if (r >= m->n_rows) m->n_rows = r + 1;
    }
}

/* The lane leaves room on the right if the last tile cannot hold its own label. */
static void choose_scale(mosaic *m) {
    m->scale = svg_scale_make(m->end, SVG_MARGIN, SVG_WIDTH - SVG_MARGIN);
    int32_t n = m->in->n_tiles;
    if (n > 0 && !label_fits_inside(m, &m->tiles[n - 1]))
        m->scale = svg_scale_make(m->end, SVG_MARGIN, SVG_WIDTH - LABEL_ROOM - 16);
}

static void draw_inside(const mosaic *m, const rp_inspect_tile *t, double x, double w) {
    const char *ink = t->is_view ? SVG_ON_CACHED : SVG_ON_FRESH;
    const svg_text_style name = {ink, "start", SVG_LABEL_PX + 1, true}, small = {ink, "start", SVG_LABEL_PX - 1, false};
    char *cut = svg_text_cut(tile_name(t), name.size, w - 12);
    svg_text(m->to, x + 7, m->lane_y + 22, &name, cut);
    free(cut);
    char text[64];
    snprintf(text, sizeof text, "%d token%s", (int)t->n_tokens, t->n_tokens == 1 ? "" : "s");
    if (svg_text_width(text, small.size) > w - 12) snprintf(text, sizeof text, "%d", (int)t->n_tokens);
    svg_text(m->to, x + 7, m->lane_y + 40, &small, text);
    if (!t->is_view || t->shift == 0) return;
    snprintf(text, sizeof text, "shift %+d", (int)t->shift);
    if (svg_text_width(text, small.size) > w - 12) snprintf(text, sizeof text, "%+d", (int)t->shift);
    if (svg_text_width(text, small.size) <= w - 12) svg_text(m->to, x + 7, m->lane_y + 57, &small, text);
}

static void draw_outside(const mosaic *m, const rp_inspect_tile *t, int row, double x) {
    static const svg_text_style style = {SVG_INK, "start", SVG_LABEL_PX, false};
    double y = m->lane_y - 8 - row * ROW_HEIGHT;
    char *label = outside_label(t);
    svg_line(m->to, x, m->lane_y, x, y - 9);
    svg_text(m->to, x + 4, y, &style, label);
    free(label);
}

static void draw_tile(const mosaic *m, int32_t i) {
    const rp_inspect_tile *t = &m->tiles[i];
    double x = svg_x(&m->scale, t->position), full = tile_width(m, t), w = full > 3 ? full - 1 : full;
    size_t bytes = strlen(tile_name(t)) + 160;
    char *tooltip = cli_alloc(bytes);
    snprintf(tooltip, bytes, "%s: %d tokens at %d, %s%s, shift %d", tile_name(t), (int)t->n_tokens, (int)t->position,
             t->is_view ? "cached" : "fresh", t->exact ? "" : ", not exact", (int)t->shift);
    svg_box(m->to, t->is_view ? SVG_CACHED : SVG_FRESH, x, m->lane_y, w, LANE_HEIGHT, tooltip);
    if (!t->exact) svg_box(m->to, SVG_INEXACT, x, m->lane_y + LANE_HEIGHT - HATCH_HEIGHT, w, HATCH_HEIGHT, NULL);
    if (m->rows[i] >= 0)
        draw_outside(m, t, m->rows[i], x + full / 2);
    else if (label_fits_inside(m, t))
        draw_inside(m, t, x, w);
    free(tooltip);
}

static void draw_gap(const mosaic *m, int32_t from, int32_t to) {
    static const svg_text_style style = {SVG_SOFT, "middle", SVG_LABEL_PX - 1, false};
    double x = svg_x(&m->scale, from), w = svg_x(&m->scale, to) - x;
    char text[48];
    snprintf(text, sizeof text, "gap of %d", (int)(to - from));
    svg_box(m->to, SVG_GAP, x + 0.5, m->lane_y + 0.5, w > 2 ? w - 2 : w, LANE_HEIGHT - 1, text);
    if (svg_text_width(text, style.size) + 16 > w) return;
    svg_box(m->to, "ground", x + w / 2 - svg_text_width(text, style.size) / 2 - 4, m->lane_y + LANE_HEIGHT / 2 - 10,
            svg_text_width(text, style.size) + 8, 20, NULL);
    svg_text(m->to, x + w / 2, m->lane_y + LANE_HEIGHT / 2 + 4, &style, text);
}

static void draw_lane(const mosaic *m) {
    int32_t at = 0;
    for (int32_t i = 0; i < m->in->n_tiles; i++) {
        const rp_inspect_tile *t = &m->tiles[i];
        if (t->position > at) draw_gap(m, at, t->position);
        if (t->position + t->n_tokens > at) at = t->position + t->n_tokens;
    }
    if (m->end > at) draw_gap(m, at, m->end);
    for (int32_t i = 0; i < m->in->n_tiles; i++) draw_tile(m, i);
}

static void draw_legend(FILE *to) {
    double x = svg_legend(to, SVG_MARGIN, SVG_CACHED, "cached: states are reused");
    x = svg_legend(to, x, SVG_FRESH, "fresh: computed for this prompt");
    x = svg_legend(to, x, SVG_INEXACT, "lower edge: not exact (computed without some of what stands before)");
    svg_legend(to, x, SVG_GAP, "gap");
}

static void draw(const mosaic *m) {
    long cached = 0, fresh = 0;
    for (int32_t i = 0; i < m->in->n_tiles; i++) *(m->tiles[i].is_view ? &cached : &fresh) += m->tiles[i].n_tokens;
    size_t bytes = strlen(m->in->schema) + 64;
    char *title = cli_alloc(bytes), subtitle[256];
    snprintf(title, bytes, "Mosaic of a prompt for schema '%s'", m->in->schema);
    long percent = cached + fresh > 0 ? 100 * cached / (cached + fresh) : 0; /* rounded down: 100 means all */
    snprintf(subtitle, sizeof subtitle,
             "%s layout \xC2\xB7 %s scope \xC2\xB7 %d positions \xC2\xB7 %ld cached and %ld fresh tokens (%ld %% cached)",
             m->in->layout, m->in->scope, (int)m->end, cached, fresh, percent);
    double axis_y = m->lane_y + LANE_HEIGHT + 12;
    svg_begin(m->to, axis_y + SVG_AXIS_HEIGHT, title, subtitle);
    draw_legend(m->to);
    svg_axis(m->to, &m->scale, m->lane_y - 6, axis_y);
    draw_lane(m);
    svg_end(m->to);
    free(title);
}

void inspect_svg_mosaic(FILE *to, const rp_inspection *in) {
    mosaic m = {.to = to, .in = in, .tiles = inspect_sorted_tiles(in), .end = in->prompt_positions};
    m.rows = cli_alloc((size_t)in->n_tiles * sizeof *m.rows);
    for (int32_t i = 0; i < in->n_tiles; i++) {
        int32_t end = m.tiles[i].position + m.tiles[i].n_tokens;
        if (end > m.end) m.end = end;
    }
    choose_scale(&m);
    place_labels(&m);
    m.lane_y = SVG_HEAD_HEIGHT + 6 + m.n_rows * ROW_HEIGHT;
    draw(&m);
    free(m.rows);
    free(m.tiles);
}
