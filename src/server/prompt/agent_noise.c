/* SPDX-License-Identifier: Apache-2.0 */
/* agent_noise.c: see agent_noise.h. A message is cut into blocks, the parts that the client sent, before they are read
   as lines. */
#include "server/prompt/agent_noise.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/memory.h"
#include "server/prompt/tools.h"
#include "server/prompt/volatile_text.h"

#define MAX_LINE_BYTES 400      /* a longer line is a paragraph and is not moved */
#define MAX_PIECE_BYTES 65536   /* of several lines: a git status, a list of memories */
#define MAX_SYSTEMS 16          /* leading system messages that are examined */
#define MAX_SEARCHED_BYTES 1024 /* of a piece, for hints */
#define MAX_REMINDERS 4         /* of the date: clients send one */

/* ---- the rules ---- */

typedef enum noise_shape {
    NOISE_LINE,    /* a line that begins with `begin` */
    NOISE_EQUAL,   /* a line that is `begin` */
    NOISE_TAGGED,  /* lines from one that begins with `begin`, the next one with `next`, to one that is `end` */
    NOISE_SECTION, /* lines from one that begins with `begin`, the next one with `next`, to the empty line after a line
                      that is `end`, or to the end */
} noise_shape;

typedef struct noise_rule {
    const char *name; /* the agent and the kind of text, as in "codex: environment" */
    noise_shape shape;
    bool is_dropped;                /* else it moves */
    bool begins_block;              /* only at the beginning of a block */
    const char *within;             /* only in the lines after one that begins so, up to an empty one */
    const char *begin, *next, *end; /* next and end: without the spaces around a line; NULL: any */
} noise_rule;

/* Of system messages. Captured: claude-code 2.1.332 and older (2.0), opencode 1, openclaw,
    Open WebUI 0.6; tests/server/test_agent_noise.py has each. */
static const noise_rule system_rules[] = {
    {"claude-code: billing header", NOISE_LINE, .is_dropped = true, .begins_block = true,
     .begin = "x-anthropic-billing-header:"},
    {"claude-code: identity", NOISE_EQUAL, .begins_block = true,
     .begin = "You are Claude Code, Anthropic's official CLI for Claude."},
    {"claude-code: identity", NOISE_EQUAL, .begins_block = true,
     .begin = "You are Claude Code, Anthropic's official CLI for Claude, running within the Claude Agent SDK."},
    {"claude-code: identity", NOISE_EQUAL, .begins_block = true,
     .begin = "You are a Claude agent, built on Anthropic's Claude Agent SDK."},
    {"claude-code: environment", NOISE_LINE,
     .within = "You have been invoked in the following environment:", .begin = " - Primary working directory: "},
    {"claude-code: environment", NOISE_LINE,
     .within = "You have been invoked in the following environment:", .begin = " - Is a git repository: "},
    {"claude-code: environment", NOISE_LINE,
     .within = "You have been invoked in the following environment:", .begin = " - Platform: "},
    {"claude-code: environment", NOISE_LINE,
     .within = "You have been invoked in the following environment:", .begin = " - Shell: "},
    {"claude-code: environment", NOISE_LINE,
     .within = "You have been invoked in the following environment:", .begin = " - OS Version: "},
    {"claude-code: git status", NOISE_SECTION,
     .begin = "gitStatus: This is the git status at the start of the conversation.", .end = "Recent commits:"},
    {"claude-code: date", NOISE_LINE, .begin = "Today's date is "},
    {"claude-code: environment", NOISE_TAGGED,
     .begin = "Here is useful information about the environment you are running in:", .next = "<env>", .end = "</env>"},
    {"opencode: environment", NOISE_TAGGED,
     .begin = "Here is some useful information about the environment you are running in:", .next = "<env>",
     .end = "</env>"},
    {"opencode: environment", NOISE_TAGGED, .begin = "<env>", .next = "Working directory: ", .end = "</env>"},
    {"opencode: date", NOISE_LINE, .begin = "Today's date: "},
    {"openclaw: working directory", NOISE_LINE, .within = "## Workspace", .begin = "Your working directory is: "},
    {"openclaw: time zone", NOISE_LINE, .within = "## Current Date & Time", .begin = "Time zone: "},
    {"openclaw: runtime", NOISE_LINE, .within = "## Runtime", .begin = "Runtime: "},
    {"open-webui: memories", NOISE_SECTION, .begin = "User Context:", .next = "1. ["},
};

