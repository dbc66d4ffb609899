/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_svg_schema.c: a schema's canonical layout, as boxes below their parents.
 *
 *   [plan][                                  ]     own text is solid, content is light
 *         [one of                            ]     a union
 *         [miami]  miami - 20                      labels that do not fit inside are on the right
 *         [lisbon............................]     the same positions: one lane further down
 *
 * A node and its content form a block of whole lanes. The blocks of siblings are packed from the top: a block takes the
 * first lanes where it overlaps no block of an earlier sibling, labels included. In a packed layout siblings often
 * share positions (each starts directly after its scope), like the members of a union: they are stacked. Roles, texts
 * and scaffolds have no positions of their own and get no lane.
 *
 * Owns nothing. One thread. Recursion is as deep as the schema's nesting (PML allows 64 levels).
 */
#include <stdlib.h>
#include <string.h>

#include "common/console.h"
#include "inspect/inspect_svg.h"
#include "common/svg.h"
#include "reprise_tools.h"

#define LANE_HEIGHT 30.0
#define BOX_HEIGHT 24.0
#define SIBLING_PX 8.0     /* between blocks in one lane */
#define LABEL_CUT_PX 340.0 /* maximum width of a label to the right of its box */
#define LABEL_ROOM 200.0   /* margin on the right for labels of the last boxes */

/* Geometry of a node. */
typedef struct chart_box {
    int32_t next;       /* index after the node's last descendant */
    int32_t from, to;   /* positions of the node and its content; from > to: none */
    int32_t lane;       /* from the top, relative to its parent's block until chart_place has run */
    int32_t lanes;      /* of its block; 0: nothing is drawn */
    double left, right; /* of its block, labels included */
    bool shown;         /* has a box and a lane */
} chart_box;

typedef struct chart {
    FILE *to;
    const rp_inspection *in;
    chart_box *boxes;
    svg_scale scale;
} chart;

/* ---- Own tokens ---- */

static bool is_kind(const rp_inspect_node *n, const char *kind) { return strcmp(n->kind, kind) == 0; }

static bool has_box(const rp_inspect_node *n) {
    return is_kind(n, "module") || is_kind(n, "union") || is_kind(n, "param") || (n->depth == 0 && n->n_tokens > 0);
}

/* Iterator over the runs of a node's own tokens.
 *
 * In a fixed layout, modules and unions between the runs keep their positions. In a packed layout, a node's next text
 * directly follows its last one, whatever is between; but after a union only a possible default member is known to come
 * first, so the iterator ends there, and `left` counts the tokens with unknown positions. */
typedef struct own_walk {
    int32_t k, at, left;
} own_walk;

static own_walk start_walk(const chart *c, int32_t i) {
    const rp_inspect_node *n = &c->in->nodes[i];
    return (own_walk){i + 1, n->position, is_kind(n, "union") ? 0 : n->n_tokens};
}

static bool is_fixed(const chart *c) { return strcmp(c->in->layout, "fixed") == 0; }

/* The next run, which may be empty; false after the last. */
static bool next_stretch(const chart *c, int32_t i, own_walk *w, int32_t *from, int32_t *to) {
    *from = w->at;
    while (w->left > 0 && w->k < c->boxes[i].next) {
        const chart_box *held = &c->boxes[w->k];
        const rp_inspect_node *n = &c->in->nodes[w->k];
        bool block = held->shown && !is_kind(n, "param"); /* roles are entered; parameters are own tokens */
        bool stops = block && (is_fixed(c) || is_kind(n, "union")) && held->from < w->at + w->left;
        w->k = block ? held->next : w->k + 1;
        if (!stops) continue;
        *to = held->from > w->at ? held->from : w->at;
        w->left -= *to - w->at;
        w->at = held->to;
        if (!is_fixed(c)) w->k = INT32_MAX;
        return true;
    }
    if (w->left <= 0 || w->k == INT32_MAX) return false;
    *to = w->at + w->left;
    w->left = 0;
    return true;
}

/* Tokens after a union of a packed layout. */
static int32_t chart_tokens_after(const chart *c, int32_t i) {
    own_walk w = start_walk(c, i);
    int32_t from, to;
    while (next_stretch(c, i, &w, &from, &to)) continue;
    return w.left;
}

/* ---- Labels ---- */

/* Text of the box: its name and number of own tokens. Freed by the caller. */
static char *chart_node_label(const chart *c, int32_t i) {
    const rp_inspect_node *n = &c->in->nodes[i];
    const char *name = is_kind(n, "union") ? "one of" : n->depth == 0 ? "anonymous text"
                                                                      : n->name;
    size_t bytes = strlen(name) + 80;
    int32_t behind = chart_tokens_after(c, i);
    char *label = cli_alloc(bytes), *cut;
    int used = snprintf(label, bytes, "%s", name);
    if (n->n_tokens > 0 && !is_kind(n, "union"))
        used += snprintf(label + used, bytes - (size_t)used, " \xC2\xB7 %d", (int)(n->n_tokens - behind));
    if (behind > 0) snprintf(label + used, bytes - (size_t)used, " + %d after the union", (int)behind);
    cut = svg_text_cut(label, SVG_LABEL_PX, LABEL_CUT_PX);
    free(label);
    return cut;
}

