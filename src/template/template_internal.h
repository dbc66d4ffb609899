/* SPDX-License-Identifier: Apache-2.0 */
/* template_internal.h: what the files of template/ share: nodes, values, and the state of a rendering.
 *
 * Errors are sticky: a function that fails sets state->failed and returns an undefined value or an empty string; every
 * loop ends when it is set. Values live in the arena of their rendering, constants in that of their template; nothing
 * is freed before its arena. Values are immutable, except namespaces, and lists and dicts while they are built.
 */
#ifndef TEMPLATE_TEMPLATE_INTERNAL_H
#define TEMPLATE_TEMPLATE_INTERNAL_H

#include <jansson.h>

#include "base/compiler.h"
#include "template/template.h"
#include "reprise_chat.h"

/* ---- Memory (template_memory.c) ---- */

typedef struct arena_chunk arena_chunk;

typedef struct arena {
    arena_chunk *last;
    size_t used, cap;    /* of the last chunk */
    size_t total, limit; /* bytes of all chunks */
} arena;

void *arena_alloc(arena *a,
                  size_t bytes) BASE_NODISCARD; /* zeroed, aligned for any type; NULL: out of memory, or the limit */
void arena_free(arena *a);

/* ---- Errors ---- */

/* Exceptions of Python and Jinja2, by their names in messages. */
#define TEMPLATE_EXCEPTIONS(X) \
    X(UNDEFINED_ERROR, "UndefinedError") \
    X(ASSERTION_ERROR, "AssertionError") \
    X(ATTRIBUTE_ERROR, "AttributeError") \
    X(CANCELLED_ERROR, "CancelledError") \
    X(FILTER_ARGUMENT_ERROR, "FilterArgumentError") \
    X(INDEX_ERROR, "IndexError") \
    X(INPUT_ERROR, "input") /* the variables, before the template has run */ \
    X(KEY_ERROR, "KeyError") \
    X(MEMORY_ERROR, "MemoryError") \
    X(OVERFLOW_ERROR, "OverflowError") \
    X(RECURSION_ERROR, "RecursionError") \
    X(RUNTIME_ERROR, "RuntimeError") \
    X(SECURITY_ERROR, "SecurityError") \
    X(TEMPLATE_ERROR, "TemplateError") /* raised by the template itself: raise_exception */ \
    X(TEMPLATE_RUNTIME_ERROR, "TemplateRuntimeError") \
    X(TIMEOUT_ERROR, "TimeoutError") \
    X(TYPE_ERROR, "TypeError") \
    X(VALUE_ERROR, "ValueError") \
    X(ZERO_DIVISION_ERROR, "ZeroDivisionError")

#define TEMPLATE_EXCEPTION(id, name) id,
typedef enum exception { TEMPLATE_EXCEPTIONS(TEMPLATE_EXCEPTION) N_EXCEPTIONS } exception;
#undef TEMPLATE_EXCEPTION

/* ---- Values ---- */

typedef enum value_type {
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST, /* and everything else that is iterated: see list_kind */
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_MACRO,
    VALUE_FUNCTION, /* a global function */
    VALUE_METHOD,   /* of a string, a list, a dict or a loop, bound to it */
    VALUE_LOOP,
    VALUE_CYCLER,
    VALUE_JOINER,
    VALUE_BIG, /* an int beyond 64 bits, of the input: as.s has its digits */
} value_type;

typedef struct value value;
typedef struct template_node template_node;
typedef struct scope scope;

/* A string with the origin of its bytes. Runs are merged; the empty string has none. */
typedef struct string {
    const char *bytes;
    size_t n;
    const template_run *runs;
    uint32_t n_runs;
    bool markup; /* of the filters safe and escape: what is added to it is escaped */
} string;

typedef enum list_kind { LIST_LIST,
                         LIST_TUPLE,
                         LIST_GENERATOR,
                         LIST_ITEMS,
                         LIST_KEYS,
                         LIST_VALUES,
                         LIST_RANGE } list_kind;

