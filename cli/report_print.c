/* SPDX-License-Identifier: Apache-2.0 */
/* report_print.c: a report, a list of reports, and a comparison of two, as text. */
#define _POSIX_C_SOURCE 200809L /* localtime_r */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/console.h"
#include "reports.h"
#include "common/text.h"

#define LINE_CELLS 100
#define CHUNK_DIGITS 8

static void print_time(const json_t *report) {
    time_t at = (time_t)report_number(report, "time");
    struct tm t;
    char text[32] = "";
    if (at > 0 && localtime_r(&at, &t) != NULL) strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &t);
    printf("%-19s", text);
}

static void report_print_quoted(const char *text, int cells) {
    putchar('"');
    cli_print_fit(stdout, text, cells, 0);
    putchar('"');
}

static double report_print_share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

/* ---- one report ---- */

static const char *report_print_how(const json_t *part) {
    return report_flag(part, "reused") ? "reused from" : "computed:";
}

static const char *report_print_why(const json_t *part) {
    if (report_flag(part, "reused")) return report_text(part, "tier");
    const char *reason = report_text(part, "reason");
    return reason[0] != '\0' ? reason : "new";
}

/* Each part as cells of a line, in proportion to its tokens. */
static void print_mosaic(const json_t *parts, double tokens) {
    int width = cli_terminal_cells(stdout, LINE_CELLS) - 4, drawn = 0;
    double at = 0;
    printf("  [");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        at += report_number(part, "tokens");
        int until = tokens > 0 ? (int)(at / tokens * width + 0.5) : 0;
        for (; drawn < until && drawn < width; drawn++) putchar(report_flag(part, "reused") ? '#' : '.');
    }
    printf("]\n  # reused   . computed\n");
}

/* A line below the part's: which slots its reduced KV has. */
static void print_kept_shares(const json_t *list) {
    const size_t n = json_array_size(list);
    if (n == 0) return;
    float *shares = cli_alloc(n * sizeof *shares);
    for (size_t i = 0; i < n; i++) shares[i] = (float)json_number_value(json_array_get(list, i));
    printf("%18s  [", "heads that keep");
    cli_print_shares(stdout, shares, (int)n, LINE_CELLS - 22);
    printf("]\n");
    free(shares);
}

static void print_parts(const json_t *parts) {
    printf("\n  position   tokens  module                    source\n");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *module = report_text(part, "module");
        printf("  %8.0f %8.0f  ", report_number(part, "position"), report_number(part, "tokens"));
        cli_print_fit(stdout, module[0] != '\0' ? module : "(text of the schema)", 24, 24);
        printf("  %s %s%s", report_print_how(part), report_print_why(part),
               report_flag(part, "exact") ? "" : ", not exact");
        const double kept = report_number(part, "kept");
        if (kept < 1) printf(", %.3g%% of its KV (%s)", 100 * kept, report_text(part, "kept_by"));
        if (report_text(part, "full_reason")[0] != '\0') printf(", full KV (%s)", report_text(part, "full_reason"));
        putchar('\n');
        print_kept_shares(json_object_get(part, "kept_shares"));
    }
}

/* Of a request with kv_keep. */
static void print_reduction(const json_t *r) {
    const char *method = report_text(r, "method");
    if (!json_is_object(r) || method[0] == '\0') return;
    printf("answered     with %.1f%% of the slots (%s): %.1f of %.1f KiB\n", 100 * report_number(r, "share"), method,
           report_number(r, "bytes") / 1024, report_number(r, "bytes_before") / 1024);
}

static void print_mismatch(const json_t *d) {
    const char *message = report_text(d, "message");
    if (!json_is_object(d)) return;
    printf("\n"
           "prompt differs from the cached prefix at token %.0f, in %s\n",
           report_number(d, "token"), message[0] != '\0' ? message : report_text(d, "module"));
    static const char *const fields[] = {"before", "prompt", "cached"}, *const words[] = {"after", "prompt", "cached"};
    for (int i = 0; i < 3; i++) {
        printf("  %-10s ", words[i]);
        report_print_quoted(report_text(d, fields[i]), LINE_CELLS - 16);
        putchar('\n');
    }
}

/* Of the model's chat template: where it changes, and the cached text. */
static void print_template_hint(const json_t *hint) {
    printf(" (line %.0f of the chat template), cached: ", report_number(hint, "line"));
    report_print_quoted(report_text(hint, "cached"), LINE_CELLS - 40);
}

