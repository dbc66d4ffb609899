/* SPDX-License-Identifier: Apache-2.0 */
/* compose.c: see compose.h. */
#include "server/prompt/compose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "server/generation/generate.h"
#include "server/server_internal.h"
#include "reprise_tools.h"

#define LISTED_BYTES 200 /* of names that a problem lists */

static const char *const role_names[RP_N_ROLES] = {"system", "user", "assistant", "tool"};

typedef enum place { PLACE_INSIDE, PLACE_OUTSIDE, PLACE_BARE } place;

typedef struct composer {
    generation *gen;
    server_problem *problem;
    const rp_inspection *schema;
    base_buffer out;
    int rc;                 /* the first of out's errors */
    bool has_pml;           /* then PML's rules for white space hold around it */
    bool began;             /* a message did: the schema's own roles are over */

    size_t message;         /* that is being written */
    bool is_bare, role_is_open, wrote;
} composer;

/* ---- writing ---- */

static void composer_put(composer *c, const char *bytes, size_t n) {
    if (!c->rc) c->rc = base_buffer_append(&c->out, bytes, n);
}

static void put_str(composer *c, const char *s) { composer_put(c, s, strlen(s)); }

static void composer_put_escaped(composer *c, const char *text, size_t n, bool in_attribute) {
    if (!c->rc) c->rc = compose_escape(&c->out, text, n, in_attribute);
}

/* ---- roles ---- */

static bool message_has_pml(const composer *c) {
    for (size_t i = 0; i < c->gen->n_parts; i++)
        if (c->gen->parts[i].message == c->message && c->gen->parts[i].kind == SERVER_PART_PML) return true;
    return false;
}

static void open_role(composer *c) {
    if (c->is_bare || c->role_is_open) return;
    put_str(c, "<");
    put_str(c, role_names[c->gen->messages[c->message].role]);
    put_str(c, c->has_pml && !message_has_pml(c) ? " xml:space=\"preserve\">" : ">");
    c->role_is_open = c->began = true;
}

static void close_role(composer *c) {
    if (!c->role_is_open) return;
    put_str(c, "</");
    put_str(c, role_names[c->gen->messages[c->message].role]);
    put_str(c, ">");
    c->role_is_open = false;
}

static void begin_piece(composer *c, place where) {
    if (where == PLACE_OUTSIDE) close_role(c);
    else open_role(c);
    c->wrote = true;
}

/* ---- what the schema says ---- */

static bool is_role(const char *name) {
    for (int i = 0; i < RP_N_ROLES; i++)
        if (strcmp(role_names[i], name) == 0) return true;
    return false;
}

/* The node of a module by its path of n bytes, or -1. */
static int32_t find_module(const rp_inspection *s, const char *path, size_t n) {
    for (int32_t i = 0; i < s->n_nodes; i++)
        if (strcmp(s->nodes[i].kind, "module") == 0 && strlen(s->nodes[i].path) == n && memcmp(s->nodes[i].path, path, n) == 0) return i;
    return -1;
}

/* The role that a node stands in, or NULL. */
static const char *role_around(const rp_inspection *s, int32_t node) {
    int32_t depth = s->nodes[node].depth;
    for (int32_t i = node - 1; i >= 0; i--) {
        if (s->nodes[i].depth >= depth) continue;
        depth = s->nodes[i].depth;
        if (is_role(s->nodes[i].kind)) return s->nodes[i].kind;
    }
    return NULL;
}

static bool holds_roles(const rp_inspection *s, int32_t node) {
    for (int32_t i = node + 1; i < s->n_nodes && s->nodes[i].depth > s->nodes[node].depth; i++)
        if (is_role(s->nodes[i].kind)) return true;
    return false;
}

/* Where a module without others around it belongs. A message that cannot be the schema's role is refused. */
static place composer_place_of(composer *c, int32_t node) {
    const char *around = role_around(c->schema, node), *own = role_names[c->gen->messages[c->message].role];
    if (!around) return holds_roles(c->schema, node) ? PLACE_OUTSIDE : PLACE_INSIDE;
    if (strcmp(around, own) != 0)
        server_fail(c->problem, SERVER_INVALID, "messages", "module '%s' is in the schema's <%s>: use it in a message of that role, not of %s",
                    c->schema->nodes[node].path, around, own);
    else if (c->began)
        server_fail(c->problem, SERVER_INVALID, "messages",
                    "module '%s' is in the schema's own <%s>, before all messages: use it in the first message, or move it out of the role",
                    c->schema->nodes[node].path, around);
    return PLACE_BARE;
}

