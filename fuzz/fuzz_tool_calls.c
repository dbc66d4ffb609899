/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tool_calls.c: arbitrary bytes as an answer, in any convention. Its items do not depend on how the answer is cut;
 * a complete call has arguments of one JSON object unless the answer's own JSON is malformed; ranges of reasoning are
 * in order. The first byte selects the family and what happens with reasoning, the second one the cuts. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json_write.h"
#include "structured/tool_finder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok) {
    if (!ok) abort();
}

static const char schema_text[] = "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\"}, \"b\": "
                                  "{\"enum\": [\"x\", \"1\"]}, \"c\": {}}}";

static answer_form ask_of(uint8_t choice, tool_spec tools[2]) {
    static const char *const templates[] = {"</think>", "[THINK]", "<|START_THINKING|>", ""};
    const char *template = templates[choice / 16 % BASE_ARRAY_LEN(templates)];
    answer_form gen = {.tools = tools,
                       .n_tools = choice < 128 ? 2 : 0,
                       .convention = tool_convention_detect(template, strlen(template), "plain")};
    size_t n = 0;
    while (tool_family_at(n)) n++;
    gen.convention.family = tool_family_at(choice % 16 % n);
    if (gen.convention.family->has_channels) gen.convention = tool_convention_detect(NULL, 0, "gpt-oss");
    gen.reasoning_open = choice == 255 && gen.convention.reasoning;
    return gen;
}

static void read_answer(tool_finder *f, const answer_form *gen, tool_reasoning reasoning, const char *text, size_t n,
                        size_t most) {
    tool_finder_init(f, gen, reasoning, NULL, NULL);
    for (size_t at = 0, step; at < n; at += step) {
        step = most == 0 ? n : BASE_MIN(1 + (at * 7 + 3) % most, n - at);
        check(tool_finder_feed(f, text + at, step) == 0);
    }
    check(tool_finder_finish(f) == 0);
}

static void check_same(const tool_finder *a, const tool_finder *b) {
    check(a->n_items == b->n_items && a->n_calls == b->n_calls && a->n_reasoned == b->n_reasoned);
    for (size_t i = 0; i < a->n_items; i++) {
        const tool_item *x = &a->items[i], *y = &b->items[i];
        check(x->tool == y->tool && x->is_reasoning == y->is_reasoning && x->is_whole == y->is_whole &&
              x->text.len == y->text.len);
        check(x->text.len == 0 || memcmp(x->text.data, y->text.data, x->text.len) == 0);
    }
    for (size_t i = 0; i < a->n_reasoned; i++) {
        check(a->reasoned[i].begin == b->reasoned[i].begin && a->reasoned[i].end == b->reasoned[i].end);
        check(a->reasoned[i].begin <= a->reasoned[i].end && (i == 0 || a->reasoned[i - 1].end <= a->reasoned[i].begin));
    }
}

/* Arguments that the finder writes itself are JSON, whatever the answer is, as far as it is UTF-8. */
static void check_written(const tool_item *item) {
    json_t *text = base_json_string(item->text.data, item->text.len);
    const bool is_utf8 = json_string_length(text) == item->text.len &&
                         memcmp(json_string_value(text), item->text.data, item->text.len) == 0;
    json_t *root = json_loadb(item->text.data, item->text.len, JSON_ALLOW_NUL, NULL);
    check(!is_utf8 || json_is_object(root));
    json_decref(root);
    json_decref(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 2) return 0;
    json_t *schema = json_loads(schema_text, 0, NULL);
    tool_spec tools[] = {{.name = "f", .schema = schema}, {.name = "g.h"}};
    const answer_form gen = ask_of(data[0], tools);
    const tool_reasoning reasoning = (tool_reasoning)(data[1] / 64 % 3);
    tool_finder whole, cut;
    read_answer(&whole, &gen, reasoning, (const char *)data + 2, n - 2, 0);
    read_answer(&cut, &gen, reasoning, (const char *)data + 2, n - 2, 1 + data[1] % 64);
    check_same(&whole, &cut);
    const bool writes = gen.convention.family->forms[0]->body == TOOL_BODY_TEXT ||
                        gen.convention.family->forms[0]->body == TOOL_BODY_LITERALS;
    for (size_t i = 0; i < whole.n_items && writes; i++)
        if (whole.items[i].tool && whole.items[i].is_whole && memchr(data, '{', n) == NULL)
            check_written(&whole.items[i]);
    tool_finder_free(&whole);
    tool_finder_free(&cut);
    json_decref(schema);
    return 0;
}
