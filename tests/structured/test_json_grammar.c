/* SPDX-License-Identifier: Apache-2.0 */
/* test_json_grammar.c: the grammar of a schema accepts what fits it and refuses what does not, text by text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json_read.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "grammar/matcher.h"
#include "structured/json_grammar.h"
#include "structured/json_grammar_numbers.h"
#include "support/seed.h"
#include "support/tiny_random.h"

#define MAX_TEXTS 12

typedef struct subject {
    const char *schema;
    const char *fit[MAX_TEXTS], *misfit[MAX_TEXTS]; /* end with NULL */
} subject;

/* Does the grammar accept the text? */
static bool accepts(const char *gbnf, const char *text) {
    grammar *g;
    matcher m = {0};
    rp_error err;
    bool fits;
    if (grammar_new(&g, gbnf, &err) || matcher_open(&m, g, NULL, &err)) fail_msg("%s in\n%s", err.message, gbnf);
    int32_t place = m.place;
    assert_int_equal(matcher_walk(&m, &place, text, strlen(text), &fits), 0);
    if (fits) fits = m.pool.places[place].may_end;
    matcher_close(&m);
    grammar_free(g);
    return fits;
}

/* A grammar with the schema as its root; base_free. */
static char *grammar_of(const char *schema, bool strict, rp_error *p) {
    char rule[JSON_GRAMMAR_RULE_BYTES];
    json_t *root = base_json_read(schema, strlen(schema), BASE_JSON_ANY);
    json_grammar *g = json_grammar_new();
    char *text = NULL;
    assert_non_null(root);
    assert_non_null(g);
    if (!json_grammar_add(g, root, "schema", strict, rule, p)) {
        assert_int_equal(base_buffer_printf(json_grammar_text(g), "root ::= %s\n", rule), 0);
        text = base_strdup(json_grammar_text(g)->data);
    }
    json_grammar_free(g);
    json_decref(root);
    return text;
}

