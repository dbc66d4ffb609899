# SPDX-License-Identifier: Apache-2.0
"""Engine, Model, Result, Job and Stream, on the bundled model: the same answers by every way, errors by class, cancellation."""

import gc
import json
import math
import pathlib
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest
from conftest import MODEL, PROGRAM, environment_of_programs

import reprise
from reprise._library import lib
from reprise import Engine, Markup, Model, Prompt, Schema, errors
from reprise.requests import RequestOptions

CITIES = Schema.parse(
    '<schema name="cities"><system>You are a concise travel guide.</system><user><module name="plan">Plan a trip of '
    '<param name="duration" len="4"/> to this city. <union><module name="miami">Surfers go to Haulover.</module>'
    '<module name="lisbon">Lisbon is built on seven hills.</module></union></module></user></schema>'
)
MESSAGES = [
    {"role": "system", "content": "Belvik is known for its clocks."},
    {"role": "user", "content": "What is Belvik known for?"},
]


def cities(question: str) -> Prompt:
    return Prompt(CITIES).module("plan", duration="3 days").module("plan/miami").text(question)


def until(condition: Callable[[], bool]) -> None:
    """Waits for what another thread does."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


# ---- answers ----


def test_every_way_gives_the_same_answer(engine: Engine) -> None:
    for prompt in (cities(" Where is surf?"), "Once upon a time", MESSAGES, engine.model.tokenize("Once upon a time")):
        result = engine.run(prompt, max_tokens=24)
        assert result.text and result.finish_reason in ("stop", "length")
        with engine.stream(prompt, max_tokens=24) as stream:
            pieces = list(stream)
        assert "".join(pieces) == result.text == stream.result.text
        with engine.submit(prompt, max_tokens=24) as job:
            again = job.result()
            assert job.status.state == "done"
        assert again.text == result.text and again.tokens == result.tokens


def test_the_answer_is_that_of_the_program(engine: Engine, tmp_path: pathlib.Path) -> None:
    schema, prompt = tmp_path / "cities.xml", tmp_path / "prompt.xml"
    CITIES.save(schema)
    pml = '<prompt schema="cities"><plan duration="3 days"><miami/></plan> Where is surf?</prompt>'
    prompt.write_text(pml)
    command = [PROGRAM, "run", "-m", MODEL, "--schema", schema, "--pml", prompt, "--json", "--max-tokens", "24"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment_of_programs())
    reply = json.loads(done.stdout)
    engine.load(Schema.load(schema))
    for result in (engine.run(Markup(pml), max_tokens=24), engine.run(cities(" Where is surf?"), max_tokens=24)):
        assert result.text == reply["text"]
        assert result.usage.prompt_tokens == reply["usage"]["prompt_tokens"]


def test_a_result_has_what_the_library_reports(engine: Engine) -> None:
    engine.prefill(CITIES)
    result = engine.run(cities(" Where is surf?"), max_tokens=8, n_logprobs=3, n_kept_shares=0)
    usage, timings = result.usage, result.timings
    assert usage.prompt_tokens == usage.cached_tokens + usage.fresh_tokens == sum(item.n_tokens for item in result.plan)
    assert usage.cached_tokens > 10 and usage.answer_tokens == len(result.tokens)
    assert timings.ttft_ms == pytest.approx(
        timings.queue_ms + timings.module_prefill_ms + timings.plan_ms + timings.prompt_prefill_ms
    )
    assert {item.module for item in result.plan} >= {"plan", "plan/miami", "prompt"}
    assert all(item.tier == "ram" for item in result.plan if item.module == "plan/miami")
    assert result.quality.used == "reuse" and result.kv_reduction.share == 1 and result.warnings == ()
    assert result.logprobs is not None and result.top_logprobs is not None
    for logprob, token, top in zip(result.logprobs, result.tokens, result.top_logprobs, strict=True):
        assert top[0].token == token and top[0].logprob == pytest.approx(logprob) and len(top) == 3
    text = engine.explain(result)
    assert "plan/miami: reused from RAM" in text and "(text of the prompt): computed" in text


def test_views_outlive_the_result_and_the_engine(model: Model) -> None:
    with Engine(model, n_threads=1) as engine:
        result = engine.run("Once upon a time", max_tokens=8, logits=True)
        tokens, logits = result.tokens, result.logits
        expected = list(tokens)
        del result
    gc.collect()
    assert list(tokens) == expected
    assert logits is not None and logits.shape == (8, model.info.n_vocab) and logits.format == "f"


def test_logits_give_the_tokens_and_their_probabilities(engine: Engine) -> None:
    result = engine.run("Once upon a time", max_tokens=6, logits=True, n_logprobs=1)
    assert result.logits is not None and result.logprobs is not None
    for step, token in enumerate(result.tokens):
        row = [result.logits[step, i] for i in range(result.logits.shape[1])]
        assert row.index(max(row)) == token
        most = max(row)
        total = most + math.log(sum(math.exp(value - most) for value in row))
        assert row[token] - total == pytest.approx(result.logprobs[step], abs=1e-4)


def test_choose_replaces_the_sampler(engine: Engine) -> None:
    """Greedy choice by the program gives the greedy answer; None leaves the token to the sampler."""
    greedy = engine.run("Once upon a time", max_tokens=6)
    rows: list[int] = []

    def best(logits: memoryview) -> int | None:
        rows.append(len(logits))
        return None if len(rows) % 2 else max(range(len(logits)), key=lambda i: logits[i])

    chosen = engine.run("Once upon a time", max_tokens=6, choose=best, logits=True)
    assert chosen.tokens == greedy.tokens and set(rows) == {engine.model.info.n_vocab}
    assert chosen.logits is not None and len(chosen.logits) == 6


def test_what_choose_raises_is_the_error(engine: Engine) -> None:
    def fail(_logits: memoryview) -> int:
        raise KeyError("no token")

    with pytest.raises(KeyError, match="no token"):
        engine.run("Once upon a time", max_tokens=6, choose=fail)
    with pytest.raises(errors.InvalidError, match="choose returned -7"):
        engine.run("Once upon a time", max_tokens=6, choose=lambda _logits: -7)
    with pytest.raises(KeyError), engine.stream("Once upon a time", max_tokens=6, choose=fail) as stream:
        "".join(stream)


def test_rows_of_logits_are_tokens(engine: Engine) -> None:
    """The logits of an end-of-text token, which is no token of the answer, had a row."""
    ended = engine.run([{"role": "user", "content": "What is 2+2?"}], max_tokens=300, logits=True)
    assert ended.finish_reason == "stop" and ended.stop is None
    assert ended.logits is not None and ended.logits.shape == (len(ended.tokens), engine.model.info.n_vocab)
    for step, token in enumerate(ended.tokens):
        row = [ended.logits[step, i] for i in range(ended.logits.shape[1])]
        assert row.index(max(row)) == token


def test_sampling_options_arrive(engine: Engine) -> None:
    def run(**options: object) -> str:
        return engine.run("Once upon a time", max_tokens=16, **options).text  # type: ignore[arg-type]

    greedy = run()
    assert run(temperature=1.5, seed=1) == run(temperature=1.5, seed=1) != run(temperature=1.5, seed=2)
    assert run(temperature=1.5, seed=1, top_k=1) == greedy
    assert run(grammar='root ::= "yes" | "no"') in ("yes", "no")
    banned = engine.run("Once upon a time", max_tokens=1).tokens[0]
    assert engine.run("Once upon a time", max_tokens=1, logit_bias={banned: -math.inf}).tokens[0] != banned
    word = greedy.split()[2]
    stopped = engine.run("Once upon a time", max_tokens=16, stop=word)
    assert stopped.text == greedy[: greedy.index(word)] and stopped.stop == word and stopped.finish_reason == "stop"
    assert engine.run(cities("?"), quality="exact", max_tokens=1).quality.asked == "exact"
    assert engine.run(cities("?"), reuse="off", max_tokens=1).usage.cached_tokens == 0
    for reuse in get_args(get_type_hints(RequestOptions)["reuse"]):
        assert engine.run("Once upon a time", reuse=reuse, max_tokens=1).tokens


def test_documents_are_modules_in_any_order(engine: Engine) -> None:
    a, b = ("The river Velbrook runs through Osthaven. " * 4, "Zantec makes a camera in Belvik. " * 4)
    engine.run(Prompt().document(a).document(b).text("What?"), max_tokens=1)
    second = engine.run(Prompt().document(b).document(a).text("Which river?"), max_tokens=1)
    assert second.usage.cached_tokens > 60
    with pytest.raises(errors.InvalidError, match="over a schema has no documents"):
        Prompt(CITIES).document(a)


# ---- schemas ----


def test_schemas_are_loaded_once_and_replaced(engine: Engine) -> None:
    first = engine.run(cities("?"), max_tokens=1)
    assert engine.run(cities("?"), max_tokens=1).usage.cached_tokens > first.usage.cached_tokens
    newer = Schema("cities-2", CITIES.pml.replace('"cities"', '"cities-2"'), replaces="cities")
    engine.run(Prompt(newer).module("plan/miami"), max_tokens=1)
    with pytest.raises(errors.UnknownNameError, match="cities"):
        engine.run(Prompt("cities").module("plan"), max_tokens=1)
    engine.unload(newer)
    with pytest.raises(errors.UnknownNameError):
        engine.unload(newer)
    inspection = engine.inspect(cities("?"))  # loads it again
    assert [node.path for node in inspection.nodes if node.kind == "module"] == ["plan", "plan/miami", "plan/lisbon"]
    assert sum(tile.n_tokens for tile in inspection.tiles) == first.usage.prompt_tokens
    assert engine.inspect(CITIES).tiles == ()


# ---- errors ----


@pytest.mark.parametrize(
    "cls, make, where",
    [
        (errors.UnknownNameError, lambda: Prompt(CITIES).module("plan/maimi"), ""),
        (errors.ConflictError, lambda: Prompt(CITIES).module("plan/miami").module("plan/lisbon"), ""),
        (
            errors.LengthError,
            lambda: Prompt(CITIES).module("plan", duration="many more days than anybody could ever want"),
            "",
        ),
        (errors.MarkupError, lambda: Markup("<prompt schema='cities'><plan></prompt>"), "prompt:1:"),
        (errors.ContextLengthError, lambda: "word " * 4000, ""),
        (errors.InvalidError, lambda: [{"role": "narrator", "content": "x"}], ""),
        (errors.InvalidError, lambda: 5, ""),
    ],
)
def test_errors_of_prompts(engine: Engine, cls: type[errors.Error], make: Callable[[], Prompt], where: str) -> None:
    engine.load(CITIES)
    for run in (engine.run, engine.submit, engine.stream):
        with pytest.raises(cls) as caught:
            run(make(), max_tokens=1)
        assert str(caught.value) and "\n" not in str(caught.value)
        assert caught.value.where.startswith(where)
    assert engine.info.running + engine.info.waiting == 0


def test_other_errors(engine: Engine, tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.FileError, match="nothing.gguf"):
        Model(tmp_path / "nothing.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"no model")
    with pytest.raises(errors.FormatError):
        Engine(tmp_path / "bad.gguf")
    with pytest.raises(errors.MarkupError) as caught:
        engine.load(Schema("x", '<schema name="x">\n<module/></schema>', "x.xml"))
    assert caught.value.where == "x.xml:2:1" and caught.value.code == "RP_ERR_SYNTAX"
    with pytest.raises(TypeError, match="'max_tokens'"):
        engine.run("x", max_token=1)  # type: ignore[call-arg]
    for name, value in (
        ("max_tokens", 2**32 + 1),
        ("seed", -1),
        ("n_draft", 2**31),
        ("logit_bias", {2**32: 1.0}),
    ):
        with pytest.raises(errors.InvalidError, match="out of range"):  # ctypes would take the low bits
            engine.run("x", **{name: value})  # type: ignore[arg-type]
    for prompt in ([2**32 + 1], [1, "x"], Prompt().text(5), Prompt(CITIES).module("plan", duration=3)):  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidError):
            engine.run(prompt, max_tokens=1)  # type: ignore[arg-type]
    for text in (Prompt().text("NUL \0 in a text"), "NUL \0 in a text"):
        assert engine.run(text, max_tokens=1).usage.prompt_tokens > 5
    for name, value in (("n_ctx", 2**32 + 64), ("kv_budget_bytes", -1)):
        with pytest.raises(errors.InvalidError, match=name):
            Engine(engine.model, **{name: value})  # type: ignore[arg-type]
    for device, error, match in (
        ({"device": "abacus"}, errors.UnknownNameError, "abacus"),
        ({"device_layers": -1}, errors.InvalidError, "device_layers"),
        ({"device": "cpu", "device_layers": 2}, errors.UnsupportedError, "device_layers 2"),
    ):
        with pytest.raises(error, match=match):
            Engine(engine.model, **device)  # type: ignore[arg-type]
    with Engine(engine.model, device="cpu", device_layers=0) as other:
        assert other.device_usage.layers == 0 and other.run("x", max_tokens=1).usage.prompt_tokens > 0
    with pytest.raises(errors.InvalidError, match="temperature"):
        engine.run("x", temperature="hot")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidError, match="reuse"):
        engine.run("x", reuse="some")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidError, match="True or False"):
        engine.run("x", max_tokens=1, ignore_eos="no")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidError, match="kv_format"):
        Engine(engine.model, kv_format="int7")
    with pytest.raises(errors.MarkupError) as caught:
        engine.run("x", grammar="root ::= (")
    assert caught.value.where.startswith("grammar:")


def test_a_deadline_passes_in_the_queue(model: Model) -> None:
    with Engine(model, n_threads=1, max_sequences=1) as engine:
        with engine.stream("Once upon a time", max_tokens=1500, ignore_eos=True) as first:
            next(first)
            late = engine.submit("Once", deadline_ms=1, max_tokens=1)
            with pytest.raises(errors.DeadlineError):
                late.result()


def test_a_full_queue_says_when_to_come_back(model: Model) -> None:
    with Engine(model, n_threads=1, max_sequences=1, max_queue=1) as engine:
        jobs = [engine.submit("Once", max_tokens=2000, ignore_eos=True) for _ in range(2)]
        with pytest.raises(errors.BusyError) as caught:
            engine.run("Once")
        assert caught.value.retry_after_ms > 0
        for job in jobs:
            job.cancel()


def test_a_closed_engine_refuses(model: Model) -> None:
    engine = Engine(model, n_threads=1)
    job = engine.submit("Once", max_tokens=2000, ignore_eos=True)
    stream = engine.stream("Once", max_tokens=2000, ignore_eos=True)
    assert engine.close() == 0 and engine.close() == 0
    for act in (lambda: engine.run("x"), lambda: engine.info, job.result, lambda: job.status, lambda: engine.store):
        with pytest.raises(errors.InvalidError, match="closed"):
            act()
    with pytest.raises(errors.Error):
        list(stream)


def test_closing_a_model_closes_its_engines() -> None:
    model = Model(MODEL)
    engine = Engine(model, n_threads=1)
    job = engine.submit("Once", max_tokens=2000, ignore_eos=True)
    model.close()
    for act in (lambda: engine.run("x"), lambda: Engine(model), job.result):
        with pytest.raises(errors.InvalidError, match="closed"):
            act()
    engine.close()


def test_close_while_threads_submit(model: Model) -> None:
    def work(engine: Engine, ends: list[str]) -> None:
        try:
            while True:
                engine.run("Once", max_tokens=1)
        except errors.Error as e:
            ends.append(str(e))

    for _ in range(10):
        engine, ends = Engine(model, n_threads=1), list[str]()
        threads = [threading.Thread(target=work, args=(engine, ends)) for _ in range(4)]
        for one in threads:
            one.start()
        until(lambda: engine.store_stats.hits > 0)
        engine.close()
        for one in threads:
            one.join()
        assert len(ends) == 4 and all("closed" in end for end in ends)


# ---- cancellation ----


class Interruption(Exception):
    pass


def test_interruptions_anywhere_leave_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception wherever a signal's, as KeyboardInterrupt, may come: when a function of the package begins, and after a call of the library."""
    folder = str(pathlib.Path(reprise.__file__).parent)
    left = 0

    def interrupt() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            sys.setprofile(None)
            raise Interruption

    def is_final(frame: types.FrameType | None) -> bool:
        """Python reports an exception in a finalizer, and goes on."""
        return frame is not None and (frame.f_code.co_name == "__del__" or is_final(frame.f_back))

    def profile(frame: types.FrameType, event: str, _arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(folder) and not is_final(frame):
            interrupt()

    def interrupted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            result = function(*args)
            if sys.getprofile():
                interrupt()
            return result

        return call

    def stream() -> None:
        with engine.stream("Once", max_tokens=40, ignore_eos=True) as pieces:
            next(pieces)

    ways: dict[Callable[[], object], int] = {
        stream: 0,
        lambda: engine.run("Once", max_tokens=2): 0,
        lambda: engine.run(cities("?"), max_tokens=2): 0,
        lambda: engine.submit("Once", max_tokens=400, ignore_eos=True).close(): 0,
    }
    for way in ways:
        way()
    for name in [name for name in vars(lib) if name.startswith(("rp_engine", "rp_job", "rp_stream", "rp_prompt"))]:
        monkeypatch.setattr(lib, name, interrupted(getattr(lib, name)))
    for way in ways:
        while True:
            left = ways[way] + 1
            sys.setprofile(profile)
            try:
                way()
            except Interruption:
                pass
            finally:
                sys.setprofile(None)
            if left > 0:
                break
            ways[way] += 1
        gc.collect()
        until(lambda: engine.info.running + engine.info.waiting == 0)
    assert all(15 < n < 500 for n in ways.values()), ways


def test_leaving_a_stream_cancels_the_request(engine: Engine) -> None:
    for leave in ("with", "close", "del"):
        stream = engine.stream("Once upon a time", max_tokens=2000, ignore_eos=True)
        assert next(stream)
        assert engine.info.running + engine.info.waiting == 1
        if leave == "with":
            with stream:
                pass
        elif leave == "close":
            stream.close()
        del stream
        gc.collect()
        until(lambda: engine.info.running + engine.info.waiting == 0)


def test_cancel_ends_a_stream_with_its_text_so_far(engine: Engine) -> None:
    with engine.stream("Once upon a time", max_tokens=2000, ignore_eos=True) as stream:
        first = next(stream)
        stream.cancel()
        rest = "".join(stream)
    assert stream.result.finish_reason == "cancelled" and stream.result.text == first + rest


def test_jobs_pause_and_resume(engine: Engine) -> None:
    with engine.submit("Once upon a time", max_tokens=400, ignore_eos=True) as job:
        assert not job.wait(0)
        job.pause()
        job.resume()
        assert len(job.result().tokens) == 400
        with pytest.raises(errors.InvalidError, match="already taken"):
            job.result()


# ---- models ----


def test_models(model: Model) -> None:
    assert model.info.name and model.info.n_layers > 0 and model.info.chat_format == "chatml"
    tokens = model.tokenize("Once upon a time", bos=False)
    assert model.detokenize(tokens) == "Once upon a time"
    assert b"".join(map(model.token_bytes, tokens)) == b"Once upon a time"
    assert model.tokenize_messages(MESSAGES)[: len(tokens)] and len(model.fingerprint()) == 64
    with pytest.raises(errors.UnknownNameError, match="vocabulary"):
        model.token_bytes(10**6)
    with Model(MODEL, vocabulary_only=True) as vocabulary:
        assert vocabulary.tokenize("Once") == model.tokenize("Once")
        with pytest.raises(errors.UnsupportedError):
            Engine(vocabulary)
    with pytest.raises(errors.InvalidError, match="closed"):
        vocabulary.info


def test_pictures_are_whole_and_escaped(engine: Engine) -> None:
    import xml.etree.ElementTree as tree

    result = engine.run(cities(" <b>&"), max_tokens=4)
    for picture in (result._repr_html_(), engine.inspect(cities("<i>"))._repr_html_(), CITIES._repr_html_()):
        tree.fromstring(picture)
        assert "plan" in picture and "<b>" not in picture and "<script" not in picture
    assert "plan/miami" in result._repr_html_()


def test_reduced_modules_and_which_slots_they_keep(model: Model) -> None:
    words = " ".join(f"The town of Norgen has {n} bridges." for n in range(40))
    schema = Schema.parse(f'<schema name="kept" keep="25%"><module name="a">{words}</module></schema>')
    with Engine(model, n_threads=1) as engine:
        prompt = Prompt(schema).module("a").text("What?")
        assert engine.run(prompt, max_tokens=1).plan[0].kept_shares == ()
        assert engine.drain()
        result = engine.run(prompt, max_tokens=1, n_kept_shares=64)
    (item,) = [item for item in result.plan if item.module == "a"]
    assert item.kept == 0.25 and item.kept_by == "kvzip" and 1 < len(item.kept_shares) <= 65 and result.kept_step > 1
    assert sum(item.kept_shares) / len(item.kept_shares) == pytest.approx(0.25, abs=0.05)


def test_a_tenants_schema_is_its_own(model: Model) -> None:
    own = Schema.parse(
        '<schema name="own"><module name="a">Only acme knows that Belvik is known for its clocks.</module></schema>'
    )
    prompt = Prompt("own").module("a").text("What?")
    with Engine(model, n_threads=1) as engine:
        engine.load(own, tenant="acme")
        first = engine.run(prompt, tenant="acme", max_tokens=1)
        assert first.usage.cached_tokens == 0
        assert engine.run(Prompt(own).module("a").text("Which?"), tenant="acme", max_tokens=1).usage.cached_tokens > 5
        for tenant in (None, "other"):
            with pytest.raises(errors.UnknownNameError):
                engine.run(prompt, tenant=tenant, max_tokens=1)
        shared = engine.run(Prompt(own).module("a").text("Which?"), tenant="other", max_tokens=1)  # loads it for all
        assert shared.usage.cached_tokens == 0
        engine.unload(own, tenant="acme")


def test_a_draft_model_changes_no_answer() -> None:
    with Model(MODEL) as model, Engine(model, n_threads=1) as plain:
        expected = plain.run("Once upon a time", max_tokens=24, temperature=0)
        for draft in (model, MODEL):
            with Engine(model, n_threads=1, draft_model=draft) as engine:
                result = engine.run("Once upon a time", max_tokens=24, temperature=0, n_draft=4)
                assert result.text == expected.text
                assert result.usage.model_drafted_tokens >= result.usage.model_accepted_tokens > 0
                assert result.usage.draft_reason == ""