static void print_hints(const json_t *hints) {
    if (json_array_size(hints) > 0) printf("\nhints\n");
    for (size_t i = 0; i < json_array_size(hints); i++) {
        const json_t *hint = json_array_get(hints, i);
        printf("  %s in %s%s: ", report_text(hint, "what"), report_text(hint, "message"),
               report_flag(hint, "at_mismatch") ? ", where the prompt differs from the cached prefix" : "");
        report_print_quoted(report_text(hint, "text"), LINE_CELLS - 40);
        if (json_object_get(hint, "cached")) print_template_hint(hint);
        printf("\n    %s\n", report_text(hint, "do"));
    }
}

static void print_agent_noise(const json_t *list) {
    if (json_array_size(list) > 0) printf("\nagent noise\n");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        printf("  %s in %s: %s", report_text(one, "rule"), report_text(one, "message"), report_text(one, "action"));
        if (report_number(one, "bytes") > 0) printf(", %.0f bytes", report_number(one, "bytes"));
        printf("\n");
    }
}

/* ---- a router's ---- */

static void print_attempts(const json_t *report) {
    const json_t *attempts = json_object_get(report, "attempts");
    printf("node         %s", report_text(report, "node"));
    for (size_t i = 0; i < json_array_size(attempts); i++) {
        const json_t *one = json_array_get(attempts, i);
        const char *failure = report_text(one, "failure");
        if (failure[0] != '\0') printf("%s%s failed: %s", i > 0 ? ", " : " (", report_text(one, "node"), failure);
        else if (i > 0)
            printf(", %s %s)", report_text(one, "node"), report_flag(one, "continues") ? "continued" : "answered");
    }
    printf("\noutcome      %s, predicted TTFT %.1f ms, first byte %.1f ms after the arrival\n",
           report_text(report, "outcome"), report_number(report, "predicted_ttft_ms"),
           report_number(json_object_get(report, "ms"), "first_byte"));
}

/* Why a node was chosen, and the others not. */
static void print_decision(const json_t *report) {
    const json_t *candidates = json_object_get(report, "candidates");
    printf("prompt       %.0f tokens: %.0f held by the node, as far as the router knew\n\n",
           report_number(report, "prompt_tokens"), report_number(report, "held_tokens"));
    printf("  %-24s %8s %8s %10s %10s %10s %10s  %s\n", "node", "held", "on disk", "drain ms", "compute ms", "read ms",
           "ttft ms", "not because");
    for (size_t i = 0; i < json_array_size(candidates); i++) {
        const json_t *c = json_array_get(candidates, i);
        printf("  ");
        cli_print_fit(stdout, report_text(c, "node"), 24, 24);
        printf(" %8.0f %8.0f %10.2f %10.2f %10.2f %10.2f  %s\n", report_number(c, "held_tokens"),
               report_number(c, "disk_tokens"), report_number(c, "drain_ms"), report_number(c, "compute_ms"),
               report_number(c, "read_ms"), report_number(c, "ttft_ms"), report_text(c, "excluded"));
    }
}

static void print_routed(const json_t *report) {
    const json_t *of_node = json_object_get(report, "node_report");
    printf("request      %s  ", report_text(report, "request"));
    print_time(report);
    printf("  %s\n", report_text(report, "route"));
    print_attempts(report);
    print_decision(report);
    if (!json_is_object(of_node)) {
        printf("\nthe node has no report of it\n");
        return;
    }
    printf("\nthe node's report\n");
    report_print(of_node);
}

void report_print(const json_t *report) {
    if (json_is_array(json_object_get(report, "candidates"))) {
        print_routed(report);
        return;
    }
    const json_t *ms = json_object_get(report, "ms"), *parts = json_object_get(report, "parts");
    double tokens = report_number(report, "prompt_tokens"), cached = report_number(report, "cached_tokens");
    printf("request      %s  ", report_text(report, "request"));
    print_time(report);
    printf("  %s\n", report_text(report, "route"));
    printf("prompt       %.0f tokens: %.0f reused (%.0f %%), %.0f computed\n", tokens, cached,
           report_print_share(cached, tokens), tokens - cached);
    printf("first token  %.1f ms (queue %.1f, module prefill %.1f, plan %.1f, prompt prefill %.1f)\n",
           report_number(ms, "first_token"), report_number(ms, "queue"), report_number(ms, "module_prefill"),
           report_number(ms, "plan"), report_number(ms, "prompt_prefill"));
    if (json_object_get(ms, "saved") != NULL) printf("saved        about %.1f ms\n", report_number(ms, "saved"));
    print_reduction(json_object_get(report, "kv_reduction"));
    if (report_number(report, "split_parts") > 0)
        printf("split        %.0f parts between separators\n", report_number(report, "split_parts"));
    putchar('\n');
    print_mosaic(parts, tokens);
    print_parts(parts);
    print_mismatch(json_object_get(report, "mismatch"));
    print_hints(json_object_get(report, "hints"));
    print_agent_noise(json_object_get(report, "agent_noise"));
}

