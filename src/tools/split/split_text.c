/* SPDX-License-Identifier: Apache-2.0 */
/* split_text.c: texts to atoms, the words between which a cut is allowed.
 *
 *   "Plan a trip.\n\nLisbon"  ->  "Plan" " a" " trip" "." "\n\n" "Lisbon"
 *
 * A word is letters, digits and all characters beyond ASCII, with single points, hyphens and apostrophes within. One
 * space belongs to the word after it, as in vocabularies; other white space is an atom of its own, and so is a run of
 * one sign ("-----"). Ideographs and kana are a word each, because they have no spaces. Equal atoms get equal numbers,
 * by a hash table that compares its entries.
 */
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "pml/document.h"
#include "tools/split/split_internal.h"

/* ---- What XML can hold ---- */

static int split_text_check_text(const char *name, const char *text, size_t n, rp_error *err) {
    for (size_t i = 0; i < n;) {
        const unsigned char *s = (const unsigned char *)text + i;
        int length = base_utf8_length(s, n - i);
        uint32_t c = length > 0 ? base_utf8_decode(s, length) : 0;
        bool control = c < 0x20 && c != '\t' && c != '\n' && c != '\r';
        if (length > 0 && !control && c != 0xFFFE && c != 0xFFFF) {
            i += (size_t)length;
            continue;
        }
        unsigned byte = *s;
        if (length > 0)
            return base_fail_at(err, RP_ERR_SYNTAX, name, i,
                                "%.*s: byte %zu (0x%02X) begins a character that XML does not allow: remove it",
                                base_shown(name), name, i, byte);
        return base_fail_at(err, RP_ERR_SYNTAX, name, i,
                            "%.*s: byte %zu (0x%02X) is not UTF-8: save the prompt as text in UTF-8", base_shown(name),
                            name, i, byte);
    }
    return RP_OK;
}

/* ---- Atoms ---- */

typedef enum letter { SPACE,
                      SIGN,
                      WORD,
                      ALONE } letter;

static letter split_text_kind_of(const char *s, size_t n, size_t *length) {
    BASE_DCHECK(n > 0);
    unsigned char c = (unsigned char)*s;
    *length = 1;
    if (pml_is_space((char)c)) return SPACE;
    if (c < 0x80)
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ? WORD : SIGN;
    *length = (size_t)base_utf8_length((const unsigned char *)s, n);
    BASE_DCHECK(*length > 1 && *length <= n); /* the text was checked */
    uint32_t point = base_utf8_decode((const unsigned char *)s, (int)*length);
    bool alone = (point >= 0x2E80 && point < 0xA000) || (point >= 0xF900 && point < 0xFB00) ||
                 (point >= 0xFF00 && point < 0xFFF0) || (point >= 0x20000 && point < 0x40000);
    return alone ? ALONE : WORD;
}

/* Is the sign inside a word: "don't", "e-mail", "3.5"? */
static bool split_text_joins(const char *s, size_t n) {
    size_t length;
    return n > 1 && (*s == '\'' || *s == '-' || *s == '.') && split_text_kind_of(s + 1, n - 1, &length) == WORD;
}

/* Bytes of the atom at s. */
static size_t atom_length(const char *s, size_t n) {
    size_t i = 0, length;
    if (pml_is_space(*s)) {
        while (i < n && pml_is_space(s[i])) i++;
        if (i == n || i > 1 || *s != ' ') return i;
    }
    char sign = s[i];
    switch (split_text_kind_of(s + i, n - i, &length)) {
    case WORD:
        while (i < n && (split_text_kind_of(s + i, n - i, &length) == WORD || split_text_joins(s + i, n - i)))
            i += length;
        return i;
    case ALONE: return i + length;
    default:
        while (i < n && s[i] == sign) i++;
        return i;
    }
}

/* ---- Numbers ---- */

typedef struct numbering {
    uint32_t *first; /* by slot: an atom with that number, SPLIT_NONE */
    size_t n_slots;  /* a power of two, at least twice the atoms */
} numbering;

static bool same_atom(const split_corpus *c, uint32_t a, uint32_t b) {
    size_t n = split_bytes(c, a, a + 1);
    return n == split_bytes(c, b, b + 1) && memcmp(c->text + c->start[a], c->text + c->start[b], n) == 0;
}

static void number_atoms(split_corpus *c, numbering *t) {
    BASE_ASSERT(t->n_slots >= 2 * (size_t)c->n_atoms); /* a probe ends */
    memset(t->first, 0xff, t->n_slots * sizeof(*t->first));
    for (uint32_t a = 0; a < c->n_atoms; a++) {
        size_t slot = base_table_hash(c->text + c->start[a], split_bytes(c, a, a + 1)) & (t->n_slots - 1);
        while (t->first[slot] != SPLIT_NONE && !same_atom(c, a, t->first[slot])) slot = (slot + 1) & (t->n_slots - 1);
        if (t->first[slot] == SPLIT_NONE) {
            t->first[slot] = a;
            c->id[a] = c->n_ids++;
        } else {
            c->id[a] = c->id[t->first[slot]];
        }
    }
}

/* ---- The corpus ---- */