/* A system message of Claude Code's after the first user message: it moves to the end of the system messages, where it
   is constant text. */
static const noise_rule system_message = {
    "claude-code: system message", .begin = "# Environment\nYou have been invoked in the following environment:"};

/* With RP_AGENT_NOISE_ALL: lines of any client's. They stay in the system message. */
static const noise_rule any_line = {"volatile line", NOISE_LINE, .begin = ""};

/* Blocks that agents put before the first question: each is a part of its own, or the whole message. */
typedef struct noise_block {
    const char *name;             /* of a rule: the block moves after the constant ones; NULL: it is constant */
    const char *begin, *end;      /* of the block */
    const char *line_name, *line; /* a line in it that moves; NULL: none */
} noise_block;

static const noise_block blocks[] = {
    {.name = "claude-code: git status",
     .end = "</system-reminder>",
     .begin =
         "<system-reminder>\nAs you answer the user's questions, you can use the following context:\n# gitStatus\n"},
    {.begin = "<system-reminder>\nThis is the Qwen Code. We are setting up the context for our chat.\n",
     .end = "</system-reminder>",
     .line_name = "qwen-code: date",
     .line = "Today's date is "},
    {.begin = "<system-reminder>\n", .end = "</system-reminder>"},
    {.name = "codex: environment", .begin = "<environment_context>\n", .end = "</environment_context>"},
    {.begin = "# AGENTS.md instructions for ", .end = "</INSTRUCTIONS>"},
    {.begin = "<user_instructions>\n", .end = "</user_instructions>"},
    {.begin = "<session_context>\nThis is the Gemini CLI.",
     .end = "</session_context>",
     .line_name = "gemini-cli: date",
     .line = "Today's date is "},
    {.begin = "This is the Gemini CLI. We are setting up the context for our chat.\n",
     .end = "",
     .line_name = "gemini-cli: date",
     .line = "Today's date is "},
    {.begin = "This is the Qwen Code. We are setting up the context for our chat.\n",
     .end = "",
     .line_name = "qwen-code: date",
     .line = "Today's date is "},
};

/* ---- lines ---- */

static bool begins_with(const char *s, size_t n, const char *prefix) {
    const size_t len = strlen(prefix);
    return n >= len && memcmp(s, prefix, len) == 0;
}

/* Bytes of the line without its line feed. */
static size_t line_bytes(const char *s, size_t n) {
    const char *end = memchr(s, '\n', n);
    return end ? (size_t)(end - s) : n;
}

static void trim(const char **s, size_t *n) {
    while (*n > 0 && strchr(" \t\r\n", (*s)[*n - 1])) --*n;
    while (*n > 0 && strchr(" \t\r\n", **s)) ++*s, --*n;
}

static bool is_trimmed(const char *s, size_t n, const char *text) {
    trim(&s, &n);
    return n == strlen(text) && memcmp(s, text, n) == 0;
}

static bool next_is(const char *s, size_t n, const char *next) {
    size_t at = line_bytes(s, n);
    if (!next) return true;
    if (at == n) return false;
    s += at + 1;
    n = line_bytes(s, n - at - 1);
    trim(&s, &n);
    return begins_with(s, n, next);
}

/* Bytes of the lines up to one that is `end`, which is the last; then, of a section, up to an empty line. 0: there is
   none. */
