/* SPDX-License-Identifier: Apache-2.0 */
/* lint_names.c: modules that point to what they have not seen: "the above", and names that another module introduces.
 *
 *   texts --cut--> words, sorted    (bytes, place, holder)
 *   each module's first sentence and its definitions of code --> names that it introduces
 *   names x words --> who uses a name that another module introduces
 *
 * A module introduces
 *
 *   a definition   `class Unit:` or `def get_unit(`: a keyword at the start of a line, an identifier, and the
 *                  character after one
 *   a term         in back quotes or double quotes, in its first sentence
 *   a subject      a capitalised name in its first sentence that comes again later in it, or that the module is
 *                  called by, and that no text has in small letters (so it is no word that merely begins a sentence)
 *
 * and nothing that another module introduces, too, or that more than 64 modules have: what many define, none does. A
 * name that a module has seen somewhere (in its scope) is no news to it, nor is one of a module that no prompt has
 * beside it. What is missed does no harm; a false alarm does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "tools/lint/lint_internal.h"

#define MOST_WORDS ((size_t)1 << 22) /* of a schema: later words are not examined */
#define MOST_NAMES ((size_t)1 << 18)
#define SENTENCE_BYTES 160 /* that a first sentence has at most */
#define LEAST_NAME_BYTES 3
#define MOST_NAME_BYTES 40
#define MOST_USERS 64 /* modules: what more of them have is everybody's word */
#define MOST_LISTED 3 /* names listed in a finding */

/* ---- Words ---- */

typedef struct word_at {
    const char *p;
    int32_t n;
    int32_t node; /* the text that contains it */
} word_at;

typedef struct words {
    word_at *items;
    size_t n, cap;
} words;

static bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
static bool in_word(char c) {
    return is_upper(c) || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || (unsigned char)c >= 0x80;
}
static char lint_names_lower(char c) { return is_upper(c) ? (char)(c - 'A' + 'a') : c; }

static size_t word_bytes(const char *p, const char *end) {
    const char *q = p;
    while (q < end && in_word(*q)) q++;
    return (size_t)(q - p);
}

static int lint_names_compare_bytes(const char *a, size_t n, const char *b, size_t m) {
    int c = memcmp(a, b, n < m ? n : m);
    return c ? c : (n > m) - (n < m);
}

static int compare_words(const void *a, const void *b) {
    const word_at *p = a, *q = b;
    int c = lint_names_compare_bytes(p->p, (size_t)p->n, q->p, (size_t)q->n);
    return c ? c : p->node != q->node ? (p->node > q->node) - (p->node < q->node)
                                      : (p->p > q->p) - (p->p < q->p);
}

static int cut_words(lint *x, words *w) {
    for (int32_t i = 1; i < x->d->n_nodes; i++) {
        const pml_node *n = &x->d->nodes[i];
        if (n->kind != PML_TEXT) continue;
        const char *end = n->text + n->n_text;
        for (const char *p = n->text; p < end;) {
            size_t bytes = word_bytes(p, end);
            if (bytes > 0) {
                int rc = base_grow((void **)&w->items, &w->cap, w->n + 1, MOST_WORDS, sizeof(word_at));
                if (rc == RP_ERR_LIMIT) goto out;
                if (rc) return base_fail_memory(x->err, w->n * sizeof(word_at), "a schema's words");
                w->items[w->n++] = (word_at){p, (int32_t)BASE_MIN(bytes, (size_t)INT32_MAX), i};
            }
            p += bytes > 0 ? bytes : 1;
        }
    }
out:
    if (w->n > 0) qsort(w->items, w->n, sizeof(word_at), compare_words);
    return RP_OK;
}

static bool is_word_at(const words *w, size_t i, const char *p, size_t n) {
    return i < w->n && lint_names_compare_bytes(w->items[i].p, (size_t)w->items[i].n, p, n) == 0;
}

