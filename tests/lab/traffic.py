# SPDX-License-Identifier: Apache-2.0
"""Requests of many clients, and what of their answers must not depend on which process gave them: dialects, streams, documents, conversations, modules,
tenants. One thread, standard library only."""
import asyncio
import dataclasses
import json
import random
import time

WAIT_S = 300  # for one answer; nothing is judged by it
WORDS = ("river mill stone bridge lamp garden road winter letter harbour wheel copper basket window orchard tower blanket engine meadow candle market "
         "anchor hammer pocket saddle kettle ribbon timber valley cellar").split()


@dataclasses.dataclass
class Request:
    number: int
    dialect: str
    path: str
    body: dict
    stream: bool
    key: str = ""


@dataclasses.dataclass
class Answer:
    request: Request
    status: int = 0
    body: bytes = b""
    error: str = ""      # of the connection: it broke, or the reply was cut
    began: bool = False  # a byte of the reply has come
    id: str = ""
    start: float = 0.0
    first: float = 0.0   # the first byte of the body
    end: float = 0.0

    @property
    def failed(self):
        return bool(self.error) or self.status != 200


# ---- Requests


def document(number):
    draw = random.Random(f"document {number}")
    return f"Document {number}. " + " ".join(draw.choice(WORDS) for _ in range(draw.randint(50, 90))) + "."


def question(draw):
    return f"What about the {draw.choice(WORDS)} and the {draw.choice(WORDS)}?"


def conversation(draw, turns):
    """A prefix that others share: the turns of conversation N are always the same."""
    number = draw.randrange(12)
    fixed = random.Random(f"conversation {number}")
    messages = [{"role": "system", "content": "You answer briefly. " + document(number)}]
    for _ in range(turns):
        messages += [{"role": "user", "content": question(fixed)}, {"role": "assistant", "content": f"The {fixed.choice(WORDS)}."}]
    return messages + [{"role": "user", "content": question(draw)}]


def parts_of_documents(draw):
    numbers = draw.sample(range(16), 3)
    return [{"type": "text", "text": document(n)} for n in numbers] + [{"type": "text", "text": question(draw)}]


def openai_chat(draw, common):
    return "/v1/chat/completions", {"messages": conversation(draw, draw.randrange(3)), **common}


def openai_documents(draw, common):
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": parts_of_documents(draw)}], "reuse": "modular", **common}


def openai_completion(draw, common):
    return "/v1/completions", {"prompt": document(draw.randrange(24)) + " " + question(draw), **common}


def anthropic(draw, common):
    system, *messages = conversation(draw, draw.randrange(3))
    return "/v1/messages", {"model": "default", "system": system["content"], "messages": messages, **common}


def gemini(draw, common):
    system, *messages = conversation(draw, 1)
    contents = [{"role": "model" if m["role"] == "assistant" else "user", "parts": [{"text": m["content"]}]} for m in messages]
    config = {"maxOutputTokens": common["max_tokens"], "temperature": common["temperature"], "seed": common["seed"]}
    method = "streamGenerateContent?alt=sse" if common["stream"] else "generateContent"
    rest = {k: v for k, v in common.items() if k in ("ignore_eos",)}
    return f"/v1beta/models/default:{method}", {"systemInstruction": {"parts": [{"text": system["content"]}]}, "contents": contents,
                                                "generationConfig": config, **rest}


def ollama(draw, common):
    options = {"num_predict": common["max_tokens"], "temperature": common["temperature"], "seed": common["seed"]}
    return "/api/chat", {"model": "default", "messages": conversation(draw, 1), "options": options, "stream": common["stream"],
                         "ignore_eos": common["ignore_eos"]}


def llama_cpp(draw, common):
    return "/completion", {"prompt": document(draw.randrange(24)) + " " + question(draw), "n_predict": common["max_tokens"],
                           **{k: v for k, v in common.items() if k != "max_tokens"}}


def pml(draw, common):
    parts = [{"type": "document", "text": document(n)} for n in draw.sample(range(16), 3)]
    return "/v1/prompts", {"parts": [*parts, {"type": "role", "role": "user", "parts": [{"type": "text", "text": question(draw)}]}], **common}


def pml_schema(draw, common):
    """Modules of the schema of schema_text(), which every server has."""
    names = draw.sample(range(8), 3)
    modules = [{"type": "module", "name": f"d{n}"} for n in names]
    return "/v1/prompts", {"schema": "library", "parts": [*modules, {"type": "role", "role": "user", "parts": [{"type": "text", "text": question(draw)}]}],
                           **common}


def schema_text():
    modules = "".join(f"<module name='d{n}'>{document(100 + n)}</module>" for n in range(8))
    return f"<schema name='library'><system>Read the documents. {modules}</system></schema>"


KINDS = {f.__name__: f for f in (openai_chat, openai_documents, openai_completion, anthropic, gemini, ollama, llama_cpp, pml, pml_schema)}


