/* SPDX-License-Identifier: Apache-2.0 */
/* split_write.c: names, the schema's document and the prompts' documents, and the bytes that they reuse.
 *
 * Documents keep all white space (xml:space="preserve"), so lines are broken inside of tags:
 *
 *   <schema name="proposed" layout="packed" xml:space="preserve"
 *   ><system>You are a guide.</system
 *   ><module name="plan-a-trip">Plan a trip of <param name="trip" len="4"/> to this city.</module
 *   ></schema>
 *
 * If the lead ends within a message, its role contains the modules and stays open: the rest of the message is in the
 * prompts.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/tokenizer/tokenizer.h"
#include "pml/document.h"
#include "tools/split/split_internal.h"

#define NAME_WORDS 4
#define NAME_BYTES 40  /* including a number */
#define PARAM_REACH 48 /* bytes before a parameter in which the word is looked for that it is named after */

/* A place of a module, in the row of all of them. */
typedef struct stand {
    uint32_t atom, module, place;
} stand;

typedef struct writing {
    split_plan *p;
    const split_corpus *c;
    split_proposed *out;
    const char *name;
    const rp_model *model; /* or NULL */
    stand *row;
    size_t n_row, next; /* next: the first that the prompts written so far do not hold */
    base_buffer to;
    rp_error *err;
} writing;

/* ---- Names ---- */

static bool split_write_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool split_write_is_digit(char c) { return c >= '0' && c <= '9'; }
static char split_write_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c; }

static bool split_write_is_taken(const char *name) {
    static const char *const taken[] = {"schema", "prompt", "module", "union", "param", "parameter",
                                        "scaffold", "system", "user", "assistant", "tool"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(taken); i++)
        if (strcmp(taken[i], name) == 0) return true;
    return false;
}

/* The first words of a text in ASCII, in small letters: "plan-a-trip-of". */
static void name_after(const char *text, size_t n, size_t n_words, char out[NAME_BYTES]) {
    size_t used = 0;
    for (size_t i = 0; i < n && n_words > 0; n_words--) {
        while (i < n && !split_write_is_letter(text[i]) && !(used > 0 && split_write_is_digit(text[i]))) i++;
        if (i < n && used > 0 && used + 2 < NAME_BYTES - 8) out[used++] = '-';
        while (i < n && (split_write_is_letter(text[i]) || split_write_is_digit(text[i])) && used < NAME_BYTES - 8)
            out[used++] = split_write_lower(text[i++]);
        while (i < n && (split_write_is_letter(text[i]) || split_write_is_digit(text[i]))) i++;
    }
    while (used > 0 && out[used - 1] == '-') used--;
    BASE_ASSERT(used <= NAME_BYTES - 8); /* room for "-part" */
    out[used] = '\0';
    if (used == 0) strcpy(out, "part");
    else if (split_write_is_taken(out)) strcpy(out + used, "-part");
}

/* The last word before a place that has three letters or more: what a parameter there is about. */
static void name_before(const char *text, size_t n, char out[NAME_BYTES]) {
    size_t from = n > PARAM_REACH ? n - PARAM_REACH : 0, start;
    for (size_t end = n; end > from; end = start) {
        while (end > from && !split_write_is_letter(text[end - 1])) end--;
        for (start = end; start > from && split_write_is_letter(text[start - 1]);) start--;
        if (end - start < 3) continue;
        name_after(text + start, end - start, 1, out);
        return;
    }
    strcpy(out, "value");
}

typedef struct named {
    const char *name;
    uint32_t index;
} named;