typedef struct list {
    value *items;
    size_t n, cap;
    list_kind kind;
    bool used;                           /* GENERATOR: it has been iterated, and is empty now */
    const char *type_name, *object_name; /* GENERATOR: of an iterator, in errors; NULL: a generator */
    const char *failure;                 /* GENERATOR: its iteration fails with this message; NULL: it does not */
    exception failed_as;                 /* GENERATOR with a failure */
    bool is_group;                       /* TUPLE: of groupby, with the attributes grouper and list */
    int64_t start, stop, step;           /* RANGE */
} list;

typedef struct dict_entry dict_entry;

/* In order of insertion. NAMESPACE: keys are strings. */
typedef struct dict {
    dict_entry *entries;
    size_t n, cap;
    uint32_t *index; /* [cap_index] open addressing: entry + 1, or 0; NULL while the dict is small */
    size_t cap_index;
} dict;

/* Why a value is undefined: a name, or an attribute or element of an object. */
typedef struct undefined {
    const char *hint;   /* replaces the message; NULL: none */
    exception as;       /* of the error */
    const char *object; /* type of the object: "dict object"; NULL: a name */
    string name;
    bool is_element; /* the name is the text of an element that is not a string */
} undefined;

typedef struct method {
    const value *self;
    const char *name; /* interned */
} method;

typedef struct macro macro;
typedef struct loop loop;
typedef struct cycler cycler;

struct value {
    uint8_t type;
    bool untrusted; /* BOOL, INT, FLOAT, BIG: depends on the input; its text is untrusted */
    union {
        bool b;
        int64_t i;
        double f;
        const string *s;
        list *l;
        dict *d;
        const undefined *u;
        const macro *m;
        const struct function *function;
        const method *method;
        loop *loop;
        cycler *cycler;
    } as;
};

struct dict_entry {
    value key, item;
    uint64_t hash;
};

/* ---- Nodes ---- */

typedef enum node_kind {
    /* statements */
    NODE_TEXT,
    NODE_PRINT,
    NODE_IF,
    NODE_FOR,
    NODE_SET,
    NODE_SET_BLOCK,
    NODE_MACRO,
    NODE_CALL_BLOCK,
    NODE_FILTER_BLOCK,
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_BODY,
    NODE_WITH,
    /* expressions */
    NODE_CONSTANT,
    NODE_NAME,
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT,
    NODE_ATTRIBUTE,
    NODE_ITEM,
    NODE_SLICE,
    NODE_CALL,
    NODE_SPREAD, /* *a, the last positional argument */
    NODE_FILTER,
    NODE_TEST,
    NODE_NOT,
    NODE_AND,
    NODE_OR,
    NODE_NEGATE,
    NODE_POSITIVE,
    NODE_BINARY,
    NODE_COMPARE,
    NODE_CONCAT,
    NODE_CONDITION,
    NODE_RESULT,
} node_kind;

typedef enum binary_operator { OP_ADD,
                               OP_SUB,
                               OP_MUL,
                               OP_DIV,
                               OP_FLOOR_DIV,
                               OP_MOD,
                               OP_POW } binary_operator;
typedef enum compare_operator { CMP_EQ,
                                CMP_NE,
                                CMP_LT,
                                CMP_LE,
                                CMP_GT,
                                CMP_GE,
                                CMP_IN,
                                CMP_NOT_IN } compare_operator;

/* Names in the body of a macro that are bound when it is called. */
enum { MACRO_USES_CALLER = 1,
       MACRO_USES_VARARGS = 2,
       MACRO_USES_KWARGS = 4 };

typedef struct node_list {
    template_node **items;
    uint32_t n, cap;
} node_list;