static size_t lines_to_end(const noise_rule *r, const char *s, size_t n) {
    BASE_ASSERT(r->shape == NOISE_SECTION || (r->shape == NOISE_TAGGED && r->end));
    const size_t most = BASE_MIN(n, (size_t)MAX_PIECE_BYTES);
    bool has_end = !r->end;
    for (size_t at = 0; at < most;) {
        const size_t len = line_bytes(s + at, n - at);
        if (r->shape == NOISE_SECTION && has_end && is_trimmed(s + at, len, "")) return at;
        at += len;
        if (!has_end && is_trimmed(s + at - len, len, r->end)) {
            has_end = true;
            if (r->shape == NOISE_TAGGED) return at;
        }
        if (at == n) return r->shape == NOISE_SECTION ? n : 0;
        at++;
    }
    return 0;
}

/* Bytes of a text of n bytes, at the beginning of a line, that have the rule's shape. */
static size_t noise_match(const noise_rule *r, const char *s, size_t n) {
    if (!begins_with(s, n, r->begin)) return 0;
    const size_t len = line_bytes(s, n);
    if (r->shape == NOISE_LINE) return len <= MAX_LINE_BYTES ? len : 0;
    if (r->shape == NOISE_EQUAL) return is_trimmed(s, len, r->begin) ? len : 0;
    return next_is(s, n, r->next) ? lines_to_end(r, s, n) : 0;
}

/* ---- pieces of a message ---- */

typedef struct noise_piece {
    size_t begin, end; /* of the message, with the line feed after it */
    size_t n;          /* bytes without it */
    const noise_rule *rule;
    const char *name;
} noise_piece;

typedef struct noise_pieces {
    noise_piece items[SERVER_MAX_NOISE];
    size_t n, most; /* most: what the request's limit leaves */
} noise_pieces;

static bool add_piece(noise_pieces *l, const char *text, size_t begin, size_t n, size_t limit, const noise_rule *rule,
                      const char *name) {
    BASE_ASSERT(l->n <= l->most && l->most <= SERVER_MAX_NOISE && begin + n <= limit);
    BASE_ASSERT(l->n == 0 || begin >= l->items[l->n - 1].end); /* pieces are in the order of the text */
    if (l->n == l->most) return false;
    const size_t end = begin + n;
    l->items[l->n++] = (noise_piece){begin, end + (end < limit && text[end] == '\n'), n, rule, name};
    return true;
}

typedef struct noise_scan {
    noise_pieces *found;
    const char *text;
    bool takes_lines; /* volatile lines, with RP_AGENT_NOISE_ALL */
    uint32_t missed;  /* rules whose end was looked for in vain: not again in this message, so that the pass stays
                         linear */
} noise_scan;

/* Reads a line at `at` of the block [begin, end), or more lines that are a piece. heading: the `within` of the lines
   here. Returns their bytes. */
static size_t scan_line(noise_scan *s, size_t at, size_t begin, size_t end, const char *heading) {
    const char *line = s->text + at;
    for (size_t i = 0; i < BASE_ARRAY_LEN(system_rules); i++) {
        const noise_rule *r = &system_rules[i];
        if ((r->begins_block && at != begin) || (r->within && strcmp(r->within, heading) != 0) || (s->missed >> i & 1))
            continue;
        const size_t n = noise_match(r, line, end - at);
        if (n > 0 && add_piece(s->found, s->text, at, n, end, r, r->name)) return n;
        if (n == 0 && r->shape >= NOISE_TAGGED && begins_with(line, end - at, r->begin) &&
            next_is(line, end - at, r->next))
            s->missed |= UINT32_C(1) << i;
    }
    const size_t n = line_bytes(line, end - at);
    volatile_piece piece;
    if (s->takes_lines && n <= MAX_LINE_BYTES && volatile_find(line, n, 0, &piece))
        add_piece(s->found, s->text, at, n, end, &any_line, any_line.name);
    return n;
}

static void scan_block(noise_scan *s, size_t begin, size_t end) {
    const char *heading = "";
    for (size_t at = begin; at < end && s->found->n < s->found->most;) {
        const size_t len = line_bytes(s->text + at, end - at);
        const char *other = NULL;
        for (size_t i = 0; i < BASE_ARRAY_LEN(system_rules) && !other; i++) {
            const char *within = system_rules[i].within;
            if (within && begins_with(s->text + at, len, within)) other = within;
        }
        if (other) heading = other;
        else if (len == 0) heading = "";
        at += scan_line(s, at, begin, end, heading);
        if (at < end) at++; /* the line feed */
    }
}

