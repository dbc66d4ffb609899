/* SPDX-License-Identifier: Apache-2.0 */
/* audit_text.c: writes and parses the auditor's table as text. Numbers are hexadecimal, fractions the bits of a double:
 * the values survive a round trip, whatever the locale.
 *
 *   reprise audit 2
 *   model <64 digits>
 *   calls <sampled> <audited> <dropped>
 *   text <format> <falls back> <figures>                        if there are any; so kv
 *   schema <tenant> <version> <raised> <lowest> <figures: all> <figures: now> <name>
 *   kv <format> <falls back> <figures>                          of the schema above it
 *   pair <figures> <first> <second>                             of the schema above it
 *   end <hash of all lines above it>
 *
 * Fields are separated by tabs. Any deviation is RP_ERR_FORMAT.
 *
 * Version 1 has no <lowest>, and no step "full KV" (audit_step): its <raised> of 1 to 3 is link:8 to exact. It is read.
 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "engine/background/audit_table.h"

#define VERSION 2
#define KEY_DIGITS (2 * BASE_KEY_BYTES)

static const char *const heads[VERSION + 1] = {NULL, "reprise audit 1\n", "reprise audit 2\n"}; /* of equal length */

static base_key hash_of(int version, const char *text, size_t n) {
    static const char *const domains[VERSION + 1] = {NULL, "reprise audit 1", "reprise audit 2"};
    base_hash h;
    base_key key;
    BASE_ASSERT(version > 0 && version <= VERSION);
    base_hash_init(&h, domains[version]);
    base_hash_bytes(&h, text, n);
    base_hash_final(&h, &key);
    return key;
}

/* ---- writing ---- */

static int write_key(base_buffer *b, const char *what, const base_key *key, const char *end) {
    char hex[KEY_DIGITS + 1];
    base_key_hex(key, hex, KEY_DIGITS);
    return base_buffer_printf(b, "%s\t%s%s", what, hex, end);
}

static unsigned long long audit_text_bits(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof(u));
    return u;
}

static int write_figures(base_buffer *b, const audit_figures *f) {
    return base_buffer_printf(b, "\t%llx\t%llx\t%llx\t%llx\t%llx", (unsigned long long)f->samples,
                              (unsigned long long)f->agreed, audit_text_bits(f->sum_kl), audit_text_bits(f->max_kl),
                              audit_text_bits(f->sum_distance));
}

static int write_format(base_buffer *b, const char *what, const audit_format *f) {
    if (f->figures.samples == 0) return RP_OK;
    int rc = base_buffer_printf(b, "%s\t%x\t%x", what, (unsigned)kv_format_number(f->format), (unsigned)f->falls_back);
    if (!rc) rc = write_figures(b, &f->figures);
    return rc ? rc : base_buffer_append_str(b, "\n");
}

static int audit_text_write_schema(base_buffer *b, const audit_table *t, const audit_schema *s) {
    BASE_ASSERT(s->raised <= AUDIT_STEPS && s->lowest <= AUDIT_STEPS); /* no other step is read */
    int rc = base_buffer_printf(b, "schema\t%x", (unsigned)s->tenant);
    if (!rc) rc = write_key(b, "", &s->version, "");
    if (!rc) rc = base_buffer_printf(b, "\t%x\t%x", (unsigned)s->raised, (unsigned)s->lowest);
    if (!rc) rc = write_figures(b, &s->all);
    if (!rc) rc = write_figures(b, &s->now);
    if (!rc) rc = base_buffer_printf(b, "\t%s\n", s->name);
    if (!rc) rc = write_format(b, "kv", &s->kv);
    for (size_t i = 0; i < t->n_pairs && !rc; i++) {
        const audit_pair *p = &t->pairs[i];
        if (p->schema != s->id) continue;
        rc = base_buffer_append_str(b, "pair");
        if (!rc) rc = write_figures(b, &p->figures);
        if (!rc) rc = base_buffer_printf(b, "\t%s\t%s\n", p->first, p->second);
    }
    return rc;
}

/* The schema updated next after `used`. */
static const audit_schema *next_used(const audit_table *t, uint64_t used) {
    const audit_schema *next = NULL;
    for (size_t i = 0; i < t->n_schemas; i++)
        if (t->schemas[i].used > used && (!next || t->schemas[i].used < next->used)) next = &t->schemas[i];
    return next;
}