/* The first of the words that are these bytes, in a text from this node on; w->n: there is none. */
static size_t find_word(const words *w, const char *p, size_t n, int32_t node) {
    size_t low = 0, high = w->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int c = lint_names_compare_bytes(w->items[mid].p, (size_t)w->items[mid].n, p, n);
        if (c < 0 || (c == 0 && w->items[mid].node < node)) low = mid + 1;
        else high = mid;
    }
    return is_word_at(w, low, p, n) ? low : w->n;
}

static int32_t holder_of(const lint *x, int32_t text) { return pml_holder(x->d, text); }

/* ---- Names ---- */

typedef struct introduced {
    const char *p;
    int32_t n;      /* bytes; may be several words */
    int32_t module; /* that introduces it */
    bool shared;    /* another one does, too */
} introduced;

typedef struct names {
    introduced *items;
    size_t n, cap;
} names;

/* Words that begin sentences and headings and name nothing. Small letters: they are compared so. */
static const char *const common[] = {
    "the",
    "this",
    "that",
    "these",
    "those",
    "and",
    "but",
    "for",
    "you",
    "your",
    "our",
    "his",
    "her",
    "its",
    "their",
    "they",
    "she",
    "who",
    "what",
    "when",
    "where",
    "which",
    "why",
    "how",
    "all",
    "any",
    "each",
    "every",
    "some",
    "one",
    "two",
    "here",
    "there",
    "please",
    "note",
    "example",
    "examples",
    "question",
    "answer",
    "user",
    "assistant",
    "system",
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "true",
    "false",
    "none",
    "yes",
    "not",
    "with",
    "from",
};

static bool is_common(const char *p, size_t n) {
    for (size_t i = 0; i < BASE_ARRAY_LEN(common); i++) {
        size_t k = 0;
        while (k < n && common[i][k] && lint_names_lower(p[k]) == common[i][k]) k++;
        if (k == n && !common[i][k]) return true;
    }
    return false;
}

static int lint_names_add_name(lint *x, names *list, const char *p, size_t n, int32_t module) {
    if (n < LEAST_NAME_BYTES || n > MOST_NAME_BYTES) return RP_OK;
    for (size_t i = list->n; i > 0 && list->items[i - 1].module == module; i--)
        if (lint_names_compare_bytes(list->items[i - 1].p, (size_t)list->items[i - 1].n, p, n) == 0) return RP_OK;
    int rc = base_grow((void **)&list->items, &list->cap, list->n + 1, MOST_NAMES, sizeof(introduced));
    if (rc == RP_ERR_LIMIT) return RP_OK;
    if (rc) return base_fail_memory(x->err, list->n * sizeof(introduced), "a schema's names");
    list->items[list->n++] = (introduced){p, (int32_t)n, module, false};
    return RP_OK;
}

/* Is the module called so, letters and digits compared alone? */
static bool lint_names_is_called(const lint *x, int32_t module, const char *p, size_t n) {
    const char *called = x->d->nodes[module].name;
    size_t i = 0;
    for (; *called; called++) {
        if (!in_word(*called) || *called == '_') continue;
        while (i < n && (!in_word(p[i]) || p[i] == '_')) i++;
        if (i == n || lint_names_lower(p[i]) != lint_names_lower(*called)) return false;
        i++;
    }
    return i == n;
}

/* Number of occurrences of a name in a module's own text. */
static int32_t count_uses(const lint *x, const words *w, const char *p, size_t n, int32_t module) {
    int32_t count = 0;
    size_t bytes = word_bytes(p, p + n);
    for (size_t i = find_word(w, p, bytes, module); is_word_at(w, i, p, bytes) && w->items[i].node < x->end[module];
         i++) {
        const pml_node *text = &x->d->nodes[w->items[i].node];
        const char *end = text->text + text->n_text, *at = w->items[i].p;
        if (holder_of(x, w->items[i].node) != module) continue;
        count += (size_t)(end - at) >= n && memcmp(at, p, n) == 0 && (at + n == end || !in_word(at[n]));
    }
    return count;
}