/* Index of the first part of a message at or after part i. */
static size_t parts_of(const generation *gen, size_t message) {
    size_t i = 0;
    while (i < gen->n_parts && gen->parts[i].message < message) i++;
    return i;
}

/* The end of the block of message m that begins at `at`: that of its part, or of the text between two. */
static size_t block_end(const generation *gen, size_t m, size_t *part, size_t at) {
    for (; *part < gen->n_parts && gen->parts[*part].message == m; ++*part) {
        const server_part *p = &gen->parts[*part];
        if (p->end <= at) continue;
        return p->begin > at ? p->begin : p->end;
    }
    return gen->messages[m].n;
}

/* ---- changed texts ---- */

static int take_text(generation *gen, size_t m, base_buffer *out, server_problem *p) {
    const size_t n = out->len;
    const char *text = generation_own(gen, out->data ? base_buffer_take(out) : base_strdup(""), p);
    if (text) gen->messages[m] = (rp_message){gen->messages[m].role, text, n};
    return (int)p->kind;
}

/* Where a byte of the message is once the pieces are cut out. */
static size_t place_after_cut(const noise_pieces *l, size_t at) {
    size_t cut = 0;
    for (size_t i = 0; i < l->n && l->items[i].begin < at; i++)
        cut += BASE_MIN(at, l->items[i].end) - l->items[i].begin;
    BASE_ASSERT(cut <= at);
    return at - cut;
}

static int cut_pieces(generation *gen, size_t m, const noise_pieces *l, server_problem *p) {
    base_buffer out = BASE_BUFFER(SERVER_MAX_JOINED_BYTES);
    const rp_message old = gen->messages[m];
    size_t at = 0;
    int rc = 0;
    if (l->n == 0) return SERVER_FINE;
    for (size_t i = 0; i < l->n && !rc; at = l->items[i++].end)
        rc = base_buffer_append(&out, old.text + at, l->items[i].begin - at);
    BASE_ASSERT(rc || at <= old.n);
    if (!rc) rc = base_buffer_append(&out, old.text + at, old.n - at);
    if (rc) server_fail_memory(p);
    else take_text(gen, m, &out, p);
    base_buffer_free(&out);
    for (size_t i = parts_of(gen, m); i < gen->n_parts && gen->parts[i].message == m && !p->kind; i++) {
        gen->parts[i].begin = place_after_cut(l, gen->parts[i].begin);
        gen->parts[i].end = place_after_cut(l, gen->parts[i].end);
    }
    if (p->kind) return (int)p->kind;
    size_t n_parts = 0; /* without those of the message that the cut has emptied */
    for (size_t i = 0; i < gen->n_parts; i++) {
        const server_part part = gen->parts[i];
        if (part.message != m || part.end > part.begin) gen->parts[n_parts++] = part;
    }
    gen->n_parts = n_parts;
    return SERVER_FINE;
}

/* Inserts lines at a border of blocks, as no part of the message: they are plain text where parts are modules. */
static int insert_lines(generation *gen, size_t m, size_t at, const base_buffer *lines, server_problem *p) {
    base_buffer out = BASE_BUFFER(SERVER_MAX_JOINED_BYTES);
    const rp_message old = gen->messages[m];
    BASE_ASSERT(at <= old.n);
    const char *before = at > 0 && old.text[at - 1] != '\n' ? "\n" : "", *after = at < old.n ? "\n\n" : "";
    if (base_buffer_append(&out, old.text, at) || base_buffer_append_str(&out, before) ||
        base_buffer_append(&out, lines->data, lines->len) || base_buffer_append_str(&out, after) ||
        base_buffer_append(&out, old.text + at, old.n - at))
        server_fail_memory(p);
    else take_text(gen, m, &out, p);
    base_buffer_free(&out);
    const size_t moved = gen->messages[m].n - old.n;
    for (size_t i = parts_of(gen, m); i < gen->n_parts && gen->parts[i].message == m && !p->kind; i++)
        if (gen->parts[i].begin >= at) {
            gen->parts[i].begin += moved;
            gen->parts[i].end += moved;
        }
    return (int)p->kind;
}

