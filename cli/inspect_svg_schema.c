/* inspect_svg_schema.c: a schema's canonical layout, as boxes that hang below what they stand in.
 *
 *   [plan....................................]     depth 1
 *   [union                                   ]     depth 2
 *   [miami...............] miami - 120             depth 3; labels that do not fit inside stand to the right
 *   [lisbon.........]      lisbon - 90             the same positions: one lane further down
 *
 * Every node and what it holds make a block of whole lanes. The blocks of siblings are packed from the top: a block takes the
 * first lanes where it overlaps no block of an earlier sibling, labels included. In a packed layout siblings often share
 * positions (each stands directly behind its scope), and so do the members of a union: they come out stacked.
 *
 * Owns nothing. One thread. Recursion is as deep as the schema's nesting (PML allows 64 levels).
 */
#include <stdlib.h>
#include <string.h>

#include "console.h"
#include "inspect_svg.h"
#include "svg.h"

#define LANE_HEIGHT 30.0
#define BOX_HEIGHT 24.0
#define SIBLING_PX 8.0      /* between blocks in one lane */
#define LABEL_CUT_PX 260.0  /* a label to the right of its box is cut here */
#define LABEL_ROOM 200.0    /* kept free on the right for labels of the last boxes */

/* Where a node is drawn. */
typedef struct chart_box {
    int32_t next;      /* index behind the node's last descendant */
    int32_t from, to;  /* positions that the node and all it holds take; from > to: none */
    int32_t lane;      /* from the top, relative to its parent's block until place() has run */
    int32_t lanes;     /* of its block */
    double left, right; /* of its block, labels included */
    bool hidden;       /* takes no lane: the schema, scaffolds, what has no tokens */
} chart_box;

typedef struct chart {
    FILE *to;
    const rp_inspection *in;
    chart_box *boxes;
    svg_scale scale;
} chart;

/* ---- Labels ---- */

static bool is_kind(const rp_inspect_node *n, const char *kind) { return strcmp(n->kind, kind) == 0; }

/* What the box shows: its name, or what it is. Freed by the caller. */
static char *node_label(const rp_inspect_node *n) {
    bool text = is_kind(n, "text");
    const char *name = text && n->preview[0] != '\0' ? n->preview : n->name[0] != '\0' ? n->name : n->kind;
    size_t bytes = strlen(name) + 40;
    char *label = cli_alloc(bytes), *cut;
    snprintf(label, bytes, "%s \xC2\xB7 %d", name, (int)n->n_tokens);
    if (is_kind(n, "union")) snprintf(label, bytes, "one of \xC2\xB7 %d", (int)n->n_tokens);
    cut = svg_text_cut(label, SVG_LABEL_PX, LABEL_CUT_PX);
    free(label);
    return cut;
}

static double label_width(const rp_inspect_node *n) {
    char *label = node_label(n);
    double width = svg_text_width(label, SVG_LABEL_PX);
    free(label);
    return width;
}

static double box_width(const chart *c, const chart_box *b) { return svg_x(&c->scale, b->to) - svg_x(&c->scale, b->from); }

static bool label_fits_inside(const chart *c, int32_t i) {
    return label_width(&c->in->nodes[i]) + 12 <= box_width(c, &c->boxes[i]);
}

/* ---- Placing ---- */

static void widen(chart_box *b, int32_t from, int32_t to) {
    if (from >= to) return;
    bool empty = b->from >= b->to;
    if (empty || from < b->from) b->from = from;
    if (empty || to > b->to) b->to = to;
}

/* Ends and extents of every node, children before parents. */
static void measure(chart *c) {
    const rp_inspection *in = c->in;
    for (int32_t i = in->n_nodes - 1; i >= 0; i--) {
        const rp_inspect_node *n = &in->nodes[i];
        chart_box *b = &c->boxes[i];
        int32_t next = i + 1;
        bool draws = !is_kind(n, "scaffold") && !is_kind(n, "union");
        if (draws) widen(b, n->position, n->position + n->n_tokens);
        while (next < in->n_nodes && in->nodes[next].depth > n->depth) {
            widen(b, c->boxes[next].from, c->boxes[next].to);
            next = c->boxes[next].next;
        }
        b->next = next;
        b->hidden = n->depth == 0 || b->from >= b->to;
    }
}

static bool overlap(const chart_box *a, const chart_box *b) {
    return a->lane < b->lane + b->lanes && b->lane < a->lane + a->lanes && a->left < b->right + SIBLING_PX &&
           b->left < a->right + SIBLING_PX;
}

/* The first lanes where child collides with none of its earlier siblings, beginning at `first`. */
static void drop_into_place(chart *c, int32_t first, int32_t child, int32_t lane) {
    chart_box *b = &c->boxes[child];
    b->lane = lane;
    for (int32_t k = first; k < child;) {
        const chart_box *other = &c->boxes[k];
        if (!other->hidden && overlap(b, other)) {
            b->lane = other->lane + other->lanes;
            k = first;
        } else {
            k = other->next;
        }
    }
}