/* Its first word names something, and never occurs in lower case. */
static bool is_proper(const words *w, const char *p, size_t n) {
    char small[MOST_NAME_BYTES];
    size_t bytes = word_bytes(p, p + n);
    if (n > MOST_NAME_BYTES || is_common(p, bytes)) return false;
    for (size_t i = 0; i < bytes; i++) small[i] = lint_names_lower(p[i]);
    return find_word(w, small, bytes, 0) == w->n;
}

/* ---- What a module introduces ---- */

/* Words that begin with a capital, one space between them: "South Beach". */
static size_t subject_bytes(const char *p, const char *end) {
    size_t n = 0;
    while (p + n < end && is_upper(p[n])) {
        size_t bytes = word_bytes(p + n, end);
        n += bytes;
        if (p + n + 1 >= end || p[n] != ' ' || !is_upper(p[n + 1])) break;
        n++;
    }
    return n;
}

static int read_subjects(lint *x, const words *w, names *list, int32_t module, const char *p, const char *end) {
    while (p < end) {
        size_t n = is_upper(*p) ? subject_bytes(p, end) : word_bytes(p, end), first = word_bytes(p, end);
        if (n > first && is_common(p, first)) n = first; /* "The Wolqueen": the name comes next */
        if (is_upper(*p) && n >= LEAST_NAME_BYTES && is_proper(w, p, n) &&
            (count_uses(x, w, p, n, module) > 1 || lint_names_is_called(x, module, p, n))) {
            int rc = lint_names_add_name(x, list, p, n, module);
            if (rc) return rc;
        }
        p += n > 0 ? n : 1;
    }
    return RP_OK;
}

static int read_terms(lint *x, names *list, int32_t module, const char *p, const char *end) {
    for (; p < end; p++) {
        const char *close = *p == '`' || *p == '"' ? memchr(p + 1, *p, (size_t)(end - p - 1)) : NULL;
        if (!close) continue;
        bool quoted = close > p + 1 && in_word(p[1]) && in_word(close[-1]);
        int rc = quoted ? lint_names_add_name(x, list, p + 1, (size_t)(close - p - 1), module) : RP_OK;
        if (rc) return rc;
        p = close;
    }
    return RP_OK;
}

/* The end of the first sentence or line. */
static const char *sentence_end(const char *p, const char *end) {
    const char *most = (size_t)(end - p) > SENTENCE_BYTES ? p + SENTENCE_BYTES : end;
    for (; p < most; p++)
        if (*p == '\n' || ((*p == '.' || *p == '?' || *p == '!') && (p + 1 == end || p[1] == ' ' || p[1] == '\n')))
            return p;
    return most;
}

static const char *const keywords[] = {"class", "def", "func", "fn", "function",
                                       "struct", "interface", "enum", "trait"};

/* `class Unit:` at the start of a line: the identifier, or nothing. */
static size_t definition_bytes(const char *line, const char *end, const char **identifier) {
    while (line < end && (*line == ' ' || *line == '\t')) line++;
    for (size_t i = 0; i < BASE_ARRAY_LEN(keywords); i++) {
        size_t n = strlen(keywords[i]);
        if ((size_t)(end - line) <= n + 1 || memcmp(line, keywords[i], n) != 0 || line[n] != ' ') continue;
        const char *p = line + n + 1;
        size_t bytes = word_bytes(p, end);
        const char *behind = p + bytes + (p + bytes < end && p[bytes] == ' ');
        if (bytes == 0 || behind >= end || !strchr("(:{<", *behind)) return 0;
        *identifier = p;
        return bytes;
    }
    return 0;
}