static bool is_blank(const char *s, size_t n) {
    trim(&s, &n);
    return n == 0;
}

/* ---- the conversation ---- */

typedef struct noise_moves {
    generation *gen;
    rp_agent_noise mode;
    size_t n_systems;  /* leading ones */
    base_buffer facts; /* of agents */
    base_buffer lines; /* of any client */
    server_problem *p;
} noise_moves;

/* For the report; the text stays with the generation. */
static void note_piece(generation *gen, const char *name, size_t m, const char *text, size_t n, bool dropped) {
    int number = 0;
    BASE_ASSERT(m < gen->n_messages);
    if (gen->n_noise == SERVER_MAX_NOISE) return;
    for (size_t k = 0; k <= m; k++) number += gen->messages[k].role == gen->messages[m].role;
    gen->noise[gen->n_noise++] = (generation_noise){name, text, n, gen->messages[m].role, number, dropped};
}

static int note_and_collect(noise_moves *a, size_t m, const noise_pieces *l) {
    const char *text = a->gen->messages[m].text;
    int rc = 0;
    for (size_t i = 0; i < l->n && !rc; i++) {
        const noise_piece *one = &l->items[i];
        const bool dropped = one->rule && one->rule->is_dropped;
        note_piece(a->gen, one->name, m, text + one->begin, one->n, dropped);
        size_t n = one->n;
        while (n > 0 && text[one->begin + n - 1] == '\n') n--;
        base_buffer *lines = one->rule == &any_line ? &a->lines : &a->facts;
        if (!dropped && lines->len > 0) rc = base_buffer_append_str(lines, "\n");
        if (!dropped && !rc) rc = base_buffer_append(lines, text + one->begin, n);
    }
    return rc ? server_fail_memory(a->p) : SERVER_FINE;
}

static bool leaves_nothing(const rp_message *m, const noise_pieces *l) {
    size_t at = 0;
    for (size_t i = 0; i < l->n; at = l->items[i++].end)
        if (!is_blank(m->text + at, l->items[i].begin - at)) return false;
    return is_blank(m->text + at, m->n - at);
}

static int settle_system(noise_moves *a, size_t m) {
    generation *gen = a->gen;
    noise_pieces found = {.most = SERVER_MAX_NOISE - gen->n_noise};
    noise_scan scan = {.found = &found,
                       .text = gen->messages[m].text,
                       .takes_lines = a->mode == RP_AGENT_NOISE_ALL && m == 0 && !gen->modular};
    size_t part = parts_of(gen, m);
    for (size_t at = 0, end; at < gen->messages[m].n; at = end) {
        end = block_end(gen, m, &part, at);
        BASE_ASSERT(end > at && end <= gen->messages[m].n); /* so that this ends */
        scan_block(&scan, at, end);
    }
    if (found.n > 0 && leaves_nothing(&gen->messages[m], &found)) {
        size_t n = 0; /* what is dropped only: the message has nothing constant that the others could move after */
        for (size_t i = 0; i < found.n; i++)
            if (found.items[i].rule->is_dropped) found.items[n++] = found.items[i];
        found.n = n;
    }
    if (note_and_collect(a, m, &found)) return (int)a->p->kind;
    return cut_pieces(gen, m, &found, a->p);
}

/* ---- the first user message ---- */

typedef struct noise_opening {
    size_t end;          /* of the last constant block: what moves comes here */
    bool is_agents;      /* the message begins with a block of an agent */
    noise_pieces pieces; /* that move, before `end` */
} noise_opening;

static const noise_block *block_kind(const char *s, size_t n) {
    trim(&s, &n);
    for (size_t i = 0; i < BASE_ARRAY_LEN(blocks); i++) {
        const size_t len = strlen(blocks[i].end);
        if (begins_with(s, n, blocks[i].begin) && n >= len && memcmp(s + n - len, blocks[i].end, len) == 0)
            return &blocks[i];
    }
    return NULL;
}

