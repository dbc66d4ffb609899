/* SPDX-License-Identifier: Apache-2.0 */
/* svg.c: see svg.h. The only place that converts text to valid XML. Owns nothing. One thread. */
#include "common/svg.h"

#include <stdlib.h>
#include <string.h>

#include "common/console.h"
#include "common/text.h"

#define TITLE_Y 46.0
#define SUBTITLE_Y 70.0
#define LEGEND_Y 88.0
#define SWATCH_WIDTH 22.0
#define SWATCH_HEIGHT 14.0
#define TICK_PX 90.0 /* minimum distance of two numbers on the axis */
#define ELLIPSIS "\xE2\x80\xA6"

/* Attributes come first: viewers without media queries use the light colours. */
static const char style_sheet[] =
    "<style>\n"
    "text{font-family:system-ui,-apple-system,'Segoe UI','Helvetica Neue',Arial,'DejaVu Sans',sans-serif}\n"
    ".ground{fill:#ffffff}.ink{fill:#1b1f24}.soft{fill:#57606a}\n"
    ".rule{stroke:#8c959f;stroke-width:1;fill:none}.faint{stroke:#8c959f;stroke-opacity:.22;stroke-width:1}.leader{"
    "stroke:#8c959f;stroke-opacity:.7;stroke-width:1}\n"
    ".cached{fill:#14807a}.fresh{fill:#bf4c35}.on-cached{fill:#ffffff}.on-fresh{fill:#ffffff}\n"
    ".extent{fill:#14807a;fill-opacity:.10;stroke:#14807a;stroke-opacity:.55}\n"
    ".choice{fill:none;stroke:#57606a;stroke-dasharray:5 3}\n"
    ".gap{fill:url(#gap-hatch);stroke:#8c959f;stroke-dasharray:4 3}\n"
    ".inexact{fill:url(#inexact-hatch)}\n"
    ".hatch{stroke:#8c959f;stroke-opacity:.55;stroke-width:1}.cut{stroke:#ffffff;stroke-width:3.2}"
    ".cut-ground{fill:#1b1f24}\n"
    ".curve{fill:none;stroke-width:2;stroke-linejoin:round}\n"
    ".c0{stroke:#14807a;stroke-width:3.5}.c1{stroke:#a8690a;stroke-dasharray:9 4}.c2{stroke:#7b4fa3;stroke-dasharray:2 "
    "4}\n"
    ".c3{stroke:#b83a78;stroke-dasharray:9 4 2 4}.c4{stroke:#6b7a1e}.c5{stroke:#585f65;stroke-dasharray:4 "
    "3}.c6{stroke:#8f4d2e;stroke-dasharray:12 3 3 3}.c7{stroke:#1b1f22}\n"
    ".m0{fill:#14807a}.m1{fill:#a8690a}.m2{fill:#7b4fa3}.m3{fill:#b83a78}.m4{fill:#6b7a1e}.m5{fill:#585f65}"
    ".m6{fill:#8f4d2e}.m7{fill:#1b1f22}\n"
    ".whisker{fill:none;stroke-width:1.4;stroke-dasharray:none;stroke-opacity:.75}\n"
    "@media (prefers-color-scheme:dark){\n"
    ".ground{fill:#14181d}.ink{fill:#e6edf3}.soft{fill:#9aa4af}\n"
    ".cached{fill:#3fb3aa}.fresh{fill:#ee8a70}.on-cached{fill:#0c1112}.on-fresh{fill:#0c1112}\n"
    ".extent{fill:#3fb3aa;fill-opacity:.14;stroke:#3fb3aa}.choice{stroke:#9aa4af}\n"
    ".c0{stroke:#3fb3aa}.c1{stroke:#d6a45c}.c2{stroke:#b392dd}.c3{stroke:#ee8ab5}.c4{stroke:#b5c45a}.c5{stroke:#9ea8ad}"
    ".c6{stroke:#dba184}.c7{stroke:#e6e9e8}\n"
    ".m0{fill:#3fb3aa}.m1{fill:#d6a45c}.m2{fill:#b392dd}.m3{fill:#ee8ab5}.m4{fill:#b5c45a}.m5{fill:#9ea8ad}"
    ".m6{fill:#dba184}.m7{fill:#e6e9e8}\n"
    "}\n"
    "</style>\n"
    "<defs>\n"
    "<pattern id=\"gap-hatch\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\">"
    "<line class=\"hatch\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"7\"/></pattern>\n"
    "<pattern id=\"inexact-hatch\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\">"
    "<rect class=\"cut-ground\" width=\"7\" height=\"7\"/><line class=\"cut\" x1=\"0\" y1=\"0\" x2=\"0\" "
    "y2=\"7\"/></pattern>\n"
    "</defs>\n";

