#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Command lines of curl as the documentation of Ollama and of llama.cpp's server has them work unchanged: most have no Content-Type of their own.

--connect-to alone is added: it leads their ports to this server's.
"""
import json
import shlex
import shutil
import subprocess
import unittest

from server_process import WAIT_S, ServerCase

# Each line, and a field of its answer, or of the last line of one that is streamed.
OLLAMA = [
    ("""curl http://localhost:11434/api/generate -d '{"model": "llama3.2", "prompt": "Why is the sky blue?"}'""", "done_reason"),
    ("""curl http://localhost:11434/api/generate -d '{"model": "llama3.2", "prompt": "Why is the sky blue?", "stream": false}'""", "response"),
    ("""curl http://localhost:11434/api/generate -d '{"model": "llama3.2", "prompt": "What color is the sky at different times of the day? Respond using JSON",
         "format": "json", "stream": false, "options": {"num_predict": 40}}'""", "response"),
    ("""curl -X POST http://localhost:11434/api/generate -H "Content-Type: application/json" -d '{"model": "llama3.1:8b", "stream": false,
         "prompt": "Ollama is 22 years old and is busy saving the world. Respond using JSON", "options": {"num_predict": 40}, "format": {"type": "object",
         "properties": {"age": {"type": "integer"}, "available": {"type": "boolean"}}, "required": ["age", "available"]}}'""", "response"),
    ("""curl http://localhost:11434/api/generate -d '{"model": "llama3.2", "prompt": "Why is the sky blue?", "stream": false, "options": {"num_keep": 5,
         "seed": 42, "num_predict": 100, "top_k": 20, "top_p": 0.9, "min_p": 0.0, "typical_p": 0.7, "repeat_last_n": 33, "temperature": 0.8,
         "repeat_penalty": 1.2, "presence_penalty": 1.5, "frequency_penalty": 1.0, "penalize_newline": true, "stop": ["\\n", "user:"], "numa": false,
         "num_ctx": 1024, "num_batch": 2, "num_gpu": 1, "main_gpu": 0, "use_mmap": true, "num_thread": 8}}'""", "response"),
    ("""curl http://localhost:11434/api/generate -d '{"model": "mistral", "prompt": "[INST] why is the sky blue? [/INST]", "raw": true, "stream": false}'""", "response"),
    ("""curl http://localhost:11434/api/generate -d '{"model": "llama3.2"}'""", "done_reason"),
    ("""curl http://localhost:11434/api/generate -d '{"model": "llama3.2", "keep_alive": 0}'""", "done_reason"),
    ("""curl http://localhost:11434/api/chat -d '{"model": "llama3.2", "messages": [{"role": "user", "content": "why is the sky blue?"}]}'""", "done_reason"),
    ("""curl http://localhost:11434/api/chat -d '{"model": "llama3.2", "messages": [{"role": "user", "content": "why is the sky blue?"}], "stream": false}'""", "message"),
    ("""curl http://localhost:11434/api/chat -d '{"model": "llama3.2", "messages": [{"role": "user", "content": "why is the sky blue?"}, {"role": "assistant",
         "content": "due to rayleigh scattering."}, {"role": "user", "content": "how is that different than mie scattering?"}]}'""", "done_reason"),
    ("""curl http://localhost:11434/api/chat -d '{"model": "llama3.2", "messages": []}'""", "done_reason"),
    ("""curl http://localhost:11434/api/tags""", "models"),
    ("""curl http://localhost:11434/api/show -d '{"model": "llava"}'""", "details"),
    ("""curl http://localhost:11434/api/ps""", "models"),
    ("""curl http://localhost:11434/api/version""", "version"),
    ("""curl http://localhost:11434/api/embed -d '{"model": "all-minilm", "input": "Why is the sky blue?"}'""", "embeddings"),
    ("""curl http://localhost:11434/api/embed -d '{"model": "all-minilm", "input": ["Why is the sky blue?", "Why is the grass green?"]}'""", "embeddings"),
    ("""curl http://localhost:11434/api/embeddings -d '{"model": "all-minilm", "prompt": "Here is an article about llamas..."}'""", "embedding"),
    ("""curl http://localhost:11434/v1/chat/completions -H "Content-Type: application/json" -d '{"model": "llama3.2", "messages": [{"role": "system",
         "content": "You are a helpful assistant."}, {"role": "user", "content": "Hello!"}]}'""", "choices"),
]
# Refused, and not for their type.
OLLAMA_REFUSED = [
    """curl http://localhost:11434/api/copy -d '{"source": "llama3.2", "destination": "llama3-backup"}'""",
    """curl http://localhost:11434/api/create -d '{"model": "mario", "from": "llama3.2", "system": "You are Mario from Super Mario Bros."}'""",
    """curl http://localhost:11434/api/push -d '{"model": "mattw/pygmalion:latest"}'""",
    """curl -X DELETE http://localhost:11434/api/delete -d '{"model": "llama3:13b"}'""",
]
LLAMACPP = [
    ("""curl --request POST --url http://localhost:8080/completion --header "Content-Type: application/json"
         --data '{"prompt": "Building a website can be done in 10 simple steps:","n_predict": 128}'""", "content"),
    ("""curl --request POST --url http://localhost:8080/completion --data '{"prompt": "Building a website can be done in 10 simple steps:","n_predict": 128}'""", "content"),
    ("""curl http://localhost:8080/tokenize -X POST -d '{"content": "Hello world!", "with_pieces": true}'""", "tokens"),
    ("""curl http://localhost:8080/detokenize -X POST -d '{"tokens": [1, 2, 3]}'""", "content"),
    ("""curl http://localhost:8080/apply-template -d '{"messages": [{"role": "user", "content": "Hello"}]}'""", "prompt"),
    ("""curl http://localhost:8080/embedding -d '{"content": "Why is the sky blue?"}'""", None),
    ("""curl http://localhost:8080/v1/embeddings -H "Content-Type: application/json" -H "Authorization: Bearer no-key"
         -d '{"input": "hello", "model":"GPT-4", "encoding_format": "float"}'""", "data"),
    ("""curl http://localhost:8080/v1/chat/completions -H "Content-Type: application/json" -H "Authorization: Bearer no-key" -d '{"model": "gpt-3.5-turbo",
         "messages": [{"role": "system", "content": "You are ChatGPT, an AI assistant."}, {"role": "user", "content": "Write a limerick about python exceptions"}]}'""", "choices"),
    ("""curl http://localhost:8080/v1/chat/completions -d '{"model": "gpt-3.5-turbo", "max_tokens": 16, "tools": [{"type":"function","function":{"name":"python",
         "description":"Runs code in a python interpreter.","parameters":{"type":"object","properties":{"code":{"type":"string"}},"required":["code"]}}}],
         "messages": [{"role": "user", "content": "Print a hello world message with python."}]}'""", "choices"),
    ("""curl http://localhost:8080/v1/messages -H "Content-Type: application/json" -H "x-api-key: your-api-key" -d '{"model": "gpt-4", "max_tokens": 102,
         "system": "You are a helpful assistant.", "messages": [{"role": "user", "content": "Hello!"}]}'""", "content"),
    ("""curl http://localhost:8080/v1/rerank -H "Content-Type: application/json" -d '{"model": "some-model", "query": "What is panda?", "top_n": 3,
         "documents": ["hi", "it is a bear", "The giant panda is a bear species endemic to China."]}'""", "results"),
    ("""curl http://localhost:8080/health""", "status"),
    ("""curl http://localhost:8080/props""", "default_generation_settings"),
    ("""curl http://localhost:8080/v1/models""", "data"),
]


