/* svg.c: see svg.h. Text is made valid XML here and nowhere else. Owns nothing. One thread. */
#include "svg.h"

#include <stdlib.h>
#include <string.h>

#include "console.h"
#include "text.h"

#define TITLE_Y 46.0
#define SUBTITLE_Y 70.0
#define LEGEND_Y 88.0
#define SWATCH_WIDTH 22.0
#define SWATCH_HEIGHT 14.0
#define TICK_PX 90.0 /* at least between two numbers of the axis */
#define ELLIPSIS "\xE2\x80\xA6"

/* Attributes come first, so that a viewer without media queries has the light colours. */
static const char style_sheet[] =
    "<style>\n"
    "text{font-family:system-ui,-apple-system,'Segoe UI','Helvetica Neue',Arial,'DejaVu Sans',sans-serif}\n"
    ".ground{fill:#ffffff}.ink{fill:#1b1f24}.soft{fill:#57606a}\n"
    ".rule{stroke:#8c959f;stroke-width:1;fill:none}.faint{stroke:#8c959f;stroke-opacity:.22;stroke-width:1}\n"
    ".cached{fill:#0072b2}.fresh{fill:#e69f00}.on-cached{fill:#ffffff}.on-fresh{fill:#1b1f24}\n"
    ".extent{fill:#0072b2;fill-opacity:.10;stroke:#0072b2;stroke-opacity:.55}\n"
    ".choice{fill:none;stroke:#57606a;stroke-dasharray:5 3}\n"
    ".gap{fill:url(#gap-hatch);stroke:#8c959f;stroke-dasharray:4 3}\n"
    ".inexact{fill:url(#inexact-hatch)}\n"
    ".hatch{stroke:#8c959f;stroke-opacity:.55;stroke-width:1}.cut{stroke:#ffffff;stroke-width:3.2}.cut-ground{fill:#1b1f24}\n"
    ".curve{fill:none;stroke-width:2;stroke-linejoin:round}\n"
    ".c0{stroke:#0072b2;stroke-width:3.5}.c1{stroke:#d55e00;stroke-dasharray:9 4}.c2{stroke:#009e73;stroke-dasharray:2 4}\n"
    ".c3{stroke:#e69f00;stroke-dasharray:9 4 2 4}.c4{stroke:#cc79a7}.c5{stroke:#57606a;stroke-dasharray:4 3}\n"
    ".m0{fill:#0072b2}.m1{fill:#d55e00}.m2{fill:#009e73}.m3{fill:#e69f00}.m4{fill:#cc79a7}.m5{fill:#57606a}\n"
    "@media (prefers-color-scheme:dark){\n"
    ".ground{fill:#14181d}.ink{fill:#e6edf3}.soft{fill:#9aa4af}\n"
    ".extent{fill:#56b4e9;fill-opacity:.14;stroke:#56b4e9}.choice{stroke:#9aa4af}\n"
    ".c0{stroke:#56b4e9}.m0{fill:#56b4e9}.c5{stroke:#9aa4af}.m5{fill:#9aa4af}\n"
    "}\n"
    "</style>\n"
    "<defs>\n"
    "<pattern id=\"gap-hatch\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
    "<line class=\"hatch\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"7\"/></pattern>\n"
    "<pattern id=\"inexact-hatch\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
    "<rect class=\"cut-ground\" width=\"7\" height=\"7\"/><line class=\"cut\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"7\"/></pattern>\n"
    "</defs>\n";

svg_scale svg_scale_make(int32_t positions, double left, double right) {
    int32_t n = positions > 0 ? positions : 1;
    return (svg_scale){left, (right - left) / (double)n, n};
}

double svg_x(const svg_scale *s, int32_t position) { return s->left + (double)position * s->per_position; }

/* ---- Text ---- */

/* XML 1.0 has no control characters and neither U+FFFE nor U+FFFF, not even escaped. */
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

/* Without the font at hand: sans-serif letters are about 0.6 of their size wide, digits and capitals a little more. */
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
    fprintf(to, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" font-size=\"%.4g\" text-anchor=\"%s\"%s>", style->class_name, x, y,
            style->size, style->anchor, style->bold ? " font-weight=\"600\"" : "");
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

void svg_curve(FILE *to, int number, const svg_point *points, size_t n) {
    fprintf(to, "<polyline class=\"curve c%d\" points=\"", number);
    for (size_t i = 0; i < n; i++) fprintf(to, "%s%.1f,%.1f", i > 0 ? " " : "", points[i].x, points[i].y);
    fputs("\"/>\n", to);
    for (size_t i = 0; i < n; i++)
        fprintf(to, "<circle class=\"m%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"/>\n", number, points[i].x, points[i].y,
                number == 0 ? "4.5" : "3.2");
}

/* ---- The frame ---- */

void svg_begin(FILE *to, double height, const char *title, const char *subtitle) {
    static const svg_text_style big = {SVG_INK, "start", 22, true}, small = {SVG_SOFT, "start", 14, false};
    fprintf(to, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n"
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

double svg_curve_legend(FILE *to, double x, int number, const char *text) {
    static const svg_text_style style = {SVG_SOFT, "start", SVG_LABEL_PX + 1, false};
    double y = LEGEND_Y + SWATCH_HEIGHT / 2;
    const svg_point ends[] = {{x, y}, {x + 2 * SWATCH_WIDTH, y}};
    svg_curve(to, number, ends, 2);
    svg_text(to, x + 2 * SWATCH_WIDTH + 10, LEGEND_Y + 11, &style, text);
    return x + 2 * SWATCH_WIDTH + 10 + svg_text_width(text, style.size) + 26;
}

/* The smallest of 1, 2, 5 times a power of ten whose ticks stand far enough apart. */
static int64_t tick_step(const svg_scale *s) {
    for (int64_t decade = 1;; decade *= 10)
        for (int64_t step = 1; step <= 5; step += step == 1 ? 1 : 3)
            if ((double)(step * decade) * s->per_position >= TICK_PX || decade >= INT32_MAX) return step * decade;
}

void svg_axis(FILE *to, const svg_scale *s, double top, double y) {
    static const svg_text_style number = {SVG_SOFT, "middle", SVG_LABEL_PX, false};
    int64_t step = tick_step(s);
    svg_line(to, s->left, y, svg_x(s, s->positions), y);
    for (int64_t p = 0; p <= s->positions; p += step) {
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