static const subject subjects[] = {
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": \"boolean\"}, \"c\": "
     "{\"type\": \"null\"}},"
     " \"required\": [\"b\"]}",
     {"{\"b\":true}", "{\"a\":1,\"b\":false}", "{\"a\": -10, \"b\": true, \"c\": null}", "{\"b\":true,\"c\":null}"},
     {"{}", "{\"a\":1}", "{\"b\":true,\"a\":1}", "{\"b\":1}", "{\"b\":true,}", "{\"b\":true", "{\"b\":  true}",
      "{\"b\":true,\"d\":1}", "{\"b\":true}}", "{\"a\":01,\"b\":true}"}},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}, \"b\": {\"const\": 2}}}",
     {"{}", "{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{\"b\":2,\"a\":1}", "{,\"b\":2}", "{\"a\":1,}", "{\"a\":2}"}},
    {"{\"type\": \"object\", \"properties\": {}}", {"{}"}, {"{\"a\":1}", "[]"}},
    {"{\"type\": \"object\"}", {"{}", "{\"a\":{\"b\":[1,\"x\",null]}}"}, {"[]", "{a:1}", "{\"a\":}"}},
    {"{\"type\": \"object\", \"properties\": {\"ab\": {\"const\": 1}, \"a\\u00e9\": {\"const\": 2}}, "
     "\"additionalProperties\": {\"const\": 3}}",
     {"{}", "{\"ab\":1}", "{\"x\":3}", "{\"ab\":1,\"a\":3,\"abc\":3,\"\":3,\"aé!\":3}", "{\"a\xc3\xaa\":3}",
      "{\"ab\":1,\"aé\":2,\"ac\":3}"},
     {"{\"ab\":3}", "{\"x\":3,\"ab\":3}", "{\"aé\":3}", "{\"x\":1}", "{\"\\u0061b\":3}"}},
    {"true", {"1", "\"x\"", "[]", "{}", "null", "[1, 2.5e-3]"}, {"", "01", "[1,]", "nul", "1.", "\"\n\"", "tru"}},
    {"{\"type\": \"string\"}",
     {"\"\"", "\"a\\n\\\"\\\\ü\\u00e9\\uD83D\\ude00\""},
     {"\"", "\"\\x\"", "\"\\uD83D\"", "\"\\uDE00\"", "\"\\u0000\"", "\"\t\"", "\"a\"b"}},
    {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
     {"\"ab\"", "\"aü\\n\""},
     {"\"a\"", "\"abcd\"", "\"\""}},
    {"{\"type\": \"array\", \"items\": {\"type\": \"boolean\"}, \"minItems\": 1, \"maxItems\": 3}",
     {"[true]", "[true,false]", "[true, true, true]"},
     {"[]", "[true,true,true,true]", "[1]", "[true,]"}},
    {"{\"type\": \"array\", \"maxItems\": 0}", {"[]"}, {"[1]"}},
    {"{\"type\": \"array\", \"items\": {\"const\": 1}, \"maxItems\": 1}", {"[]", "[1]"}, {"[1,1]"}},
    {"{\"type\": \"array\", \"prefixItems\": [{\"const\": 1}, {\"const\": 2}], \"items\": {\"const\": 3}, "
     "\"minItems\": 3}",
     {"[1,2,3]", "[1,2,3,3]"},
     {"[1,2]", "[1]", "[1,2,4]", "[]"}},
    {"{\"type\": \"array\", \"prefixItems\": [{\"const\": 1}, {\"const\": 2}]}", {"[1,2]"}, {"[1,2,3]", "[2,1]"}},
    {"{\"enum\": [\"a\\\"b\", 1.5, null, {\"k\": [true]}]}",
     {"\"a\\\"b\"", "1.5", "null", "{\"k\":[true]}"},
     {"1", "\"a\"", "true"}},
    {"{\"type\": [\"integer\", \"null\"]}", {"1", "null", "-7"}, {"1.5", "true"}},
    {"{\"type\": \"STRING\", \"nullable\": true}", {"\"x\"", "null"}, {"1"}},
    {"{\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"boolean\"}]}", {"1", "true"}, {"null", "1true"}},
    {"{\"type\": \"object\", \"properties\": {\"t\": {\"const\": 1}}, \"required\": [\"t\"], \"anyOf\": "
     "[{\"properties\": {\"a\": {\"const\": 1}},"
     " \"required\": [\"a\"]}, {\"properties\": {\"b\": {\"const\": 2}}, \"required\": [\"b\"]}]}",
     {"{\"t\":1,\"a\":1}", "{\"t\":1,\"b\":2}"},
     {"{\"t\":1}", "{\"t\":1,\"a\":1,\"b\":2}"}},
    {"{\"allOf\": [{\"type\": \"integer\", \"minimum\": 3}, {\"maximum\": 5}, {\"type\": \"number\"}]}",
     {"3", "5"},
     {"2", "6", "4.5"}},
    {"{\"$defs\": {\"n\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/n\"}}}, \"$ref\": \"#/$defs/n\"}",
     {"[]", "[[],[[]]]"},
     {"[1]", "[[]"}},
    {"{\"type\": \"object\", \"properties\": {\"x\": {\"$ref\": \"#\"}}}", {"{}", "{\"x\":{\"x\":{}}}"}, {"{\"x\":1}"}},
    {"{\"$defs\": {\"a b\": {\"const\": 1}}, \"$ref\": \"#/$defs/a%20b\", \"description\": \"x\"}", {"1"}, {"2"}},
    {"{\"$defs\": {\"o\": {\"type\": \"integer\"}}, \"$ref\": \"#/$defs/o\", \"minimum\": 8, \"maximum\": 11}",
     {"8", "11"},
     {"7", "12"}},
    /* patterns and formats */
    {"{\"type\": \"string\", \"pattern\": \"^a[\\\"\\\\\\\\]+\\\\n?$\"}",
     {"\"a\\\"\"", "\"a\\\\\"", "\"a\\\"\\\\\\n\""},
     {"\"a\"", "\"a\"\"", "\"a\\\\n\"", "\"ba\\\"\"", "\"a\\\"x\""}},
    {"{\"type\": \"string\", \"pattern\": \"[0-9]{3}\"}",
     {"\"123\"", "\"x123y\"", "\"\\n1234\""},
     {"\"12\"", "\"1x23\"", "123"}},
    {"{\"type\": \"string\", \"pattern\": \"^[a-z]+$\", \"minLength\": 2, \"maxLength\": 3}",
     {"\"ab\"", "\"abc\""},
     {"\"a\"", "\"abcd\"", "\"AB\""}},
    {"{\"enum\": [\"ab\", \"b\", 1], \"pattern\": \"^a\"}", {"\"ab\"", "1"}, {"\"b\""}},
    {"{\"allOf\": [{\"type\": \"string\"}, {\"pattern\": \"^x$\"}]}", {"\"x\""}, {"\"y\""}},
    {"{\"type\": \"string\", \"format\": \"date\"}",
     {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\""},
     {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\"", "\"2024-04-31\"", "\"2024-1-1\"", "\"\""}},
    {"{\"type\": \"string\", \"format\": \"time\"}",
     {"\"23:59:59Z\"", "\"00:00:00.123+02:00\""},
     {"\"24:00:00Z\"", "\"12:00Z\"", "\"12:00:00\""}},
    {"{\"type\": \"string\", \"format\": \"date-time\"}",
     {"\"2024-02-29T12:30:00Z\""},
     {"\"2024-02-29 12:30:00Z\"", "\"2024-02-30T12:30:00Z\""}},
    {"{\"type\": \"string\", \"format\": \"duration\"}",
     {"\"P3W\"", "\"P1Y2M3D\"", "\"PT5M\"", "\"P1DT1H\"", "\"P2M\""},
     {"\"P\"", "\"PT\"", "\"P1D2M\"", "\"P1Y1D\"", "\"3D\""}},
    {"{\"type\": \"string\", \"format\": \"uuid\"}",
     {"\"123e4567-e89b-12d3-A456-426614174000\""},
     {"\"123e4567e89b12d3a456426614174000\"", "\"g23e4567-e89b-12d3-a456-426614174000\""}},
    {"{\"type\": \"string\", \"format\": \"email\"}",
     {"\"a@b.org\"", "\"john.doe+tag@mail.example.com\""},
     {"\"a@\"", "\"@b.org\"", "\"a..b@c.org\"", "\"a b@c.org\"", "\"a@-b.org\""}},
    {"{\"type\": \"string\", \"format\": \"hostname\"}",
     {"\"localhost\"", "\"a-b.example.com\""},
     {"\"-a\"", "\"a-\"", "\"a..b\"", "\"\"", "\"a_b\""}},
    {"{\"type\": \"string\", \"format\": \"ipv4\"}",
     {"\"0.0.0.0\"", "\"255.249.100.19\""},
     {"\"256.1.1.1\"", "\"1.1.1\"", "\"01.1.1.1\"", "\"1.1.1.1.1\""}},
    {"{\"type\": \"string\", \"format\": \"ipv6\"}",
     {"\"::\"", "\"::1\"", "\"1::\"", "\"2001:db8::ff00:42:8329\"", "\"1:2:3:4:5:6:7:8\"", "\"1::2:3:4:5:6:7\"",
      "\"::ffff:1.2.3.4\""},
     {"\"1:2:3\"", "\":::\"", "\"1::2::3\"", "\"1:2:3:4:5:6:7:8:9\"", "\"12345::\"", "\"g::\""}},
    {"{\"type\": \"string\", \"format\": \"uri\"}",
     {"\"https://example.com/a/b?c=d#e\"", "\"mailto:a@b.org\"", "\"urn:isbn:123\"", "\"http://h:80\""},
     {"\"example.com\"", "\"http://a b\"", "\"://x\"", "\"\""}},
    {"{\"type\": \"string\", \"format\": \"unknown\"}", {"\"x\""}, {"1"}},
    /* names */
    {"{\"type\": \"object\", \"propertyNames\": {\"pattern\": \"^[a-z]+$\"}, \"additionalProperties\": {\"type\": "
     "\"integer\"}}",
     {"{}", "{\"ab\":1}", "{\"a\":1,\"b\":2}"},
     {"{\"A\":1}", "{\"\":1}", "{\"a\":true}"}},
    {"{\"type\": \"object\", \"propertyNames\": {\"enum\": [\"x\", \"y\"]}}",
     {"{}", "{\"x\":1}", "{\"y\":[]}", "{\"x\":1,\"y\":2}"},
     {"{\"z\":1}", "{\"x\":1,\"x\":2}"}},
    {"{\"type\": \"object\", \"propertyNames\": {\"maxLength\": 2}}",
     {"{}", "{\"ab\":1}", "{\"\":{}}"},
     {"{\"abc\":1}"}},
    {"{\"type\": \"object\", \"properties\": {\"ab\": {\"const\": 1}, \"C\": {\"const\": 2}}, \"propertyNames\": "
     "{\"pattern\": \"^[a-z]+$\"}}",
     {"{}", "{\"ab\":1}"},
     {"{\"C\":2}", "{\"d\":1}"}},
    {"{\"propertyNames\": false}", {"{}"}, {"{\"a\":1}"}},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}}, \"patternProperties\": {\"^x-\": {\"type\": "
     "\"boolean\"}, \"^y\": {\"const\": "
     "2}}}",
     {"{}", "{\"a\":1,\"x-b\":true}", "{\"x-\":false,\"y1\":2}"},
     {"{\"x-b\":1}", "{\"b\":1}", "{\"a\":true}", "{\"yx-\":true}"}},
    {"{\"patternProperties\": {\"[0-9]\": {\"const\": 1}}, \"additionalProperties\": false}",
     {"{}", "{\"a1b\":1}"},
     {"{\"a\":1}", "{\"1\":2}"}},
    /* numbers of properties */
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}, \"b\": {\"const\": 2}, \"c\": {\"const\": 3}}, "
     "\"minProperties\": 2}",
     {"{\"a\":1,\"b\":2}", "{\"b\":2,\"c\":3}", "{\"a\":1,\"c\":3}", "{\"a\":1,\"b\":2,\"c\":3}"},
     {"{}", "{\"a\":1}", "{\"c\":3}"}},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}, \"b\": {\"const\": 2}, \"c\": {\"const\": 3}}, "
     "\"required\": [\"b\"], "
     "\"maxProperties\": 2}",
     {"{\"b\":2}", "{\"a\":1,\"b\":2}", "{\"b\":2,\"c\":3}"},
     {"{}", "{\"a\":1}", "{\"a\":1,\"b\":2,\"c\":3}"}},
    {"{\"type\": \"object\", \"additionalProperties\": {\"const\": 1}, \"minProperties\": 1, \"maxProperties\": 2}",
     {"{\"a\":1}", "{\"a\":1,\"b\":1}"},
     {"{}", "{\"a\":1,\"b\":1,\"c\":1}"}},
    {"{\"maxProperties\": 0}", {"{}"}, {"{\"a\":1}"}},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}}, \"additionalProperties\": {\"const\": 2}, "
     "\"maxProperties\": 2, "
     "\"minProperties\": 1}",
     {"{\"a\":1}", "{\"x\":2}", "{\"a\":1,\"x\":2}", "{\"x\":2,\"y\":2}"},
     {"{}", "{\"a\":1,\"x\":2,\"y\":2}", "{\"x\":2,\"a\":1}"}},
    {"{\"propertyNames\": {\"enum\": [\"a\", \"b\", \"c\"]}, \"additionalProperties\": {\"const\": 0}, "
     "\"minProperties\": 2}",
     {"{\"a\":0,\"c\":0}", "{\"a\":0,\"b\":0,\"c\":0}"},
     {"{}", "{\"b\":0}"}},
    /* items */
    {"{\"type\": \"array\", \"items\": {\"enum\": [\"a\", \"b\", 3]}, \"uniqueItems\": true}",
     {"[]", "[3]", "[\"b\",\"a\"]", "[3,\"a\", \"b\"]"},
     {"[3,3]", "[\"a\",\"b\",\"a\"]", "[4]", "[\"a\",]"}},
    {"{\"type\": \"array\", \"items\": {\"type\": \"boolean\"}, \"uniqueItems\": true, \"minItems\": 1}",
     {"[true]", "[false,true]"},
     {"[]", "[true,true]", "[true,false,true]"}},
    {"{\"type\": \"array\", \"items\": {\"type\": \"string\", \"enum\": [\"a\", \"b\", \"c\", \"a\"]}, "
     "\"uniqueItems\": true, \"minItems\": 2, "
     "\"maxItems\": 2}",
     {"[\"a\",\"b\"]", "[\"c\",\"a\"]"},
     {"[\"a\"]", "[\"a\",\"a\"]", "[\"a\",\"b\",\"c\"]"}},
    {"{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"uniqueItems\": true, \"maxItems\": 1}",
     {"[]", "[5]"},
     {"[5,6]"}},
    {"{\"type\": \"array\", \"uniqueItems\": false}", {"[1,1]"}, {"1"}},
    {"{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"contains\": {\"minimum\": 7, \"maximum\": 9}}",
     {"[7]", "[1,8]", "[9,1,2]"},
     {"[]", "[1]", "[1,2]", "[\"x\",7]"}},
    {"{\"contains\": {\"const\": 1}, \"minContains\": 2}",
     {"[1,1]", "[0,1,\"x\",1]", "[1,1,1]"},
     {"[1]", "[0,1]", "[]"}},
    {"{\"type\": \"array\", \"items\": {\"const\": 2}, \"contains\": {\"const\": 1}, \"minContains\": 0}",
     {"[]", "[2]"},
     {"[1]"}},
    /* multiples */
    {"{\"type\": \"integer\", \"multipleOf\": 5}", {"0", "5", "-10", "12345", "100000"}, {"3", "-4", "05", "5.0", "-"}},
    {"{\"type\": \"integer\", \"multipleOf\": 100, \"minimum\": 0}",
     {"0", "100", "12300"},
     {"50", "-100", "1000.0", "10"}},
    {"{\"type\": \"integer\", \"multipleOf\": 7, \"minimum\": 10, \"maximum\": 30}",
     {"14", "21", "28"},
     {"7", "35", "15", "0"}},
    {"{\"type\": \"number\", \"multipleOf\": 0.01}",
     {"0", "1.5", "-3.25", "10.00", "0.1"},
     {"0.001", "1.", ".5", "1e2"}},
    {"{\"type\": \"number\", \"multipleOf\": 0.25, \"minimum\": 0}",
     {"0", "0.25", "0.5", "3", "7.75", "2.50"},
     {"0.2", "-0.25", "1.1", "0.255"}},
    {"{\"type\": \"number\", \"multipleOf\": 2.5, \"minimum\": 0, \"maximum\": 10}",
     {"0", "2.5", "5", "7.5", "10"},
     {"1", "12.5", "2", "0.5"}},
    {"{\"type\": \"integer\", \"multipleOf\": 2.5}", {"0", "5", "15", "-20"}, {"2", "2.5", "12"}},
    {"{\"allOf\": [{\"type\": \"integer\", \"multipleOf\": 4}, {\"multipleOf\": 6}]}",
     {"0", "12", "24"},
     {"4", "6", "8"}},
    /* bounds of any size */
    {"{\"type\": \"integer\", \"minimum\": -9223372036854775808, \"maximum\": 9223372036854775807}",
     {"0", "9223372036854775807", "-9223372036854775808", "9223372036854775806"},
     {"9223372036854775808", "-9223372036854775809", "10000000000000000000"}},
    {"{\"type\": \"integer\", \"minimum\": 18446744073709551616}",
     {"18446744073709551616", "99999999999999999999"},
     {"18446744073709551615", "5", "-1"}},
    {"{\"type\": \"integer\", \"exclusiveMinimum\": 1e20, \"maximum\": 100000000000000000002}",
     {"100000000000000000001", "100000000000000000002"},
     {"100000000000000000000", "100000000000000000003"}},
    {"{\"type\": \"integer\", \"maximum\": 1e400, \"minimum\": 0}", {"0", "9999999999999999"}, {"-1"}},
    {"{\"type\": \"number\", \"maximum\": 99999999999999999999, \"minimum\": 3}",
     {"3", "3.5", "99999999999999999999", "99999999999999999998.9"},
     {"2.9", "100000000000000000000", "99999999999999999999.1"}},
    {"{\"type\": \"integer\", \"exclusiveMinimum\": -1.5, \"exclusiveMaximum\": 1.5}", {"-1", "0", "1"}, {"-2", "2"}},
    {"{\"type\": \"integer\", \"exclusiveMaximum\": 0, \"minimum\": -1, \"exclusiveMinimum\": -9}",
     {"-1"},
     {"0", "-2"}},
    {"{\"const\": 123456789012345678901234567890}",
     {"123456789012345678901234567890"},
     {"123456789012345678901234567891"}},
    {"{\"type\": \"integer\", \"multipleOf\": 2, \"maximum\": 9223372036854775807}", {"2", "-4"}, {"3"}},
    /* enum and const beside other keywords: those of their values that fit */
    {"{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}], \"enum\": [\"a\", 1, null]}",
     {"\"a\"", "null"},
     {"1"}},
    {"{\"type\": \"integer\", \"enum\": [1, 1.0, 2.5, \"1\", 18446744073709551616]}",
     {"1", "1.0", "18446744073709551616"},
     {"2.5", "\"1\""}},
    {"{\"$defs\": {\"s\": {\"minimum\": 2}}, \"$ref\": \"#/$defs/s\", \"enum\": [1, 2, 3], \"not\": {\"const\": 3}}",
     {"2"},
     {"1", "3"}},
    {"{\"enum\": [{\"a\": 1}, {\"a\": 2, \"b\": 1}, [1, 1], [1, 2]], \"properties\": {\"a\": {\"maximum\": 1}}, "
     "\"uniqueItems\": true}",
     {"{\"a\":1}", "[1,2]"},
     {"{\"a\":2,\"b\":1}", "[1,1]"}},
    {"{\"allOf\": [{\"enum\": [\"ab\", \"c\"]}, {\"minLength\": 2}]}", {"\"ab\""}, {"\"c\""}},
    {"{\"type\": [\"string\", \"null\"], \"const\": null}", {"null"}, {"\"\""}},
    /* schemas that allow nothing */
    {"{\"type\": \"object\", \"properties\": {\"a\": false, \"b\": {\"const\": 1}}, \"additionalProperties\": "
     "{\"const\": 2}}",
     {"{}", "{\"b\":1}", "{\"c\":2}", "{\"ab\":2}"},
     {"{\"a\":2}", "{\"b\":2}"}},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"not\": {}}, \"b\": {\"allOf\": [{\"type\": \"string\"}, "
     "{\"type\": \"null\"}]}, \"c\": "
     "{\"enum\": [1], \"type\": \"string\"}, \"d\": {\"const\": 1}}}",
     {"{}", "{\"d\":1}"},
     {"{\"a\":1}", "{\"b\":1}", "{\"c\":1}"}},
    {"{\"anyOf\": [false, {\"const\": 1}, {\"type\": \"object\", \"properties\": {\"x\": false}, \"required\": "
     "[\"x\"]}]}",
     {"1"},
     {"{}", "null"}},
    {"{\"type\": \"string\", \"anyOf\": [{\"const\": \"a\"}, {\"type\": \"null\"}]}", {"\"a\""}, {"null"}},
    {"{\"type\": \"array\", \"items\": {\"allOf\": [true, false]}}", {"[]"}, {"[1]"}},
    {"{\"type\": \"array\", \"prefixItems\": [{\"const\": 1}, false]}", {"[1]"}, {"[1,2]", "[]"}},
    {"{\"type\": \"object\", \"properties\": {\"k\": {\"enum\": [\"a\", \"b\"]}, \"v\": {\"const\": 1}}, \"required\": "
     "[\"k\"], \"if\": "
     "{\"properties\": {\"k\": {\"const\": \"a\"}}},"
     " \"then\": {\"required\": [\"v\"]}, \"else\": {\"properties\": {\"v\": false}}}",
     {"{\"k\":\"a\",\"v\":1}", "{\"k\":\"b\"}"},
     {"{\"k\":\"b\",\"v\":1}", "{\"k\":\"a\"}"}},
    /* conditions */
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}, \"b\": {\"const\": 2}}, \"dependentRequired\": "
     "{\"a\": [\"b\"]}}",
     {"{}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{\"a\":1}"}},
    {"{\"enum\": [1, 2, \"x\"], \"not\": {\"const\": 2}}", {"1", "\"x\""}, {"2"}},
    {"{\"type\": [\"integer\", \"null\", \"boolean\"], \"not\": {\"type\": \"null\"}}", {"1", "true"}, {"null"}},
    {"{\"not\": {\"type\": [\"object\", \"array\"]}}", {"1", "\"x\"", "null"}, {"{}", "[]"}},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}, \"b\": {\"const\": 2}}, \"not\": {\"required\": "
     "[\"a\"]}}",
     {"{}", "{\"b\":2}"},
     {"{\"a\":1}"}},
    {"{\"type\": \"object\", \"properties\": {\"k\": {\"enum\": [\"x\", \"y\"]}, \"n\": {\"type\": \"integer\"}}, "
     "\"required\": [\"k\"], \"if\": "
     "{\"properties\": {\"k\": {\"const\": \"x\"}}},"
     " \"then\": {\"required\": [\"n\"]}, \"else\": {\"properties\": {\"n\": {\"maximum\": 0, \"minimum\": 0}}}}",
     {"{\"k\":\"x\",\"n\":5}", "{\"k\":\"y\"}", "{\"k\":\"y\",\"n\":0}"},
     {"{\"k\":\"x\"}", "{\"k\":\"y\",\"n\":5}", "{}"}},
    {"{\"type\": \"object\", \"properties\": {\"k\": {\"type\": \"boolean\"}, \"n\": {\"const\": 1}}, \"if\": "
     "{\"properties\": {\"k\": {\"const\": "
     "true}}, \"required\": [\"k\"]},"
     " \"then\": {\"required\": [\"n\"]}}",
     {"{}", "{\"k\":false}", "{\"k\":true,\"n\":1}", "{\"n\":1}"},
     {"{\"k\":true}"}},
    {"{\"type\": \"object\", \"properties\": {\"k\": {\"enum\": [1, 2, 3]}, \"n\": {\"const\": 1}, \"m\": {\"const\": "
     "1}}, \"required\": [\"k\"], "
     "\"allOf\": ["
     "{\"if\": {\"properties\": {\"k\": {\"const\": 1}}}, \"then\": {\"required\": [\"n\"]}}, {\"if\": "
     "{\"properties\": {\"k\": {\"enum\": [2]}}}, "
     "\"then\": {\"required\": [\"m\"]}}]}",
     {"{\"k\":1,\"n\":1}", "{\"k\":2,\"m\":1}", "{\"k\":3}", "{\"k\":3,\"n\":1,\"m\":1}"},
     {"{\"k\":1}", "{\"k\":2,\"n\":1}", "{\"k\":4}"}},
};