@unittest.skipUnless(shutil.which("curl"), "needs curl")
class DocumentedCurl(ServerCase):
    options = ("--max-tokens", "64", "--alias", "llama3.2", "--alias", "llava")  # show and pull want a model that it has

    def curl(self, line):
        port = self.server.addresses[0].rsplit(":", 1)[1]
        done = subprocess.run([*shlex.split(line), "-s", "-w", "\n%{http_code}", "--noproxy", "*", "--connect-to", f"::127.0.0.1:{port}"], capture_output=True, text=True,
                              timeout=WAIT_S, check=True)
        body, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(body.strip().splitlines()[-1])

    def works(self, lines):
        for line, field in lines:
            with self.subTest(line=line):
                status, answer = self.curl(line)
                self.assertEqual((status, field is None or field in answer), (200, True), answer)

    def test_ollama(self):
        self.works(OLLAMA)

    def test_llamacpp(self):
        self.works(LLAMACPP)

    def test_what_ollama_alone_does(self):
        for line in OLLAMA_REFUSED:
            status, answer = self.curl(line)
            self.assertNotIn(status, (200, 415), (line, answer))
        self.assertEqual(self.curl("""curl http://localhost:11434/api/pull -d '{"model": "llama3.2"}'""")[0], 200)  # it has what it serves


if __name__ == "__main__":
    unittest.main()
