# SPDX-License-Identifier: Apache-2.0
"""Engine.embed: encoders, rerankers and the bundled model; pooling, pairs, order, errors."""

import math
import pathlib

import pytest

from reprise import Engine, Model, errors

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "embeddings"
TEXTS = ["the sea", "a little girl who lived in a village", "she sells sea shells by the sea shore"]


def cosine(a: memoryview, b: memoryview) -> float:
    return float(sum(x * y for x, y in zip(a, b, strict=True)))


def values(engine: Engine, text: object, **options: object) -> memoryview:
    (result,) = engine.embed([text], **options)  # type: ignore[list-item,arg-type]
    assert result.embedding is not None
    return result.embedding


def test_many_texts_in_order() -> None:
    with Engine(FOLDER / "bert.gguf", max_sequences=2, max_queue=1) as engine:
        assert engine.model.info.is_encoder and engine.model.info.pooling == "cls"
        texts = [f"the sea {i}" for i in range(30)]
        for text, result in zip(texts, engine.embed(texts), strict=True):
            assert result.embedding is not None and result.embedding.tolist() == values(engine, text).tolist()
            assert math.isclose(cosine(result.embedding, result.embedding), 1, abs_tol=1e-5)
            assert result.usage.prompt_tokens == len(engine.model.tokenize_embedding(text))
        ids = engine.model.tokenize_embedding(TEXTS[0])
        assert values(engine, ids).tolist() == values(engine, TEXTS[0]).tolist()
        assert values(engine, "a\0b").tolist() == values(engine, "ab").tolist()  # WordPiece drops control characters


def test_pooling_and_raw_values() -> None:
    with Engine(FOLDER / "nomic-bert.gguf") as engine:
        mean = values(engine, TEXTS[1])
        assert values(engine, TEXTS[1], pooling="mean").tolist() == mean.tolist()
        assert values(engine, TEXTS[1], pooling="cls").tolist() != mean.tolist()
        raw = values(engine, TEXTS[1], raw_embedding=True)
        length = math.sqrt(cosine(raw, raw))
        assert all(math.isclose(a / length, b, abs_tol=1e-6) for a, b in zip(raw, mean, strict=True))


def test_rerankers_score_pairs() -> None:
    with Engine(FOLDER / "reranker.gguf") as engine:
        assert engine.model.info.n_scores == 1
        scores = [values(engine, (TEXTS[0], text))[0] for text in TEXTS]
        assert len(set(scores)) == 3
        long = engine.embed([(TEXTS[0], "sea " * 1000)], truncate=True)[0]
        assert long.usage.prompt_tokens == engine.info.n_ctx


def test_a_model_that_generates(engine: Engine) -> None:
    first, again = engine.embed(["Tom had a red ball, and he played with it."] * 2, tenant="embeddings")
    assert first.embedding is not None and again.embedding is not None
    assert first.embedding.tolist() == again.embedding.tolist() and first.text == ""
    third = engine.embed(["Tom had a red ball, and he played with it."], tenant="embeddings")[0]
    assert third.usage.cached_tokens == third.usage.prompt_tokens - 1
    assert engine.run("Tom had a", max_tokens=4).embedding is None


def test_errors(engine: Engine) -> None:
    with pytest.raises(errors.InvalidError, match="mean"):
        engine.embed(["a"], pooling="max")  # type: ignore[arg-type]
    with pytest.raises(errors.UnsupportedError, match="rank head"):
        engine.embed(["a"], pooling="rank")
    with Model(FOLDER / "bert.gguf") as model, Engine(model) as encoder:
        with pytest.raises(errors.UnsupportedError, match="encoder"):
            encoder.run("a")
        with pytest.raises(errors.ContextLengthError):
            encoder.embed(["a", "sea " * 400, "b"])
        assert len(encoder.embed(["sea " * 400], truncate=True)) == 1