static int composer_fail_unknown(composer *c, const char *path) {
    char list[LISTED_BYTES] = "";
    for (int32_t i = 0; i < c->schema->n_nodes; i++) {
        size_t used = strlen(list);
        if (strcmp(c->schema->nodes[i].kind, "module") == 0)
            snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "", c->schema->nodes[i].path);
    }
    return server_fail(c->problem, SERVER_NOT_FOUND, "messages", "schema '%.80s' has no module '%.80s': it has %s", c->schema->schema, path,
                       list[0] ? list : "none");
}

/* ---- modules ---- */

/* Bytes of the first `depth` names of a path; all of it, where it has no more. */
static size_t prefix_bytes(const char *path, size_t depth) {
    const char *at = path;
    for (; depth > 0; depth--) {
        at += strcspn(at, "/");
        if (*at == '\0' || depth == 1) break;
        at++;
    }
    return (size_t)(at - path);
}

static bool same_prefix(const char *a, const char *b, size_t depth) {
    size_t n = prefix_bytes(a, depth);
    return n == prefix_bytes(b, depth) && memcmp(a, b, n) == 0;
}

static size_t compose_depth_of(const char *path) {
    size_t depth = 1;
    for (; *path; path++) depth += *path == '/';
    return depth;
}

/* How many names of the path lead to the innermost module with that parameter; 0: none has it. */
static size_t compose_owner_of(const rp_inspection *s, const char *path, const char *param) {
    for (size_t depth = compose_depth_of(path); depth > 0; depth--) {
        size_t n = prefix_bytes(path, depth);
        for (int32_t i = 0; i < s->n_nodes; i++) {
            const rp_inspect_node *node = &s->nodes[i];
            if (strcmp(node->kind, "param") == 0 && strcmp(node->name, param) == 0 && strlen(node->path) == n && memcmp(node->path, path, n) == 0)
                return depth;
        }
    }
    return 0;
}

static void put_value(composer *c, const char *name, const json_t *value) {
    char *text = json_is_number(value) ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;
    if (json_is_string(value)) composer_put_escaped(c, json_string_value(value), json_string_length(value), true);
    else if (text) put_str(c, text);
    else server_fail(c->problem, SERVER_INVALID, "messages", "argument '%.60s' must be a string or a number", name);
    free(text); /* jansson's */
}

/* A part's arguments that belong to the module at that depth of its path. */
static void put_arguments(composer *c, const server_part *part, size_t depth) {
    json_t *args = (json_t *)part->args, *value;
    const char *name;
    json_object_foreach(args, name, value) {
        size_t owner = compose_owner_of(c->schema, part->name, name);
        if (owner == 0)
            server_fail(c->problem, SERVER_INVALID, "messages", "module '%.80s' of schema '%.80s' has no parameter '%.60s'", part->name,
                        c->schema->schema, name);
        if (owner != depth || c->problem->kind) continue;
        put_str(c, " ");
        put_str(c, name);
        put_str(c, "=\"");
        put_value(c, name, value);
        put_str(c, "\"");
    }
}

/* The import that parts [first, last), whose paths begin with the same `depth` names, share. */
static void composer_put_import(composer *c, const server_part *first, const server_part *last, size_t depth) {
    size_t n = prefix_bytes(first->name, depth), before = depth > 1 ? prefix_bytes(first->name, depth - 1) + 1 : 0;
    put_str(c, "<");
    composer_put(c, first->name + before, n - before);
    for (const server_part *p = first; p < last; p++) put_arguments(c, p, depth);
    put_str(c, ">");
    for (const server_part *p = first; p < last;) {
        const server_part *next = p + 1;
        bool ends_here = compose_depth_of(p->name) == depth;
        while (next < last && !ends_here && same_prefix(p->name, next->name, depth + 1)) next++;
        if (!ends_here) composer_put_import(c, p, next, depth + 1);
        p = next;
    }
    put_str(c, "</");
    composer_put(c, first->name + before, n - before);
    put_str(c, ">");
}

