/* SPDX-License-Identifier: Apache-2.0 */
/* hostile_template.c: see hostile_template.h. A grammar whose rules are functions: each writes one of its
   alternatives. */
#include "support/hostile_template.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "support/tiny_random.h"

#define MOST_DEPTH 4
#define COUNT(array) (sizeof(array) / sizeof(*(array)))

const char hostile_template_input[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, "
    "{\"role\": \"user\", \"content\": \"A \\u00e9\\u4e2d\\ud83d\\ude00 <b> 'x' \\\"y\\\"\\n\"}, "
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"c\", \"function\": {\"name\": \"f\", "
    "\"arguments\": {\"a\": [1, 2.5, null, true, {\"b\": \"c\"}]}}}]}], "
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {\"z\": {}, \"y\": {\"type\": \"string\"}}}}}], "
    "\"t\": \"ab\", \"f\": 0.1, \"n\": 7, \"big\": 123456789012345678901234567890, \"add_generation_prompt\": true}";

typedef struct writer {
    tiny_random random;
    char *out;
    size_t n;
    int depth;
    bool is_full;
} writer;

static uint64_t draw(writer *w, uint64_t n) { return tiny_random_below(&w->random, n); }

static void expression(writer *w);
static void text(writer *w);
static void sequence(writer *w);

/* Writes the format: $e any expression, $s a text, $l a list or a tuple, $d a dict, $n a count, $k one with a sign,
 * $r one for range(), $i a number, $m a method's call, $f a filter of a list, $S statements, $v a variable, $c a short
 * literal. */
static void write_form(writer *w, const char *form);

static const char *const variables[] = {"a", "b", "c", "ns.x", "ns.y"};

static const char *const ranges[] = {"0", "1", "2", "3", "7", "60", "100", "257", "1000", "5000", "65536", "99999"};

static void count(writer *w) {
    static const char *const counts[] = {
        "0", "1", "2", "3", "7", "60", "100", "257", "1000", "5000", "65536", "99999", "300000", "1000000",
        "2500000", "5000000", "60000000", "2147483648", "4611686018427387904", "9223372036854775807"};
    write_form(w, counts[draw(w, draw(w, 4) ? 16 : COUNT(counts))]);
}

static void number(writer *w) {
    static const char *const numbers[] = {
        "-1", "0", "1", "2", "-3", "f", "n", "1e308", "5e-324", "0.1", "(0.1 + 0.2)", "9223372036854775807",
        "1.5", "big", "($s|length)", "loop.index", "$n", "-$n", "(i or 1)"};
    write_form(w, numbers[draw(w, COUNT(numbers))]);
}

static void literal(writer *w) {
    static const char *const literals[] = {
        "'a'", "'b'", "''", "'ab'", "'aab'", "' '", "'\\n'", "'\xc3\xa9'", "'\xe4\xb8\xad'", "'\xce\xa3.'",
        "'<'", "'\"'", "'\\\\'", "'{'", "'%'", "'%s'", "'{}'",
        "'{0[a}'", "'{a[b]}'", "','", "'.'", "'\\t'", "'\\x01'", "'A b'",
        "'1'", "'\xf0\x9f\x98\x80'", "'Ab-c d'", "'\\u0300'", "'%%'", "'\\r\\n'"};
    write_form(w, literals[draw(w, COUNT(literals))]);
}

static void form_of(writer *w, const char *const *forms, size_t n, const char *shallow, bool is_expression) {
    const bool is_deep = w->depth >= MOST_DEPTH || w->is_full;
    w->depth++;
    if (is_expression) write_form(w, "(");
    write_form(w, is_deep ? shallow : forms[draw(w, n)]);
    if (is_expression) write_form(w, ")");
    w->depth--;
}

static void text(writer *w) {
    static const char *const forms[] = {
        "$c",
        "$c",
        "t",
        "a|string",
        "b|string",
        "ns.x|string",
        "($c * $n)",
        "($c * $n)",
        "($c * $n ~ $c)",
        "($c ~ $c * $n)",
        "($c * $n ~ $c ~ $c * $n)",
        "($s ~ $s)",
        "($s + $s)",
        "($s * 2)",
        "$s[$k:]",
        "$s[:$k]",
        "$s[::-1]",
        "$s[$k:$k:$k]",
        "$s[$k]",
        "$s.strip()",
        "$s.strip($s)",
        "$s.lstrip($s)",
        "$s.rstrip($s)",
        "$s.replace($s, $s)",
        "$s.replace($c, $c)",
        "$s.replace($c, $s, $k)",
        "$s.upper()",
        "$s.lower()",
        "$s.title()",
        "$s.capitalize()",
        "$s.swapcase()",
        "$s.casefold()",
        "$s.join($l)",
        "$s.join($s)",
        "$s.center($n)",
        "$s.ljust($n, $c)",
        "$s.rjust($n)",
        "$s.zfill($n)",
        "$s.expandtabs($n)",
        "$s.removeprefix($s)",
        "$s.removesuffix($s)",
        "$s.format($s, $e, a=$e)",
        "$s % $e",
        "($s % ($e, $e))",
        "'{:>1000000}'.format($s)",
        "('%*d' % ($n, 1))",
        "('%.200f' % $i)",
        "('{:,.100f}'.format($i))",
        "$e|string",
        "$s|upper",
        "$s|lower",
        "$s|title",
        "$s|capitalize",
        "$s|trim",
        "$s|trim($s)",
        "$s|replace($s, $s)",
        "$s|e",
        "$s|forceescape",
        "$s|safe",
        "$s|indent($n)",
        "$s|indent($c, true, true)",
        "$s|center($n)",
        "$s|truncate($n)",
        "$s|truncate($n, true, $c, 0)",
        "$s|urlencode",
        "$e|urlencode",
        "$e|tojson",
        "$e|tojson(indent=$n)",
        "$e|tojson(sort_keys=true)",
        "$e|tojson(ensure_ascii=true)",
        "$l|join($s)",
        "$l|join",
        "$s|format($e)",
        "$s|reverse",
        "$s|first",
        "$s|last",
        "$e|default($s)",
        "strftime_now($c * 100)",
        "strftime_now('%c%x%A' * 60)",
        "m($i)",
        "m2($s, $e)",
    };
    form_of(w, forms, COUNT(forms), draw(w, 2) ? "$c" : "a|string", true);
}

static void sequence(writer *w) {
    static const char *const forms[] = {
        "[$e]",
        "($e, $e)",
        "[$e, $e, $e]",
        "range($r)",
        "range($r)",
        "[$c] * $n",
        "($c,) * $n",
        "($l + $l)",
        "($l * 2)",
        "a|list",
        "b|list",
        "ns.y|list",
        "(ns.x, ns.y)",
        "$l[$k:]",
        "$l[::$k]",
        "$s.split($s)",
        "$s.split()",
        "$s.rsplit($s)",
        "$s.rsplit($c, $k)",
        "$s.rsplit()",
        "$s.splitlines()",
        "$s.partition($s)",
        "$s.rpartition($s)",
        "$l|list",
        "$s|list",
        "$l|sort",
        "$l|sort(true, true)",
        "$l|sort(attribute=$c)",
        "$l|sort(attribute='a,b')",
        "$l|unique|list",
        "$l|reverse|list",
        "$l|batch($n)|list",
        "$l|batch($n, $c)|list",
        "$l|slice($n)|list",
        "$l|slice($n, $c)|list",
        "$l|map('upper')|list",
        "$l|map('tojson')|list",
        "$l|map('length')|list",
        "$l|map('int')|list",
        "$l|map('float')|list",
        "$l|map('no')",
        "$l|map(attribute=$c)|list",
        "$l|map(attribute='a.b.0')|list",
        "$l|map('replace', $c, $s)|map('trim')|list",
        "$l|select|list",
        "$l|select('in', $l)|list",
        "$l|select('equalto', $e)|list",
        "$l|reject('string')|list",
        "$l|reject('eq', $l)|list",
        "$l|selectattr($c)|list",
        "$l|selectattr('role', 'eq', $s)|list",
        "$l|rejectattr('role', 'in', $l)|list",
        "$l|groupby(0)",
        "$l|groupby('role')",
        "$d|dictsort",
        "$d|dictsort(by='value')",
        "$d|items|list",
        "$d.items()|list",
        "$d.keys()|list",
        "$d.values()|list",
        "messages",
        "messages * $n",
        "tools",
        "$l|sum(start=[])",
        "$s|map('upper')|list",
        "$l.copy()",
    };
    form_of(w, forms, COUNT(forms), draw(w, 2) ? "[1]" : "b|list", true);
}

static void dictionary(writer *w) {
    static const char *const forms[] = {
        "{}", "{$c: $e}", "{$l: $e}", "{ns.x: 1, ns.y: 2}", "{'a': $e, 'b': $e}", "dict($l)",
        "dict(a=$e, b=$s)", "messages[1]", "dict(c)", "{$i: $e, $s: 1}", "$d.copy()", "dict($l|map('list'))",
        "dict($d, z=$e)"};
    form_of(w, forms, COUNT(forms), "{}", true);
}

static void expression(writer *w) {
    static const char *const forms[] = {
        "$s",
        "$s",
        "$l",
        "$l",
        "$d",
        "$v",
        "$v",
        "$i",
        "none",
        "($e, $e)",
        "[$e, $e]",
        "{'a': $e, 'b': $e}",
        "($e == $e)",
        "($e != $e)",
        "($s < $s)",
        "($l <= $l)",
        "($e > $e)",
        "($s in $s)",
        "($e in $l)",
        "($e not in $l)",
        "($e in $d)",
        "$d[$e]",
        "$d.get($e, $e)",
        "$e[$e]",
        "$e.a",
        "$e.strip",
        "$e.nothing",
        "$l[$k]",
        "$s.find($s)",
        "$s.find($s, $k)",
        "$s.rfind($s)",
        "$s.rfind($s, $k, $k)",
        "$s.index($s)",
        "$s.rindex($s)",
        "$s.count($s)",
        "$s.count($c, $k)",
        "$s.startswith($s)",
        "$s.startswith(($s, $s), $k)",
        "$s.endswith($s)",
        "$s.isalpha()",
        "$s.isalnum()",
        "$s.isdigit()",
        "$s.isdecimal()",
        "$s.isnumeric()",
        "$s.isspace()",
        "$s.islower()",
        "$s.isupper()",
        "$s.istitle()",
        "$s.isascii()",
        "$l.count($e)",
        "$l.index($e)",
        "$e|length",
        "$e|count",
        "$s|wordcount",
        "$s|int",
        "$s|float",
        "$i|round($n)",
        "$i|round(100)",
        "$i|abs",
        "$l|min",
        "$l|max",
        "$l|max(attribute=$c)",
        "$l|sum",
        "$l|first",
        "$l|last",
        "$e|attr($s)",
        "($i + $i)",
        "($i * $i)",
        "($i % $i)",
        "($i // $i)",
        "($i ** $i)",
        "(f ** $i)",
        "(1e308 % 5e-324)",
        "-$i",
        "($e and $e)",
        "($e or $e)",
        "(not $e)",
        "($e if $e else $e)",
        "($e if $e)",
        "$e is defined",
        "$e is mapping",
        "$e is iterable",
        "$s is lower",
        "$s is upper",
        "$e is sameas($e)",
        "$e is eq($e)",
        "$s is test",
        "$i is divisibleby($i)",
        "$e is in($l)",
        "$i is odd",
        "namespace(a=$e)",
        "cycler($e, $e).next()",
        "joiner($s)()",
        "loop.changed($e)",
        "loop.cycle($e, $e)",
        "loop.previtem",
        "range($r, $r, $k)",
        "m($i)",
        "$e|unique|list",
        "$e|list",
        "$e|string",
    };
    form_of(w, forms, COUNT(forms), "$v", true);
}

static void statement(writer *w) {
    static const char *const forms[] = {
        "{% set a = $s %}",
        "{% set a = $e %}",
        "{% set b = $l %}",
        "{% set c = $d %}",
        "{% set ns.x = $s %}",
        "{% set ns.y = $e %}",
        "{{ $e }}",
        "{{ $s }}",
        "{% set x = $e %}",
        "{% set x = $e %}",
        "{% set a = $s %}{% set x = a.find(a[:$n] ~ 'b') %}",
        /* what doubles itself */
        "{% for i in range($r) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}",
        "{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}",
        "{% for i in range(60) %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}",
        "{% for i in range(100) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}",
        "{% for i in range(20) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% for i in range(18) %}{% set ns.y = ns.y + ns.y %}{% endfor %}",
        "{% for i in range($r) %}{% set ns.y = ns.y ~ $c %}{% endfor %}",
        "{% for i in range($r) %}{% set ns.y = ns.y + [i] %}{% endfor %}",
        "{% for i in range(22) %}{% set ns.x = ns.x.replace($c, $c * 2) %}{% endfor %}",
        ("{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% set ns.y = (ns.y, ns.y) %}{% endfor %}"
         "{% set x = ns.x == ns.y %}"),
        "{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{% set x = {ns.x: 1} %}",
        /* around it */
        "{% for i in range($r) %}$S{% endfor %}",
        "{% for i in range($r) %}{% for j in range($r) %}$S{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = $e %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% set x = $e %}{% endfor %}",
        "{% set a = $s %}{% for i in range(99999) %}{% set x = a$m %}{% endfor %}",
        "{% set b = $l %}{% for i in range(99999) %}{% set x = b$f %}{% endfor %}",
        "{% for i in $l %}$S{% endfor %}",
        "{% for i in $s %}{% set x = $e %}{% endfor %}",
        "{% for i, j in $l %}$S{% endfor %}",
        "{% for i in $l if $e %}$S{% else %}$S{% endfor %}",
        "{% for i in ns.x recursive %}{{ loop(i) }}{% endfor %}",
        "{% macro m(n) %}{% if n is number and n > 0 %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}$S{% endmacro %}",
        "{% macro m(n) %}{{ m(n) }}{% endmacro %}",
        "{% macro m2(a, b=$e) %}$S{{ varargs }}{{ kwargs }}{% endmacro %}",
        "{% macro m2(a, b='') %}{{ caller() if caller is defined }}{{ a }}{% endmacro %}",
        "{% call m2($e) %}$S{% endcall %}",
        "{% call m($i) %}{% endcall %}",
        "{% filter upper %}$S{% endfilter %}",
        "{% filter replace($c, $s) %}$S{% endfilter %}",
        "{% set a %}$S{% endset %}",
        "{% set a | trim %}$S{% endset %}",
        "{% with a = $s, b = $l %}$S{% endwith %}",
        "{% if $e %}$S{% elif $e %}$S{% else %}$S{% endif %}",
        "{% for m in messages %}{{ m.role }}{{ m.content }}$S{% endfor %}",
        "{{ raise_exception($s) }}",
        "{% for i in range(99999) %}{% set x = [1]|map('no') %}{% endfor %}",
        "{% set a = $s %}{% set c = {a: 1} %}{% for i in range(99999) %}{% set x = c[a] %}{% endfor %}",
    };
    form_of(w, forms, COUNT(forms), "{{ $v }}", false);
}

static void method_call(writer *w) {
    static const char *const calls[] = {
        ".find($s)", ".rfind($s)", ".count($s)", ".split($s)", ".rsplit($s)", ".replace($s, $s)", ".strip()",
        ".strip($s)", ".startswith($s)", ".endswith($s)", ".isalpha()", ".isalnum()", ".isspace()",
        ".upper()", ".lower()",
        ".title()", ".islower()", ".isascii()", ".splitlines()", ".split()",
        ".partition($s)", ".rpartition($s)", "[$i]", "[$k:$k]", "[::-1]", " == $s", " < $s", " ~ $c",
        "|length", "|tojson", "|e", "|urlencode",
        "|wordcount", "|trim", "|upper", "|string", "|int", "|float",
        "|first", "|last", "|list", "|reverse", "|truncate($n)", "|indent", "|replace($c, $c)", " % 1",
        ".format(1)", ".swapcase()", ".zfill($n)", ".nothing", " in $s",
        ".casefold()", ".expandtabs()", ".center($n)", ".join('ab')", ".removeprefix($s)"};
    write_form(w, calls[draw(w, COUNT(calls))]);
}

static void filter_call(writer *w) {
    static const char *const calls[] = {
        "|sort", "|sort(attribute=$c)", "|unique|list", "|map('upper')|list", "|map('string')|join",
        "|join($s)", "|tojson", "|string", "|length", "|list", "|reverse|list", "|batch(3)|list",
        "|slice(3)|list", "|groupby(0)",
        "|select|list", "|select('in', b)|list", "|min", "|max", "|sum",
        "|first", "|last", "[1:]", "[::-1]", " == b", " + b", ".count(1)", ".index($e)",
        "|map('float')|map('string')|list", "|map('hash')", "|urlencode", "|select('eq', 1)|list",
        "|map(attribute='a.b')|list", "|rejectattr('a')|list",
        "|map('int')|sum", "|map('round', 3)|list"};
    write_form(w, calls[draw(w, COUNT(calls))]);
}

static void put(writer *w, char c) {
    if (w->n + 1 < HOSTILE_TEMPLATE_BYTES) w->out[w->n++] = c;
}

static void statements(writer *w) {
    for (uint64_t n = 1 + draw(w, 2); n > 0; n--) statement(w);
}

static void write_form(writer *w, const char *form) {
    w->is_full = w->n > HOSTILE_TEMPLATE_BYTES / 2;
    for (; *form; form++) {
        if (*form != '$') {
            put(w, *form);
            continue;
        }
        switch (*++form) {
        case 'e': expression(w); break;
        case 's': text(w); break;
        case 'l': sequence(w); break;
        case 'd': dictionary(w); break;
        case 'n': count(w); break;
        case 'i': number(w); break;
        case 'r': write_form(w, ranges[draw(w, COUNT(ranges))]); break;
        case 'k': write_form(w, draw(w, 2) ? "-$n" : "$n"); break;
        case 'c': literal(w); break;
        case 'm': method_call(w); break;
        case 'f': filter_call(w); break;
        case 'S': statements(w); break;
        default: write_form(w, variables[draw(w, COUNT(variables))]);
        }
    }
}

void hostile_template_make(uint64_t seed, char out[HOSTILE_TEMPLATE_BYTES]) {
    writer w = {.random = {seed}, .out = out};
    static const char *const beginnings[] = {
        "{% set ns = namespace(x=(1,), y=[1]) %}{% set a = 'ab' %}{% set b = [1, 2] %}{% set c = {} %}",
        "{% set ns = namespace(x='a', y='') %}{% set a = 'a' * $r %}{% set b = range($r)|list %}{% set c = {'a': 1} %}",
        "{% set ns = namespace(x='\xc3\xa9', y=[]) %}{% set a = $s %}{% set b = $l %}{% set c = $d %}",
    };
    write_form(&w, "{% macro m(n) %}{{ n }}{% endmacro %}{% macro m2(a, b='') %}{{ a }}{{ b }}{% endmacro %}");
    write_form(&w, beginnings[draw(&w, COUNT(beginnings))]);
    for (uint64_t n = 1 + draw(&w, 5); n > 0; n--) statement(&w);
    out[w.n] = '\0';
}