/* Counts; checks texts and limits. */
static int split_corpus_measure(split_corpus *c, const rp_split_prompt *prompts, size_t n, rp_error *err) {
    size_t n_messages = 0;
    for (size_t p = 0; p < n; p++) {
        n_messages += prompts[p].n_messages;
        if (n_messages > SPLIT_MAX_MESSAGES)
            return base_fail(err, RP_ERR_LIMIT, "more than %zu messages: give fewer prompts", SPLIT_MAX_MESSAGES);
        for (size_t m = 0; m < prompts[p].n_messages; m++) {
            const rp_message *message = &prompts[p].messages[m];
            int rc = split_text_check_text(prompts[p].name, message->text, message->n, err);
            if (rc) return rc;
            if (message->n > RP_MAX_SPLIT_BYTES - c->n_text)
                return base_fail(err, RP_ERR_LIMIT, "more than %zu bytes of prompts: give fewer", RP_MAX_SPLIT_BYTES);
            c->n_text += message->n;
        }
    }
    c->n_messages = (uint32_t)n_messages;
    return RP_OK;
}

static void split_corpus_cut(split_corpus *c, const char *text, size_t n, size_t *used) {
    if (n > 0) memcpy(c->text + *used, text, n);
    for (size_t i = 0; i < n; i += atom_length(text + i, n - i)) {
        c->message[c->n_atoms] = c->n_messages;
        c->start[c->n_atoms++] = (uint32_t)(*used + i);
    }
    *used += n;
    c->start[c->n_atoms] = (uint32_t)*used;
}

static void split_corpus_fill(split_corpus *c, const rp_split_prompt *prompts, size_t n) {
    size_t used = 0;
    c->n_messages = c->n_atoms = 0;
    c->start[0] = 0;
    for (size_t p = 0; p < n; p++) {
        c->prompts[p].first = c->n_messages;
        for (size_t m = 0; m < prompts[p].n_messages; m++) {
            const rp_message *in = &prompts[p].messages[m];
            split_message *out = &c->messages[c->n_messages];
            *out = (split_message){
                .first = c->n_atoms, .prompt = (uint32_t)p, .role = prompts[p].plain ? SPLIT_PLAIN : (int)in->role};
            split_corpus_cut(c, in->text, in->n, &used);
            out->end = c->n_atoms;
            c->n_messages++;
        }
        c->prompts[p].end = c->n_messages;
    }
    BASE_ASSERT(used == c->n_text);
}

int split_corpus_build(split_corpus *c, const rp_split_prompt *prompts, size_t n, rp_error *err) {
    size_t n_atoms = 0;
    numbering table = {.n_slots = 64};
    int rc = split_corpus_measure(c, prompts, n, err);
    if (rc) return rc;
    for (size_t p = 0; p < n; p++)
        for (size_t m = 0; m < prompts[p].n_messages; m++) {
            const rp_message *message = &prompts[p].messages[m];
            for (size_t i = 0; i < message->n; n_atoms++) i += atom_length(message->text + i, message->n - i);
        }
    while (table.n_slots < 2 * n_atoms) table.n_slots *= 2;
    c->text = base_alloc(c->n_text + 1);
    c->start = base_calloc(n_atoms + 1, sizeof(*c->start));
    c->id = base_calloc(n_atoms + 1, sizeof(*c->id));
    c->message = base_calloc(n_atoms + 1, sizeof(*c->message));
    c->messages = base_calloc((size_t)c->n_messages + 1, sizeof(*c->messages));
    c->prompts = base_calloc(n, sizeof(*c->prompts));
    c->n_prompts = (uint32_t)n;
    table.first = base_calloc(table.n_slots, sizeof(*table.first));
    if (!c->text || !c->start || !c->id || !c->message || !c->messages || !c->prompts || !table.first) {
        rc = base_fail_memory(err, n_atoms * 20, "prompts");
    } else {
        split_corpus_fill(c, prompts, n);
        BASE_ASSERT(c->n_atoms == n_atoms); /* as counted, and there is no space for more */
        number_atoms(c, &table);
    }
    base_free(table.first);
    return rc;
}

void split_corpus_free(split_corpus *c) {
    base_free(c->text);
    base_free(c->start);
    base_free(c->id);
    base_free(c->message);
    base_free(c->messages);
    base_free(c->prompts);
}

/* ---- Borders ---- */

static uint32_t count_lines(const split_corpus *c, uint32_t atom) {
    uint32_t n = 0;
    for (uint32_t i = c->start[atom]; i < c->start[atom + 1] && n < 2; i++) n += c->text[i] == '\n';
    return n;
}

split_border split_border_at(const split_corpus *c, uint32_t atom) {
    BASE_ASSERT(c->n_atoms > 0 && atom <= c->n_atoms);
    const split_message *m = &c->messages[c->message[BASE_MIN(atom, c->n_atoms - 1)]];
    if (atom <= m->first || atom >= m->end) return SPLIT_PARAGRAPH;
    uint32_t lines = BASE_MAX(count_lines(c, atom), count_lines(c, atom - 1));
    if (lines > 0) return lines > 1 ? SPLIT_PARAGRAPH : SPLIT_LINE;
    char before = c->text[c->start[atom] - 1];
    if (!pml_is_space(c->text[c->start[atom]])) return SPLIT_WORD;
    if (strchr(".!?", before)) return SPLIT_SENTENCE;
    return strchr(",;:)", before) ? SPLIT_CLAUSE : SPLIT_WORD;
}