/* What the fields hold, by kind:
 *
 *   TEXT      constant                       BODY      items
 *   PRINT     a                              IF        a condition, b body, c else (a BODY or IF; NULL)
 *   FOR       a target, b iterable, c condition or NULL, body items[0], else items[1] (may be missing), op: recursive
 *   SET       a target (NAME, TUPLE, ATTRIBUTE of a namespace), b value
 *   SET_BLOCK a target, b body, c FILTER of RESULT or NULL
 *   MACRO     name, items parameters (NAME), second defaults of the last parameters, b body, op: MACRO_USES_...
 *   CALL_BLOCK a CALL, b MACRO (caller)      FILTER_BLOCK a FILTER of RESULT, b body
 *   WITH      items targets, second values, b body
 *   CONSTANT  constant                       NAME      name
 *   LIST, TUPLE items                        DICT      items: keys, second: values
 *   ATTRIBUTE a, name                        ITEM      a, b
 *   SLICE     a, items: start, stop, step (each may be NULL)
 *   CALL      a, items, names and second: keyword arguments
 *   FILTER, TEST  a, name, items, names and second: keyword arguments; handler: the filter or test of that name
 *   BINARY    a, b, op                       COMPARE   a, items with operators `ops`
 *   CONCAT    items                          CONDITION a condition, b, c or NULL
 *   RESULT    the text of the block */
struct template_node {
    uint8_t kind, op;
    uint32_t line;
    template_node *a, *b, *c;
    node_list items, second;
    const char **names; /* [second.n] interned */
    uint8_t *ops;       /* [items.n] */
    const char *name;   /* interned: names are compared as pointers */
    const void *handler;
    value constant;
};

/* An interned name. */
typedef struct name_table {
    const char **names;
    size_t n, cap;
} name_table;

struct rp_template {
    arena memory;
    char *name;
    name_table names;
    template_node *body;
};

/* ---- A rendering ---- */

typedef struct binding {
    const char *name; /* interned */
    value value;
} binding;

struct scope {
    scope *outer; /* NULL: the outermost, before the variables of the rendering */
    binding *items;
    size_t n, cap;
};

/* A text that is being written. */
typedef struct builder {
    char *bytes;
    size_t n, cap;
    template_run *runs;
    size_t n_runs, cap_runs;
} builder;

/* Bytes of a text, from the end of those before, that a statement in this line of the template wrote. */
typedef struct written_line {
    size_t end;
    uint32_t line;
} written_line;

typedef struct state {
    const template *t;
    arena memory;
    bool failed;
    exception failed_as;                  /* with `failed` */
    int code;                             /* an rp_code */
    char message[RP_ERROR_MESSAGE_BYTES]; /* "TypeError: ..." */
    uint32_t line;                        /* of the statement that runs */
    uint64_t steps, max_steps;            /* taken, and allowed */
    uint64_t next_look;                   /* steps at which state_look is due */
    int depth;
    uintptr_t stack; /* address of the first frame of the evaluation */
    dict *variables;
    const rp_template_options *options;
    const builder *watched; /* the text whose lines are noted; NULL: none */
    written_line *lines;    /* [n_lines] by rising end */
    size_t n_lines, cap_lines;
} state;

/* ---- Input (template_input.c) ---- */

typedef enum input_place { INPUT_VARIABLES,
                           INPUT_MESSAGES,
                           INPUT_MESSAGE,
                           INPUT_OTHER } input_place;

/* A list or dict that was begun and not ended. */
typedef struct input_open {
    value of;
    const string *key; /* of a dict: of the next value; NULL: not given yet */
    input_place place;
} input_open;

struct rp_template_input {
    state s;              /* its arena, steps and first error */
    uint32_t next_string; /* number of the next text */
    size_t n_bytes;       /* of texts and keys, and one for each */
    int depth;            /* of `open`, the variables included: 1 when the input is complete */
    input_open open[TEMPLATE_MAX_DEPTH];
};

/* Adds a value at the current place. */
void template_input_add(rp_template_input *in, value v);
void template_input_begin_list(rp_template_input *in, size_t n); /* with place for n items */
/* Is it complete, and without error? Else the error: RP_ERR_INVALID, RP_ERR_LIMIT, RP_ERR_MEMORY. */
int template_input_check(const rp_template_input *in, rp_error *err);
/* The variables of a checked input. */
const dict *template_input_variables(const rp_template_input *in);