static double label_width(const chart *c, int32_t i) {
    char *label = chart_node_label(c, i);
    double width = svg_text_width(label, SVG_LABEL_PX);
    free(label);
    return width;
}

/* End of the solid part at the start of a box. */
static int32_t first_stretch_end(const chart *c, int32_t i) {
    own_walk w = start_walk(c, i);
    int32_t from, to;
    return next_stretch(c, i, &w, &from, &to) ? to : c->boxes[i].from;
}

/* Place of a label: on the solid part of its box, on the light part after it, or to the right of the box. */
typedef enum label_place { LABEL_ON_SOLID,
                           LABEL_ON_LIGHT,
                           LABEL_OUTSIDE } label_place;

static label_place place_label(const chart *c, int32_t i, double *x) {
    const chart_box *b = &c->boxes[i];
    double from = svg_x(&c->scale, b->from), to = svg_x(&c->scale, b->to),
           solid = svg_x(&c->scale, first_stretch_end(c, i));
    double width = label_width(c, i);
    *x = from + 6;
    if (*x + width + 4 <= solid) return LABEL_ON_SOLID;
    *x = solid + 6;
    if (*x + width + 4 <= to) return LABEL_ON_LIGHT;
    *x = to + 6;
    return LABEL_OUTSIDE;
}

/* ---- Placing ---- */

static void chart_box_widen(chart_box *b, int32_t from, int32_t to) {
    if (from >= to) return;
    bool empty = b->from >= b->to;
    if (empty || from < b->from) b->from = from;
    if (empty || to > b->to) b->to = to;
}

/* Computes the positions of a node and its content. The content must have been measured. */
static void measure_node(chart *c, int32_t i) {
    const rp_inspect_node *n = &c->in->nodes[i];
    chart_box *b = &c->boxes[i];
    int32_t next = i + 1, from, to;
    while (next < c->in->n_nodes && c->in->nodes[next].depth > n->depth) {
        chart_box_widen(b, c->boxes[next].from, c->boxes[next].to);
        next = c->boxes[next].next;
    }
    b->next = next;
    if (has_box(n))
        for (own_walk w = start_walk(c, i); next_stretch(c, i, &w, &from, &to);) chart_box_widen(b, from, to);
    b->shown = has_box(n) && b->from < b->to;
}

static bool chart_box_overlap(const chart_box *a, const chart_box *b) {
    return a->lane < b->lane + b->lanes && b->lane < a->lane + a->lanes && a->left < b->right + SIBLING_PX &&
           b->left < a->right + SIBLING_PX;
}

/* Moves child to the first lanes from `lane` on where it overlaps no earlier sibling; `first` is the first of these. */
static void drop_into_place(chart *c, int32_t first, int32_t child, int32_t lane) {
    chart_box *b = &c->boxes[child];
    b->lane = lane;
    for (int32_t k = first; k < child;) {
        const chart_box *other = &c->boxes[k];
        if (other->lanes > 0 && chart_box_overlap(b, other)) {
            b->lane = other->lane + other->lanes;
            k = first;
        } else {
            k = other->next;
        }
    }
}

/* Starts a block with the box's own lane, above its content. */
static void start_block(const chart *c, int32_t i) {
    chart_box *b = &c->boxes[i];
    if (!b->shown) return;
    b->left = svg_x(&c->scale, b->from);
    double x;
    label_place place = place_label(c, i, &x);
    b->right = place == LABEL_OUTSIDE ? x + label_width(c, i) : svg_x(&c->scale, b->to);
    b->lanes = 1;
}

/* Arranges the content of node i, and thereby the node's block. */
static void chart_arrange(chart *c, int32_t i) {
    chart_box *b = &c->boxes[i];
    start_block(c, i);
    int32_t own = b->lanes;
    for (int32_t k = i + 1; k < b->next; k = c->boxes[k].next) {
        chart_box *child = &c->boxes[k];
        chart_arrange(c, k);
        if (child->lanes == 0) continue;
        drop_into_place(c, i + 1, k, own);
        if (b->lanes == 0 || child->left < b->left) b->left = child->left;
        if (b->lanes == 0 || child->right > b->right) b->right = child->right;
        if (child->lane + child->lanes > b->lanes) b->lanes = child->lane + child->lanes;
    }
}

/* Converts lanes relative to the parent to lanes of the drawing. */
static void chart_place(chart *c, int32_t i, int32_t lane) {
    chart_box *b = &c->boxes[i];
    b->lane = lane;
    for (int32_t k = i + 1; k < b->next; k = c->boxes[k].next) chart_place(c, k, lane + c->boxes[k].lane);
}

/* ---- Drawing ---- */

static const char *fill_of(const rp_inspect_node *n) {
    if (is_kind(n, "param")) return SVG_GAP;
    return n->cached ? SVG_CACHED : SVG_FRESH;
}