static int read_definitions(lint *x, names *list, int32_t module, const char *p, const char *end) {
    while (p < end) {
        const char *identifier, *newline = memchr(p, '\n', (size_t)(end - p));
        size_t n = definition_bytes(p, newline ? newline : end, &identifier);
        int rc = n > LEAST_NAME_BYTES ? lint_names_add_name(x, list, identifier, n, module) : RP_OK;
        if (rc) return rc;
        p = newline ? newline + 1 : end;
    }
    return RP_OK;
}

static int read_names(lint *x, const words *w, names *list) {
    int rc = RP_OK;
    int32_t before = -1;
    for (int32_t i = 1; i < x->d->n_nodes && !rc; i++) {
        const pml_node *n = &x->d->nodes[i];
        int32_t module = n->kind == PML_TEXT ? holder_of(x, i) : 0;
        if (module == 0) continue;
        const char *p = n->text, *end = n->text + n->n_text;
        if (module != before) {
            while (p < end && pml_is_space(*p)) p++;
            rc = read_subjects(x, w, list, module, p, sentence_end(p, end));
            if (!rc) rc = read_terms(x, list, module, p, sentence_end(p, end));
        }
        if (!rc) rc = read_definitions(x, list, module, n->text, end);
        before = module;
    }
    return rc;
}

static int lint_names_compare_names(const void *a, const void *b) {
    const introduced *p = a, *q = b;
    int c = lint_names_compare_bytes(p->p, (size_t)p->n, q->p, (size_t)q->n);
    return c ? c : (p->module > q->module) - (p->module < q->module);
}

static void mark_shared(names *list) {
    if (list->n > 0) qsort(list->items, list->n, sizeof(introduced), lint_names_compare_names);
    for (size_t i = 1; i < list->n; i++) {
        introduced *a = &list->items[i - 1], *b = &list->items[i];
        if (lint_names_compare_bytes(a->p, (size_t)a->n, b->p, (size_t)b->n) == 0) a->shared = b->shared = true;
    }
}

/* ---- Who uses them ---- */

typedef struct use {
    int32_t module;
    const introduced *name;
} use;

typedef struct uses {
    use *items;
    size_t n, cap;
} uses;

/* Does a module know a name that it uses: does the name occur in text that the module attends to? */
static bool lint_names_is_known(const lint *x, const words *w, const introduced *name, int32_t module) {
    size_t bytes = word_bytes(name->p, name->p + name->n);
    int32_t before = -1;
    for (size_t i = find_word(w, name->p, bytes, 0); is_word_at(w, i, name->p, bytes); i++) {
        int32_t holder = holder_of(x, w->items[i].node);
        if (holder == before || holder == module) continue;
        before = holder;
        if (lint_has_seen(x, module, holder)) return true;
    }
    return false;
}

/* A module outside, inside or around the one that introduces the name. */
static bool is_news(const lint *x, const words *w, const introduced *name, int32_t module) {
    if (module <= 0 || module == name->module || !lint_is_read_alone(x, module)) return false;
    for (int32_t m = name->module; m > 0; m = pml_holder(x->d, m))
        if (m == module) return false; /* what holds it introduces it, in a way */
    return !lint_excludes(x, module, name->module) && !lint_is_joint(x, module, name->module) &&
           !lint_names_is_known(x, w, name, module);
}

/* How many modules have its first word. */
static size_t count_users(const lint *x, const words *w, const introduced *name) {
    size_t bytes = word_bytes(name->p, name->p + name->n), n = 0;
    int32_t before = -1;
    for (size_t i = find_word(w, name->p, bytes, 0); is_word_at(w, i, name->p, bytes); i++) {
        int32_t module = holder_of(x, w->items[i].node);
        n += module != before;
        before = module;
    }
    return n;
}

