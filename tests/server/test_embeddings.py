#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise serve`: embeddings and reranking in every dialect, by an encoder, a reranker and a model that generates."""
import base64
import json
import math
import os
import struct
import unittest

from server_process import SOURCE, Server

FOLDER = os.path.join(SOURCE, "tests", "golden", "embeddings")
TEXTS = ["the sea", "a little girl who lived in a village", "she sells sea shells by the sea shore"]


def vectors():
    """The embeddings of tests/golden/embeddings, as (model, pooling, ids, values)."""
    with open(os.path.join(FOLDER, "embeddings.txt"), encoding="utf-8") as lines:
        for line in lines:
            head, ids, values = line.rstrip("\n").split("\t")
            yield (*head.split(" "), [int(i) for i in ids.split("|")], [float(v) for v in values.split("|")])


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b))


class Served(unittest.TestCase):
    MODEL = None
    OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        if cls.MODEL is None:
            raise unittest.SkipTest("the base of the others")
        cls.server = Server(*cls.OPTIONS, model=cls.MODEL).wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def post(self, path, **body):
        return self.server.post(path, body)

    def embeddings(self, texts, **more):
        reply = self.post("/v1/embeddings", input=texts, **more)
        self.assertEqual(reply.status, 200, reply.body)
        self.assertEqual([one["index"] for one in reply.json["data"]], list(range(len(reply.json["data"]))))
        return [one["embedding"] for one in reply.json["data"]]

    def refused(self, reply, status, field, code="invalid_value", says=""):
        self.assertEqual(reply.status, status, reply.body)
        error = reply.json["error"]
        self.assertEqual((error["param"], error["code"]), (field, code), error)
        self.assertIn(says, error["message"])
        self.assertNotIn("\n", error["message"])

    def close(self, a, b, limit=1e-4):
        self.assertEqual(len(a), len(b))
        self.assertLess(max(abs(x - y) for x, y in zip(a, b)), limit)


