/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_template.c: arbitrary bytes as a chat template and the JSON of a conversation, with a NUL between them. What is
 * parsed renders to UTF-8 in runs that rise and end with the text, and bytes of a string of the input are equal to it.
 * Trusted bytes do not depend on the input's text: of a conversation whose letters are all replaced by "z", the
 * template can only write trusted text of characters that are in its source. A failure is one line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/text.h"
#include "template/template.h"
#include "reprise_chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MAX_STRINGS 4096

typedef struct strings {
    const char *bytes[MAX_STRINGS];
    size_t length[MAX_STRINGS], n;
} strings;

static void check(bool ok) {
    if (!ok) abort();
}

/* In the order of the JSON text, as they are numbered. */
static void collect(const json_t *json, strings *out) {
    const char *key;
    json_t *item;
    size_t i;
    if (json_is_string(json) && out->n < MAX_STRINGS) {
        out->bytes[out->n] = json_string_value(json);
        out->length[out->n++] = json_string_length(json);
    }
    if (json_is_array(json)) json_array_foreach((json_t *)json, i, item) collect(item, out);
    if (json_is_object(json)) json_object_foreach((json_t *)json, key, item) collect(item, out);
}

static void check_utf8(const char *bytes, size_t n) {
    for (size_t i = 0; i < n;) {
        int length = base_utf8_length((const unsigned char *)bytes + i, n - i);
        check(length > 0);
        i += (size_t)length;
    }
}

static void check_text(const rp_template_text *text, const strings *s) {
    size_t begin = 0;
    for (size_t i = 0; i < text->n_runs; begin = text->runs[i++].end) {
        const rp_template_run *run = &text->runs[i];
        check(run->end > begin && run->end <= text->n);
        if (run->origin < RP_TEMPLATE_FIRST_STRING) check(run->offset == TEMPLATE_NO_OFFSET);
        if (run->offset == TEMPLATE_NO_OFFSET) continue;
        size_t number = run->origin - RP_TEMPLATE_FIRST_STRING;
        if (number >= MAX_STRINGS) continue;
        check(number < s->n && run->offset <= s->length[number] && run->end - begin <= s->length[number] - run->offset);
        check(memcmp(s->bytes[number] + run->offset, text->bytes + begin, run->end - begin) == 0);
    }
    check(begin == text->n && text->bytes[text->n] == '\0');
    check_utf8(text->bytes, text->n);
}

/* The mark is in no template that is checked: its bytes in a trusted run would be the user's. */
static void check_trust(const rp_template *t, const char *source) {
    static const char input[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"\x02\x03\"}, {\"role\": "
                                "\"\x02\x03\", \"content\": [{\"\x02\x03\": \"\x02\x03\"}]}], "
                                "\"tools\": [{\"\x02\x03\": \"\x02\x03\"}], \"a\": \"\x02\x03\", \"b\": "
                                "[\"\x02\x03\"], \"c\": {\"\x02\x03\": \"\x02\x03\"}}";
    char escaped[sizeof(input) * 6], *out = escaped;
    rp_template_text *text;
    size_t begin = 0;
    if (strpbrk(source, "\x02\x03\\%")) return; /* escapes and %c can write it */
    for (const char *at = input; *at; at++) {
        if (*at == 2 || *at == 3) out += strlen(strcpy(out, *at == 2 ? "\\u0002" : "\\u0003"));
        else *out++ = *at;
    }
    if (rp_template_render(t, escaped, (size_t)(out - escaped), NULL, &text, NULL)) return;
    for (size_t i = 0; i < text->n_runs; begin = text->runs[i++].end)
        if (text->runs[i].origin == RP_TEMPLATE_TRUSTED)
            check(!memchr(text->bytes + begin, 2, text->runs[i].end - begin) &&
                  !memchr(text->bytes + begin, 3, text->runs[i].end - begin));
    rp_template_text_free(text);
}

static void render(const rp_template *t, const char *json, size_t n) {
    static strings s;
    rp_template_options options = rp_template_options_defaults();
    rp_template_text *text = NULL;
    rp_error err = {0};
    options.has_time = true;
    int rc = rp_template_render(t, json, n, &options, &text, &err);
    if (rc) {
        check(rc == (int)err.code && err.message[0] && !text);
        check(rc == RP_ERR_INVALID || rc == RP_ERR_LIMIT || rc == RP_ERR_MEMORY);
        return;
    }
    json_t *root = json_loadb(json, n, JSON_ALLOW_NUL, NULL);
    check(root != NULL);
    s.n = 0;
    collect(root, &s);
    check_text(text, &s);
    json_decref(root);
    rp_template_text_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char *all = malloc(n + 2);
    check(all != NULL);
    if (n > 0) memcpy(all, data, n);
    memset(all + n, 0, 2);
    size_t n_source = strlen(all), n_json = n_source < n ? n - n_source - 1 : 0;
    rp_template *t;
    rp_error err = {0};
    int rc = rp_template_new(&t, all, n_source, "template", &err);
    if (rc) {
        check(rc == (int)err.code && err.message[0] && !strchr(err.message, '\n'));
        check(rc == RP_ERR_SYNTAX || rc == RP_ERR_UNSUPPORTED || rc == RP_ERR_LIMIT || rc == RP_ERR_MEMORY);
    } else {
        render(t, all + n_source + 1, n_json);
        check_trust(t, all);
    }
    rp_template_free(t);
    free(all);
    return 0;
}