/* ---- a list ---- */

void report_print_list(const json_t *list) {
    const json_t *data = json_object_get(list, "data");
    printf("%-24s  %-19s  %-9s  %8s  %8s  %9s\n", "request", "time", "dialect", "prompt", "reused", "first ms");
    for (size_t i = 0; i < json_array_size(data); i++) {
        const json_t *one = json_array_get(data, i);
        printf("%-24s  ", report_text(one, "id"));
        print_time(one);
        printf("  %-9s  %8.0f  %8.0f  %9.1f\n", report_text(one, "dialect"), report_number(one, "prompt_tokens"),
               report_number(one, "cached_tokens"), report_number(one, "first_token_ms"));
    }
}

/* ---- comparison ---- */

/* Common prefix of two prompts: bytes, in whole chunks. */
typedef struct common_beginning {
    double begin, end; /* the first difference is between these */
    bool all;          /* no known difference */
} common_beginning;

/* Offset of chunk i: the first chunks are short; after a fixed number of them the size is four times as long. */
static double chunk_begin(const json_t *prompt, size_t i) {
    double bytes = report_number(prompt, "first_chunk_bytes"), at = 0;
    size_t of_a_size = (size_t)report_number(prompt, "chunks_of_a_size");
    for (; of_a_size > 0 && i > of_a_size; i -= of_a_size, bytes *= 4) at += bytes * (double)of_a_size;
    return at + bytes * (double)i;
}

static common_beginning compare_prompts(const json_t *a, const json_t *b) {
    const char *of_a = report_text(a, "chunks"), *of_b = report_text(b, "chunks");
    double bytes = report_number(b, "bytes");
    size_t n = 0;
    while (of_a[n] != '\0' && of_a[n] == of_b[n]) n++;
    common_beginning c = {.begin = chunk_begin(b, n / CHUNK_DIGITS), .end = chunk_begin(b, n / CHUNK_DIGITS + 1)};
    c.all = of_a[n] == of_b[n] && report_number(a, "bytes") == bytes;
    if (c.all || c.begin > bytes) c.begin = bytes;
    if (c.end > bytes && bytes > c.begin) c.end = bytes;
    return c;
}

/* Bytes of a message in the hashed chunks: its role and text, a line feed after each. */
static double message_bytes(const json_t *message) {
    return (double)strlen(report_text(message, "role")) + report_number(message, "bytes") + 2;
}

static size_t same_messages(const json_t *a, const json_t *b) {
    size_t i = 0, n = json_array_size(a) < json_array_size(b) ? json_array_size(a) : json_array_size(b);
    while (i < n && strcmp(report_text(json_array_get(a, i), "hash"), report_text(json_array_get(b, i), "hash")) == 0 &&
           strcmp(report_text(json_array_get(a, i), "role"), report_text(json_array_get(b, i), "role")) == 0)
        i++;
    return i;
}

static void print_side(const char *side, const json_t *message) {
    if (message == NULL) {
        printf("  %s  no such message\n", side);
        return;
    }
    printf("  %s  %s, %.0f bytes: ", side, report_text(message, "role"), report_number(message, "bytes"));
    report_print_quoted(report_text(message, "begins"), 50);
    putchar('\n');
}

static void print_first_difference(const json_t *a, const json_t *b, const common_beginning *c) {
    const json_t *of_a = json_object_get(a, "messages"), *of_b = json_object_get(b, "messages");
    size_t same = same_messages(of_a, of_b),
           n = json_array_size(of_a) > json_array_size(of_b) ? json_array_size(of_a) : json_array_size(of_b);
    if (c->all) {
        printf("\nthe prompts are identical\n");
        return;
    }
    if (c->begin == c->end) printf("\nfirst difference of the prompts: byte %.0f", c->begin);
    else printf("\nfirst difference of the prompts: between bytes %.0f and %.0f", c->begin, c->end);
    if (same == n) {
        printf("\n");
        return;
    }
    printf(", in message %zu:\n", same + 1);
    print_side("A", json_array_get(of_a, same));
    print_side("B", json_array_get(of_b, same));
}

/* True if the chunks cover the listed messages. False for messages that were combined into one document. */
static bool are_messages(const json_t *prompt) {
    const json_t *messages = json_object_get(prompt, "messages");
    double bytes = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) bytes += message_bytes(json_array_get(messages, i));
    return bytes == report_number(prompt, "bytes");
}

/* Narrows the first difference by messages, which are finer than chunks: identical whole messages, and the start of the
 * next. */