class Encoder(Served):
    MODEL = os.path.join(FOLDER, "bert.gguf")

    def test_embeddings_are_those_of_transformers(self):
        n = 0
        for model, pooling, ids, values in vectors():
            if model == "bert":
                self.close(self.embeddings(ids, pooling=pooling)[0], values)
                n += 1
        self.assertGreater(n, 5)

    def test_every_form_of_input(self):
        one, = self.embeddings(TEXTS[0])
        many = self.embeddings(TEXTS)
        self.assertEqual(many[0], one)
        ids = [self.post("/tokenize", content=text).json["tokens"] for text in TEXTS]
        whole = [[3, *i, 4] for i in ids]  # [CLS], [SEP]
        self.assertEqual(self.embeddings(whole), many)
        self.assertEqual(self.embeddings(whole[0]), [one])
        self.assertAlmostEqual(cosine(one, one), 1, 5)

    def test_reply(self):
        reply = self.post("/v1/embeddings", input=TEXTS, user="someone").json
        self.assertEqual(reply["object"], "list")
        self.assertEqual(reply["model"], self.server.get("/v1/models").json["data"][0]["id"])
        self.assertEqual({one["object"] for one in reply["data"]}, {"embedding"})
        tokens = sum(len(self.post("/tokenize", content=text).json["tokens"]) + 2 for text in TEXTS)
        self.assertEqual((reply["usage"]["prompt_tokens"], reply["usage"]["total_tokens"]), (tokens, tokens))
        self.assertEqual(reply["reprise"]["parts"][0]["reason"], "pooling")
        self.assertEqual(reply["reprise"]["warnings"], [])

    def test_base64_has_the_same_values(self):
        coded = self.embeddings(TEXTS, encoding_format="base64")
        for text, plain in zip(coded, self.embeddings(TEXTS)):
            raw = base64.b64decode(text, validate=True)
            self.assertEqual(len(raw), 4 * len(plain))
            self.close(struct.unpack(f"<{len(plain)}f", raw), plain, 1e-8)

    def test_fewer_dimensions_have_length_1(self):
        whole, = self.embeddings(TEXTS[0])
        few, = self.embeddings(TEXTS[0], dimensions=5)
        length = math.sqrt(cosine(whole[:5], whole[:5]))
        self.close(few, [v / length for v in whole[:5]], 1e-6)

    def test_what_is_refused(self):
        self.refused(self.post("/v1/embeddings"), 400, "input", says="missing")
        self.refused(self.post("/v1/embeddings", input=[]), 400, "input", says="empty")
        self.refused(self.post("/v1/embeddings", input=[1, "a"]), 400, "input")
        self.refused(self.post("/v1/embeddings", input={"a": 1}), 400, "input")
        self.refused(self.post("/v1/embeddings", input="a", encoding_format="int8"), 400, "encoding_format", says="base64")
        self.refused(self.post("/v1/embeddings", input="a", dimensions=65), 400, "dimensions", says="64")
        self.refused(self.post("/v1/embeddings", input="a", dimensions=0), 400, "dimensions")
        self.refused(self.post("/v1/embeddings", input="a", pooling="max"), 400, "pooling", says="mean")
        self.refused(self.post("/v1/embeddings", input="a", pooling="rank"), 400, None, "unsupported_value", says="rank head")
        self.refused(self.post("/v1/embeddings", input=["a"] * 2049), 400, "input", says="2048")
        self.refused(self.post("/v1/embeddings", input=[[999999]]), 400, None)
        long = "sea " * 400
        self.refused(self.post("/v1/embeddings", input=["a", long]), 400, "input", "context_length_exceeded", says="text 2 has 402 tokens")
        self.assertEqual(self.embeddings(long, truncate=True), self.embeddings("sea " * 318))
        self.refused(self.post("/v1/completions", prompt="a"), 400, None, "unsupported_value", says="encoder")
        self.refused(self.post("/v1/chat/completions", messages=[{"role": "user", "content": "a"}]), 400, None, "unsupported_value", says="encoder")

    def test_unknown_fields_are_warnings(self):
        reply = self.post("/v1/embeddings", input="a", inputs="b").json
        self.assertIn("inputs", reply["reprise"]["warnings"][0])

    def test_many_texts(self):
        texts = [f"the sea {i}" for i in range(2048)]
        many = self.embeddings(texts, dimensions=3)
        self.assertEqual(len(many), 2048)
        for i in (0, 1, 1000, 2047):
            self.assertEqual(self.embeddings(texts[i], dimensions=3)[0], many[i])

    def test_llamacpp(self):
        reply = self.post("/embedding", content=TEXTS).json
        self.assertEqual([one["index"] for one in reply], [0, 1, 2])
        self.assertEqual([one["embedding"][0] for one in reply], self.embeddings(TEXTS))
        self.assertEqual(self.post("/embeddings", input=TEXTS[0]).json[0]["embedding"], reply[0]["embedding"])
        raw = self.post("/embedding", content=TEXTS[0], embd_normalize=-1).json[0]["embedding"][0]
        length = math.sqrt(cosine(raw, raw))
        self.assertGreater(abs(length - 1), 0.1)
        self.close([v / length for v in raw], reply[0]["embedding"][0], 1e-6)
        self.assertEqual(self.post("/embedding", content="a", embd_normalize=1).status, 400)
        self.assertEqual(self.post("/embedding").status, 400)

    def test_gemini(self):
        whole = self.embeddings(TEXTS)
        content = lambda text: {"parts": [{"text": text[:3]}, {"text": text[3:]}]}
        one = self.post("/v1beta/models/default:embedContent", content=content(TEXTS[0]), taskType="RETRIEVAL_QUERY").json
        self.assertEqual(one["embedding"]["values"], whole[0])
        requests = [{"model": "models/default", "content": content(text)} for text in TEXTS]
        batch = self.post("/v1beta/models/default:batchEmbedContents", requests=requests).json
        self.assertEqual([e["values"] for e in batch["embeddings"]], whole)
        few = self.post("/v1beta/models/default:embedContent", content=content(TEXTS[0]), outputDimensionality=4).json
        self.assertEqual([few["embedding"]["values"]], self.embeddings(TEXTS[0], dimensions=4))
        self.assertEqual(self.post("/v1beta/models/default:embedContent", content={"parts": [{"inlineData": {}}]}).status, 400)
        self.assertEqual(self.post("/v1beta/models/default:batchEmbedContents", requests=[]).status, 400)
        methods = self.server.get("/v1beta/models").json["models"][0]["supportedGenerationMethods"]
        self.assertEqual(methods, ["embedContent", "batchEmbedContents"])

    def test_rerank_is_by_cosine_similarity(self):
        query = "the sea shore"
        reply = self.post("/v1/rerank", query=query, documents=TEXTS).json
        self.assertEqual(reply["reprise"]["scored_by"], "cosine similarity")
        q, *documents = self.embeddings([query, *TEXTS])
        expected = {i: cosine(q, d) for i, d in enumerate(documents)}
        self.assertEqual([r["index"] for r in reply["results"]], sorted(expected, key=lambda i: -expected[i]))
        for r in reply["results"]:
            self.assertAlmostEqual(r["relevance_score"], expected[r["index"]], 5)