svg_scale svg_scale_make(int32_t positions, double left, double right) {
    int32_t n = positions > 0 ? positions : 1;
    return (svg_scale){.left = left, .per_position = (right - left) / (double)n, .positions = n};
}

double svg_x(const svg_scale *s, int32_t position) { return s->left + (double)(position - s->first) * s->per_position; }

/* ---- Text ---- */

/* XML 1.0 excludes control characters, U+FFFE and U+FFFF, even escaped. */
static void write_escaped(FILE *to, const char *s) {
    for (size_t n = strlen(s), i = 0; i < n;) {
        uint32_t c;
        size_t len = cli_utf8_next(s + i, n - i, &c);
        if (cli_is_control(c) || c == 0xFFFE || c == 0xFFFF)
            fputs("\xEF\xBF\xBD", to);
        else if (c == '<' || c == '>' || c == '&' || c == '"')
            fprintf(to, "&#%u;", (unsigned)c);
        else
            fwrite(s + i, 1, len, to);
        i += len;
    }
}

/* Estimated without the font: sans-serif letters are about 0.6 of their size wide, digits and capitals a little
 * more. */
static double char_width(uint32_t c, double size) {
    if (c < 0x80 && strchr("iljtfr.,:;'|!()[]/ -", (int)c) != NULL) return 0.42 * size;
    if (c < 0x80 && strchr("mwMW@%", (int)c) != NULL) return 0.95 * size;
    return (cli_char_cells(c) == 2 ? 1.05 : 0.63) * size;
}

double svg_text_width(const char *text, double size) {
    double width = 0;
    for (size_t n = strlen(text), i = 0; i < n;) {
        uint32_t c;
        i += cli_utf8_next(text + i, n - i, &c);
        width += char_width(c, size);
    }
    return width;
}

char *svg_text_cut(const char *text, double size, double width) {
    size_t n = strlen(text), fits = 0, chars = 0;
    char *cut = cli_alloc(n + sizeof ELLIPSIS);
    if (svg_text_width(text, size) <= width) return memcpy(cut, text, n);
    double used = char_width(0x2026, size);
    while (fits < n) {
        uint32_t c;
        size_t len = cli_utf8_next(text + fits, n - fits, &c);
        used += char_width(c, size);
        if (used > width) break;
        fits += len;
        chars++;
    }
    if (chars < 3) return cut;
    memcpy(cut, text, fits);
    memcpy(cut + fits, ELLIPSIS, sizeof ELLIPSIS);
    return cut;
}

void svg_text(FILE *to, double x, double y, const svg_text_style *style, const char *text) {
    fprintf(to, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" font-size=\"%.4g\" text-anchor=\"%s\"%s>", style->class_name,
            x, y, style->size, style->anchor, style->bold ? " font-weight=\"600\"" : "");
    write_escaped(to, text);
    fputs("</text>\n", to);
}

/* ---- Shapes ---- */

void svg_box(FILE *to, const char *class_name, double x, double y, double w, double h, const char *tooltip) {
    double radius = w > 8 ? 3 : 0;
    fprintf(to, "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" rx=\"%.0f\"", class_name, x, y,
            w > 0.5 ? w : 0.5, h, radius);
    if (tooltip == NULL) {
        fputs("/>\n", to);
        return;
    }
    fputs("><title>", to);
    write_escaped(to, tooltip);
    fputs("</title></rect>\n", to);
}

static void line_of_class(FILE *to, const char *class_name, double x1, double y1, double x2, double y2) {
    fprintf(to, "<line class=\"%s\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>\n", class_name, x1, y1, x2, y2);
}

void svg_line(FILE *to, double x1, double y1, double x2, double y2) { line_of_class(to, "rule", x1, y1, x2, y2); }

void svg_grid_line(FILE *to, double x1, double y1, double x2, double y2) { line_of_class(to, "faint", x1, y1, x2, y2); }

void svg_leader(FILE *to, double x1, double y1, double x2, double y2) { line_of_class(to, "leader", x1, y1, x2, y2); }

void svg_curve(FILE *to, int number, const svg_point *points, size_t n) {
    fprintf(to, "<polyline class=\"curve c%d\" points=\"", number);
    for (size_t i = 0; i < n; i++) fprintf(to, "%s%.1f,%.1f", i > 0 ? " " : "", points[i].x, points[i].y);
    fputs("\"/>\n", to);
    for (size_t i = 0; i < n; i++) svg_mark(to, number, points[i].x, points[i].y);
}