static char *node_tooltip(const rp_inspect_node *n) {
    const char *path = n->path[0] != '\0' ? n->path : n->name;
    size_t bytes = strlen(n->kind) + strlen(path) + strlen(n->preview) + 96;
    char *tooltip = cli_alloc(bytes);
    snprintf(tooltip, bytes, "%s %s: %d tokens at %d%s%s%s%s", n->kind, path, (int)n->n_tokens, (int)n->position,
             n->key[0] != '\0' ? ", key " : "", n->key, n->preview[0] != '\0' ? "\xC2\xB7 " : "", n->preview);
    return tooltip;
}

static void chart_draw_label(const chart *c, int32_t i, double y) {
    const rp_inspect_node *n = &c->in->nodes[i];
    svg_text_style style = {SVG_INK, "start", SVG_LABEL_PX, false};
    double x;
    if (place_label(c, i, &x) == LABEL_ON_SOLID && !is_kind(n, "param"))
        style.class_name = n->cached ? SVG_ON_CACHED : SVG_ON_FRESH;
    char *label = chart_node_label(c, i);
    svg_text(c->to, x, y + 16.5, &style, label);
    free(label);
}

static void draw_solid(const chart *c, int32_t i, int32_t from, int32_t to, double y, const char *tooltip) {
    double x = svg_x(&c->scale, from), w = svg_x(&c->scale, to) - x;
    if (to > from) svg_box(c->to, fill_of(&c->in->nodes[i]), x, y, w > 3 ? w - 1 : w, BOX_HEIGHT, tooltip);
}

static void draw_own(const chart *c, int32_t i, double y, const char *tooltip) {
    int32_t from, to;
    for (own_walk w = start_walk(c, i); next_stretch(c, i, &w, &from, &to);) draw_solid(c, i, from, to, y, tooltip);
}

static void draw_node(const chart *c, int32_t i, double top) {
    const rp_inspect_node *n = &c->in->nodes[i];
    const chart_box *b = &c->boxes[i];
    double x = svg_x(&c->scale, b->from), y = top + b->lane * LANE_HEIGHT, w = svg_x(&c->scale, b->to) - x;
    char *tooltip = node_tooltip(n);
    bool is_union = is_kind(n, "union");
    if (is_union || b->to > first_stretch_end(c, i))
        svg_box(c->to, is_union ? SVG_CHOICE : SVG_EXTENT, x + 0.5, y + 0.5, w - 1, BOX_HEIGHT - 1, tooltip);
    if (!is_union) draw_own(c, i, y, tooltip);
    chart_draw_label(c, i, y);
    free(tooltip);
}

static void inspect_svg_schema_draw_legend(FILE *to) {
    double x = svg_legend(to, SVG_MARGIN, SVG_CACHED, "prefilled once, then cached");
    x = svg_legend(to, x, SVG_FRESH, "cache=\"false\": prefilled for each prompt");
    x = svg_legend(to, x, SVG_GAP, "parameter");
    x = svg_legend(to, x, SVG_EXTENT, "including its members");
    svg_legend(to, x, SVG_CHOICE, "union: one of these");
}

static void chart_draw(const chart *c, int32_t lanes) {
    const rp_inspection *in = c->in;
    size_t bytes = strlen(in->schema) + 64;
    char *title = cli_alloc(bytes), subtitle[256];
    snprintf(title, bytes, "Canonical layout of schema '%s'", in->schema);
    snprintf(subtitle, sizeof subtitle, "%s layout \xC2\xB7 %s scope \xC2\xB7 %d positions", in->layout, in->scope,
             (int)in->schema_positions);
    double top = SVG_HEAD_HEIGHT + 4, axis_y = top + lanes * LANE_HEIGHT + 6;
    svg_begin(c->to, axis_y + SVG_AXIS_HEIGHT, title, subtitle);
    inspect_svg_schema_draw_legend(c->to);
    svg_axis(c->to, &c->scale, top - 4, axis_y);
    for (int32_t i = 0; i < in->n_nodes; i++)
        if (c->boxes[i].shown) draw_node(c, i, top);
    svg_end(c->to);
    free(title);
}

void inspect_svg_schema(FILE *to, const rp_inspection *in) {
    chart c = {.to = to, .in = in, .boxes = cli_alloc((size_t)in->n_nodes * sizeof *c.boxes)};
    int32_t end = 0, lanes = 0;
    for (int32_t i = in->n_nodes - 1; i >= 0; i--) measure_node(&c, i); /* children before parents */
    if (in->n_nodes > 0) end = c.boxes[0].to;
    c.scale = svg_scale_make(end, SVG_MARGIN, SVG_WIDTH - LABEL_ROOM);
    if (in->n_nodes > 0) {
        chart_arrange(&c, 0);
        chart_place(&c, 0, 0);
        lanes = c.boxes[0].lanes;
    }
    chart_draw(&c, lanes);
    free(c.boxes);
}