static void find_line_of_block(const noise_block *kind, const char *text, size_t begin, size_t end, noise_pieces *l) {
    for (size_t at = begin; kind->line && at < end; at++) {
        const size_t n = line_bytes(text + at, end - at);
        if (n <= MAX_LINE_BYTES && begins_with(text + at, n, kind->line)) {
            add_piece(l, text, at, n, end, NULL, kind->line_name);
            return;
        }
        at += n;
    }
}

/* Reads the blocks of agents that message m begins with. */
static void read_opening(const generation *gen, size_t m, noise_opening *o) {
    const char *text = gen->messages[m].text;
    size_t part = parts_of(gen, m), n_constant = 0;
    const noise_block *kind;
    for (size_t at = 0, end; at < gen->messages[m].n; at = end) {
        end = block_end(gen, m, &part, at);
        BASE_ASSERT(end > at && end <= gen->messages[m].n); /* so that this ends */
        if (!(kind = block_kind(text + at, end - at))) break;
        o->is_agents = true;
        if (kind->name) add_piece(&o->pieces, text, at, end - at, end, NULL, kind->name);
        else {
            find_line_of_block(kind, text, at, end, &o->pieces);
            o->end = end;
            n_constant = o->pieces.n;
        }
    }
    o->pieces.n = n_constant; /* those after the constant blocks stay where they are */
}

/* The lines of the system messages come first, then those of the message itself. */
static int settle_user(noise_moves *a, size_t m, const noise_opening *o) {
    BASE_ASSERT(o->pieces.n == 0 || o->pieces.items[o->pieces.n - 1].end <= o->end); /* to which they move */
    const size_t at = place_after_cut(&o->pieces, o->end);
    if (note_and_collect(a, m, &o->pieces) || cut_pieces(a->gen, m, &o->pieces, a->p)) return (int)a->p->kind;
    return a->facts.len > 0 ? insert_lines(a->gen, m, at, &a->facts, a->p) : SERVER_FINE;
}

/* ---- reminders of the date ---- */

/* qwen-code 0.24 puts the date before the last question of a conversation,
    and only there. The context that begins the conversation has it already. */
#define DATE_RULE "qwen-code: date reminder"
static const char date_reminder[] = "<system-reminder>\nThe current date is: ";
static const char date_reminder_rest[] = ". Note: This is the authoritative current date";
static const char date_reminder_end[] = "</system-reminder>";
static const char date_line[] = "Today's date is ";

/* The date in user message m, of the context of Qwen Code. NULL: it has none. */
static const char *date_of_context(const rp_message *m, size_t *n) {
    for (size_t at = 0; at < BASE_MIN(m->n, (size_t)MAX_PIECE_BYTES); at += line_bytes(m->text + at, m->n - at) + 1) {
        const char *line = m->text + at;
        *n = line_bytes(line, m->n - at);
        if (*n > MAX_LINE_BYTES || !begins_with(line, *n, date_line) || line[*n - 1] != '.') continue;
        *n -= strlen(date_line) + 1;
        return line + strlen(date_line);
    }
    return NULL;
}

static bool is_date_reminder(const char *s, size_t n, const char *date, size_t n_date) {
    const size_t head = strlen(date_reminder), tail = strlen(date_reminder_end);
    return n <= head + n_date + MAX_LINE_BYTES && begins_with(s, n, date_reminder) && n > head + n_date &&
           memcmp(s + head, date, n_date) == 0 &&
           begins_with(s + head + n_date, n - head - n_date, date_reminder_rest) &&
           memcmp(s + n - tail, date_reminder_end, tail) == 0;
}