int audit_table_write(const audit_table *t, const base_key *model, base_buffer *out) {
    int rc = base_buffer_append_str(out, heads[VERSION]);
    if (!rc) rc = write_key(out, "model", model, "\n");
    if (!rc)
        rc = base_buffer_printf(out, "calls\t%llx\t%llx\t%llx\n", (unsigned long long)t->sampled,
                                (unsigned long long)t->audited, (unsigned long long)t->dropped);
    if (!rc) rc = write_format(out, "text", &t->text);
    for (const audit_schema *s = next_used(t, 0); s && !rc; s = next_used(t, s->used))
        rc = audit_text_write_schema(out, t, s);
    if (rc) return rc;
    base_key end = hash_of(VERSION, out->data, out->len);
    return write_key(out, "end", &end, "\n");
}

/* ---- reading ---- */

/* The rest of a text, or of a line of it. */
typedef struct rest {
    const char *at, *end;
} rest;

/* Cuts off the text before the next `border`; false: there is none. */
static bool rest_cut(rest *r, char border, rest *field) {
    const char *p = r->at < r->end ? memchr(r->at, border, (size_t)(r->end - r->at)) : NULL;
    if (!p) return false;
    *field = (rest){r->at, p};
    r->at = p + 1;
    return true;
}

/* The next field of a line: up to a tab or its end. */
static bool rest_take_field(rest *line, rest *field) {
    if (!line->at) return false;
    if (rest_cut(line, '\t', field)) return true;
    *field = *line;
    line->at = NULL;
    return true;
}

static bool rest_is_word(const rest *r, const char *word) {
    size_t n = strlen(word);
    return (size_t)(r->end - r->at) == n && memcmp(r->at, word, n) == 0;
}

static int audit_text_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                                                                   : -1; }

static bool rest_take_number(rest *line, uint64_t *out) {
    rest f;
    if (!rest_take_field(line, &f) || f.at == f.end || f.end - f.at > 16) return false;
    for (*out = 0; f.at < f.end; f.at++) {
        if (audit_text_digit(*f.at) < 0) return false;
        *out = *out << 4 | (uint64_t)audit_text_digit(*f.at);
    }
    return true;
}

static bool take_key(rest *line, base_key *out) {
    rest f;
    return rest_take_field(line, &f) && f.end - f.at == KEY_DIGITS && base_key_parse(out, f.at);
}

static bool take_fraction(rest *line, double *out) {
    uint64_t u;
    if (!rest_take_number(line, &u)) return false;
    memcpy(out, &u, sizeof(u));
    return isfinite(*out) && *out >= 0;
}

static bool take_figures(rest *line, audit_figures *f) {
    return rest_take_number(line, &f->samples) && rest_take_number(line, &f->agreed) &&
           take_fraction(line, &f->sum_kl) && take_fraction(line, &f->max_kl) &&
           take_fraction(line, &f->sum_distance) && f->agreed <= f->samples;
}

/* Names have no control characters. */
static int rest_take_name(rest *line, char **out) {
    rest f;
    *out = NULL;
    if (!rest_take_field(line, &f) || f.end - f.at >= AUDIT_NAME_BYTES || f.at == f.end) return RP_ERR_FORMAT;
    for (const char *c = f.at; c < f.end; c++)
        if ((unsigned char)*c < ' ') return RP_ERR_FORMAT;
    *out = base_strndup(f.at, (size_t)(f.end - f.at));
    return *out ? RP_OK : RP_ERR_MEMORY;
}

static bool take_step(rest *line, int32_t *out) {
    uint64_t step;
    if (!rest_take_number(line, &step) || step > AUDIT_STEPS) return false;
    *out = (int32_t)step;
    return true;
}

/* Version 1 counts one step less from link:8 on. */
static bool take_steps(rest *line, int version, audit_schema *s) {
    if (!take_step(line, &s->raised)) return false;
    if (version > 1) return take_step(line, &s->lowest);
    s->lowest = AUDIT_STEPS;
    if (s->raised > 0) s->raised += AUDIT_LINK - 1;
    return s->raised <= AUDIT_STEPS;
}

static int audit_table_read_schema(audit_table *t, int version, rest *line) {
    audit_schema s = {.id = t->n_ids + 1, .used = t->n_added + 1};
    uint64_t tenant;
    if (t->n_schemas == AUDIT_MAX_SCHEMAS || !rest_take_number(line, &tenant) || tenant > UINT32_MAX ||
        !take_key(line, &s.version) || !take_steps(line, version, &s) || !take_figures(line, &s.all) ||
        !take_figures(line, &s.now))
        return RP_ERR_FORMAT;
    int rc = rest_take_name(line, &s.name);
    if (rc) return rc;
    s.tenant = (uint32_t)tenant;
    t->n_ids++;
    t->n_added++;
    t->schemas[t->n_schemas++] = s;
    return RP_OK;
}