/* Modules that follow each other and have the outermost one in common are one import. Returns what stands behind them. */
static const server_part *composer_put_modules(composer *c, const server_part *first, const server_part *end) {
    const server_part *last = first + 1;
    while (last < end && last->kind == SERVER_PART_MODULE && last->begin == first->begin && same_prefix(first->name, last->name, 1)) last++;
    for (const server_part *p = first; p < last; p++)
        if (find_module(c->schema, p->name, strlen(p->name)) < 0) {
            composer_fail_unknown(c, p->name);
            return last;
        }
    begin_piece(c, composer_place_of(c, find_module(c->schema, first->name, prefix_bytes(first->name, 1))));
    composer_put_import(c, first, last, 1);
    return last;
}

/* ---- parts of PML ---- */

typedef struct seen {
    composer *composer;
    place where;
} seen;

/* What is no module is told of with the whole prompt. */
static void on_child(void *user, const char *name) {
    seen *s = user;
    place where = PLACE_OUTSIDE;
    if (!is_role(name)) {
        int32_t node = find_module(s->composer->schema, name, strlen(name));
        where = node < 0 ? PLACE_INSIDE : composer_place_of(s->composer, node);
    }
    s->where = BASE_MAX(s->where, where);
}

static place place_of_pml(composer *c, const server_part *part, compose_markup *markup) {
    seen s = {c, PLACE_INSIDE};
    compose_scan(part->pml, markup, on_child, &s, c->problem);
    return s.where;
}

/* ---- messages ---- */

static place place_of_part(composer *c, const server_part *part) {
    compose_markup markup;
    if (part->kind == SERVER_PART_PML) return place_of_pml(c, part, &markup);
    int32_t node = part->kind == SERVER_PART_MODULE ? find_module(c->schema, part->name, prefix_bytes(part->name, 1)) : -1;
    return node < 0 ? PLACE_INSIDE : composer_place_of(c, node);
}

static void put_text(composer *c, size_t begin, size_t end) {
    if (end <= begin) return;
    begin_piece(c, PLACE_INSIDE);
    composer_put_escaped(c, c->gen->messages[c->message].text + begin, end - begin, false);
}

/* Writes a part. Returns the one behind it; *at: up to where the message's text is written. */
static const server_part *put_part(composer *c, const server_part *part, const server_part *end, size_t *at) {
    compose_markup markup;
    if (part->kind <= SERVER_PART_DOCUMENT) return part + 1; /* text among text */
    put_text(c, *at, part->begin);
    *at = part->end;
    if (part->kind == SERVER_PART_MODULE) return composer_put_modules(c, part, end);
    begin_piece(c, place_of_pml(c, part, &markup));
    if (!c->problem->kind) composer_put(c, part->pml + markup.begin, markup.end - markup.begin);
    return part + 1;
}

/* Writes a message whose parts are [part, end). */
static void composer_put_message(composer *c, const server_part *part, const server_part *end) {
    size_t at = 0;
    c->is_bare = c->wrote = false;
    for (const server_part *p = part; p < end && !c->problem->kind; p++)
        if (place_of_part(c, p) == PLACE_BARE) c->is_bare = true;
    while (part < end && !c->problem->kind && !c->rc) part = put_part(c, part, end, &at);
    put_text(c, at, c->gen->messages[c->message].n);
    if (!c->wrote) open_role(c);
    close_role(c);
    c->began = true;
}

static void put_prompt(composer *c, const char *schema) {
    const server_part *part = c->gen->parts, *end = part + c->gen->n_parts;
    put_str(c, "<prompt schema=\"");
    composer_put_escaped(c, schema, strlen(schema), true);
    put_str(c, c->has_pml ? "\">" : "\" xml:space=\"preserve\">");
    for (c->message = 0; c->message < c->gen->n_messages && !c->problem->kind && !c->rc; c->message++) {
        const server_part *next = part;
        while (next < end && next->message == c->message) next++;
        composer_put_message(c, part, next);
        part = next;
    }
    put_str(c, "</prompt>");
}

/* ---- all of it ---- */