/* Leaves out the parts of user messages that say what the first one, u, says. */
static int drop_date_reminders(noise_moves *a, size_t u) {
    BASE_ASSERT(u < a->gen->n_messages && a->gen->messages[u].role == RP_ROLE_USER);
    generation *gen = a->gen;
    size_t n_date = 0, n_dropped = 0;
    const char *date = date_of_context(&gen->messages[u], &n_date);
    for (size_t i = 0; date && i < gen->n_parts && n_dropped < MAX_REMINDERS && !a->p->kind;) {
        const server_part part = gen->parts[i++];
        const char *text = gen->messages[part.message].text;
        noise_pieces found = {.most = 1};
        if (gen->messages[part.message].role != RP_ROLE_USER ||
            !is_date_reminder(text + part.begin, part.end - part.begin, date, n_date))
            continue;
        add_piece(&found, text, part.begin, part.end - part.begin, gen->messages[part.message].n, NULL, DATE_RULE);
        note_piece(gen, DATE_RULE, part.message, text + part.begin, part.end - part.begin, true);
        cut_pieces(gen, part.message, &found, a->p);
        i--; /* the part is no more */
        n_dropped++;
    }
    return (int)a->p->kind;
}

/* ---- all of it ---- */

static size_t count_systems(const generation *gen) {
    size_t n = 0;
    while (n < gen->n_messages && gen->messages[n].role == RP_ROLE_SYSTEM) n++;
    return n;
}

/* Appends lines to a system message; the first one's are known to tools.c, which writes definitions before them. */
static int append_to_system(generation *gen, size_t m, const base_buffer *lines, server_problem *p) {
    const size_t constant = gen->messages[m].n;
    if (lines->len == 0) return SERVER_FINE;
    BASE_ASSERT(gen->messages[m].role == RP_ROLE_SYSTEM);
    if (insert_lines(gen, m, constant, lines, p)) return (int)p->kind;
    if (m == 0 && gen->stable_bytes == 0) gen->stable_bytes = constant;
    return SERVER_FINE;
}

/* Exchanges message u of the user with the system message after it. */
static void raise_system_message(generation *gen, size_t u) {
    BASE_ASSERT(u + 1 < gen->n_messages);
    BASE_ASSERT(gen->messages[u].role == RP_ROLE_USER && gen->messages[u + 1].role == RP_ROLE_SYSTEM);
    const rp_message raised = gen->messages[u + 1];
    gen->messages[u + 1] = gen->messages[u];
    gen->messages[u] = raised;
    const size_t first = parts_of(gen, u), second = parts_of(gen, u + 1), end = parts_of(gen, u + 2);
    for (size_t i = first; i < end; i++) gen->parts[i].message = i < second ? u + 1 : u;
    for (size_t n = second - first, k = second; n > 0 && k < end; k++) { /* parts are ordered by message */
        const server_part part = gen->parts[k];
        memmove(&gen->parts[k - n + 1], &gen->parts[k - n], n * sizeof(part));
        gen->parts[k - n] = part;
    }
    for (int k = 0; k < SERVER_N_MARKS; k++)
        if (gen->marked[k].n_messages == u + 1) gen->marked[k].n_messages = u + 2;
    note_piece(gen, system_message.name, u, raised.text, 0, false);
}

/* Makes system messages m and m + 1 one: some templates read one only. */
static int join_systems(generation *gen, size_t m, server_problem *p) {
    BASE_ASSERT(m + 1 < gen->n_messages);
    BASE_ASSERT(gen->messages[m].role == RP_ROLE_SYSTEM && gen->messages[m + 1].role == RP_ROLE_SYSTEM);
    base_buffer out = BASE_BUFFER(SERVER_MAX_JOINED_BYTES);
    const rp_message a = gen->messages[m], b = gen->messages[m + 1];
    const char *between = a.n > 0 ? "\n\n" : "";
    if (base_buffer_append(&out, a.text, a.n) || base_buffer_append_str(&out, between) ||
        base_buffer_append(&out, b.text, b.n))
        server_fail_memory(p);
    else take_text(gen, m, &out, p);
    base_buffer_free(&out);
    if (p->kind) return (int)p->kind;
    gen->n_messages--;
    memmove(&gen->messages[m + 1], &gen->messages[m + 2], (gen->n_messages - m - 1) * sizeof(b));
    for (size_t i = 0; i < gen->n_parts; i++) {
        server_part *part = &gen->parts[i];
        if (part->message == m + 1) {
            part->begin += a.n + strlen(between);
            part->end += a.n + strlen(between);
        }
        part->message -= part->message > m;
    }
    for (size_t i = 0; i < gen->n_calls; i++) gen->calls[i].message -= gen->calls[i].message > m;
    for (size_t i = 0; i < gen->n_results; i++) gen->results[i].message -= gen->results[i].message > m;
    for (size_t i = 0; i < gen->n_reasonings; i++) gen->reasonings[i].message -= gen->reasonings[i].message > m;
    for (int k = 0; k < SERVER_N_MARKS; k++) gen->marked[k].n_messages -= gen->marked[k].n_messages > m + 1;
    return SERVER_FINE;
}