static int split_write_compare_named(const void *a, const void *b) {
    const named *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

/* Makes n names differ: the second "lisbon" is "lisbon.2". No name had a point before. */
static int number_names(char **names, uint32_t n, rp_error *err) {
    named *sorted = base_calloc((size_t)n + 1, sizeof(*sorted));
    uint32_t same = 1;
    int rc = sorted ? RP_OK : base_fail_memory(err, (uint64_t)n * sizeof(*sorted), "names");
    for (uint32_t i = 0; i < n && !rc; i++) sorted[i] = (named){names[i], i};
    if (!rc && n > 0) qsort(sorted, n, sizeof(*sorted), split_write_compare_named);
    for (uint32_t i = 1; i < n && !rc; i++) {
        base_buffer name = BASE_BUFFER(NAME_BYTES + 16);
        same = strcmp(sorted[i].name, sorted[i - same].name) == 0 ? same + 1 : 1;
        if (same == 1) continue;
        if (base_buffer_printf(&name, "%s.%u", sorted[i].name, (unsigned)same))
            rc = base_fail_memory(err, NAME_BYTES, "names");
        else {
            base_free(names[sorted[i].index]);
            sorted[i].name = names[sorted[i].index] = base_buffer_take(&name);
        }
        base_buffer_free(&name);
    }
    base_free(sorted);
    return rc;
}

/* The text of a module's k-th piece. */
static const char *piece_text(const split_corpus *c, const split_module *m, uint32_t k, size_t *n) {
    BASE_ASSERT(k < m->n_pieces);
    *n = split_bytes(c, m->places[k], m->places[k] + m->lengths[k]);
    return c->text + c->start[m->places[k]];
}

static int name_params(const writing *w, split_module *m) {
    for (uint32_t k = 0; k + 1 < m->n_pieces; k++) {
        char name[NAME_BYTES];
        size_t n;
        const char *text = piece_text(w->c, m, k, &n);
        name_before(text, n, name);
        m->params[k] = base_strdup(name);
        if (!m->params[k]) return base_fail_memory(w->err, NAME_BYTES, "names");
    }
    return number_names(m->params, m->n_pieces - 1, w->err);
}

static int name_all(const writing *w) {
    uint32_t n_modules = w->p->n_modules;
    char **names = base_calloc((size_t)n_modules + 1, sizeof(*names));
    int rc = names ? RP_OK : base_fail_memory(w->err, n_modules, "names");
    for (uint32_t i = 0; i < n_modules && !rc; i++) {
        char name[NAME_BYTES];
        size_t n;
        const char *text = piece_text(w->c, &w->p->modules[i], 0, &n);
        name_after(text, n, NAME_WORDS, name);
        names[i] = base_strdup(name);
        rc = names[i] ? name_params(w, &w->p->modules[i]) : base_fail_memory(w->err, NAME_BYTES, "names");
    }
    if (!rc) rc = number_names(names, n_modules, w->err);
    for (uint32_t i = 0; i < n_modules && names; i++) w->p->modules[i].name = names[i];
    base_free(names);
    return rc;
}

/* ---- XML ---- */

/* The first failure stays in w->err, and its code is handed on. */
static int writing_put(writing *w, const char *text, size_t n) {
    int rc = base_buffer_append(&w->to, text, n);
    return rc ? base_fail(w->err, rc, "out of memory: a document of %zu bytes", w->to.len) : RP_OK;
}

static int writing_put_string(writing *w, const char *text) { return writing_put(w, text, strlen(text)); }

static const char *split_write_escape(char c, bool attribute) {
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '\r': return "&#13;";
    case '"': return attribute ? "&quot;" : NULL;
    case '\n': return attribute ? "&#10;" : NULL;
    case '\t': return attribute ? "&#9;" : NULL;
    default: return NULL;
    }
}

static int writing_put_escaped(writing *w, const char *text, size_t n, bool attribute) {
    size_t from = 0;
    int rc = RP_OK;
    for (size_t i = 0; i < n && !rc; i++) {
        const char *instead = split_write_escape(text[i], attribute);
        if (!instead) continue;
        if (!(rc = writing_put(w, text + from, i - from))) rc = writing_put_string(w, instead);
        from = i + 1;
    }
    return rc ? rc : writing_put(w, text + from, n - from);
}

static int put_atoms(writing *w, uint32_t first, uint32_t end, bool attribute) {
    return first < end
               ? writing_put_escaped(w, w->c->text + w->c->start[first], split_bytes(w->c, first, end), attribute)
               : RP_OK;
}

static int put_attribute(writing *w, const char *name, const char *value) {
    int rc;
    if ((rc = writing_put_string(w, " ")) || (rc = writing_put_string(w, name)) ||
        (rc = writing_put_string(w, "=\"")) || (rc = writing_put_escaped(w, value, strlen(value), true)))
        return rc;
    return writing_put_string(w, "\"");
}