static int read_pair(audit_table *t, rest *line) {
    audit_pair p = {.schema = t->n_ids, .used = t->n_added};
    if (t->n_schemas == 0 || t->n_pairs == AUDIT_MAX_PAIRS || !take_figures(line, &p.figures)) return RP_ERR_FORMAT;
    int rc = rest_take_name(line, &p.first);
    if (!rc) rc = rest_take_name(line, &p.second);
    if (rc) {
        base_free(p.first);
        return rc;
    }
    t->pairs[t->n_pairs++] = p;
    return RP_OK;
}

/* One line of each, at most. */
static bool read_format(audit_format *f, rest *line) {
    uint64_t format, falls_back;
    if (f->figures.samples > 0) return false;
    if (!rest_take_number(line, &format) || format > UINT32_MAX || !rest_take_number(line, &falls_back) ||
        falls_back > 1)
        return false;
    if (!take_figures(line, &f->figures) || f->figures.samples == 0) return false;
    f->falls_back = falls_back;
    if (kv_format_of_number((uint32_t)format, &f->format)) return true;
    *f = (audit_format){0}; /* no request has a removed format */
    return kv_format_removed((uint32_t)format) != NULL;
}

static int audit_table_read_line(audit_table *t, int version, base_key *model, rest line) {
    rest word;
    int rc = RP_OK;
    if (!rest_take_field(&line, &word)) return RP_ERR_FORMAT;
    if (rest_is_word(&word, "model")) rc = take_key(&line, model) ? RP_OK : RP_ERR_FORMAT;
    else if (rest_is_word(&word, "calls"))
        rc = rest_take_number(&line, &t->sampled) && rest_take_number(&line, &t->audited) &&
                     rest_take_number(&line, &t->dropped)
                 ? RP_OK
                 : RP_ERR_FORMAT;
    else if (rest_is_word(&word, "schema")) rc = audit_table_read_schema(t, version, &line);
    else if (rest_is_word(&word, "text")) rc = read_format(&t->text, &line) ? RP_OK : RP_ERR_FORMAT;
    else if (rest_is_word(&word, "kv"))
        rc = t->n_schemas > 0 && read_format(&t->schemas[t->n_schemas - 1].kv, &line) ? RP_OK : RP_ERR_FORMAT;
    else if (rest_is_word(&word, "pair")) rc = read_pair(t, &line);
    else return RP_ERR_FORMAT;
    return !rc && line.at ? RP_ERR_FORMAT : rc; /* trailing fields */
}

/* The lines between head and end, if the hash of the end line matches. Returns the version; 0: it is no table. */
static int find_lines(const char *text, size_t n, rest *out) {
    static const size_t end_bytes = sizeof("end\t\n") - 1 + KEY_DIGITS;
    const size_t head_bytes = strlen(heads[VERSION]);
    int version = VERSION;
    rest line, word;
    base_key said;
    if (n < head_bytes + end_bytes || n > AUDIT_MAX_FILE) return 0;
    while (version > 0 && memcmp(text, heads[version], head_bytes) != 0) version--;
    if (version == 0) return 0;
    rest end = {text + n - end_bytes, text + n};
    *out = (rest){text + head_bytes, end.at};
    if (!rest_cut(&end, '\n', &line) || end.at != end.end || !rest_take_field(&line, &word) ||
        !rest_is_word(&word, "end") || !take_key(&line, &said))
        return 0;
    base_key is = hash_of(version, text, n - end_bytes);
    return base_key_equal(&said, &is) ? version : 0;
}

int audit_table_read(audit_table **out, base_key *model, const char *text, size_t n) {
    rest lines, line;
    *out = NULL;
    *model = (base_key){{0}};
    const int version = find_lines(text, n, &lines);
    if (version == 0) return RP_ERR_FORMAT;
    audit_table *t = audit_table_new();
    int rc = t ? RP_OK : RP_ERR_MEMORY;
    while (!rc && lines.at < lines.end)
        rc = rest_cut(&lines, '\n', &line) ? audit_table_read_line(t, version, model, line) : RP_ERR_FORMAT;
    if (rc) audit_table_free(t);
    else *out = t;
    return rc;
}