static int collect_uses(lint *x, const words *w, const introduced *name, uses *list) {
    size_t bytes = word_bytes(name->p, name->p + name->n);
    int32_t before = -1;
    if (count_users(x, w, name) > MOST_USERS) return RP_OK;
    for (size_t i = find_word(w, name->p, bytes, 0); is_word_at(w, i, name->p, bytes); i++) {
        int32_t module = holder_of(x, w->items[i].node);
        if (module == before) continue;
        before = module;
        if (!is_news(x, w, name, module) || count_uses(x, w, name->p, (size_t)name->n, module) == 0) continue;
        if (base_grow((void **)&list->items, &list->cap, list->n + 1, MOST_WORDS, sizeof(use)))
            return base_fail_memory(x->err, list->n * sizeof(use), "a schema's names");
        list->items[list->n++] = (use){module, name};
    }
    return RP_OK;
}

static int compare_uses(const void *a, const void *b) {
    const use *p = a, *q = b;
    if (p->module != q->module) return (p->module > q->module) - (p->module < q->module);
    if (p->name->module != q->name->module)
        return (p->name->module > q->name->module) - (p->name->module < q->name->module);
    return lint_names_compare_names(p->name, q->name);
}

/* What a module uses: one finding. */
static int add_uses(lint *x, const use *first, size_t n) {
    char list[MOST_LISTED * (MOST_NAME_BYTES + 60)] = "";
    for (size_t i = 0; i < n && i < MOST_LISTED; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s'%.*s' ('%.40s')",
                 i == 0       ? ""
                 : i + 1 == n ? " and "
                              : ", ",
                 (int)first[i].name->n, first[i].name->p, x->d->nodes[first[i].name->module].name);
    }
    if (n > MOST_LISTED) snprintf(list + strlen(list), sizeof(list) - strlen(list), " and %zu more", n - MOST_LISTED);
    return lint_add(x, RP_LINT_OUTSIDE_NAME, first->module,
                    "uses %s, introduced by modules outside its scope: questions over both still work; if the text "
                    "depends on the definition, nest the module in the one that introduces the name, or put both into "
                    "a <scaffold>",
                    list);
}

static int check_uses(lint *x, const words *w, const names *list) {
    uses all = {0};
    int rc = RP_OK;
    for (size_t i = 0; i < list->n && !rc; i++)
        if (!list->items[i].shared) rc = collect_uses(x, w, &list->items[i], &all);
    if (!rc && all.n > 0) qsort(all.items, all.n, sizeof(use), compare_uses);
    for (size_t i = 0, n; i < all.n && !rc; i += n) {
        for (n = 1; i + n < all.n && all.items[i + n].module == all.items[i].module;) n++;
        rc = add_uses(x, &all.items[i], n);
    }
    base_free(all.items);
    return rc;
}

/* ---- "The above" ---- */

static const char *const backward[] = {
    "the above",
    "mentioned above",
    "described above",
    "listed above",
    "given above",
    "shown above",
    "defined above",
    "see above",
    "as above",
    "aforementioned",
    "above-mentioned",
    "as mentioned",
    "mentioned before",
    "mentioned earlier",
    "as noted",
    "described earlier",
    "defined earlier",
    "the previous section",
    "the previous document",
    "the previous module",
    "the preceding",
};
static const char *const forward[] = {
    "see below",
    "mentioned below",
    "described below",
    "listed below",
    "given below",
    "shown below",
    "defined below",
    "the next section",
    "the next document",
    "the next module",
    "the following document",
    "the following section",
};

/* Is there a phrase at p, in whole words? */
static bool lint_names_is_placed_at(const char *p, const char *end, const char *phrase) {
    size_t n = strlen(phrase);
    if ((size_t)(end - p) < n || (p + n < end && in_word(p[n]))) return false;
    for (size_t i = 0; i < n; i++)
        if (lint_names_lower(p[i]) != phrase[i] && !(phrase[i] == ' ' && pml_is_space(p[i]))) return false;
    return true;
}

static const char *phrase_at(const char *p, const char *end, const char *const *phrases, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (lint_names_is_placed_at(p, end, phrases[i])) return phrases[i];
    return NULL;
}