static void test_texts(void **state) {
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(subjects); i++) {
        const subject *s = &subjects[i];
        rp_error p = {0};
        char *gbnf = grammar_of(s->schema, true, &p);
        if (!gbnf) fail_msg("%s: %s", s->schema, p.message);
        for (int k = 0; k < MAX_TEXTS && s->fit[k]; k++)
            if (!accepts(gbnf, s->fit[k])) fail_msg("%s refuses %s:\n%s", s->schema, s->fit[k], gbnf);
        for (int k = 0; k < MAX_TEXTS && s->misfit[k]; k++)
            if (accepts(gbnf, s->misfit[k])) fail_msg("%s accepts %s:\n%s", s->schema, s->misfit[k], gbnf);
        base_free(gbnf);
    }
}

/* Bounds of some lengths and signs, and the numbers around them. */
static void test_ranges(void **state) {
    (void)state;
    static const int64_t edges[] = {-1050, -1000, -99, -10, -9, -1, 0, 1, 9, 10, 57, 99, 100, 345, 999, 1000};
    for (size_t a = 0; a < BASE_ARRAY_LEN(edges); a++)
        for (size_t b = a; b < BASE_ARRAY_LEN(edges); b++) {
            base_buffer text = BASE_BUFFER(1 << 16);
            const json_grammar_whole lo = json_grammar_whole_of(edges[a]), hi = json_grammar_whole_of(edges[b]);
            assert_int_equal(base_buffer_append_str(&text, "root ::= "), 0);
            assert_int_equal(json_grammar_integers(&text, &lo, &hi), 0);
            for (size_t k = 0; k < BASE_ARRAY_LEN(edges); k++)
                for (int64_t v = edges[k] - 1; v <= edges[k] + 1; v++) {
                    char number[32];
                    snprintf(number, sizeof(number), "%lld", (long long)v);
                    if (accepts(text.data, number) != (v >= edges[a] && v <= edges[b]))
                        fail_msg("%s of %lld to %lld:\n%s", number, (long long)edges[a], (long long)edges[b],
                                 text.data);
                }
            assert_false(accepts(text.data, "00"));
            assert_false(accepts(text.data, "-"));
            base_buffer_free(&text);
        }
}