/* <NAME or </NAME, depending on `before`, and the end of the tag. */
static int put_tag(writing *w, const char *before, const char *name, const char *end) {
    int rc;
    if ((rc = writing_put_string(w, before)) || (rc = writing_put_string(w, name))) return rc;
    return writing_put_string(w, end);
}

static int writing_take_document(writing *w, split_document *out) {
    out->n = w->to.len;
    out->bytes = base_buffer_take(&w->to);
    w->to = BASE_BUFFER(PML_MAX_BYTES);
    return out->bytes ? RP_OK : base_fail_memory(w->err, 1, "a document");
}

/* ---- The schema ---- */

/* Tokens of an argument. */
static int writing_count_tokens(writing *w, const char *text, size_t n, size_t *out) {
    token_list tokens = {0};
    if (!w->model) { /* half of one per letter or space, one per other byte, and two more */
        size_t halves = 5;
        for (size_t i = 0; i < n; i++) halves += split_write_is_letter(text[i]) || text[i] == ' ' ? 1 : 2;
        *out = halves / 2;
        return RP_OK;
    }
    int rc = tokenizer_encode(w->model->tokenizer, text, n, (tokenizer_options){0}, &tokens, w->err);
    *out = tokens.n;
    token_list_free(&tokens);
    return rc;
}

/* The k-th argument of a place, as atoms. */
static split_range argument_at(const split_module *m, uint32_t place, uint32_t k) {
    const uint32_t *at = m->places + (size_t)place * m->n_pieces;
    BASE_ASSERT(place < m->n && k + 1 < m->n_pieces && at[k] + m->lengths[k] <= at[k + 1]);
    return (split_range){at[k] + m->lengths[k], at[k + 1]};
}

static int put_param(writing *w, const split_module *m, uint32_t k) {
    size_t longest = 1;
    for (uint32_t i = 0; i < m->n; i++) {
        split_range value = argument_at(m, i, k);
        size_t n = 0;
        int rc = writing_count_tokens(w, w->c->text + w->c->start[value.first],
                                      split_bytes(w->c, value.first, value.end), &n);
        if (rc) return rc;
        longest = BASE_MAX(longest, n);
    }
    int rc = writing_put_string(w, "<param");
    if (!rc) rc = put_attribute(w, "name", m->params[k]);
    if (!rc && base_buffer_printf(&w->to, " len=\"%zu\"/>", longest))
        rc = base_fail_memory(w->err, w->to.len, "a schema");
    return rc;
}

static int put_module(writing *w, const split_module *m, const char *end) {
    int rc;
    if ((rc = writing_put_string(w, "<module")) || (rc = put_attribute(w, "name", m->name)) ||
        (rc = writing_put_string(w, ">")))
        return rc;
    for (uint32_t k = 0; k < m->n_pieces && !rc; k++) {
        rc = put_atoms(w, m->places[k], m->places[k] + m->lengths[k], false);
        if (!rc && k + 1 < m->n_pieces) rc = put_param(w, m, k);
    }
    return rc ? rc : writing_put_string(w, end);
}

static int put_union(writing *w, int32_t id) {
    BASE_ASSERT(id >= 0 && id < w->p->n_unions);
    int rc = writing_put_string(w, "<union>\n");
    for (uint32_t i = 0; i < w->p->n_modules && !rc; i++)
        if (w->p->modules[i].union_id == id) rc = put_module(w, &w->p->modules[i], "</module>\n");
    return rc ? rc : writing_put_string(w, "</union\n>");
}

/* A union has the place of its first member. */
static int writing_put_modules(writing *w) {
    bool *written = base_calloc((size_t)w->p->n_unions + 1, sizeof(*written));
    int rc = written ? RP_OK : base_fail_memory(w->err, (uint64_t)w->p->n_unions, "unions");
    for (uint32_t i = 0; i < w->p->n_modules && !rc; i++) {
        const split_module *m = &w->p->modules[i];
        if (m->union_id < 0) rc = put_module(w, m, "</module\n>");
        else if (!written[m->union_id]) {
            rc = put_union(w, m->union_id);
            written[m->union_id] = true;
        }
    }
    base_free(written);
    return rc;
}

