/* SPDX-License-Identifier: Apache-2.0 */
/* template_functions.c: arguments of calls; global functions: range, dict, namespace, cycler, joiner, and those that
 * chat templates get: raise_exception and strftime_now. One thread. */
#define _POSIX_C_SOURCE 200809L /* gmtime_r */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "template/template_internal.h"

#define MAX_RANGE 100000 /* as in Jinja's sandbox */

/* ---- Arguments ---- */

/* The next name of the parameters; NULL: none. */
static const char *next_parameter(const char **at, size_t *n, bool *optional, bool *positional) {
    const char *p = *at + strspn(*at, " ");
    *optional = *p == '[';
    p += *optional;
    *positional = *p == '.';
    p += *positional;
    *n = strcspn(p, " ]");
    *at = p + *n + (p[*n] == ']');
    return *n > 0 ? p : NULL;
}

bool arguments_fit(state *s, const arguments *args, const char *function_name, const char *parameters) {
    size_t n_named = 0, at = 0, n;
    bool optional, positional;
    if (s->failed || strcmp(parameters, "*") == 0 || !state_step(s, 4)) return !s->failed;
    for (const char *p = parameters, *name; (name = next_parameter(&p, &n, &optional, &positional)); at++) {
        bool given = at < args->n;
        for (size_t i = 0; i < args->n_named && !positional && state_step(s, 0); i++)
            if (strlen(args->names[i]) == n && memcmp(args->names[i], name, n) == 0) {
                if (given)
                    state_fail(s, TYPE_ERROR, "%s() got multiple values for argument '%s'", function_name,
                               args->names[i]);
                given = true;
                n_named++;
            }
        if (!given && !optional)
            state_fail(s, TYPE_ERROR, "%s() missing required argument '%.*s'", function_name, (int)n, name);
    }
    if (args->n > at)
        state_fail(s, TYPE_ERROR, "%s() takes at most %zu argument(s) (%zu given)", function_name, at, args->n);
    if (args->n_named > n_named) state_fail(s, TYPE_ERROR, "%s() got an unexpected keyword argument", function_name);
    return !s->failed;
}

const value *argument(const arguments *args, size_t at, const char *name) {
    if (at < args->n) return &args->items[at];
    for (size_t i = 0; i < args->n_named && name; i++)
        if (strcmp(args->names[i], name) == 0) return &args->named[i];
    return NULL;
}

int64_t argument_int(state *s, const arguments *args, size_t at, const char *name, int64_t otherwise) {
    const value *v = argument(args, at, name);
    if (!v) return otherwise;
    if (v->type == VALUE_INT) return v->as.i;
    if (v->type == VALUE_BOOL) return v->as.b;
    state_fail(s, TYPE_ERROR, "'%s' object cannot be interpreted as an integer", value_type_name(*v));
    return otherwise;
}

const string *argument_string(state *s, const arguments *args, size_t at, const char *name, const string *otherwise) {
    BASE_ASSERT(name);
    const value *v = argument(args, at, name);
    if (!v) return otherwise;
    if (v->type == VALUE_STRING) return v->as.s;
    state_fail(s, TYPE_ERROR, "%s%smust be str, not %s", name, name[0] ? " " : "", value_type_name(*v));
    return otherwise;
}

bool argument_bool(state *s, const arguments *args, size_t at, const char *name, bool otherwise) {
    const value *v = argument(args, at, name);
    return v ? value_truth(s, *v) : otherwise;
}

/* ---- Functions ---- */

static value call_range(state *s, const arguments *args) {
    BASE_ASSERT(args->n <= 3 || s->failed);
    int64_t start = args->n > 1 ? argument_int(s, args, 0, NULL, 0) : 0,
            stop = argument_int(s, args, args->n > 1, NULL, 0);
    int64_t step = argument_int(s, args, 2, NULL, 1), n = 0;
    if (args->n == 0 || args->n > 3) state_fail(s, TYPE_ERROR, "range expected 1 to 3 arguments, got %zu", args->n);
    if (step == 0) state_fail(s, VALUE_ERROR, "range() arg 3 must not be zero");
    if (s->failed) return (value){0};
    if (start < -((int64_t)1 << 62) || stop > (int64_t)1 << 62 || start > (int64_t)1 << 62 ||
        stop < -((int64_t)1 << 62))
        n = MAX_RANGE + 1;
    else if (step > 0 && stop > start) n = (stop - start - 1) / step + 1;
    else if (step < 0 && stop < start) n = (start - stop - 1) / -step + 1;
    if (n > MAX_RANGE) {
        state_fail(s, OVERFLOW_ERROR, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                   MAX_RANGE);
        return (value){0};
    }
    value all = value_list(s, LIST_RANGE, (size_t)n);
    for (int64_t i = 0; i < n && !s->failed; i++) {
        value at = value_int(start + i * step);
        for (size_t k = 0; k < args->n; k++) at.untrusted |= args->items[k].untrusted;
        list_add(s, all.as.l, at);
    }
    if (s->failed) return (value){0};
    all.as.l->start = start;
    all.as.l->stop = stop;
    all.as.l->step = step;
    return all;
}