static void test_reals(void **state) {
    (void)state;
    static const struct {
        int64_t lo, hi;
        const char *fit[6], *misfit[6];
    } cases[] = {{0, 1, {"0", "1", "0.5", "1.0", "0.0000001"}, {"1.1", "-0.1", "2", ".5", "1e1"}},
                 {-2, 3, {"-2", "-1.5", "-0.5", "2.99", "3.00"}, {"-2.1", "3.1", "-3", "4"}},
                 {5, 5, {"5", "5.0"}, {"5.1", "4.9"}},
                 {-7, -3, {"-7", "-3", "-6.9", "-3.5"}, {"-2.9", "-7.1", "3", "0"}}};
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        base_buffer text = BASE_BUFFER(1 << 16);
        const json_grammar_whole lo = json_grammar_whole_of(cases[i].lo), hi = json_grammar_whole_of(cases[i].hi);
        assert_int_equal(base_buffer_append_str(&text, "root ::= "), 0);
        assert_int_equal(json_grammar_reals(&text, &lo, &hi), 0);
        for (int k = 0; k < 6 && cases[i].fit[k]; k++) assert_true(accepts(text.data, cases[i].fit[k]));
        for (int k = 0; k < 6 && cases[i].misfit[k]; k++) assert_false(accepts(text.data, cases[i].misfit[k]));
        base_buffer_free(&text);
    }
}