/* Message i of the first prompt as far as the lead holds it; open: modules follow in its role. */
static int put_lead_message(writing *w, uint32_t i, bool open) {
    const split_message *m = &w->c->messages[w->c->prompts[0].first + i];
    uint32_t end = open ? m->first + w->p->lead.n_atoms : m->end;
    int rc = m->role != SPLIT_PLAIN ? put_tag(w, "<", rp_role_name((rp_role)m->role), ">") : RP_OK;
    if (rc || (rc = put_atoms(w, m->first, end, false)) || (open && (rc = writing_put_modules(w)))) return rc;
    return m->role != SPLIT_PLAIN ? put_tag(w, "</", rp_role_name((rp_role)m->role), "\n>") : RP_OK;
}

static int writing_write_schema(writing *w) {
    int rc;
    if ((rc = writing_put_string(w, "<schema")) || (rc = put_attribute(w, "name", w->name)) ||
        (rc = writing_put_string(w, " layout=\"packed\" xml:space=\"preserve\"\n>")))
        return rc;
    for (uint32_t i = 0; i < w->p->lead.n_messages && !rc; i++) rc = put_lead_message(w, i, false);
    if (!rc) rc = w->p->lead.n_atoms > 0 ? put_lead_message(w, w->p->lead.n_messages, true) : writing_put_modules(w);
    if (rc || (rc = writing_put_string(w, "</schema>\n"))) return rc;
    return writing_take_document(w, &w->out->schema);
}

/* ---- The prompts ---- */

static int writing_put_import(writing *w, const stand *at) {
    const split_module *m = &w->p->modules[at->module];
    int rc = put_tag(w, "<", m->name, "");
    for (uint32_t k = 0; k + 1 < m->n_pieces && !rc; k++) {
        split_range value = argument_at(m, at->place, k);
        if (value.first == value.end) continue;
        if ((rc = put_tag(w, " ", m->params[k], "=\"")) || (rc = put_atoms(w, value.first, value.end, true))) break;
        rc = writing_put_string(w, "\"");
    }
    return rc ? rc : writing_put_string(w, "/>");
}

/* Atoms of one message: imports and the text between them. */
static int put_content(writing *w, uint32_t first, uint32_t end, split_figures *figures) {
    int rc = RP_OK;
    while (first < end && !rc) {
        const stand *at = w->next < w->n_row && w->row[w->next].atom < end ? &w->row[w->next] : NULL;
        BASE_ASSERT(!at || at->atom >= first); /* rising, and none in the lead */
        if ((rc = put_atoms(w, first, at ? at->atom : end, false)) || !at) return rc;
        const split_module *m = &w->p->modules[at->module];
        uint32_t last = m->n_pieces - 1;
        rc = writing_put_import(w, at);
        first = m->places[(size_t)at->place * m->n_pieces + last] + m->lengths[last];
        figures->cached += m->n_bytes;
        if (at->place == 0) figures->first += m->n_bytes;
        w->next++;
    }
    return rc;
}

static int writing_put_message(writing *w, const split_message *m, bool led, split_figures *figures) {
    bool in_role = m->role != SPLIT_PLAIN && !led;
    uint32_t first = m->first + (led ? w->p->lead.n_atoms : 0);
    int rc = in_role ? put_tag(w, "<", rp_role_name((rp_role)m->role), ">") : RP_OK;
    if (rc || (rc = put_content(w, first, m->end, figures))) return rc;
    return in_role ? put_tag(w, "</", rp_role_name((rp_role)m->role), "\n>") : RP_OK;
}

