/* SPDX-License-Identifier: Apache-2.0 */
/* reference_space.c: see reference_space.h. The document becomes a list of events; each text finds its left neighbour.
 *
 *   A. <module><user>x</user></module> B      text  open-module  open-role  text  close-role  close-module  text
 */
#include "reference_space.h"

#include <expat.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"

typedef enum event_kind { TEXT,
                          PARAM,
                          IMPORT,
                          OPEN_MODULE,
                          CLOSE_MODULE,
                          OPEN_UNION,
                          CLOSE_UNION,
                          OPEN_ROLE,
                          CLOSE_ROLE,
                          NOTHING } event_kind;

typedef struct event {
    event_kind kind;
    int32_t parent; /* index of the event that opens the enclosing element; -1: none */
    int32_t begin;  /* closing ones: where it began */
    base_buffer text;
    bool preserve;
} event;

typedef struct space {
    event *events;
    size_t n, cap;
    int32_t open;     /* the innermost open element's event, -1 */
    int in_import;    /* nested imports, which hold no text */
    base_buffer text; /* since the last tag */
    bool preserve;
} space;

/* The left neighbour of a position. */
typedef struct neighbour {
    bool text;  /* a text, a parameter or an import; else an edge, or nothing in the module */
    bool space; /* white space after it */
    bool role;  /* a module that ends with a role */
} neighbour;

static void need(bool good) {
    if (!good) abort();
}

static bool is_blank(const base_buffer *b) { return strspn(b->len ? b->data : "", " \t\r\n") == b->len; }

/* ---- events ---- */

static int32_t add(space *s, event_kind kind) {
    need(base_grow((void **)&s->events, &s->cap, s->n + 1, SIZE_MAX / 128, sizeof *s->events) == 0);
    s->events[s->n] = (event){
        .kind = kind, .parent = s->open, .begin = -1, .text = BASE_BUFFER(SIZE_MAX / 4), .preserve = s->preserve};
    return (int32_t)s->n++;
}

static void end_text(space *s) {
    if (s->text.len == 0) return;
    bool in_union = s->open >= 0 && s->events[s->open].kind == OPEN_UNION;
    if (s->in_import == 0 && !in_union) {
        int32_t i = add(s, TEXT);
        need(base_buffer_append(&s->events[i].text, s->text.data, s->text.len) == 0);
    }
    base_buffer_clear(&s->text);
}

static event_kind kind_of(const char *name) {
    static const struct {
        const char *name;
        event_kind kind;
    } kinds[] = {
        {"schema", NOTHING},
        {"prompt", NOTHING},
        {"scaffold", NOTHING},
        {"module", OPEN_MODULE},
        {"union", OPEN_UNION},
        {"param", PARAM},
        {"parameter", PARAM},
        {"system", OPEN_ROLE},
        {"user", OPEN_ROLE},
        {"assistant", OPEN_ROLE},
        {"tool", OPEN_ROLE},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, name) == 0) return kinds[i].kind;
    return IMPORT;
}

static void XMLCALL on_begin(void *user, const XML_Char *name, const XML_Char **attributes) {
    space *s = user;
    end_text(s);
    event_kind kind = kind_of(name);
    if (kind == IMPORT && s->in_import++ > 0) return;
    int32_t i = add(s, kind);
    for (; attributes[0]; attributes += 2)
        if (strcmp(attributes[0], "xml:space") == 0) s->preserve = strcmp(attributes[1], "preserve") == 0;
    s->open = i;
}

static void XMLCALL on_end(void *user, const XML_Char *name) {
    space *s = user;
    end_text(s);
    if (kind_of(name) == IMPORT && --s->in_import > 0) return;
    int32_t begin = s->open;
    event_kind kind = s->events[begin].kind;
    s->open = s->events[begin].parent;
    s->preserve = s->events[begin].preserve;
    if (kind != OPEN_MODULE && kind != OPEN_UNION && kind != OPEN_ROLE) return;
    int32_t i = add(s, kind == OPEN_MODULE ? CLOSE_MODULE : kind == OPEN_UNION ? CLOSE_UNION
                                                                               : CLOSE_ROLE);
    s->events[i].begin = begin;
}

static void XMLCALL on_text(void *user, const XML_Char *text, int n) {
    space *s = user;
    need(base_buffer_append(&s->text, text, (size_t)n) == 0);
}

/* ---- the left neighbour ---- */

static neighbour before(const space *s, int32_t i);
static neighbour end_of_union(const space *s, int32_t close);

/* The left neighbour that the end of a module is for the next event. */
static neighbour end_of_module(const space *s, int32_t close) {
    neighbour l = {0};
    for (int32_t j = close - 1; j > s->events[close].begin; j--) {
        const event *e = &s->events[j];
        if (e->kind == CLOSE_ROLE) {
            l.role = true;
            return l;
        }
        if (e->kind == TEXT && is_blank(&e->text) && !e->preserve) l.space = true;
        else if (e->kind == TEXT || e->kind == PARAM) {
            neighbour left = before(s, j + 1);
            return (neighbour){true, l.space || left.space, false};
        } else if (e->kind == CLOSE_MODULE || e->kind == CLOSE_UNION) {
            neighbour inner = e->kind == CLOSE_UNION ? end_of_union(s, j) : end_of_module(s, j);
            l.space |= inner.space;
            l.text = inner.text;
            if (inner.text) return l;
            j = e->begin;
        }
    }
    return l;
}