/* ---- Renderings with changed variables ---- */

/* A change of the variables before a rendering, and what to find out in it (tools/template_check.c). */
typedef struct template_edit {
    size_t n_messages;    /* only the first ones */
    bool sets_generation; /* add_generation_prompt is `generation` */
    bool generation;
    written_line *lines; /* result: [n_lines], base_free; NULL if it fails */
    size_t n_lines;
} template_edit;

/* template_render of changed variables. edit: NULL for none. */
int template_render_edited(const template *t, const rp_template_input *in, const template_tokens *tokens,
                           const rp_template_options *options, template_edit *edit, rp_template_text **out,
                           rp_error *err);

/* Positional and keyword arguments of a call. */
typedef struct arguments {
    const value *items;
    size_t n;
    const char *const *names;
    const value *named;
    size_t n_named;
} arguments;

#define LITERAL(text) ((string){.bytes = (text), .n = sizeof(text) - 1})

/* ---- Errors and limits (template_memory.c) ---- */

/* A step is some 10 ns, so that the limit of steps is a limit of time. What one of these operations handles in a step,
 * in bytes; others count a step for each item, or say what they count. */
#define STEP_COPIED 64  /* copied, compared, cleared */
#define STEP_SEARCHED 4 /* searched for a text: memmem takes up to 4 ns a byte */
#define STEP_HASHED 8
#define STEP_FRESH 4    /* of pages that are new to the process, as those of large chunks: up to 4 ns a byte */
#define STEP_COUNTED 16 /* of which characters are counted */
#define STEP_SCANNED 4  /* decoded, character by character */
#define STEP_CLASSED 2  /* decoded, and looked up in tables of Unicode */
#define STEP_PRINTED 16 /* steps, not bytes: a number or an escape by snprintf */

/* Sets the error, unless there is one: an exception of Python with its text. */
void state_fail(state *s, exception as, const char *fmt, ...) BASE_PRINTF(3, 4);
void state_fail_as(state *s, exception as, const char *message); /* the message of another failure, whole */
void state_fail_memory(state *s);
/* Ends a rendering that has taken too many steps, or is cancelled. false: failed. */
bool state_look(state *s);
/* Counts one step and `cost` more. false: failed. */
static inline bool state_step(state *s, size_t cost) {
    if (s->failed) return false;
    s->steps += cost + 1;
    return s->steps < s->next_look || state_look(s);
}
void *state_alloc(state *s, size_t bytes) BASE_NODISCARD;
/* Grows an array in the arena; the old one is left behind. false: failed. */
bool state_grow(state *s, void **items, size_t *cap, size_t need, size_t item_bytes) BASE_NODISCARD;

/* ---- Strings (template_strings.c) ---- */

void builder_add(state *s, builder *b, const char *bytes, size_t n, uint32_t origin, size_t offset);
void builder_add_string(state *s, builder *b, const string *text);
const string *builder_string(state *s, const builder *b);
/* Bytes [from, to) of a string, with their origins. */
const string *string_part(state *s, const string *text, size_t from, size_t to);
const string *string_new(state *s, const char *bytes, size_t n, uint32_t origin);
value value_string(const string *text);
value value_text(state *s, const char *text);                   /* a trusted string of static or arena text */
value value_concat(state *s, const string *a, const string *b); /* with Markup's rules */
const string *string_marked(state *s, const string *text);      /* as Markup */
const string *string_escaped(state *s, const string *text);     /* & < > ' " for HTML */
bool string_equal(state *s, const string *a, const string *b);
bool string_is(const string *a, const char *text);
int string_compare(state *s, const string *a, const string *b);   /* by code points */
size_t string_length(state *s, const string *text);               /* code points */
size_t string_offset(state *s, const string *text, size_t index); /* byte offset of a code point, at most n */
/* First occurrence at or after byte `from`; SIZE_MAX: none, or failed. */
size_t string_find(state *s, const string *text, const string *part, size_t from);
size_t string_find_last(state *s, const string *text, const string *part);
uint32_t string_at(const string *text, size_t at, size_t *n); /* code point and its length at byte `at` < n */
const string *string_of_character(state *s, int64_t c);       /* NULL: not a character */
const string *string_ascii(state *s, const string *text);     /* others than ASCII as escapes: \xe9 */
bool is_python_space(uint32_t c);
bool is_python_alnum(uint32_t c);
/* Removes characters of `set` (NULL: white space) from both ends, or from one. */
const string *string_strip(state *s, const string *text, const string *set, bool left, bool right);
const string *string_replace(state *s, const string *text, const string *old, const string *with, int64_t most);
typedef enum case_kind { CASE_LOWER,
                         CASE_UPPER,
                         CASE_TITLE,
                         CASE_CAPITAL,
                         CASE_SWAP } case_kind;