/* Without `strict` no schema is refused: what cannot be honoured is dropped. */
static void test_not_strict(void **state) {
    (void)state;
    static const struct {
        const char *schema, *fit;
    } cases[] = {
        {"{\"type\": \"string\", \"pattern\": \"^(?=a)\"}", "\"b\""},
        {"{\"type\": \"integer\", \"multipleOf\": 3, \"maximum\": 9}", "4"},
        {"{\"type\": \"array\", \"uniqueItems\": true}", "[1,1]"},
        {"{\"propertyNames\": {\"not\": {}}}", "{\"a\":1}"},
        {"{\"if\": {\"required\": [\"a\"]}, \"then\": {}}", "1"},
        {"{\"patternProperties\": {\"a\": {}, \"b\": {}}}", "{\"b\":1}"},
        {"{\"type\": \"string\", \"pattern\": \"^(ab)+$\", \"maxLength\": 3}", "\"abab\""},
        {"{\"dependentSchemas\": {}}", "1"},
        {"{\"$ref\": \"http://x\"}", "[1]"},
        {"false", "1"},
        {"{\"allOf\": [{\"type\": \"string\"}, {\"type\": \"integer\"}]}", "\"x\""},
        {"{\"not\": {}}", "null"},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        rp_error p = {0};
        assert_null(grammar_of(cases[i].schema, true, &p));
        assert_int_equal(p.code, RP_ERR_UNSUPPORTED);
        p = (rp_error){0};
        char *gbnf = grammar_of(cases[i].schema, false, &p);
        if (!gbnf) fail_msg("%s: %s", cases[i].schema, p.message);
        assert_true(accepts(gbnf, cases[i].fit));
        base_free(gbnf);
    }
}