/* The text directly before or after text i that a prompt may place beside module m; -1: none. */
static int32_t text_beside(const lint *x, int32_t i, int32_t m, int32_t step) {
    for (i += step; i > 0 && i < x->d->n_nodes; i += step)
        if (x->d->nodes[i].kind == PML_TEXT && (holder_of(x, i) == m || !lint_excludes(x, holder_of(x, i), m)))
            return i;
    return -1;
}

/* "The above" at the start of a module's text refers to the text directly before it: does the module attend to that? */
static int check_backward(lint *x, int32_t i, int32_t m, const char *phrase) {
    int32_t before = text_beside(x, i, m, -1), holder = before < 0 ? -1 : holder_of(x, before);
    char path[160];
    if (holder == m || (holder >= 0 && lint_has_seen(x, m, holder))) return RP_OK;
    if (holder < 0)
        return lint_add(x, RP_LINT_OUTSIDE_REFERENCE, i,
                        "\"%s\": no text precedes the module when it is prefilled: refer to the text by its name",
                        phrase);
    return lint_add(x, RP_LINT_OUTSIDE_REFERENCE, i,
                    "\"%s\": the preceding text is '%.100s', which is outside the module's scope and may be missing "
                    "in a prompt: refer to it by its name, merge both modules, or nest this one in it",
                    phrase, pml_path(x->d, holder, path, sizeof(path)));
}

/* "See below" at its end refers to the text after it, in another module, which may be any. */
static int check_forward(lint *x, int32_t i, int32_t m, const char *phrase) {
    int32_t behind = text_beside(x, i, m, 1), holder = behind < 0 ? -1 : holder_of(x, behind);
    char path[160];
    if (holder == m || holder == 0) return RP_OK;
    for (int32_t h = holder; h > 0; h = pml_holder(x->d, h))
        if (h == m) return RP_OK; /* it is inside the module */
    if (holder < 0)
        return lint_add(x, RP_LINT_OUTSIDE_REFERENCE, i,
                        "\"%s\": no text follows the module in the schema: refer to the text by its name", phrase);
    return lint_add(x, RP_LINT_OUTSIDE_REFERENCE, i,
                    "\"%s\": the following text is '%.100s', which a prompt may omit or put elsewhere: refer to it by "
                    "its name, or merge both modules",
                    phrase, pml_path(x->d, holder, path, sizeof(path)));
}

static int lint_names_check_text(lint *x, int32_t i, int32_t m) {
    const pml_node *n = &x->d->nodes[i];
    const char *end = n->text + n->n_text;
    bool at_word = true;
    for (const char *p = n->text; p < end; at_word = !in_word(*p), p++) {
        const char *phrase =
            at_word && p - n->text < LINT_NEAR_BYTES ? phrase_at(p, end, backward, BASE_ARRAY_LEN(backward)) : NULL;
        if (phrase) return check_backward(x, i, m, phrase);
        if (at_word && end - p < LINT_NEAR_BYTES) phrase = phrase_at(p, end, forward, BASE_ARRAY_LEN(forward));
        if (phrase) return check_forward(x, i, m, phrase);
    }
    return RP_OK;
}

int lint_check_names(lint *x) {
    words w = {0};
    names list = {0};
    int rc = RP_OK;
    for (int32_t i = 1; i < x->d->n_nodes && !rc; i++) {
        int32_t m = x->d->nodes[i].kind == PML_TEXT ? holder_of(x, i) : 0;
        if (m > 0 && lint_is_read_alone(x, m)) rc = lint_names_check_text(x, i, m);
    }
    if (!rc) rc = cut_words(x, &w);
    if (!rc) rc = read_names(x, &w, &list);
    if (!rc) {
        mark_shared(&list);
        rc = check_uses(x, &w, &list);
    }
    base_free(w.items);
    base_free(list.items);
    return rc;
}