const string *string_case(state *s, const string *text, case_kind kind);
bool string_has_case(state *s, const string *text,
                     case_kind kind); /* it has letters, and they are all in LOWER, UPPER or TITLE case */

/* ---- Values (template_values.c) ---- */

extern const value value_none;
value value_bool(bool b);
value value_int(int64_t i);
value value_float(double f);
value value_undefined(state *s, const char *object, const string *name, bool is_element);
value value_hinted(state *s, const char *hint, exception as); /* undefined, with a message of its own */
value value_list(state *s, list_kind kind, size_t cap);
value value_dict(state *s);
void list_add(state *s, list *l, value v);
void dict_set(state *s, dict *d, value key, value item);
const value *dict_find(state *s, const dict *d, value key); /* NULL: none */
const value *dict_find_text(state *s, const dict *d, const char *key);
dict *dict_clone(state *s, const dict *d); /* with the same items; NULL: failed */

const char *value_type_name(value v);   /* Python's: "NoneType", "str" */
const char *value_object_name(value v); /* Jinja's in errors: "dict object", "None" */
void state_fail_undefined(state *s, value v);
bool value_is_number(value v); /* int, float, bool; not VALUE_BIG */
bool value_is_hashable(state *s, value v);
bool value_is_sequence(value v); /* a list or a tuple */
int64_t value_as_int(value v);   /* of an int or a bool */
double value_as_float(value v);  /* of a number */
bool value_truth(state *s, value v);
bool value_equal(state *s, value a, value b);
/* -1, 0, 1; for `<`, named in the error. */
int value_compare(state *s, value a, value b, const char *operator_text);
bool value_contains(state *s, value container, value item);
/* The items to iterate over, each a step, which this counts; NULL: failed. */
const list *value_iterate(state *s, value v);
/* The same for callers that do not visit all of them, or count what they do with each. */
const list *value_items(state *s, value v);
const string *value_to_string(state *s, value v); /* str() */
void value_write(state *s, builder *b, value v, bool repr);
void state_fail_key(state *s, const string *key);  /* KeyError: the key's repr() */
void float_repr(state *s, double f, char out[32]); /* Python's: the shortest digits that give the same number */

/* ---- Arithmetic (template_arithmetic.c) ---- */

value binary_operate(state *s, binary_operator op, value a, value b);

/* ---- JSON (template_json.c) ---- */

typedef struct json_style {
    const char *item_separator, *key_separator; /* ", " and ": " */
    const string *indent;                       /* of a level; NULL: one line */
    bool ascii, sorted;
} json_style;
void json_write(state *s, builder *b, value v, const json_style *style);

/* ---- Methods (template_string_methods.c, template_methods.c) ---- */

typedef struct method_entry {
    const char *name, *parameters;                              /* see arguments_fit */
    value (*call)(state *s, value self, const arguments *args); /* NULL: Python has it, templates may not use it */
} method_entry;

/* They end with a row without a name. */
extern const method_entry string_methods[], list_methods[], tuple_methods[], dict_methods[];

/* ---- Attributes and items (template_access.c) ---- */