void svg_mark(FILE *to, int number, double x, double y) {
    fprintf(to, "<circle class=\"m%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"/>\n", number, x, y,
            number == 0 ? "4.5" : "3.6");
}

void svg_square(FILE *to, double x, double y) {
    fprintf(to, "<rect class=\"" SVG_INK "\" x=\"%.1f\" y=\"%.1f\" width=\"8\" height=\"8\"/>\n", x - 4, y - 4);
}

void svg_whisker(FILE *to, int number, double x, double low, double high) {
    fprintf(to, "<path class=\"whisker c%d\" d=\"M%.1f %.1fV%.1fM%.1f %.1fh8M%.1f %.1fh8\"/>\n", number, x, low, high,
            x - 4, low, x - 4, high);
}

/* ---- The frame ---- */

void svg_begin(FILE *to, double height, const char *title, const char *subtitle) {
    static const svg_text_style big = {SVG_INK, "start", 22, true}, small = {SVG_SOFT, "start", 14, false};
    fprintf(to,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
            "role=\"img\">\n"
            "<title>",
            SVG_WIDTH, height, SVG_WIDTH, height);
    write_escaped(to, title);
    fputs("</title>\n", to);
    fputs(style_sheet, to);
    fprintf(to, "<rect class=\"ground\" width=\"%.0f\" height=\"%.0f\"/>\n", SVG_WIDTH, height);
    char *cut = svg_text_cut(title, big.size, SVG_WIDTH - 2 * SVG_MARGIN);
    svg_text(to, SVG_MARGIN, TITLE_Y, &big, cut);
    free(cut);
    svg_text(to, SVG_MARGIN, SUBTITLE_Y, &small, subtitle);
}

void svg_end(FILE *to) { fputs("</svg>\n", to); }

double svg_legend(FILE *to, double x, const char *class_name, const char *text) {
    static const svg_text_style style = {SVG_SOFT, "start", SVG_LABEL_PX, false};
    svg_box(to, class_name, x, LEGEND_Y, SWATCH_WIDTH, SWATCH_HEIGHT, NULL);
    svg_text(to, x + SWATCH_WIDTH + 7, LEGEND_Y + 11, &style, text);
    return x + SWATCH_WIDTH + 7 + svg_text_width(text, SVG_LABEL_PX) + 22;
}

static double legend_text(FILE *to, double x, const char *text) {
    static const svg_text_style style = {SVG_SOFT, "start", SVG_LABEL_PX + 1, false};
    svg_text(to, x, LEGEND_Y + 11, &style, text);
    return x + svg_text_width(text, style.size) + 26;
}

double svg_curve_legend(FILE *to, double x, int number, const char *text) {
    double y = LEGEND_Y + SWATCH_HEIGHT / 2;
    const svg_point ends[] = {{x, y}, {x + 2 * SWATCH_WIDTH, y}};
    svg_curve(to, number, ends, 2);
    return legend_text(to, x + 2 * SWATCH_WIDTH + 10, text);
}

double svg_mark_legend(FILE *to, double x, int number, const char *text) {
    svg_mark(to, number, x + 5, LEGEND_Y + SWATCH_HEIGHT / 2);
    return legend_text(to, x + 18, text);
}

double svg_square_legend(FILE *to, double x, const char *text) {
    svg_square(to, x + 5, LEGEND_Y + SWATCH_HEIGHT / 2);
    return legend_text(to, x + 18, text);
}

/* The smallest of 1, 2, 5 times a power of ten that keeps TICK_PX between ticks. */
static int64_t tick_step(const svg_scale *s) {
    for (int64_t decade = 1;; decade *= 10)
        for (int64_t step = 1; step <= 5; step += step == 1 ? 1 : 3)
            if ((double)(step * decade) * s->per_position >= TICK_PX || decade >= INT32_MAX) return step * decade;
}

void svg_axis(FILE *to, const svg_scale *s, double top, double y) {
    static const svg_text_style number = {SVG_SOFT, "middle", SVG_LABEL_PX, false};
    int64_t step = tick_step(s);
    int64_t end = (int64_t)s->first + s->positions;
    svg_line(to, s->left, y, svg_x(s, (int32_t)end), y);
    for (int64_t p = (s->first + step - 1) / step * step; p <= end; p += step) {
        char label[24];
        double x = svg_x(s, (int32_t)p);
        snprintf(label, sizeof label, "%lld", (long long)p);
        line_of_class(to, "faint", x, top, x, y);
        svg_line(to, x, y, x, y + 5);
        svg_text(to, x, y + 19, &number, label);
    }
    static const svg_text_style name = {SVG_SOFT, "start", SVG_LABEL_PX, false};
    svg_text(to, s->left, y + 37, &name, "position (tokens)");
}
