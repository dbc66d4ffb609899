#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`: every field of docs/fields.md does what its row says. Those with an effect, or silently without one, are in an example here
that gets an answer without a warning; a warning names the others, or the request is refused."""
import copy
import datetime
import glob
import json
import os
import re
import unittest

import field_table
from server_process import SOURCE, ServerCase

TEXT = "Tom had a red ball."
TOMORROW = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1]}}}
USER = {"role": "user", "content": "x"}
PART, CACHED = {"type": "text", "text": "x"}, {"type": "ephemeral", "ttl": "5m", "scope": None}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA}
CUSTOM = {"type": "custom", "custom": {"name": "c", "description": "d", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}}}}
SAMPLING = {"temperature": 0.5, "top_p": 0.9, "presence_penalty": 0.1, "frequency_penalty": 0.1, "seed": 1, "stop": ["y"], "logit_bias": {"1": 1}}
EXTRAS = {"min_p": 0.1, "top_k": 5, "typical_p": 0.9, "repeat_penalty": 1.1, "repeat_last_n": 8, "ignore_eos": True, "lora": []}
OPENAI = {"model": "default", "n": 1, "stream": False, "user": "u", **SAMPLING}
STREAM = {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}}
FORM = {"type": "json_schema", "schema": SCHEMA}
GEMINI, EMBED = "/v1beta/models/default:generateContent", "/v1beta/models/default:embedContent"
INTERACT = "/v1/interactions"
OPTIONS = {"num_predict": 1, "temperature": 0.5, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.9, "repeat_penalty": 1.1, "repeat_last_n": 8,
           "presence_penalty": 0.1, "frequency_penalty": 0.1, "seed": 1, "stop": ["y"], "num_ctx": 64, "num_batch": 8, "num_gpu": 0, "main_gpu": 0,
           "num_thread": 1, "num_keep": 0, "use_mmap": True, "use_mlock": False, "numa": False, "low_vram": False, "f16_kv": True, "vocab_only": False}
OLLAMA = {"model": "default", "stream": False, "options": OPTIONS, "keep_alive": "5m", "think": False, "logprobs": True, "top_logprobs": 1}


def documents(marks):
    source = [{"type": "text", "media_type": "text/plain", "data": TEXT}, {"type": "content", "content": [{**PART, **marks}]}, {"type": "content", "content": TEXT}]
    return [{"type": "document", "title": "t", "context": "c", "source": s} for s in source] + [
        {"type": "search_result", "source": "s", "title": "t", "content": [{**PART, **marks}]}]


def anthropic_messages():
    marks = {"cache_control": None, "citations": None}
    blocks = [PART, *documents(marks)]
    calls = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}, "caller": {"type": "direct"}}]
    result = [{**b, **marks} for b in blocks]
    for b in result:
        b.pop("citations" if b["type"] == "text" else "none", None)
    return [{"role": "user", "content": [{**b, "cache_control": None, "citations": None} for b in blocks] + [{**PART, "citations": [], "cache_control": CACHED}]},
            {"role": "assistant", "content": calls},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": False, "content": result}]}]


ANTHROPIC = {"model": "default", "messages": anthropic_messages(), "system": [{**PART, "citations": None, "cache_control": CACHED}], "cache_control": CACHED,
             "thinking": {"type": "enabled", "budget_tokens": 10, "display": "omitted"}, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
             "tools": [{"type": "custom", "name": "f", "description": "d", "input_schema": SCHEMA, "strict": False, "cache_control": CACHED, "allowed_callers": ["direct"],
                        "defer_loading": False, "eager_input_streaming": False, "input_examples": []}],
             "output_config": {"effort": "low", "task_budget": {"type": "tokens", "total": 1000}}, "context_management": None}

# By title: a path and a body each. What they have inside is looked up in the table.
EXAMPLES = {
    "OpenAI: chat completions": [
        ("/v1/chat/completions", {**OPENAI, "max_tokens": 1, "max_completion_tokens": 1, "logprobs": True, "top_logprobs": 1, "reasoning_effort": "low", "parallel_tool_calls": True,
                                  "tools": [{"type": "function", "function": {**FUNCTION, "strict": False}, "cache_control": None}, CUSTOM], "tool_choice": {"type": "allowed_tools", "allowed_tools": {
                                      "mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]}},
                                  "prompt_cache_key": "k", "prompt_cache_options": {"mode": "explicit", "ttl": "30m"}, "safety_identifier": "s", "metadata": {},
                                  "store": False, "service_tier": "auto", "verbosity": "low", "modalities": ["text"], "function_call": "none",
                                  "messages": [{**USER, "name": "n", "content": [{**PART, "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"}}]},
                                               {"role": "assistant", "refusal": "no", "reasoning_content": "Hm.", "reasoning": None, "thinking": None, "audio": None, "annotations": [],
                                                "id": "m", "parsed": None, "reasoning_details": [], "cache_control": None, "tool_calls": [
                                                   {"id": "1", "type": "function", "index": 0, "extra_content": {}, "cache_control": None, "function": {
                                                       "name": "f", "arguments": "{}", "parsed_arguments": {}}},
                                                   {"id": "2", "type": "custom", "custom": {"name": "c", "input": "x"}}]},
                                               {"role": "tool", "tool_call_id": "1", "content": "y"},
                                               {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, USER]}),
        ("/v1/chat/completions", {"messages": [USER], "max_tokens": 1, "response_format": {"type": "json_schema", "json_schema": {
            "name": "n", "description": "d", "strict": True, "schema": SCHEMA}}, **STREAM}),
        ("/v1/chat/completions", {"messages": [USER], "max_tokens": 1, "tools": [{"type": "function", "function": FUNCTION}, CUSTOM],
                                  "tool_choice": {"type": "function", "function": {"name": "f"}}}),
        ("/v1/chat/completions", {"messages": [USER], "max_tokens": 1, "tools": [CUSTOM], "tool_choice": {"type": "custom", "custom": {"name": "c"}}}),
        ("/v1/chat/completions", {**EXTRAS, "messages": [USER], "max_tokens": 1, "grammar": "root ::= [a-z]*", "chat_template_kwargs": {"a": 1}}),
        ("/v1/chat/completions", {"messages": [USER], "max_tokens": 1, "json_schema": SCHEMA, "prompt_cache_retention": "24h", "return_progress": True, "n_cache_reuse": 0}),
        ("/v1/chat/completions", {"messages": [USER, {"role": "assistant", "content": "x"}], "max_tokens": 1, "continue_final_message": True}),
    ],
    "OpenAI: responses": [
        ("/v1/responses", {"model": "default", "instructions": "x", "stream": False, "max_output_tokens": 1, "temperature": 0.5, "top_p": 0.9, "top_logprobs": 1, "store": False,
                           "include": ["message.output_text.logprobs"], "truncation": "auto", "parallel_tool_calls": True, "previous_response_id": None,
                           "text": {"format": {"type": "text"}, "verbosity": "low"}, "reasoning": {"effort": "low", "summary": "auto", "generate_summary": None, "context": None},
                           "prompt_cache_key": "k", "prompt_cache_retention": "24h", "user": "u", "safety_identifier": "s", "metadata": {},
                           "service_tier": "auto", "stream_options": {"include_obfuscation": False}, "max_tool_calls": 1, "client_metadata": {},
                           "tools": [{"type": "function", **FUNCTION, "strict": False, "defer_loading": False, "output_schema": {}},
                                     {"type": "custom", "name": "c", "description": "d", "format": {"type": "text"}, "defer_loading": False},
                                     {"type": "namespace", "name": "g", "description": "d", "tools": [{"type": "function", **FUNCTION}]}],
                           "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
                           "input": [{"type": "additional_tools", "id": "a", "role": "developer", "tools": [{"type": "function", "name": "h", "parameters": SCHEMA}]},
                                     {**USER, "type": "message", "content": [{"type": "input_text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"}}]},
                                     {"type": "reasoning", "id": "r", "status": "completed", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": None,
                                      "content": [{"type": "reasoning_text", "text": "Hm."}]},
                                     {"type": "message", "id": "m", "status": "completed", "phase": "final", "role": "assistant", "content": [
                                         {"type": "output_text", "text": "x", "annotations": [], "logprobs": [], "parsed": None}, {"type": "refusal", "refusal": "no"}]},
                                     {"type": "function_call", "call_id": "1", "name": "f", "namespace": None, "arguments": "{}", "parsed_arguments": {}, "created_by": None,
                                      "execution": None},
                                     {"type": "custom_tool_call", "call_id": "2", "name": "c", "namespace": None, "input": "x"},
                                     {"type": "function_call_output", "call_id": "1", "name": None, "namespace": None, "output": [
                                         {"type": "input_text", "text": "y", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"}}]},
                                     {"type": "custom_tool_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "y"}]}]}),
        ("/v1/responses", {"input": "x", "max_output_tokens": 1, "text": {"format": {"name": "n", "description": "d", "strict": True, **FORM}}}),
        ("/v1/responses", {"input": "x", "max_output_tokens": 1, "prompt_cache_options": {"mode": "implicit", "ttl": "12h", "comparison_response_id": None}, "tools": [{"type": "custom", "name": "c"}],
                           "tool_choice": {"type": "custom", "name": "c"}}),
    ],
    "OpenAI: completions": [
        ("/v1/completions", {**OPENAI, "prompt": "x", "max_tokens": 1, "logprobs": 1, "echo": True, "best_of": 1, "suffix": ""}),
        ("/v1/completions", {"prompt": "x", "max_tokens": 1, **STREAM}),
    ],
    "OpenAI: embeddings": [("/v1/embeddings", {"model": "default", "input": "x", "dimensions": 4, "encoding_format": "base64", "user": "u"})],
    "Anthropic: messages": [
        ("/v1/messages", {**ANTHROPIC, "max_tokens": 1, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop_sequences": ["y"], "stream": False, "metadata": {"user_id": "u"},
                          "service_tier": "auto", "inference_geo": "x", "container": None, "diagnostics": {"previous_message_id": None}}),
        ("/v1/messages?beta=true", {"model": "default", "messages": [USER], "max_tokens": 1, "output_config": {"format": FORM}, "output_format": FORM, "system": "x",
                                    "thinking": {"type": "between_tools"}}),
        ("/v1/messages", {"model": "default", "max_tokens": 1, "tools": ANTHROPIC["tools"], "tool_choice": {"type": "tool", "name": "f"}, "messages": [
            USER, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, PART]}, USER]}),
        ("/v1/messages/count_tokens", ANTHROPIC),
    ],
    "Gemini: generateContent, countTokens": [
        (GEMINI, {"model": "models/default", "systemInstruction": {"role": "system", "parts": [{"text": "x"}]}, "safetySettings": [], "labels": {}, "cachedContent": None, "contents": [
            {"role": "user", "parts": [{"text": "x", "partMetadata": {}}]},
            {"role": "model", "parts": [{"text": "Hm.", "thought": True, "thoughtSignature": "eA=="},
                                        {"functionCall": {"id": "1", "name": "f", "args": {"a": 1}, "partialArgs": [], "willContinue": False}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "1", "name": "f", "response": {"a": 1}, "willContinue": False, "scheduling": "SILENT"}}]}],
                  "tools": [{"functionDeclarations": [{**FUNCTION, "behavior": "BLOCKING", "response": {}, "responseJsonSchema": {}},
                                                      {"name": "g", "parametersJsonSchema": SCHEMA}]}],
                  "toolConfig": {"functionCallingConfig": {"mode": "AUTO", "allowedFunctionNames": []}, "retrievalConfig": {}},
                  "generationConfig": {"temperature": 0.5, "topP": 0.9, "topK": 5, "maxOutputTokens": 1, "candidateCount": 1, "presencePenalty": 0.1, "frequencyPenalty": 0.1, "seed": 1,
                                       "stopSequences": ["y"], "responseModalities": ["TEXT"], "responseLogprobs": True, "logprobs": 1,
                                       "thinkingConfig": {"includeThoughts": False, "thinkingBudget": 0, "thinkingLevel": "LOW"}}}),
        (GEMINI, {"contents": [{"parts": [{"text": "x"}]}], "generationConfig": {"maxOutputTokens": 1, "responseMimeType": "application/json", "responseSchema": SCHEMA}}),
        (GEMINI, {"contents": [{"parts": [{"text": "x"}]}], "generationConfig": {"maxOutputTokens": 1, "responseMimeType": "application/json", "responseJsonSchema": SCHEMA}}),
        ("/v1beta/models/default:countTokens", {"contents": [{"parts": [{"text": "x"}]}]}),
    ],
    "Gemini: interactions": [
        (INTERACT, {"model": "models/default", "system_instruction": "x", "previous_interaction_id": None, "store": False, "stream": False,
                    "labels": {}, "safety_settings": [], "service_tier": "standard", "response_modalities": ["text"], "response_format": [{"type": "text", "mime_type": "text/plain"}],
                    "tools": [{"type": "function", **FUNCTION}],
                    "generation_config": {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 1, "seed": 1, "stop_sequences": ["y"], "thinking_level": "low",
                                          "thinking_summaries": "none", "tool_choice": {"allowed_tools": {"mode": "auto", "tools": ["f"]}}},
                    "input": [{**PART, "annotations": []}, {"type": "user_input", "content": [{**PART, "annotations": []}]},
                              {"type": "thought", "signature": "eA==", "summary": [{**PART, "annotations": []}, {
                                  "type": "image", "data": "eA==", "mime_type": "image/png", "uri": None, "resolution": None}]},
                              {"type": "model_output", "error": None, "content": [{**PART, "annotations": []}]},
                              {"type": "function_call", "id": "1", "name": "f", "arguments": {"a": 1}},
                              {"type": "function_result", "call_id": "1", "name": "f", "is_error": False, "result": [{**PART, "annotations": []}]},
                              {"type": "function_call", "id": "2", "name": "f", "arguments": {"a": 1}},
                              {"type": "function_result", "call_id": "2", "result": {"a": 1}}]}),
        (INTERACT, {"input": {**PART, "annotations": []}, "generation_config": {"max_output_tokens": 1}, "response_format": {"type": "text", "mime_type": "application/json", "schema": SCHEMA}}),
        (INTERACT, {"input": "x", "generation_config": {"max_output_tokens": 1}, "response_mime_type": "application/json", "response_format": [{"type": "text", "schema": SCHEMA}]}),
    ],
    "Gemini: embedContent, batchEmbedContents": [
        (EMBED, {"model": "models/default", "content": {"role": "user", "parts": [{"text": "x"}]}, "outputDimensionality": 4, "taskType": "RETRIEVAL_QUERY", "title": "t"}),
        ("/v1beta/models/default:batchEmbedContents", {"requests": [{"model": "models/default", "content": {"parts": [{"text": "x"}]}}]})],
    "Gemini: cachedContents": [
        ("/v1beta/cachedContents", {"model": "models/default", "contents": [{"role": "user", "parts": [{"text": "x"}]}], "ttl": "60s", "displayName": "d", "kmsKeyName": None,
                                    "systemInstruction": {"role": "system", "parts": [{"text": "x"}]}, "tools": [{"functionDeclarations": [FUNCTION]}],
                                    "toolConfig": {"functionCallingConfig": {"mode": "AUTO", "allowedFunctionNames": []}, "retrievalConfig": {}}}),
        ("/v1beta/cachedContents", {"model": "models/default", "contents": [{"parts": [{"text": "x"}]}], "expireTime": TOMORROW}),
    ],
    "Ollama: generate": [
        ("/api/generate", {**OLLAMA, "prompt": "x", "system": "x", "format": SCHEMA, "context": [1], "raw": False, "suffix": ""})],
    "Ollama: chat": [
        ("/api/chat", {**OLLAMA, "format": SCHEMA, "messages": [
            USER, {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [
                {"id": "1", "type": "function", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}}]},
            {"role": "tool", "tool_name": "f", "name": "f", "tool_call_id": "1", "content": "y"}]}),
        ("/api/chat", {"model": "default", "stream": False, "options": {"num_predict": 1}, "messages": [USER], "tools": [{"type": "function", "function": {**FUNCTION, "strict": False}}]}),
    ],
    "Ollama: embed, embeddings": [
        ("/api/embed", {"model": "default", "input": "x", "truncate": True, "dimensions": 4, "options": {}, "keep_alive": "5m"}),
        ("/api/embeddings", {"model": "default", "prompt": "x", "options": {}, "keep_alive": "5m"})],
    "Ollama: show": [("/api/show", {"model": "default", "options": {}, "system": "x", "template": "x", "verbose": True})],
    "llama.cpp: completion, infill": [
        ("/completion", {**SAMPLING, **EXTRAS, "prompt": "x", "stream": False, "n_predict": 1, "max_tokens": 1, "n_probs": 1, "cache_prompt": True, "model": "default", "return_tokens": True,
                         "grammar": "root ::= [a-z]*", "id_slot": -1, "n_keep": 0, "min_keep": 0, "timings_per_token": False, "return_progress": True, "n_cache_reuse": 256,
                         "post_sampling_probs": False, "response_fields": []}),
        ("/completions", {"prompt": "x", "n_predict": 1, "n_cmpl": 1, "json_schema": SCHEMA})],
    "llama.cpp: tokenize, detokenize, apply-template, embedding, rerank": [
        ("/tokenize", {"content": "x", "add_special": True, "parse_special": True, "with_pieces": True}), ("/detokenize", {"tokens": [1]}), ("/apply-template", {"messages": [USER]}),
        ("/embedding", {"content": "x", "embd_normalize": 2, "model": "default"}), ("/rerank", {"query": "x", "documents": ["y"], "top_n": 1, "return_documents": True, "raw_scores": False, "model": "default"})],
}
# In no example that gets an answer: the model that the tests have cannot fill in a gap.
ELSEWHERE = {"input_prefix", "input_suffix", "input_extra", "input_extra[].filename", "input_extra[].text"}
# Objects of any names, or left out where they are not understood.
FREE = {"chat_template_kwargs", "json_schema"}
# What a request needs, for a field that is not in it yet.
LEAST = {
    "OpenAI: chat completions": ("/v1/chat/completions", {"messages": [USER], "max_tokens": 1}),
    "OpenAI: responses": ("/v1/responses", {"input": [USER], "max_output_tokens": 1}),
    "Anthropic: messages": ("/v1/messages", {"model": "default", "messages": [USER], "max_tokens": 1}),
    "Gemini: generateContent, countTokens": (GEMINI, {"contents": [{"role": "user", "parts": [{"text": "x"}]}], "generationConfig": {"maxOutputTokens": 1}}),
    "Gemini: interactions": (INTERACT, {"input": [PART], "generation_config": {"max_output_tokens": 1}}),
    "Gemini: embedContent, batchEmbedContents": (EMBED, {"content": {"parts": [{"text": "x"}]}}),
    "Gemini: cachedContents": ("/v1beta/cachedContents", {"model": "models/default", "contents": [{"role": "user", "parts": [{"text": "x"}]}], "ttl": "60s"}),
    "Ollama: generate": ("/api/generate", {"model": "default", "prompt": "x", "stream": False, "options": {"num_predict": 1}}),
    "Ollama: chat": ("/api/chat", {"model": "default", "messages": [USER], "stream": False, "options": {"num_predict": 1}}),
    "llama.cpp: completion, infill": ("/completion", {"prompt": "x", "n_predict": 1}),
}
# Elements of arrays, by their type; of types with '*' one of them.
ELEMENTS = {
    "user": USER, "message": {"type": "message", **USER}, "assistant": {"role": "assistant", "content": "x"}, "function": {"type": "function", "name": "f", "function": {"name": "f"}}, "custom": {"type": "custom", "name": "c", "input_schema": {}},
    "document": {"type": "document", "source": {"type": "text", "data": "x"}}, "search_result": {"type": "search_result", "source": "s", "title": "t", "content": [PART]},
    "tool_result": {"type": "tool_result", "tool_use_id": "t"}, "tool_use": {"type": "tool_use", "id": "u", "name": "f", "input": {}}, "system": {"role": "system", "content": "x"}, "content": {"type": "content", "content": [PART]},
    "mcp_*": {"type": "mcp_call"}, "*_tool_result": {"type": "web_search_tool_result"}, "file_search*": {"type": "file_search"}, "web_search*": {"type": "web_search"},
}
# Of Gemini's interactions.
STEPS = {"document": {"type": "document", "data": "eA==", "mime_type": "application/pdf"}, "function_result": {"type": "function_result", "call_id": "t"}}
NEW = {"messages[]": {"role": "user"}, "parts[]": {}, "input[]": {"type": "message", "role": "user", "content": "x"}, "functionDeclarations[]": {"name": "f"},
       "tools[]": {"type": "function", "function": {"name": "f"}}, "thinking": {"type": "adaptive"}, "content[]": PART}
VALUES = {"enabled": True, "images": ["x"], "template": "x"}


def put(at, name, is_list, value):
    """In a list the element is the first one, which may be there already."""
    if is_list:
        old = at.get(name)
        at[name] = [value] + (old[1:] if isinstance(old, list) else [])
    else:
        at[name] = value


def request_of(title, path, verdict):
    """The least request with the field at the path, whose steps may have one type each."""
    route, body = copy.deepcopy(LEAST[title])
    at, all_steps = body, field_table.steps(path)
    for i, (name, is_list, types) in enumerate(all_steps):
        last = i == len(all_steps) - 1
        old = at.get(name)
        there = old[0] if is_list and isinstance(old, list) and old else old if not is_list else None
        if types:
            key = "role" if name == "messages" else "type"
            own = STEPS if title == "Gemini: interactions" else {}
            value = copy.deepcopy(own.get(types[0]) or ELEMENTS.get(types[0], {key: types[0].replace("*", "20250101"), "name": "w"}))
        elif last and not is_list:
            value = VALUES.get(name, "x")
        else:
            value = there if isinstance(there, dict) else copy.deepcopy(NEW.get(name + "[]" * is_list, {}))
        if title.startswith("Gemini") and name == "tools" and route != INTERACT:
            value = {} if "functionDeclarations" not in path else value if "functionDeclarations" in value else {"functionDeclarations": [{"name": "f"}]}
        if name == "parts" and verdict == "refused":
            value = {}  # in place of the text
        if name == "input" and types:
            at[name] = [value, USER]
        else:
            put(at, name, is_list, value)
        at = value
    if "<tool_use>" in path:
        body["messages"][0]["role"] = "assistant"
    if "<tool_result>" in path:  # the call that it is of
        body["messages"] = [USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}, *body["messages"]]
    if "<function_result>" in path:
        body["input"].insert(0, {"type": "function_call", "id": "t", "name": "f", "arguments": {}})
    if "<function_call_output>" in path or "<custom_tool_call_output>" in path:
        item = body["input"][0]
        body["input"] = [{"type": "function_call", "call_id": "t", "name": "f", "arguments": "{}"}, {**item, "call_id": "t", "output": item.get("output", "x")}]
    return route, body


def one_type_each(path):
    """'a[]<b/c>' -> 'a[]<b>', 'a[]<c>': each has a request of its own."""
    if "<" not in path:
        return [path]
    before, _, rest = path.partition("<")
    types, _, after = rest.partition(">")
    return [f"{before}<{t}>{more}" for t in types.split("/") for more in one_type_each(after)]


def fields_of(value, path=""):
    """Every field in a JSON value, as the table writes them: elements with their types or roles."""
    if isinstance(value, list):
        for one in value:
            label = one.get("role" if path.endswith("messages") and "role" in one else "type") if isinstance(one, dict) else None
            here = f"{path}[]" + (f"<{label}>" if isinstance(label, str) else "")
            yield from fields_of(one, here)
    elif isinstance(value, dict):
        label = value.get("type")
        label = f"<{label}>" if isinstance(label, str) and path and not path.endswith((">", "]")) else ""
        for name, inner in value.items():
            here = f"{path}{label}.{name}" if path else name
            yield here
            yield from fields_of(inner, here)


class Fields(ServerCase):
    def test_lists_of_the_dialects(self):
        """The fields that the server knows have rows: each name in the lists of src/server/dialects is a step of a path."""
        tables = field_table.tables()
        named = {name for table in tables for _, steps, _ in table.rows for name, _, _ in steps}
        pending = set() if any("interactions" in table.title.lower() for table in tables) else {"interactions_ask.c"}
        n_names = 0
        for file in sorted(glob.glob(os.path.join(SOURCE, "src", "server", "dialects", "*.c"))):
            with open(file, encoding="utf-8") as f:
                text = f.read()
            lists = re.findall(r"generation_known\((.*?)\);", text, re.S) + re.findall(r"#define \w*FIELDS.*?[^\\]\n", text, re.S)
            for table in re.findall(r"inside\[\] = \{(.*?)\n\};", text, re.S):
                lists += re.findall(r"\{\"[^\"]*\",(.*?)\}", table, re.S)
            names = set(" ".join(s for one in lists for s in re.findall(r"\"([^\"]*)\"", one)).split())
            n_names += len(names)
            camel = {name: name[0] + re.sub("_(.)", lambda m: m[1].upper(), name[1:]) for name in names}
            lost = sorted(name for name in names if name not in named and camel[name].lstrip("_") not in named)
            if os.path.basename(file) not in pending:
                with self.subTest(os.path.basename(file)):
                    self.assertEqual(lost, [])
        self.assertGreater(n_names, 300)

    def test_examples(self):
        """Answered without a warning; together they have every field that is honoured or silent, and no other."""
        for table in field_table.tables():
            self.assertIn(table.title, EXAMPLES, "add examples of this table's fields")
            seen = set()
            for route, body in EXAMPLES[table.title]:
                reply = self.server.post(route, body)
                with self.subTest(f"{table.title}: {route}"):
                    self.assertEqual(reply.status, 200, reply.body)
                if not body.get("stream"):
                    report = json.loads(reply.body)
                    told = (report.get("reprise") or {}).get("warnings", []) if isinstance(report, dict) else []
                    with self.subTest(f"{table.title}: {route}"):
                        self.assertEqual(told, [])
                for path in fields_of(body):
                    with self.subTest(f"{table.title}: {path} is in an example that gets no warning"):
                        self.assertIn(table.verdict(path), ("honoured", "silent"))
                    seen.add(path)
            own = [field_table.steps(path) for path in seen]
            for path, steps, verdict in table.rows:
                if verdict in ("warning", "refused") or path.endswith(".*") or path in ELSEWHERE:
                    continue
                found = any(len(o) == len(steps) and all(field_table.fits(r, s) for r, s in zip(steps, o)) for o in own)
                with self.subTest(f"{table.title}: no example has {path}"):
                    self.assertTrue(found)

    def test_warnings_and_refusals(self):
        for table in field_table.tables():
            for row, _, verdict in table.rows:
                for path in one_type_each(row) if verdict in ("warning", "refused") else []:
                    route, body = request_of(table.title, path, verdict)
                    reply = self.server.post(route, body)
                    last, _, types = field_table.steps(path)[-1]
                    names = [last, *(n for n, _, _ in field_table.steps(path)[-2:-1] if last == "enabled"), *(b["type"] for b in ELEMENTS.values() if types and b.get("type", "").startswith(types[0].strip("*"))), *types]
                    with self.subTest(f"{table.title}: {path}"):
                        self.assertEqual(reply.status == 200, verdict == "warning", (body, reply.body))
                        told = reply.json.get("reprise", {}).get("warnings", []) if verdict == "warning" else [reply.body.decode()]
                        self.assertTrue(any(n.strip("*") in t for n in names for t in told), (names, told))
                        self.assertIn(reply.status, (200, 400, 422, 501))

    def test_honoured_fields_are_read(self):
        """A value of a type that no field has is refused where the field is honoured: it has been read."""
        for table in field_table.tables():
            for route, body in EXAMPLES[table.title]:
                for name in body:
                    is_schema = route == INTERACT and name == "response_format"
                    if table.verdict(name) != "honoured" or name in FREE or is_schema:
                        continue
                    reply = self.server.post(route, {**body, name: 1.5 if isinstance(body[name], dict) else {"no such": ["thing"]}})
                    with self.subTest(f"{table.title}: {route}: {name}"):
                        self.assertIn(reply.status, (400, 422), reply.body)


if __name__ == "__main__":
    unittest.main()