/* A schema of keywords that are drawn, with values that are right, wrong or of another keyword. */
static json_t *random_schema(tiny_random *r, int depth) {
    static const char *const keywords[] = {"type",
                                           "properties",
                                           "items",
                                           "anyOf",
                                           "allOf",
                                           "oneOf",
                                           "enum",
                                           "const",
                                           "$ref",
                                           "required",
                                           "minimum",
                                           "maximum",
                                           "exclusiveMinimum",
                                           "minLength",
                                           "maxLength",
                                           "pattern",
                                           "not",
                                           "if",
                                           "then",
                                           "else",
                                           "additionalProperties",
                                           "minItems",
                                           "maxItems",
                                           "uniqueItems",
                                           "contains",
                                           "multipleOf",
                                           "prefixItems",
                                           "patternProperties",
                                           "propertyNames",
                                           "dependentRequired",
                                           "minProperties",
                                           "maxProperties",
                                           "format",
                                           "nullable"};
    static const char *const values[] = {"true",
                                         "false",
                                         "null",
                                         "3",
                                         "0",
                                         "-1",
                                         "1e400",
                                         "99999999999999999999",
                                         "0.5",
                                         "\"a\"",
                                         "\"string\"",
                                         "\"object\"",
                                         "\"integer\"",
                                         "\"array\"",
                                         "\"strin\"",
                                         "\"#\"",
                                         "\"#/properties/a\"",
                                         "\"^[ab]\"",
                                         "\"(\"",
                                         "\"date\"",
                                         "[]",
                                         "{}",
                                         "[\"a\"]",
                                         "[\"a\",\"b\",3]",
                                         "[3,null]",
                                         "{\"a\":[\"b\"]}"};
    if (depth > 4 || tiny_random_below(r, 6) == 0) {
        const char *text = values[tiny_random_below(r, BASE_ARRAY_LEN(values))];
        return base_json_read(text, strlen(text), BASE_JSON_ANY);
    }
    json_t *schema = json_object();
    for (uint64_t n = tiny_random_below(r, 5); n > 0; n--) {
        const char *keyword = keywords[tiny_random_below(r, BASE_ARRAY_LEN(keywords))];
        json_t *one = random_schema(r, depth + 1), *value = NULL;
        switch (tiny_random_below(r, 4)) {
        case 0: value = json_pack("[o, o]", one, random_schema(r, depth + 1)); break;
        case 1: value = json_pack("{s:o, s:o}", "a", one, "b", random_schema(r, depth + 1)); break;
        default: value = one;
        }
        json_object_set_new(schema, keyword, value);
    }
    return schema;
}