static int settle_conversation(noise_moves *a, bool template_tools) {
    generation *gen = a->gen;
    noise_opening opening = {.pieces.most = 0};
    const size_t u = count_systems(gen);
    const bool has_user = u < gen->n_messages && gen->messages[u].role == RP_ROLE_USER;
    const rp_message *next = has_user && u + 1 < gen->n_messages ? &gen->messages[u + 1] : NULL;
    if (next && next->role == RP_ROLE_SYSTEM && begins_with(next->text, next->n, system_message.begin)) {
        raise_system_message(gen, u);
        if (u > 0 && join_systems(gen, u - 1, a->p)) return (int)a->p->kind;
    }
    a->n_systems = count_systems(gen);
    if (has_user && drop_date_reminders(a, a->n_systems)) return (int)a->p->kind;
    for (size_t m = 0; m < BASE_MIN(a->n_systems, (size_t)MAX_SYSTEMS) && !a->p->kind; m++) settle_system(a, m);
    opening.pieces.most = SERVER_MAX_NOISE - gen->n_noise;
    if (a->p->kind) return (int)a->p->kind;
    if (has_user && !gen->truncates)
        read_opening(gen, a->n_systems, &opening); /* truncation drops messages of the user's */
    const bool to_user =
        has_user && !gen->truncates && (opening.is_agents || (template_tools && answer_form_may_call(&gen->form)));
    if (append_to_system(gen, 0, &a->lines, a->p)) return (int)a->p->kind;
    if (to_user) return settle_user(a, a->n_systems, &opening);
    return a->n_systems > 0 ? append_to_system(gen, a->n_systems - 1, &a->facts, a->p) : SERVER_FINE;
}

int agent_noise_settle(generation *gen, rp_agent_noise mode, bool template_tools, server_problem *p) {
    noise_moves a = {.gen = gen,
                     .mode = mode,
                     .facts = BASE_BUFFER(SERVER_MAX_JOINED_BYTES),
                     .lines = BASE_BUFFER(SERVER_MAX_JOINED_BYTES),
                     .p = p};
    if (mode == RP_AGENT_NOISE_KEEP || gen->noise_settled || gen->has_markup || gen->n_messages == 0 || p->kind)
        return (int)p->kind;
    gen->noise_settled = true;
    settle_conversation(&a, template_tools);
    base_buffer_free(&a.facts);
    base_buffer_free(&a.lines);
    return (int)p->kind;
}

/* ---- the report ---- */

json_t *agent_noise_report(const generation *gen) {
    json_t *list = json_array();
    for (size_t i = 0; i < gen->n_noise && list; i++) {
        const generation_noise *one = &gen->noise[i];
        json_t *message = json_sprintf("%s %d", rp_role_name(one->role), one->number);
        if (json_array_append_new(list,
                                  json_pack("{s:s, s:o, s:I, s:s}", "rule", one->rule, "message", message, "bytes",
                                            (json_int_t)one->n, "action", one->dropped ? "left out" : "moved"))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

bool agent_noise_has(const generation *gen, const char *text, size_t n) {
    for (size_t i = 0; i < gen->n_noise; i++)
        for (size_t at = 0; at + n <= BASE_MIN(gen->noise[i].n, (size_t)MAX_SEARCHED_BYTES); at++)
            if (memcmp(gen->noise[i].text + at, text, n) == 0) return true;
    return false;
}