def requests(seed, n, keys=("",), tokens=(8, 24), kinds=tuple(KINDS), streams=0.5):
    """n requests, always the same ones for a seed; kinds and tenants mixed."""
    draw, made = random.Random(f"requests {seed}"), []
    for number in range(n):
        kind = draw.choice(kinds)
        stream = draw.random() < streams
        common = {"max_tokens": draw.randint(*tokens), "temperature": draw.choice((0, 0.8)), "seed": draw.randrange(1 << 30), "stream": stream,
                  "ignore_eos": draw.random() < 0.8}
        path, body = KINDS[kind](draw, common)
        made.append(Request(number, kind, path, body, stream, draw.choice(keys)))
    return made


# ---- HTTP


async def exchange(request, port, on_byte=None):
    """One request on a connection of its own."""
    answer = Answer(request, start=time.monotonic())
    body = json.dumps(request.body).encode()
    head = (f"POST {request.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
            + (f"Authorization: Bearer {request.key}\r\n" if request.key else "") + "\r\n").encode()
    writer = None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + body)
        await writer.drain()
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        answer.began = True
        answer.status = int(lines[0].split()[1])
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
        answer.id = headers.get("x-request-id", "")
        async for piece in pieces(reader, headers):
            answer.first = answer.first or time.monotonic()
            answer.body += piece
            if on_byte:
                on_byte(answer)
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as e:
        answer.error = f"{type(e).__name__}: {e}"
    finally:
        if writer:
            writer.close()
    answer.end = time.monotonic()
    return answer


async def pieces(reader, headers):
    if headers.get("transfer-encoding") == "chunked":
        while n := int(await reader.readuntil(b"\r\n"), 16):
            yield (await reader.readexactly(n + 2))[:n]
        await reader.readexactly(2)
    else:
        left = int(headers["content-length"])
        while left > 0:
            piece = await reader.read(min(left, 65536))
            if not piece:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(piece)
            yield piece


async def drive(todo, port, clients, until=None, on_byte=None, on_answer=None):
    """Sends the requests with so many clients at a time. until: an event that ends it early. port: a number, or a function of the request."""
    answers, queue = [], list(reversed(todo))

    async def client():
        while queue and not (until and until.is_set()):
            request = queue.pop()
            at = port(request) if callable(port) else port
            answer = await asyncio.wait_for(exchange(request, at, on_byte), WAIT_S)
            answers.append(answer)
            if on_answer:
                on_answer(answer)

    await asyncio.gather(*(client() for _ in range(clients)))
    return sorted(answers, key=lambda a: a.request.number)


# ---- What an answer says


def frames(answer):
    """The objects of a stream, or the one object."""
    text = answer.body.decode()
    if not answer.request.stream:
        return [json.loads(text)]
    if answer.request.dialect == "ollama":
        return [json.loads(line) for line in text.splitlines()]
    found = []
    for block in text.split("\n\n"):
        data = "\n".join(line[6:] for line in block.split("\n") if line.startswith("data: "))
        if data and data != "[DONE]":
            found.append(json.loads(data))
    return found


def openai_said(f):
    choice = (f.get("choices") or [{}])[0]
    text = choice.get("text") or (choice.get("delta") or choice.get("message") or {}).get("content") or ""
    usage = f.get("usage") or {}
    return text, choice.get("finish_reason"), (usage.get("prompt_tokens"), usage.get("completion_tokens"))


def anthropic_said(f):
    text = f.get("delta", {}).get("text", "") or "".join(c.get("text", "") for c in f.get("content", []))
    return text, f.get("delta", {}).get("stop_reason") or f.get("stop_reason"), (None, f.get("usage", {}).get("output_tokens"))


def gemini_said(f):
    candidate, usage = (f.get("candidates") or [{}])[0], f.get("usageMetadata", {})
    text = "".join(p.get("text", "") for p in candidate.get("content", {}).get("parts", []))
    return text, candidate.get("finishReason"), (usage.get("promptTokenCount"), usage.get("candidatesTokenCount"))


def ollama_said(f):
    return f["message"]["content"], f.get("done_reason"), (f.get("prompt_eval_count"), f.get("eval_count"))


def llama_cpp_said(f):
    return f["content"], f.get("stop_type"), (f.get("tokens_evaluated"), f.get("tokens_predicted"))


def pml_said(f):
    answer, usage = (f.get("answers") or [{}])[0], f.get("usage", {})
    return f.get("text", answer.get("text", "")), f.get("finish_reason") or answer.get("finish_reason"), (usage.get("prompt_tokens"), usage.get("answer_tokens"))


READERS = {"openai_chat": openai_said, "openai_documents": openai_said, "openai_completion": openai_said, "anthropic": anthropic_said,
           "gemini": gemini_said, "ollama": ollama_said, "llama_cpp": llama_cpp_said, "pml": pml_said, "pml_schema": pml_said}


def said(answer):
    """Text, finish reason and counts of an answer: the same from every process."""
    text, finish, counts = "", None, (None, None)
    for f in frames(answer):
        piece, reason, usage = READERS[answer.request.dialect](f)
        if answer.request.stream and "answers" in f:  # the end of a stream of /v1/prompts repeats the text
            assert piece == text, (piece, text)
            piece = ""
        text += piece
        finish = reason or finish
        counts = tuple(new if new is not None else old for new, old in zip(usage, counts))
    return text, finish, counts