/* Of tools that are not strict no schema is an error, whatever it is, and the rules make a grammar; a strict one is an
 * error that names its place, or makes a grammar. */
static void test_any_schema(void **state) {
    (void)state;
    tiny_random r = {test_seed("any_schema", 46)};
    const int rounds = test_rounds(1000);
    for (int i = 0; i < 2 * rounds; i++) {
        json_t *schema = random_schema(&r, 0);
        char *text = base_json_text(schema, 0);
        rp_error p = {0};
        char *gbnf = grammar_of(text, i % 2, &p);
        grammar *g = NULL;
        rp_error err;
        if (!gbnf && (i % 2 == 0 || p.code == RP_ERR_MEMORY || !strstr(p.message, "schema")))
            fail_msg("%s: %s", text, p.message);
        if (gbnf && grammar_new(&g, gbnf, &err)) fail_msg("%s: %s\n%s", text, err.message, gbnf);
        grammar_free(g);
        base_free(gbnf);
        base_free(text);
        json_decref(schema);
    }
}

/* An enum of any size; one whose grammar would be too large for the engine leaves its schema without rules. */
static void test_large_enums(void **state) {
    (void)state;
    static const size_t sizes[] = {1025, 8000, 24000};
    for (size_t i = 0; i < BASE_ARRAY_LEN(sizes); i++) {
        json_t *values = json_array(), *schema = json_pack("{s:{s:{s:o}}}", "properties", "p", "enum", values);
        rp_error p = {0};
        for (size_t k = 0; k < sizes[i]; k++) json_array_append_new(values, json_sprintf("value %zu", k));
        char *text = json_dumps(schema, 0), *gbnf = grammar_of(text, false, &p);
        assert_non_null(gbnf);
        assert_true(accepts(gbnf, "{\"p\":\"value 1024\"}"));
        assert_true(accepts(gbnf, "{\"p\":\"value\"}") == (i == 2));
        base_free(gbnf);
        free(text); /* jansson's */
        json_decref(schema);
    }
}

/* What is dropped is named by its place, once; the rest of the schema is enforced. */
static void test_dropped(void **state) {
    (void)state;
    static const struct {
        const char *schema, *dropped, *fit, *misfit;
    } cases[] = {
        {"{\"type\": \"integer\", \"minimum\": 5, \"maximum\": 2}", "schema.minimum (", "1", "3"},
        {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"strin\", \"minimum\": 1}, \"b\": {\"const\": "
         "1}}, \"required\": [\"b\"]}",
         "schema.properties.a.type (", "{\"a\":1,\"b\":1}", "{\"a\":0,\"b\":1}"},
        {"{\"type\": \"string\", \"const\": 5}", "schema.const (", "\"x\"", "5"},
        {"{\"type\": \"string\", \"enum\": [5, 6]}", "schema.enum (", "\"x\"", "5"},
        {"{\"type\": \"integer\", \"anyOf\": [{\"type\": \"string\"}, false]}", "schema.anyOf (", "1", "\"\""},
        {"{\"allOf\": [{\"type\": \"string\", \"pattern\": \"^a\"}, {\"pattern\": \"b\"}]}",
         "schema.allOf (two of 'pattern'", "\"ac\"", "\"b\""},
        {"{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}}, \"required\": [3]}", "schema.required (",
         "{}", "{\"b\":1}"},
        {"{\"type\": \"array\", \"items\": {\"const\": 1}, \"minItems\": 4, \"maxItems\": 2}", "schema.minItems (",
         "[1]", "[1,1,1]"},
        {"{\"properties\": {\"a\": {\"$ref\": \"#/properties/a\"}}}", "schema (it has a $ref to itself)", "{\"b\":1}",
         "1"},
        {"{\"type\": \"array\", \"items\": 3}", "schema.items (", "[null]", "1"},
        {"{\"type\": \"array\", \"items\": {\"type\": \"array\", \"items\": {\"maxLength\": 524288, \"minLength\": "
         "1}}}",
         "schema.items.items.maxLength (", "[[\"a\"]]", "[[\"\"]]"},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        char rule[JSON_GRAMMAR_RULE_BYTES];
        rp_error p = {0};
        json_t *root = json_loads(cases[i].schema, JSON_DECODE_ANY, NULL);
        json_grammar *g = json_grammar_new();
        assert_int_equal(json_grammar_add(g, root, "schema", false, rule, &p), 0);
        assert_int_equal(base_buffer_printf(json_grammar_text(g), "root ::= %s\n", rule), 0);
        const char *dropped = json_string_value(json_array_get(json_grammar_dropped(g), 0)),
                   *gbnf = json_grammar_text(g)->data;
        if (!dropped || strncmp(dropped, cases[i].dropped, strlen(cases[i].dropped)) != 0)
            fail_msg("%s: %s", cases[i].schema, dropped ? dropped : "nothing");
        assert_int_equal(json_array_size(json_grammar_dropped(g)), 1);
        if (!accepts(gbnf, cases[i].fit) || accepts(gbnf, cases[i].misfit)) fail_msg("%s:\n%s", cases[i].schema, gbnf);
        json_grammar_free(g);
        json_decref(root);
    }
}