/* Combines the ends of all members that do not end with a role; an empty one ends with the union's left neighbour. */
static neighbour end_of_union(const space *s, int32_t close) {
    neighbour with = {0}, without = {0}, left = before(s, s->events[close].begin);
    for (int32_t j = s->events[close].begin + 1; j < close; j++) {
        if (s->events[j].kind != CLOSE_MODULE || s->events[j].parent != s->events[close].begin) continue;
        neighbour end = end_of_module(s, j);
        if (!end.text && !end.role) end = (neighbour){left.text, end.space || (left.text && left.space), false};
        neighbour *sum = end.text ? &with : &without;
        sum->text |= end.text;
        sum->space |= end.space;
    }
    return with.text ? with : without;
}

/* The left neighbour of event i. */
static neighbour before(const space *s, int32_t i) {
    bool white = false;
    for (int32_t j = i - 1; j >= 0; j--) {
        const event *e = &s->events[j];
        neighbour end;
        switch (e->kind) {
        case TEXT:
            if (e->preserve) return (neighbour){true, white, false};
            white |= strchr(" \t\r\n", e->text.data[e->text.len - 1]) != NULL;
            if (!is_blank(&e->text)) return (neighbour){true, white, false};
            break;
        case PARAM:
        case IMPORT: return (neighbour){true, white, false};
        case OPEN_MODULE:
            if (s->events[e->parent].kind == OPEN_UNION)
                j = e->parent; /* the members before it are in no prompt with it */
            break;
        case CLOSE_MODULE:
        case CLOSE_UNION:
            end = e->kind == CLOSE_UNION ? end_of_union(s, j) : end_of_module(s, j);
            white |= end.space;
            if (end.text) return (neighbour){true, white, false};
            j = e->begin;
            break;
        case OPEN_ROLE:
        case CLOSE_ROLE: return (neighbour){0};
        default: break;
        }
    }
    return (neighbour){0};
}

/* ---- comparison ---- */

static bool text_agrees(const space *s, int32_t i, const pml_node *n, rp_error *err) {
    const event *e = &s->events[i];
    neighbour left = before(s, i);
    const char *text = e->text.data;
    size_t from = 0, to = e->text.len;
    while (!e->preserve && strchr(" \t\r\n", text[from])) from++;
    while (!e->preserve && strchr(" \t\r\n", text[to - 1])) to--;
    bool lead = left.text && (left.space || from > 0) && !strchr(" \t\r\n", text[from]);
    bool tail = (size_t)i + 1 < s->n && s->events[i + 1].kind == IMPORT && to < e->text.len;
    bool same = n->n_text == to - from + lead && (!lead || n->text[0] == ' ') &&
                memcmp(n->text + lead, text + from, to - from) == 0;
    if (same && n->text_continues == left.text && n->border_space == tail) return true;
    base_fail(err, RP_ERR_CONFLICT,
              "line %d: the text is \"%.60s\" (continues %d, border %d), and by the page \"%s%.*s\" (%d, %d)",
              (int)n->line, n->text, n->text_continues, n->border_space, lead ? " " : "",
              (int)(to - from < 60 ? to - from : 60), text + from, left.text, tail);
    return false;
}

static bool agrees(const space *s, const pml_document *d, rp_error *err) {
    int32_t node = 0;
    for (int32_t i = 0; i < (int32_t)s->n; i++) {
        const event *e = &s->events[i];
        if (e->kind != PARAM && (e->kind != TEXT || (is_blank(&e->text) && !e->preserve))) continue;
        while (node < d->n_nodes && d->nodes[node].kind != PML_TEXT && d->nodes[node].kind != PML_PARAM) node++;
        if (node == d->n_nodes || (d->nodes[node].kind == PML_PARAM) != (e->kind == PARAM)) {
            base_fail(err, RP_ERR_CONFLICT, "the document has other texts than the page says");
            return false;
        }
        const pml_node *n = &d->nodes[node++];
        if (e->kind == TEXT && !text_agrees(s, i, n, err)) return false;
        if (e->kind == TEXT) continue;
        neighbour left = before(s, i);
        if (n->border_space == (left.text && left.space)) continue;
        base_fail(err, RP_ERR_CONFLICT, "line %d: a space belongs to parameter '%s': %d, and by the page %d",
                  (int)n->line, n->name, n->border_space, left.text && left.space);
        return false;
    }
    return true;
}

int reference_space_check(const char *xml, size_t n, const pml_document *d, rp_error *err) {
    space s = {.open = -1, .text = BASE_BUFFER(SIZE_MAX / 4)};
    XML_Parser parser = XML_ParserCreate("UTF-8");
    need(parser != NULL);
    XML_SetUserData(parser, &s);
    XML_SetElementHandler(parser, on_begin, on_end);
    XML_SetCharacterDataHandler(parser, on_text);
    need(XML_Parse(parser, xml, (int)n, 1) == XML_STATUS_OK);
    XML_ParserFree(parser);
    bool good = agrees(&s, d, err);
    for (size_t i = 0; i < s.n; i++) base_buffer_free(&s.events[i].text);
    base_free(s.events);
    base_buffer_free(&s.text);
    return good ? 0 : RP_ERR_CONFLICT;
}