static void narrow_by_messages(const json_t *a, const json_t *b, common_beginning *c) {
    const json_t *of_a = json_object_get(a, "messages"), *of_b = json_object_get(b, "messages");
    if (!are_messages(a) || !are_messages(b)) return;
    size_t same = same_messages(of_a, of_b), n = 0;
    const json_t *next_a = json_array_get(of_a, same), *next_b = json_array_get(of_b, same);
    const char *begins_a = report_text(next_a, "begins"), *begins_b = report_text(next_b, "begins");
    double at = 0;
    for (size_t i = 0; i < same; i++) at += message_bytes(json_array_get(of_b, i));
    if (next_a != NULL && next_b != NULL && strcmp(report_text(next_a, "role"), report_text(next_b, "role")) == 0) {
        at += (double)strlen(report_text(next_b, "role")) + 1;
        while (begins_a[n] != '\0' && begins_a[n] == begins_b[n]) n++;
        at += (double)n;
        if (begins_a[n] != '\0' && begins_b[n] != '\0' && at < c->end) c->end = at;
    }
    if (at > c->begin && at <= c->end) c->begin = at;
}

/* The part that has the key, or NULL. */
static const json_t *part_with(const json_t *parts, const char *key) {
    for (size_t i = 0; i < json_array_size(parts) && key[0] != '\0'; i++)
        if (strcmp(report_text(json_array_get(parts, i), "key"), key) == 0) return json_array_get(parts, i);
    return NULL;
}

static bool is_module(const json_t *part) {
    const char *module = report_text(part, "module");
    return module[0] != '\0' && strcmp(module, "prompt") != 0 && report_text(part, "key")[0] != '\0';
}

static bool has_modules(const json_t *report) {
    const json_t *parts = json_object_get(report, "parts");
    for (size_t i = 0; i < json_array_size(parts); i++)
        if (is_module(json_array_get(parts, i))) return true;
    return false;
}

/* Prints the parts that both reports have (shared), or that only `report` has. Returns their tokens. */
static double print_modules(const json_t *report, const json_t *other, const char *mark, bool shared) {
    const json_t *parts = json_object_get(report, "parts");
    double tokens = 0;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        if (!is_module(part)) continue;
        if ((part_with(json_object_get(other, "parts"), report_text(part, "key")) != NULL) != shared) continue;
        printf("  %s %8.0f tokens  ", mark, report_number(part, "tokens"));
        cli_print_fit(stdout, report_text(part, "module"), 40, 0);
        putchar('\n');
        tokens += report_number(part, "tokens");
    }
    return tokens;
}

static void report_print_head(const char *side, const json_t *r) {
    double tokens = report_number(r, "prompt_tokens"), cached = report_number(r, "cached_tokens");
    printf("%s  %s  ", side, report_text(r, "request"));
    print_time(r);
    printf("  %.0f tokens, %.0f reused (%.0f %%), first token %.1f ms\n", tokens, cached,
           report_print_share(cached, tokens), report_number(json_object_get(r, "ms"), "first_token"));
}

/* Tokens of the common prefix, estimated from bytes by B's average. If A came first, B's mismatch with the cached
 * prefix is an upper bound. */
static void print_beginning(const json_t *a, const json_t *b, const common_beginning *c) {
    double bytes = report_number(json_object_get(b, "prompt"), "bytes"),
           each = bytes > 0 ? report_number(b, "prompt_tokens") / bytes : 0;
    double least = floor(each * c->begin), most = c->all ? least : ceil(each * c->end);
    const json_t *left = json_object_get(b, "mismatch");
    if (json_is_object(left) && report_number(a, "time") <= report_number(b, "time"))
        most = fmin(most, report_number(left, "token"));
    least = fmin(least, most);
    if (most - least < 2) printf("a prefix of about %.0f tokens", most);
    else printf("a prefix of about %.0f to %.0f tokens", least, most);
}

void report_print_diff(const json_t *a, const json_t *b) {
    const json_t *of_a = json_object_get(a, "prompt"), *of_b = json_object_get(b, "prompt");
    common_beginning common = compare_prompts(of_a, of_b);
    if (!common.all) narrow_by_messages(of_a, of_b, &common);
    report_print_head("A", a);
    report_print_head("B", b);
    if (has_modules(a) || has_modules(b)) printf("\nmodules: = in both, - only in A, + only in B\n");
    double modules = print_modules(b, a, "=", true);
    print_modules(a, b, "-", false);
    print_modules(b, a, "+", false);
    print_first_difference(of_a, of_b, &common);
    printf("\nB could have reused from A: ");
    if (modules > 0) printf("%.0f tokens of modules", modules);
    else print_beginning(a, b, &common);
    printf("; B reused %.0f tokens in total\n", report_number(b, "cached_tokens"));
    print_mismatch(json_object_get(b, "mismatch"));
    print_hints(json_object_get(b, "hints"));
}