class Reranker(Served):
    MODEL = os.path.join(FOLDER, "reranker.gguf")

    def test_scores_are_those_of_the_head(self):
        reply = self.post("/v1/rerank", query="the sea", documents=TEXTS, raw_scores=True).json
        raw = {r["index"]: r["relevance_score"] for r in reply["results"]}
        self.assertEqual(reply["reprise"]["scored_by"], "rank head")
        self.assertEqual(sorted(raw), [0, 1, 2])
        self.assertEqual([r["index"] for r in reply["results"]], sorted(raw, key=lambda i: -raw[i]))
        for i, text in enumerate(TEXTS):  # the pair as tokens: [CLS] query [SEP] document [SEP]
            query, document = (self.post("/tokenize", content=t).json["tokens"] for t in ("the sea", text))
            score, = self.embeddings([3, *query, 4, *document, 4], pooling="rank")[0]
            self.assertAlmostEqual(raw[i], score, 6)
        even = {r["index"]: r["relevance_score"] for r in self.post("/rerank", query="the sea", documents=TEXTS).json["results"]}
        for i, score in even.items():
            self.assertAlmostEqual(score, 1 / (1 + math.exp(-raw[i])), 6)

    def test_scores_are_those_of_transformers(self):
        for model, pooling, ids, values in vectors():
            if model == "reranker":
                self.close(self.embeddings(ids, pooling=pooling)[0], values)

    def test_documents_and_their_number(self):
        documents = [TEXTS[0], {"text": TEXTS[1], "title": "kept"}, TEXTS[2]]
        whole = self.post("/v1/rerank", query="the sea", documents=documents, return_documents=True).json["results"]
        self.assertEqual(len(whole), 3)
        for r in whole:
            given = documents[r["index"]]
            self.assertEqual(r["document"], given if isinstance(given, dict) else {"text": given})
        few = self.post("/v1/rerank", query="the sea", documents=documents, top_n=2).json["results"]
        self.assertEqual(few, [{k: v for k, v in r.items() if k != "document"} for r in whole[:2]])
        self.assertEqual(len(self.post("/v1/rerank", query="the sea", documents=documents, top_n=9).json["results"]), 3)

    def test_long_documents_are_cut(self):
        n_ctx = self.server.get("/props").json["default_generation_settings"]["n_ctx"]
        long = self.post("/v1/rerank", query="the sea", documents=["sea " * 1000]).json
        self.assertEqual(long["usage"]["prompt_tokens"], n_ctx)
        self.refused(self.post("/v1/rerank", query="sea " * 1000, documents=["a"]), 400, None, says="query")

    def test_what_is_refused(self):
        self.refused(self.post("/v1/rerank", documents=["a"]), 400, "query")
        self.refused(self.post("/v1/rerank", query="a"), 400, "documents")
        self.refused(self.post("/v1/rerank", query="a", documents=[]), 400, "documents")
        self.refused(self.post("/v1/rerank", query="a", documents=["b", 3]), 400, "documents[1]")
        self.refused(self.post("/v1/rerank", query="a", documents=["b", ""]), 400, "documents[1]", says="empty")
        self.refused(self.post("/v1/rerank", query="a", documents=["b"], top_n=0), 400, "top_n")


class Generator(Served):
    MODEL = os.path.join(SOURCE, "models", "reprise-mini.gguf")

    def test_the_prefix_cache_serves_embeddings(self):
        text = "Tom had a red ball. He went to the park with his mother and they played with it until it was late."
        miss = self.post("/v1/embeddings", input=text, cache_salt="embeddings").json
        hit = self.post("/v1/embeddings", input=text, cache_salt="embeddings").json
        usage = hit["usage"]
        self.assertEqual(miss["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"] - 1)
        self.assertEqual(hit["data"], miss["data"])
        other = self.post("/v1/embeddings", input=text, cache_salt="another").json
        self.assertEqual(other["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(other["data"], miss["data"])
        off = self.post("/v1/embeddings", input=text, cache_salt="embeddings", reuse="off").json
        self.assertEqual((off["usage"]["prompt_tokens_details"]["cached_tokens"], off["data"]), (0, miss["data"]))

    def test_mean_computes_every_token(self):
        for _ in range(2):
            reply = self.post("/v1/embeddings", input=TEXTS[1], pooling="mean").json
            self.assertEqual(reply["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertNotEqual(self.embeddings(TEXTS[1], pooling="mean"), self.embeddings(TEXTS[1]))

    def test_answers_and_embeddings_beside_each_other(self):
        answer = self.post("/v1/completions", prompt="Tom had a", max_tokens=8, temperature=0).json["choices"]
        alone = self.embeddings(TEXTS)
        connection = self.server.connection()
        body = json.dumps({"prompt": "Tom had a", "max_tokens": 8, "temperature": 0, "cache_salt": "beside"})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        self.assertEqual(self.embeddings(TEXTS), alone)
        self.assertEqual(json.loads(connection.getresponse().read())["choices"], answer)

    def test_explain_knows_embeddings(self):
        reply = self.post("/v1/embeddings", input=TEXTS[0])
        explained = self.server.get(f"/v1/requests/{reply.headers['x-request-id']}/explain")
        self.assertEqual(explained.status, 200, explained.body)

    def test_rerank_is_by_cosine_similarity(self):
        reply = self.post("/v1/rerank", query=TEXTS[0], documents=TEXTS).json
        self.assertEqual(reply["reprise"]["scored_by"], "cosine similarity")
        self.assertEqual(reply["results"][0]["index"], 0)
        self.assertAlmostEqual(reply["results"][0]["relevance_score"], 1, 5)


class FullQueue(Served):
    MODEL = os.path.join(FOLDER, "bert.gguf")
    OPTIONS = ("--sequences", "1", "--queue", "2")

    def test_a_request_waits_for_its_own_jobs(self):
        many = self.embeddings([f"the sea {i}" for i in range(100)])
        self.assertEqual(self.embeddings("the sea 99")[0], many[99])


if __name__ == "__main__":
    unittest.main()