static int write_prompt(writing *w, uint32_t prompt) {
    const split_lead *lead = &w->p->lead;
    split_range messages = w->c->prompts[prompt];
    split_figures *figures = &w->out->figures[prompt];
    figures->cached = w->out->lead_bytes;
    figures->first = prompt == 0 ? figures->cached : 0;
    for (uint32_t i = messages.first; i < messages.end; i++)
        figures->total += split_bytes(w->c, w->c->messages[i].first, w->c->messages[i].end);
    int rc;
    if ((rc = writing_put_string(w, "<prompt")) || (rc = put_attribute(w, "schema", w->name)) ||
        (rc = writing_put_string(w, " xml:space=\"preserve\"\n>")))
        return rc;
    for (uint32_t i = messages.first + lead->n_messages; i < messages.end && !rc; i++)
        rc = writing_put_message(w, &w->c->messages[i], i == messages.first + lead->n_messages && lead->n_atoms > 0,
                                 figures);
    if (rc || (rc = writing_put_string(w, "</prompt>\n"))) return rc;
    return writing_take_document(w, &w->out->prompts[prompt]);
}

/* ---- All of it ---- */

static int split_write_compare_is_placed(const void *a, const void *b) {
    const stand *x = a, *y = b;
    return (x->atom > y->atom) - (x->atom < y->atom);
}

static int writing_make_row(writing *w) {
    for (uint32_t i = 0; i < w->p->n_modules; i++) w->n_row += w->p->modules[i].n;
    w->row = base_calloc(w->n_row + 1, sizeof(*w->row));
    if (!w->row) return base_fail_memory(w->err, w->n_row * sizeof(*w->row), "modules");
    size_t n = 0;
    for (uint32_t i = 0; i < w->p->n_modules; i++)
        for (uint32_t k = 0; k < w->p->modules[i].n; k++)
            w->row[n++] = (stand){w->p->modules[i].places[(size_t)k * w->p->modules[i].n_pieces], i, k};
    if (n > 0) qsort(w->row, n, sizeof(*w->row), split_write_compare_is_placed);
    return RP_OK;
}

static int describe_modules(writing *w) {
    for (uint32_t i = 0; i < w->p->n_modules; i++) {
        const split_module *m = &w->p->modules[i];
        w->out->modules[i] = (split_proposed_module){.name = base_strdup(m->name),
                                                     .is_alternative = m->union_id >= 0,
                                                     .n_params = (int32_t)m->n_pieces - 1,
                                                     .n_prompts = (int32_t)m->n,
                                                     .n_bytes = m->n_bytes};
        if (!w->out->modules[i].name) return base_fail_memory(w->err, NAME_BYTES, "names");
    }
    return RP_OK;
}

static size_t lead_bytes(const split_plan *p) {
    size_t n = 0;
    for (uint32_t i = 0; i < p->lead.n_messages; i++) {
        const split_message *m = &p->corpus->messages[p->corpus->prompts[0].first + i];
        n += split_bytes(p->corpus, m->first, m->end);
    }
    if (p->lead.n_atoms == 0) return n;
    uint32_t first = p->corpus->messages[p->corpus->prompts[0].first + p->lead.n_messages].first;
    return n + split_bytes(p->corpus, first, first + p->lead.n_atoms);
}

int split_write(split_proposed *out, split_plan *p, const char *name, const rp_model *model, rp_error *err) {
    writing w = {
        .p = p, .c = p->corpus, .out = out, .name = name, .model = model, .to = BASE_BUFFER(PML_MAX_BYTES), .err = err};
    out->lead_bytes = lead_bytes(p);
    out->prompts = base_calloc(w.c->n_prompts, sizeof(*out->prompts));
    out->figures = base_calloc(w.c->n_prompts, sizeof(*out->figures));
    out->modules = base_calloc((size_t)p->n_modules + 1, sizeof(*out->modules));
    int rc = RP_OK;
    if (!out->prompts || !out->figures || !out->modules)
        rc = base_fail_memory(err, (uint64_t)w.c->n_prompts * 64, "prompts");
    out->n_prompts = w.c->n_prompts;
    if (!rc && !(rc = writing_make_row(&w)) && !(rc = name_all(&w))) {
        out->n_modules = p->n_modules;
        rc = writing_write_schema(&w);
        for (uint32_t i = 0; i < w.c->n_prompts && !rc; i++) rc = write_prompt(&w, i);
        BASE_ASSERT(rc || w.next == w.n_row); /* every place is an import */
        if (!rc) rc = describe_modules(&w);
    }
    base_buffer_free(&w.to);
    base_free(w.row);
    return rc;
}