/* Of any number: a multiple is accepted, another number refused. */
static void test_multiples(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t a; /* of a / 1000 */
    } cases[] = {
        {"1", 1000},
        {"3", 3000},
        {"8", 8000},
        {"17", 17000},
        {"60", 60000},
        {"640", 640000},
        {"0.5", 500},
        {"0.25", 250},
        {"0.04", 40},
        {"1.2", 1200},
        {"0.003", 3},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        char schema[128];
        rp_error p = {0};
        snprintf(schema, sizeof(schema), "{\"type\": \"number\", \"multipleOf\": %s}", cases[i].text);
        char *gbnf = grammar_of(schema, true, &p);
        if (!gbnf) fail_msg("%s: %s", schema, p.message);
        for (int64_t k = 0; k < 4000; k += 1 + k / 40) {
            int64_t n = k % 3 == 0 ? k * cases[i].a : k * 7; /* of thousandths */
            char number[48];
            int places = 3;
            int64_t unit = 1000;
            while (places > 0 && n % (10 * (1000 / unit)) == 0) places--, unit /= 10;
            if (places == 0) snprintf(number, sizeof(number), "%lld", (long long)(n / 1000));
            else
                snprintf(number, sizeof(number), "%lld.%0*lld", (long long)(n / 1000), places,
                         (long long)(n % 1000 / (1000 / unit)));
            if (accepts(gbnf, number) != (n % cases[i].a == 0))
                fail_msg("%s of multiples of %s:\n%s", number, cases[i].text, gbnf);
        }
        base_free(gbnf);
    }
}

/* Each allocation fails in turn, those of JSON values too, as in a server: an error, or the same grammar. */
static void test_failing_allocations(void **state) {
    (void)state;
    static const char schema[] =
        "{\"allOf\": [{\"type\": [\"integer\", \"object\"], \"required\": [\"a\"], \"properties\": {\"a\": {\"enum\": "
        "[1, 2]}}},"
        " {\"type\": [\"object\", \"string\"], \"required\": [\"b\"], \"properties\": {\"a\": {\"enum\": [2, 3]}, "
        "\"b\": {}}},"
        " {\"if\": {\"properties\": {\"b\": {\"const\": 1}}, \"required\": [\"b\"]}, \"then\": {\"required\": "
        "[\"c\"]}}],"
        " \"properties\": {\"b\": {\"enum\": [1, 2]}, \"c\": {\"type\": \"array\", \"contains\": {\"const\": 7}}}}";
    json_set_alloc_funcs(base_alloc, base_free);
    for (int strict = 0; strict < 2; strict++) {
        rp_error err = {0};
        base_alloc_count();
        char *whole = grammar_of(schema, strict, &err);
        const uint64_t n = base_alloc_count();
        assert_non_null(whole);
        json_t *root = base_json_read(schema, strlen(schema), BASE_JSON_ANY);
        for (uint64_t i = 1; i <= n; i++) {
            char rule[JSON_GRAMMAR_RULE_BYTES];
            base_alloc_fail_at(i, 0);
            json_grammar *g = json_grammar_new();
            err = (rp_error){0};
            const int rc = g ? json_grammar_add(g, root, "schema", strict, rule, &err) : RP_ERR_MEMORY;
            base_alloc_fail_at(0, 0);
            assert_true(rc == RP_OK || rc == RP_ERR_MEMORY);
            if (!rc && strncmp(json_grammar_text(g)->data, whole, json_grammar_text(g)->len) != 0)
                fail_msg("allocation %d of %d: another grammar", (int)i, (int)n);
            json_grammar_free(g);
        }
        json_decref(root);
        base_free(whole);
    }
    json_set_alloc_funcs(malloc, free);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts),
                                       cmocka_unit_test(test_ranges),
                                       cmocka_unit_test(test_reals),
                                       cmocka_unit_test(test_multiples),
                                       cmocka_unit_test(test_not_strict),
                                       cmocka_unit_test(test_any_schema),
                                       cmocka_unit_test(test_dropped),
                                       cmocka_unit_test(test_large_enums),
                                       cmocka_unit_test(test_failing_allocations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