/* Pairs of a list, as dict() takes them. */
static void add_pairs(state *s, dict *to, value pairs) {
    BASE_ASSERT(to);
    const list *items = value_iterate(s, pairs);
    for (size_t i = 0; items && i < items->n && !s->failed; i++) {
        value pair = items->items[i];
        const list *two = pair.type == VALUE_STRING || pair.type == VALUE_LIST || pair.type == VALUE_DICT
                              ? value_iterate(s, pair)
                              : NULL;
        if (!two) state_fail(s, TYPE_ERROR, "cannot convert dictionary update sequence element #%zu to a sequence", i);
        else if (two->n != 2)
            state_fail(s, VALUE_ERROR, "dictionary update sequence element #%zu has length %zu; 2 is required", i,
                       two->n);
        else dict_set(s, to, two->items[0], two->items[1]);
    }
}

/* dict(a=1) and namespace(a=1); both accept a dict or pairs first. */
static value make_dict(state *s, const arguments *args) {
    BASE_ASSERT(args->n_named == 0 || args->names);
    value all = value_dict(s);
    if (s->failed) return all;
    if (args->n > 1) state_fail(s, TYPE_ERROR, "dict expected at most 1 argument, got %zu", args->n);
    else if (args->n > 0 && args->items[0].type == VALUE_DICT)
        for (size_t i = 0; i < args->items[0].as.d->n && !s->failed; i++)
            dict_set(s, all.as.d, args->items[0].as.d->entries[i].key, args->items[0].as.d->entries[i].item);
    else if (args->n > 0) add_pairs(s, all.as.d, args->items[0]);
    for (size_t i = 0; i < args->n_named && !s->failed; i++)
        dict_set(s, all.as.d, value_text(s, args->names[i]), args->named[i]);
    return all;
}

static value call_dict(state *s, const arguments *args) { return make_dict(s, args); }

static value call_namespace(state *s, const arguments *args) {
    value all = make_dict(s, args);
    if (!s->failed) all.type = VALUE_NAMESPACE;
    return all;
}

static value call_raise_exception(state *s, const arguments *args) {
    builder b = {0};
    const value *message = argument(args, 0, "message");
    if (message) value_write(s, &b, *message, false);
    state_fail(s, TEMPLATE_ERROR, "%s", b.bytes ? b.bytes : "");
    return (value){0};
}

static void state_now(const state *s, struct tm *out) {
    time_t now = s->options->has_time ? (time_t)s->options->time : time(NULL);
    memset(out, 0, sizeof(*out));
    if (s->options->has_time) gmtime_r(&now, out);
    else localtime_r(&now, out);
}

static value call_strftime_now(state *s, const arguments *args) {
    const string *format = argument_string(s, args, 0, "strftime() argument 1", NULL);
    char copy[256], text[1024];
    struct tm now;
    if (!format || format->n >= sizeof(copy)) {
        state_fail(s, TYPE_ERROR, "strftime_now: give a format of at most %zu bytes", sizeof(copy) - 1);
        return (value){0};
    }
    memcpy(copy, format->bytes, format->n);
    copy[format->n] = '\0';
    size_t conversions = 1;
    for (size_t i = 0; i < format->n; i++) conversions += copy[i] == '%';
    if (!state_step(s, 64 * conversions))
        return (value){0}; /* glibc's %s asks for the file of the time zone each time: 400 ns */
    state_now(s, &now);
    size_t n = strftime(text, sizeof(text), copy, &now);
    BASE_ASSERT(n < sizeof(text));
    bool trusted = true;
    for (uint32_t i = 0; i < format->n_runs; i++) trusted &= format->runs[i].origin == TEMPLATE_TRUSTED;
    return value_string(string_new(s, text, n, trusted ? TEMPLATE_TRUSTED : TEMPLATE_UNTRUSTED));
}

static value call_cycler(state *s, const arguments *args) {
    cycler *c = state_alloc(s, sizeof(*c));
    value *items = c ? state_alloc(s, (args->n + 1) * sizeof(*items)) : NULL;
    if (args->n == 0) state_fail(s, RUNTIME_ERROR, "at least one item has to be provided");
    if (!items || s->failed) return (value){0};
    memcpy(items, args->items, args->n * sizeof(*items));
    BASE_ASSERT(args->n > 0);
    *c = (cycler){.items = items, .n = args->n};
    return (value){.type = VALUE_CYCLER, .as.cycler = c};
}

static value call_joiner(state *s, const arguments *args) {
    cycler *c = state_alloc(s, sizeof(*c));
    value *separator = c ? state_alloc(s, sizeof(*separator)) : NULL;
    if (!separator) return (value){0};
    const value *given = argument(args, 0, "sep");
    *separator = given ? *given : value_text(s, ", ");
    *c = (cycler){.items = separator, .n = 1};
    return (value){.type = VALUE_JOINER, .as.cycler = c};
}

static const function functions[] = {
    {"range", ".start [.stop] [.step]", false, call_range},
    {"dict", "*", true, call_dict},
    {"namespace", "*", true, call_namespace},
    {"raise_exception", "message", false, call_raise_exception},
    {"strftime_now", ".format", false, call_strftime_now},
    {"cycler", "*", true, call_cycler},
    {"joiner", "[sep]", true, call_joiner},
    {NULL, NULL, false, NULL},
};

const function *function_find(const char *name) {
    for (const function *f = functions; f->name; f++)
        if (strcmp(f->name, name) == 0) return f;
    return NULL;
}