/* The name of the one schema that all parts are of; `name` has room for SERVER_SCHEMA_NAME_BYTES. */
static int composer_find_schema(composer *c, char *name) {
    name[0] = '\0';
    for (size_t i = 0; i < c->gen->n_parts && !c->problem->kind; i++) {
        const server_part *part = &c->gen->parts[i];
        compose_markup markup;
        const char *one = part->schema;
        if (part->kind <= SERVER_PART_DOCUMENT) continue;
        if (part->kind == SERVER_PART_PML) {
            c->has_pml = true;
            compose_scan(part->pml, &markup, NULL, NULL, c->problem);
            one = markup.schema;
        }
        if (c->problem->kind) break;
        if (!name[0]) snprintf(name, SERVER_SCHEMA_NAME_BYTES, "%s", one);
        else if (strcmp(name, one) != 0)
            server_fail(c->problem, SERVER_INVALID, "messages",
                        "the messages use modules of the schemas '%.80s' and '%.80s': a conversation can use one schema", name, one);
    }
    return (int)c->problem->kind;
}

/* Gives what was written to the ask. */
static int composer_finish(composer *c) {
    if (!c->problem->kind && c->rc == RP_ERR_INVALID)
        server_fail(c->problem, SERVER_INVALID, "messages", "a text contains a control character, which PML does not allow: remove it");
    else if (!c->problem->kind && c->rc == RP_ERR_LIMIT)
        server_fail(c->problem, SERVER_TOO_LARGE, "messages", "the conversation is longer than %zu MB of PML", SERVER_MAX_COMPOSED_BYTES >> 20);
    else if (!c->problem->kind && c->rc) server_fail_memory(c->problem);
    if (!c->problem->kind) c->gen->pml = generation_own(c->gen, base_buffer_take(&c->out), c->problem);
    base_buffer_free(&c->out);
    return (int)c->problem->kind;
}

static composer make_composer(server_request *x) {
    return (composer){.gen = &x->gen, .problem = &x->problem, .out = BASE_BUFFER(SERVER_MAX_COMPOSED_BYTES)};
}

static int compose_markup_of(server_request *x, const char *tenant) {
    char name[SERVER_SCHEMA_NAME_BYTES];
    composer c = make_composer(x);
    rp_inspection *schema;
    rp_error err;
    if (x->gen.modular)
        return server_fail(&x->problem, SERVER_INVALID, "reuse", "'reuse' modular makes a schema from the parts: leave it out if messages use modules");
    if (composer_find_schema(&c, name)) return (int)x->problem.kind;
    if (rp_engine_inspect(x->server->engine, tenant, name, NULL, NULL, &schema, &err)) return server_fail_library(&x->problem, &err);
    c.schema = schema;
    put_prompt(&c, name);
    rp_inspection_free(schema);
    return composer_finish(&c);
}

int compose_conversation(server_request *x, const char *tenant) {
    if (x->gen.n_messages == 0 || x->problem.kind) return (int)x->problem.kind;
    if (x->gen.has_markup) return compose_markup_of(x, tenant);
    return x->gen.modular && x->server->info.movable ? modular_build(x) : SERVER_FINE;
}

/* ---- counting ---- */

static int count_composed(server_request *x, const char *tenant, size_t *n_tokens) {
    rp_inspection *all;
    rp_error err;
    if (rp_engine_inspect(x->server->engine, tenant, NULL, x->gen.pml, "messages", &all, &err)) return server_fail_library(&x->problem, &err);
    for (int32_t i = 0; i < all->n_tiles; i++) *n_tokens += (size_t)all->tiles[i].n_tokens;
    rp_inspection_free(all);
    return SERVER_FINE;
}

int compose_count(server_request *x, size_t *n_tokens) {
    char salted[SERVER_SALTED_BYTES];
    const char *tenant = server_request_tenant(x, salted);
    int32_t *tokens = NULL;
    rp_error err;
    *n_tokens = 0;
    if (compose_conversation(x, tenant)) return (int)x->problem.kind;
    if (x->gen.pml) return count_composed(x, tenant, n_tokens);
    if (rp_tokenize_messages(x->server->model, x->gen.messages, x->gen.n_messages, x->gen.continues_last, &tokens, n_tokens, &err))
        return server_fail_library(&x->problem, &err);
    rp_free(tokens);
    return SERVER_FINE;
}
