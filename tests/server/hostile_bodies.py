# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests that take much more memory than they have bytes, for any size: by hand, and random ones."""
import json

WORDS = "the town of Lisbon is old. "


def filled(before, unit, after, size):
    """before, then unit as often as it fits, then after."""
    return before + unit * max((size - len(before) - len(after)) // len(unit), 1) + after


def worst(size):
    """(path, body), each of about so many bytes."""
    chat, text = '{"messages":[{"role":"user","content":"x"}],"max_tokens":1,', WORDS * (size // len(WORDS) - 4)
    user = {"role": "user", "content": text}
    tool = {"type": "function", "function": {"name": "f%d", "description": "d", "parameters": {
        "type": "object", "properties": {"a": {"enum": [f"v{i}" for i in range(50)]}}}}}
    return [
        ("/tokenize", json.dumps({"content": text, "with_pieces": True})),
        ("/detokenize", filled('{"tokens":[', "7,", "7]}", min(size, 1 << 21))),
        ("/apply-template", json.dumps({"messages": [user]})),
        ("/v1/chat/completions", json.dumps({"messages": [user], "max_tokens": 1})),
        ("/v1/chat/completions", filled(chat + '"metadata":[', "{},", "{}]}", size)),
        ("/v1/chat/completions", filled(chat + '"metadata":[', "[[[[]]]],", "0]}", size)),
        ("/v1/chat/completions", filled(chat + '"metadata":"', "\\u0041", '"}', size)),
        ("/v1/chat/completions", filled('{"max_tokens":1,"messages":[', '{"role":"user","content":"a"},', '{"role":"user","content":"a"}]}', size)),
        ("/v1/chat/completions", filled(chat + '"tools":[', json.dumps(tool) + ",", json.dumps(tool) + "]}", size)),
        ("/v1/chat/completions", filled(chat + '"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"enum":[',
                                        '"ab","cd",', '"x"]}}}}', size)),
        *(("/v1/chat/completions", filled(chat + '"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":' + before, unit, after + "}}}", size))
          for before, unit, after in (('{"const":[', "0,0.5,1e400,", '1],"uniqueItems":true}'), ('{"type":"array","uniqueItems":true,"items":{"enum":[', "0.5,1.5,2.5,", "1]}}"),
                                      ('{"enum":[' + "0.5,1," * (size // 12) + '2],"allOf":[', "{},", '{"type":"string"}]}'),
                                      ('{"enum":[' + "0.5,1," * (size // 12) + '2],"allOf":[{"enum":[', "3.5,", '"x"]}]}'),
                                      ('{"enum":["' + "a" * 1000 + '"],"type":[', '"string",', '"null"]}'))),
        ("/v1/chat/completions", filled(chat + '"grammar":"root ::= ', '\\"a\\" | ', '\\"b\\""}', size)),
        ("/v1/chat/completions", filled(chat + '"stop":[', '"a",', '"b"]}', size)),
        ("/v1/chat/completions", filled(chat + '"logit_bias":{', '"1":1,', '"2":1}}', size)),
        ("/v1/completions", filled('{"max_tokens":1,"prompt":[', "7,", "7]}", size)),
        ("/v1/completions", filled('{"max_tokens":1,"prompt":[', '"a",', '"a"]}', size)),
        ("/v1/completions", filled('{"max_tokens":1,"prompt":[', "[7],", "[7]]}", size)),
        ("/v1/messages", filled('{"model":"x","max_tokens":1,"system":[', '{"type":"text","text":"a"},', '{"type":"text","text":"a"}],'
                                '"messages":[{"role":"user","content":"x"}]}', size)),
        ("/v1/responses", filled('{"max_output_tokens":1,"input":[', '{"role":"user","content":"a"},', '{"role":"user","content":"a"}]}', size)),
        ("/v1/embeddings", filled('{"input":[', '"a",', '"a"]}', size)),
        ("/v1/rerank", filled('{"query":"a","documents":[', '"a",', '"a"]}', size)),
        ("/v1beta/models/default:generateContent", filled('{"contents":[{"parts":[', '{"text":"a"},', '{"text":"a"}]}]}', size)),
        ("/v1/prompts", json.dumps({"prompt": filled("<prompt>", "<user>a</user>", "</prompt>", size * 3 // 4), "max_tokens": 1})),
        ("/api/chat", filled('{"model":"x","stream":false,"messages":[', '{"role":"user","content":"a"},', '{"role":"user","content":"a"}]}', size)),
    ]


FIELDS = ("messages", "prompt", "content", "input", "contents", "system", "tools", "stop", "grammar", "response_format", "logit_bias", "metadata",
          "documents", "query", "tokens", "max_tokens", "chat_template_kwargs", "functions", "parts", "text", "role", "type", "schema", "json_schema")


def bomb(rng, size):
    """A random body of up to so many bytes: a few values, one of which is repeated until it is full."""
    def value(depth):
        kind = rng.randrange(10)
        if depth > 4 or kind < 3:
            return rng.choice(['""', '"a"', "0", "7", "-1", "1e9", "null", "true", "[]", "{}", '"' + "\\u00e9" * rng.randrange(9) + '"', '"user"', '"text"'])
        if kind < 6:
            return "[" + ",".join(value(depth + 1) for _ in range(rng.randrange(4))) + "]"
        return "{" + ",".join(f'"{name}":{value(depth + 1)}' for name in rng.sample(FIELDS, rng.randrange(1, 4))) + "}"

    name = rng.choice(FIELDS)
    before = "{" + "".join(f'"{other}":{value(1)},' for other in rng.sample([f for f in FIELDS if f != name], rng.randrange(4))) + f'"{name}":'
    depth = rng.choice((1, 1, 1, 2, 50))
    return filled(before + "[" * depth, value(1) + ",", value(1) + "]" * depth + "}", rng.randrange(size // 8, size))