/* Lays out what node i holds, and then its own block. */
static void arrange(chart *c, int32_t i) {
    chart_box *b = &c->boxes[i];
    if (!b->hidden) {
        b->left = svg_x(&c->scale, b->from);
        b->right = label_fits_inside(c, i) ? svg_x(&c->scale, b->to) : svg_x(&c->scale, b->to) + 6 + label_width(&c->in->nodes[i]);
        b->lanes = 1;
    }
    int32_t own = b->lanes;
    for (int32_t k = i + 1; k < b->next; k = c->boxes[k].next) {
        chart_box *child = &c->boxes[k];
        arrange(c, k);
        if (child->hidden) continue;
        drop_into_place(c, i + 1, k, own);
        if (child->lane + child->lanes > b->lanes) b->lanes = child->lane + child->lanes;
        if (b->hidden || child->left < b->left) b->left = child->left;
        if (child->right > b->right) b->right = child->right;
    }
}

/* Lanes relative to the parent become lanes of the drawing. */
static void place(chart *c, int32_t i, int32_t lane) {
    chart_box *b = &c->boxes[i];
    b->lane = lane;
    for (int32_t k = i + 1; k < b->next; k = c->boxes[k].next) place(c, k, lane + c->boxes[k].lane);
}

/* ---- Drawing ---- */

static bool has_text_inside(const chart *c, int32_t i) {
    for (int32_t k = i + 1; k < c->boxes[i].next; k = c->boxes[k].next)
        if (is_kind(&c->in->nodes[k], "text")) return true;
    return false;
}

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

/* The label's colour: on the solid part of a box, on its light part, or beside it. */
static void draw_label(const chart *c, int32_t i, double y, double solid_to) {
    const rp_inspect_node *n = &c->in->nodes[i];
    const chart_box *b = &c->boxes[i];
    double x = svg_x(&c->scale, b->from) + 6, width = label_width(n);
    svg_text_style style = {SVG_INK, "start", SVG_LABEL_PX, false};
    if (x + width + 4 <= solid_to)
        style.class_name = is_kind(n, "param") ? SVG_INK : n->cached ? SVG_ON_CACHED : SVG_ON_FRESH;
    else if (solid_to + 6 + width <= svg_x(&c->scale, b->to))
        x = solid_to > x ? solid_to + 6 : x;
    else
        x = svg_x(&c->scale, b->to) + 6;
    char *label = node_label(n);
    svg_text(c->to, x, y + 16.5, &style, label);
    free(label);
}

static void draw_node(const chart *c, int32_t i, double top) {
    const rp_inspect_node *n = &c->in->nodes[i];
    const chart_box *b = &c->boxes[i];
    double x = svg_x(&c->scale, b->from), y = top + b->lane * LANE_HEIGHT, solid_to = x;
    char *tooltip = node_tooltip(n);
    bool solid = n->n_tokens > 0 && !is_kind(n, "union") && !has_text_inside(c, i);
    double own_from = svg_x(&c->scale, n->position), own_to = svg_x(&c->scale, n->position + n->n_tokens);
    if (b->next > i + 1 || !solid)
        svg_box(c->to, is_kind(n, "union") ? SVG_CHOICE : SVG_EXTENT, x + 0.5, y + 0.5, box_width(c, b) - 1, BOX_HEIGHT - 1, tooltip);
    if (solid) {
        double w = own_to - own_from;
        svg_box(c->to, fill_of(n), own_from, y, w > 3 ? w - 1 : w, BOX_HEIGHT, tooltip);
        if (own_from <= x) solid_to = own_to;
    }
    draw_label(c, i, y, solid_to);
    free(tooltip);
}

static void draw_legend(FILE *to) {
    double x = svg_legend(to, SVG_MARGIN, SVG_CACHED, "computed once, then cached");
    x = svg_legend(to, x, SVG_FRESH, "cache=\"false\": computed for each prompt");
    x = svg_legend(to, x, SVG_GAP, "parameter");
    x = svg_legend(to, x, SVG_EXTENT, "with everything inside it");
    svg_legend(to, x, SVG_CHOICE, "union: one of these");
}

static void draw(const chart *c, int32_t lanes) {
    const rp_inspection *in = c->in;
    size_t bytes = strlen(in->schema) + 64;
    char *title = cli_alloc(bytes), subtitle[256];
    snprintf(title, bytes, "Canonical layout of schema '%s'", in->schema);
    snprintf(subtitle, sizeof subtitle, "%s layout \xC2\xB7 %s scope \xC2\xB7 %d positions", in->layout, in->scope,
             (int)in->schema_positions);
    double top = SVG_HEAD_HEIGHT + 4, axis_y = top + lanes * LANE_HEIGHT + 6;
    svg_begin(c->to, axis_y + SVG_AXIS_HEIGHT, title, subtitle);
    draw_legend(c->to);
    svg_axis(c->to, &c->scale, top - 4, axis_y);
    for (int32_t i = 0; i < in->n_nodes; i++)
        if (!c->boxes[i].hidden) draw_node(c, i, top);
    svg_end(c->to);
    free(title);
}

void inspect_svg_schema(FILE *to, const rp_inspection *in) {
    chart c = {.to = to, .in = in, .boxes = cli_alloc((size_t)in->n_nodes * sizeof *c.boxes)};
    int32_t end = in->schema_positions, lanes = 0;
    measure(&c);
    for (int32_t i = 0; i < in->n_nodes; i++)
        if (!c.boxes[i].hidden && c.boxes[i].to > end) end = c.boxes[i].to;
    c.scale = svg_scale_make(end, SVG_MARGIN, SVG_WIDTH - LABEL_ROOM);
    if (in->n_nodes > 0) {
        arrange(&c, 0);
        place(&c, 0, 0);
        lanes = c.boxes[0].lanes;
    }
    draw(&c, lanes);
    free(c.boxes);
}
