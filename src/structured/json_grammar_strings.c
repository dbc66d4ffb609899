/* SPDX-License-Identifier: Apache-2.0 */
/* json_grammar_strings.c: see json_grammar_internal.h: lengths, patterns and formats of strings. Owns nothing. */
#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "structured/json_grammar_internal.h"

/* ---- formats, as patterns ---- */

#define DATE \
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|" \
    "2[0-8]))|" \
    "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define CLOCK "(?:[01]\\d|2[0-3]):[0-5]\\d"
#define TIME CLOCK ":[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-]" CLOCK ")" /* leap seconds depend on the day: none */
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,38}[A-Za-z0-9])?"
#define HOST LABEL "(?:\\." LABEL "){0,5}" /* within 253 characters */
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
#define HEX(n) "[0-9A-Fa-f]{" #n "}"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define PATH PCHAR "{0,64}(?:/" PCHAR "{0,64}){0,16}"
#define CLOCK_PART "T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S)"
#define MONTH_PART "\\d{1,9}M(?:\\d{1,9}D)?"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"duration",
     "^P(?:\\d{1,9}W|" CLOCK_PART "|(?:\\d{1,9}D|" MONTH_PART "|\\d{1,9}Y(?:" MONTH_PART ")?)(?:" CLOCK_PART ")?)$"},
    {"uuid", "^" HEX(8) "-" HEX(4) "-" HEX(4) "-" HEX(4) "-" HEX(12) "$"},
    {"email", "^" ATOM "{1,31}(?:\\." ATOM "{1,15}){0,2}@" HOST "$"},
    {"hostname", "^" HOST "$"},
    {"ipv4", "^" IPV4 "$"},
    {"ipv6", "^(?:(?:" H16 ":){7}" H16 "|(?:" H16 ":){1,7}:|(?:" H16 ":){1,6}:" H16 "|(?:" H16 ":){1,5}(?::" H16
             "){2}|(?:" H16 ":){1,4}(?::" H16 "){3}|(?:" H16 ":){1,3}(?::" H16 "){4}|(?:" H16 ":){1,2}(?::" H16
             "){5}|" H16 ":(?::" H16 "){6}|:(?::" H16 "){1,7}|::|::(?:[Ff]{4}:)?" IPV4 ")$"},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]{0,15}:(?://" HOST "(?::\\d{1,5})?(?:/" PATH ")?|/?" PCHAR "{1,64}(?:/" PCHAR
            "{0,64}){0,16})(?:\\?" PATH ")?(?:#" PATH ")?$"},
};

/* NULL: it has none. */
static const char *pattern_of_format(const char *name) {
    for (size_t i = 0; i < BASE_ARRAY_LEN(formats) && name; i++)
        if (strcmp(formats[i].name, name) == 0) return formats[i].pattern;
    return NULL;
}

/* ---- the rule of a string ---- */

/* name: the keyword that the pattern is of. */
static regex *parse_pattern(json_grammar *g, const char *name, const char *pattern) {
    char why[REGEX_WHY_BYTES];
    regex *r = json_grammar_failed(g) ? NULL : regex_parse(pattern, why);
    if (r || json_grammar_failed(g)) return r;
    if (why[0]) json_grammar_unsupported(g, name, why, NULL);
    else structured_fail_memory(g->error);
    return NULL;
}

void json_grammar_text_rule_read(json_grammar *g, const json_t *schema, json_grammar_text_rule *out) {
    const json_t *pattern = json_object_get(schema, "pattern");
    const char *of_format = pattern_of_format(json_string_value(json_object_get(schema, "format")));
    *out = (json_grammar_text_rule){.min = json_grammar_size_of(g, schema, "minLength", 0),
                                    .max = json_grammar_size_of(g, schema, "maxLength", JSON_GRAMMAR_NONE)};
    if (out->max != JSON_GRAMMAR_NONE && out->max < out->min) json_grammar_wrong(g, "maxLength", "at least minLength");
    if (pattern && !json_is_string(pattern)) json_grammar_wrong(g, "pattern", "a string");
    if (json_is_string(pattern)) {
        out->pattern = parse_pattern(g, "pattern", json_string_value(pattern));
        /* Lengths beside a pattern become part of it, or are not supported. */
        if (out->pattern && !regex_limit(out->pattern, out->min, out->max))
            json_grammar_unsupported(g, out->min > 0 ? "minLength" : "maxLength",
                                     "its pattern allows other lengths: write the lengths into the pattern", NULL);
    } else if (of_format) {
        out->pattern = parse_pattern(g, "format", of_format);
        if (out->pattern && !regex_limit(out->pattern, out->min, out->max))
            json_grammar_text_rule_free(out); /* a format is an annotation: the lengths remain */
    }
    if (out->pattern) out->min = 0, out->max = JSON_GRAMMAR_NONE;
}

void json_grammar_text_rule_free(json_grammar_text_rule *rule) {
    regex_free(rule->pattern);
    rule->pattern = NULL;
}

bool json_grammar_text_rule_is_empty(const json_grammar_text_rule *rule) {
    return rule->min == 0 && rule->max == JSON_GRAMMAR_NONE && !rule->pattern;
}

bool json_grammar_text_rule_admits(const json_grammar_text_rule *rule, const char *text) {
    BASE_ASSERT(rule->min >= 0);
    int n = 0;
    for (const char *s = text; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n >= rule->min && (rule->max == JSON_GRAMMAR_NONE || n <= rule->max) &&
           (!rule->pattern || regex_matches(rule->pattern, text));
}

void json_grammar_put_text(json_grammar *g, const json_grammar_text_rule *rule, base_buffer *out) {
    if (json_grammar_text_rule_is_empty(rule)) {
        json_grammar_put(g, out, " string");
        return;
    }
    json_grammar_put(g, out, rule->pattern ? " \"\\\"\"" : " \"\\\"\" char");
    if (!rule->pattern) json_grammar_put_times(g, out, rule->min, rule->max);
    else if (!json_grammar_failed(g)) json_grammar_check(g, regex_put(rule->pattern, REGEX_JSON, out));
    json_grammar_put(g, out, " \"\\\"\"");
}

void json_grammar_put_string(json_grammar *g, const json_t *schema, base_buffer *out) {
    json_grammar_text_rule rule;
    json_grammar_text_rule_read(g, schema, &rule);
    json_grammar_put_text(g, &rule, out);
    json_grammar_text_rule_free(&rule);
}