value value_attribute(state *s, value object, const char *name);     /* object.name: an attribute, or else an item */
value value_own_attribute(state *s, value object, const char *name); /* no items */
value value_item(state *s, value object, value key);
value value_slice(state *s, value object, const value *start, const value *stop, const value *step);
value method_call(state *s, const method *m, const arguments *args);

/* ---- Functions, filters and tests (template_functions.c, template_filters.c, template_sort.c, template_tests.c)
   ---- */

typedef struct function {
    const char *name, *parameters; /* see arguments_fit */
    bool is_type;                  /* in errors */
    value (*call)(state *s, const arguments *args);
} function;
const function *function_find(const char *name);

typedef struct filter {
    const char *name, *parameters; /* see arguments_fit */
    bool is_lazy;                  /* a generator: it fails when it is iterated */
    value (*apply)(state *s, value v, const arguments *args);
} filter;
const filter *filter_find(const char *name);
value filter_apply(state *s, const filter *f, value v, const arguments *args);

/* What is sorted, and by what. */
typedef struct keyed {
    value key, item;
    const list *keys; /* instead of the key: several attributes */
} keyed;

/* Stable, by n log n comparisons. as_lists: keys are the only items of lists, of which equal ones are not compared. */
void keyed_sort(state *s, keyed *items, size_t n, bool as_lists);
void keyed_reverse(keyed *items, size_t n);

typedef struct test {
    const char *name, *parameters;
    bool (*holds)(state *s, value v, const arguments *args);
} test;
const test *test_find(const char *name);

/* Do the arguments fit these parameters? "old new [count]": names in their order, [optional], .positional only; "*":
   any. false: failed. */
bool arguments_fit(state *s, const arguments *args, const char *function_name, const char *parameters);
/* Argument `at`, or by name. NULL: not given. */
const value *argument(const arguments *args, size_t at, const char *name);
int64_t argument_int(state *s, const arguments *args, size_t at, const char *name, int64_t otherwise);
const string *argument_string(state *s, const arguments *args, size_t at, const char *name, const string *otherwise);
bool argument_bool(state *s, const arguments *args, size_t at, const char *name, bool otherwise);
/* ---- Formatted strings (template_format.c) ---- */

/* format % argument: its items if it is a tuple, else itself; a dict's items by name. */
value string_percent(state *s, const string *format, const value *items, size_t n, value argument);
/* The value as the specification of str.format wants it: ">5", ".2f". */
void format_value(state *s, builder *b, value v, const string *specification);

struct macro {
    const template_node *node;
    scope *defined_in;
};

struct loop {
    const template_node *node;
    scope *outer;
    const list *items;
    size_t at;
    int depth; /* of recursion, from 0 */
    value last_changed;
    bool has_changed;
};

struct cycler {
    const value *items;
    size_t n, at;
    bool used; /* JOINER: it was called */
};

/* ---- Parsing ---- */

typedef enum token_kind {
    TOKEN_END,
    TOKEN_DATA,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_VARIABLE_BEGIN,
    TOKEN_VARIABLE_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OPERATOR,
} token_kind;

typedef struct token {
    uint8_t kind;
    uint32_t line;
    const char *bytes; /* of the source; STRING: without quotes, not unescaped; OPERATOR: static, compared as text */
    size_t n;
} token;

typedef struct token_stream {
    token *items;
    size_t n, cap;
} token_stream;

/* Splits the source, with white space control done. The source must outlive the tokens. */
int template_tokenize(arena *memory, const char *source, size_t n, const char *name, token_stream *out, rp_error *err);
int template_parse_tokens(template *t, const token_stream *tokens, rp_error *err);
const char *name_intern(arena *memory, name_table *names, const char *bytes, size_t n); /* NULL: out of memory */
const char *name_find(const name_table *names,
                      const char *name); /* as it is interned; NULL: the template does not use it */

/* ---- Evaluation (template_evaluate.c) ---- */

void template_evaluate(state *s, const template_node *body, builder *out);

#endif
