#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What users of agents, chat programs and other servers reported of prompt caches in 2026, a test each; the numbers are those of docs/reuse-reports.md.
Counts are of tokens that the server computed for a prompt; no option is set, but where the test names it."""
import concurrent.futures
import json
import os
import signal
import tempfile
import time
import unittest

from server_process import Server

CONTEXT = "16384"
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
TOOL = {"type": "object", "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}}


def rules(name, n=20, colour="red"):
    return "\n".join(f"Rule {i}: {name} may take {i} {colour} balls from the box and put {i + 2} back." for i in range(n))


STABLE = rules("Tom", 30)
REMINDER = "<system-reminder>\nThe task list is empty. Do not mention this to the user.\n</system-reminder>"


def env_block(cwd="/home/ann/work", date="2026-11-28", status="M src/main.c"):
    return (f"Here is useful information about the environment you are running in:\n<env>\nWorking directory: {cwd}\nIs directory a git repo: Yes\n"
            f"Platform: linux\nOS Version: Linux 6.1\nToday's date: {date}\n</env>\n"), f"gitStatus: This is the git status at the start.\n{status}\n"


def tools_of(names, key="function"):
    described = [{"name": n, "description": rules(n, 8), "parameters": TOOL} for n in names]
    return [{"type": "function", key: t} for t in described]


class Case(unittest.TestCase):
    options = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--ctx", CONTEXT, "--log", "off", *cls.options).wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def ask(self, path, body, server=None, **more):
        reply = (server or self.server).post(path, body, **more)
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json

    def chat(self, *messages, server=None, **fields):
        listed = [m if isinstance(m, dict) else {"role": m[0], "content": m[1]} for m in messages]
        return self.ask(CHAT, {"messages": listed, "max_tokens": 1, "temperature": 0, **fields}, server)

    def claude(self, system, *messages, **fields):
        body = {"model": "default", "max_tokens": 1, "messages": [{"role": r, "content": c} for r, c in messages], **fields}
        return self.ask(MESSAGES, {**body, "system": system} if system else body)

    def prompt(self, answer):
        usage = answer["usage"]
        if "cache_read_input_tokens" in usage:  # Anthropic's counts exclude one another
            return usage["input_tokens"] + usage["cache_read_input_tokens"] + usage.get("cache_creation_input_tokens", 0)
        return usage["prompt_tokens"] if "prompt_tokens" in usage else usage["input_tokens"]

    def cached(self, answer):
        usage = answer["usage"]
        if "cache_read_input_tokens" in usage:
            return usage["cache_read_input_tokens"]
        return (usage.get("prompt_tokens_details") or usage["input_tokens_details"])["cached_tokens"]

    def computed(self, answer):
        return self.prompt(answer) - self.cached(answer)

    def n_tokens(self, text, server=None):
        return len((server or self.server).post("/tokenize", {"content": text}).json["tokens"])


class Agents(Case):
    """Rows 1 to 7, 12 to 17, 30, 35, 41."""

    def test_01_a_nonce_in_the_first_system_block(self):
        header = "x-anthropic-billing-header: cc_version=2.1.{0}; cc_entrypoint=cli; cch={0:05x};".format

        def shapes(n):
            block = lambda text, **more: {"type": "text", "text": text, **more}
            return (header(n) + "\n" + STABLE, [block(header(n)), block(STABLE)], [block(header(n) + "\n" + STABLE)],
                    [block(header(n)), block(STABLE, cache_control={"type": "ephemeral"})])
        for shape in range(4):
            salt = {"cache_salt": f"row 1, {shape}"}
            self.claude(shapes(70000)[shape], ("user", "Who?"), **salt)
            for nonce in (80001, 90002):
                self.assertLessEqual(self.computed(self.claude(shapes(nonce)[shape], ("user", "Who?"), **salt)), 16, shape)

    def test_02_git_status_at_the_end_of_the_system_text(self):
        for status, most in (("M a.c", None), ("M a.c\n?? b.c", 128)):
            env, git = env_block(status=status)
            answer = self.claude([{"type": "text", "text": STABLE}, {"type": "text", "text": env + git}], ("user", "Who?"), cache_salt="row 2")
        self.assertLessEqual(self.computed(answer), most)

    def test_03_sections_of_one_machine(self):
        for cwd, date in (("/home/ann/work", "2026-11-28"), ("/srv/ben/repo", "2026-11-29")):
            answer = self.claude([{"type": "text", "text": rules("Ann") + "\n" + "".join(env_block(cwd, date)) + STABLE}], ("user", "Who?"),
                                 cache_salt="row 3")
        self.assertLessEqual(self.computed(answer), 160)

    def test_04_an_identity_that_changes(self):
        for who in ("You are Claude Code, Anthropic's official CLI for Claude.",
                    "You are Claude Code, Anthropic's official CLI for Claude, running within the Claude Agent SDK."):
            blocks = [{"type": "text", "text": t} for t in ("x-anthropic-billing-header: cc_version=2.1.0; cch=0;", who, STABLE)]
            answer = self.claude(blocks, ("user", "Who?"), cache_salt="row 4")
        self.assertLessEqual(self.computed(answer), 96)

    def test_05_without_cache_control(self):
        self.claude(STABLE, ("user", "row 5"))
        self.assertLessEqual(self.computed(self.claude(STABLE, ("user", "row 5"))), 1)

    def test_06_a_reminder_that_moves(self):
        turns = [("user", rules("Ann")), ("assistant", "It is."), ("user", rules("Ben")), ("assistant", "It was.")]

        def moved(messages, at):
            return [(r, [{"type": "text", "text": c}, {"type": "text", "text": REMINDER}] if i == at else c) for i, (r, c) in enumerate(messages)]
        self.claude(STABLE, *moved(turns[:3], 2))
        new = turns + [("user", "And now?")]
        answer = self.claude(STABLE, *moved(new, 4))
        self.assertLessEqual(self.computed(answer), self.n_tokens("It was. And now?" + REMINDER) + 64)

    def test_12_a_prompt_that_differs_at_its_end(self):
        self.chat(("system", STABLE), ("user", "What day is it? 2026-11-27"))
        self.assertLessEqual(self.computed(self.chat(("system", STABLE), ("user", "What day is it? 2026-11-28"))), 16)

    def calls(self, arguments, result="8 balls"):
        call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": arguments}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": result}

    def test_13_arguments_as_a_string(self):
        turn = self.calls('{"path": "a.txt", "limit": 3}')
        first = self.chat(("system", STABLE), ("user", "Read."), *turn, tools=tools_of(["read"]))
        more = (("assistant", "Done."), ("user", "And?"))
        answer = self.chat(("system", STABLE), ("user", "Read."), *turn, *more, tools=tools_of(["read"]))
        self.assertGreaterEqual(self.cached(answer), self.prompt(first) - 8)

    def returned(self, row, rewritten):
        """A forced call is sampled and comes back with its result. Tokens of the conversation that missed, but for the first after the call."""
        tools, asked = tools_of(["read"]), (("system", STABLE), ("user", row))
        first = self.chat(*asked, tools=tools, tool_choice="required", max_tokens=200)
        message = first["choices"][0]["message"]
        call = message["tool_calls"][0]
        back = {**message, "tool_calls": [{**call, "id": "other", "function": {**call["function"], "arguments": rewritten(call["function"]["arguments"])}}]}
        answer = self.chat(*asked, back, {"role": "tool", "tool_call_id": "other", "content": "8"}, tools=tools)
        return first["usage"]["total_tokens"] - self.cached(answer)

    def test_14_arguments_that_the_client_writes_anew(self):
        def compact(arguments):
            return json.dumps(json.loads(arguments), separators=(",", ":"))

        def turned(arguments):
            return json.dumps(dict(reversed(list(json.loads(arguments).items()))), indent=2)
        for i, rewritten in enumerate((compact, turned)):
            self.assertLessEqual(self.returned(f"row 14, {i}", rewritten), 1)

    def test_15_a_returned_call_is_the_sampled_tokens(self):
        self.assertLessEqual(self.returned("row 15", lambda arguments: arguments), 1)

    def test_16_keys_of_a_tool_in_another_order(self):
        turned = [{"function": dict(reversed(list(t["function"].items()))), "type": "function"} for t in tools_of(["read", "write"])]
        self.chat(("user", "row 16"), tools=tools_of(["read", "write"]))
        self.assertLessEqual(self.computed(self.chat(("user", "row 16"), tools=turned)), 1)

    def test_17_tools_in_another_order(self):
        names = ["read", "write", "list", "find"]
        asked = (("system", STABLE), ("user", "row 17"))
        self.chat(*asked, tools=tools_of(names), reuse="modular")
        for other in (names[::-1], names[1:], names):
            answer = self.chat(*asked, tools=tools_of(other), reuse="modular")
            self.assertLessEqual(self.computed(answer), 144, other)  # the text after the last tool: how to call them, and the question

    def test_30_compaction_of_the_middle(self):
        turns = [("user", rules("Ann")), ("assistant", "It is."), ("user", rules("Ben")), ("assistant", "It was."), ("user", "And?")]
        self.chat(("system", STABLE), *turns)
        compact = [("user", "Ann took balls."), *turns[1:]]
        self.assertLessEqual(self.computed(self.chat(("system", STABLE), *compact, shifted_reuse=32)), 96)

    def test_35_why_it_missed_in_the_vendor_s_words(self):
        ask = lambda system, before: self.claude(system, ("user", "row 35"), diagnostics={"previous_message_id": before})
        first = ask(STABLE, None)
        second = ask("Other. " + STABLE, first["id"])
        self.assertEqual(second["diagnostics"]["cache_miss_reason"]["type"], "system_changed")
        self.assertIsNone(ask("Other. " + STABLE, second["id"])["diagnostics"])  # nothing differs

    def test_41_tool_types_of_codex(self):
        tools = [{"type": "custom", "name": "apply_patch", "description": "Patch.", "format": {"type": "text"}}, {"type": "web_search"},
                 {"type": "function", "name": "shell", "parameters": TOOL}]
        body = {"input": STABLE + "row 41", "tools": tools, "max_output_tokens": 16}
        self.ask(RESPONSES, body)
        self.assertLessEqual(self.computed(self.ask(RESPONSES, body)), 1)


class Chats(Case):
    """Rows 8 to 11, 18, 20, 27, 31 to 34, 39, 42."""
    options = ("--auto-reuse", "ask")

    def test_08_a_document_that_moves_to_the_last_message(self):
        history = [("system", rules("Tom", 4))]
        for i in range(4):
            answer = self.chat(*history, ("user", rules("row8", 30) + f"\nQuestion {i}?"), reuse="auto")
            history += [("user", f"Question {i}?"), ("assistant", "Tom.")]
            time.sleep(1.5)  # the chunks of the document become modules in a pause, from the second use on
        self.assertLessEqual(self.computed(answer), 200)  # of 1,078: five chunks with 32 link tokens each
        self.assertGreater(answer["reprise"]["inexact_tokens"], 0)

    def test_09_a_memory_that_is_written_anew(self):
        for memory in ("Ann likes red.", "Ann likes red and blue balls."):
            answer = self.chat(("system", rules("Tom", 8) + f"\n<memory>\n{memory}\n</memory>\n" + STABLE), ("user", "row 9"), shifted_reuse=32)
        self.assertLessEqual(self.computed(answer), 96)

    def test_10_requests_that_add_nothing(self):
        self.chat(("system", STABLE), ("user", "row 10"))
        entries = lambda: len(self.server.get("/v1/cache/entries?limit=1000").json["data"])
        n = entries()
        for i in range(3):
            self.chat(("system", rules(f"Title {i}", 30)), ("user", "A title?"), reuse="off")
        self.assertEqual(entries(), n)
        read = self.chat(("system", STABLE), ("user", rules("row 10 again", 30)), reuse="read")
        self.assertGreater(self.cached(read), self.n_tokens(STABLE) - 8)
        self.assertEqual(entries(), n)

    def test_11_a_date_within_the_system_text(self):
        for date in ("2026-11-27", "2026-11-28"):
            answer = self.chat(("system", rules("Tom", 2) + f"\nToday is {date}.\n" + STABLE), ("user", "row 11"))
        explained = self.server.get(f"/v1/requests/{answer['reprise']['request']}/explain").json
        self.assertIn("2026-11-2", json.dumps(explained))
        self.assertGreater(self.cached(answer), self.n_tokens(rules("Tom", 2)) - 8)

    def test_18_a_b_a(self):
        for name in ("Ann", "Ben", "Ann"):
            answer = self.chat(("system", rules(name, 30)), ("user", "row 18"))
        self.assertLessEqual(self.computed(answer), 1)

    def test_20_conversations_at_once(self):
        def one(i):
            return self.chat(("system", rules(f"Name{i}", 10)), ("user", "Who?"), max_tokens=12)["choices"][0]["message"]["content"]
        alone = [one(i) for i in range(8)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(list(pool.map(one, list(range(8)) * 2)), alone * 2)

    def test_27_a_turn_adds_its_own_tokens(self):
        bytes_of = lambda: sum(e["bytes"] for e in self.server.get("/v1/cache/entries?limit=1000").json["data"])
        messages, sizes, lengths = [("system", STABLE)], [], []
        for i in range(12):
            messages.append(("user", rules(f"row27x{i}", 8)))
            lengths.append(self.prompt(self.chat(*messages)))
            sizes.append(bytes_of())
            messages.append(("assistant", "It is."))
        a_token = (sizes[-1] - sizes[0]) / (lengths[-1] - lengths[0])
        whole = max(e["bytes"] / e["tokens"] for e in self.server.get("/v1/cache/entries?limit=1000").json["data"] if e["tokens"] == 256)
        self.assertLess(a_token, 1.5 * whole)

    def test_31_a_document_after_another_question(self):
        body = lambda q, *docs: [("user", [{"type": "text", "text": d} for d in docs] + [{"type": "text", "text": q}])]
        self.chat(*body("Who?", STABLE, rules("Ann")), reuse="modular")
        answer = self.chat(*body("When, and why?", rules("Ann"), STABLE), reuse="modular")
        self.assertLessEqual(self.computed(answer), 48)

    def test_32_text_after_modules_is_cached(self):
        parts = [{"type": "text", "text": STABLE}, {"type": "text", "text": rules("row32")}, {"type": "text", "text": "Who? " + rules("q", 6)}]
        first = self.chat(("user", parts), reuse="modular")
        answer = self.chat(("user", parts), ("assistant", "Tom."), ("user", "And?"), reuse="modular")
        self.assertGreaterEqual(self.cached(answer), self.prompt(first) - 8)

    def test_33_cached_counts_are_numbers(self):
        for salt in ("row 33, miss", "row 33, miss"):  # a miss, a hit
            chat = self.chat(("user", STABLE), cache_salt=salt)
            ollama = self.ask("/api/chat", {"model": "default", "messages": [{"role": "user", "content": STABLE}], "stream": False, "options": {"num_predict": 1},
                                            "cache_salt": salt + " o"})
            gemini = self.ask("/v1beta/models/default:generateContent", {"contents": [{"role": "user", "parts": [{"text": STABLE}]}],
                                                                         "generationConfig": {"maxOutputTokens": 1}, "cache_salt": salt + " g"})
            counts = self.cached(chat), ollama["prompt_eval_cached_count"], gemini["usageMetadata"]["cachedContentTokenCount"]
            self.assertTrue(all(isinstance(n, int) for n in counts), counts)

    def test_34_one_cache_for_all_dialects(self):
        text = STABLE + "row 34"
        self.chat(("user", text))
        self.assertLessEqual(self.computed(self.ask(RESPONSES, {"input": text, "max_output_tokens": 16})), 1)
        self.assertLessEqual(self.computed(self.claude("", ("user", text))), 1)

    def test_39_prompt_tokens_are_those_of_a_miss(self):
        ask = lambda: self.ask("/api/chat", {"model": "default", "messages": [{"role": "user", "content": STABLE + "row 39"}], "stream": False, "options": {"num_predict": 1}})
        first, second = ask(), ask()
        self.assertEqual(first["prompt_eval_count"], second["prompt_eval_count"])
        self.assertGreater(second["prompt_eval_count"], 300)

    def test_42_no_turn_has_fewer_hits_than_the_one_before(self):
        messages, before = [("system", rules("row42", 10))], 0
        for i in range(60):
            messages.append(("user", f"Question {i}: who may take {i} balls?"))
            answer = self.chat(*messages)
            self.assertGreaterEqual(self.cached(answer), before)
            before = self.cached(answer)
            messages.append(("assistant", answer["choices"][0]["message"]["content"] or "It is."))
        self.assertGreater(before, 700)


class OwnServer(Case):
    """Rows 19, 21 to 26, 29, 36 to 38: servers with little memory, with a disk, and servers that end."""

    @classmethod
    def setUpClass(cls):
        pass

    def start(self, *options):
        server = Server("--log", "off", "--ctx", CONTEXT, *options).wait_ready()
        self.addCleanup(server.stop)
        return server

    def folder(self):
        found = tempfile.TemporaryDirectory()
        self.addCleanup(found.cleanup)
        return os.path.join(found.name, "store")

    def answer_of(self, server, name, n=30, **fields):
        answer = self.chat(("system", rules(name, n)), ("user", "Who?"), server=server, max_tokens=12, **fields)
        return answer["choices"][0]["message"]["content"], self.computed(answer)

    def test_19_21_a_full_cache_changes_no_answer(self):
        server = self.start("--kv-ram", "24M")
        names = [f"Name{i}" for i in range(6)]
        alone = {name: self.answer_of(server, name)[0] for name in names}
        self.chat(("system", rules("large", 200)), ("user", "Who?"), server=server)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda name: (name, self.answer_of(server, name)[0]), names * 4))
        self.assertEqual([text for _, text in found], [alone[name] for name, _ in found])

    def test_22_23_37_38_hits_after_a_restart(self):
        store = self.folder()
        server = self.start("--store", store)
        first = {salt: self.answer_of(server, "Ann", cache_salt=salt)[0] for salt in ("x", "z")}
        self.answer_of(server, "Ben", cache_salt="x")
        self.assertEqual(server.end(signal.SIGTERM), 0)
        server = self.start("--store", store)
        for name in ("Ann", "Ben"):
            text, computed = self.answer_of(server, name, cache_salt="x")
            self.assertLessEqual(computed, 16)
        self.assertEqual(self.answer_of(server, "Ann", cache_salt="x")[0], first["x"])
        self.assertGreater(self.answer_of(server, "Ann", cache_salt="y")[1], 300)  # another salt hits nothing, from the disk neither
        server.end(signal.SIGKILL)
        files = sorted(os.path.join(at, f) for at, _, names in os.walk(store) for f in names if os.path.getsize(os.path.join(at, f)) > 65536)
        self.assertTrue(files)
        for path in files[::2]:
            os.unlink(path)
        server = self.start("--store", store)
        self.assertEqual([self.answer_of(server, "Ann", cache_salt=salt)[0] for salt in ("x", "z")], [first["x"], first["z"]])

    def test_24_documents_do_not_evict_a_conversation(self):
        """One that has a name, as those of agents have; and one without, with a disk."""
        def ask(server, messages, session=None, **fields):
            headers = {"x-session-id": session} if session else {}
            reply = server.post(CHAT, {"messages": [{"role": r, "content": c} for r, c in messages], "temperature": 0, **fields}, headers=headers)
            self.assertEqual(reply.status, 200, reply.body)
            return reply.json
        for options, session in (((), "ann"), (("--store", self.folder()), None)):
            server = self.start("--kv-ram", "24M", *options)
            conversation = [("system", rules("Tom", 25)), ("user", "Who?")]
            answer = ask(server, conversation, session, max_tokens=8)
            n_prompt = self.prompt(answer)
            conversation += [("assistant", answer["choices"][0]["message"]["content"]), ("user", "And?")]
            for i in range(32):
                ask(server, [("user", rules(f"Document{i}", 20))], max_tokens=1)
            self.assertGreaterEqual(self.cached(ask(server, conversation, session, max_tokens=1)), n_prompt - 16, options)

    def test_25_26_the_budget_of_memory_holds(self):
        server = self.start("--ram", "400M")
        for i in range(80):
            self.chat(("system", rules(f"Name{i}", 25)), ("user", "Who?"), server=server)
        with open(f"/proc/{server.process.pid}/status", encoding="ascii") as f:
            resident = next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))
        if "san" not in os.environ.get("REPRISE_PROGRAM", ""):  # a sanitizer's shadow is not the server's
            self.assertLess(resident, 400 * 1024)
        small = self.start("--kv-ram", "8M")
        reply = small.post(CHAT, {"messages": [{"role": "user", "content": rules("large", 500)}], "max_tokens": 1})
        self.assertIn(reply.status, (400, 413, 503), reply.body)
        self.assertEqual(self.answer_of(small, "Tom", 4)[1] > 0, True)

    def test_29_a_full_context(self):
        server = Server("--log", "off", "--ctx", "1024").wait_ready()
        self.addCleanup(server.stop)
        messages, computed = [("system", rules("Tom", 4))], []
        for i in range(60):
            messages.append(("user", f"Question {i}: who may take {i} red balls from the box and put {i + 2} back?"))
            answer = self.chat(*messages, server=server, truncation="auto", shifted_reuse=32)
            computed.append(self.computed(answer))
            messages.append(("assistant", "Tom may, and he knows it."))
        self.assertLessEqual(sorted(computed[1:])[-7], 128, computed)  # all turns but the six in which old ones were dropped

    def test_36_blocks_of_the_router_and_of_the_engine(self):
        """A prompt of a whole number of blocks and 20 tokens: what is announced is whole blocks (tests/server/test_kv_events), what is reused is
        all but the last token."""
        server = self.start()
        text = STABLE
        self.chat(("user", text), server=server)
        answer = self.chat(("user", text), server=server)
        self.assertLessEqual(self.computed(answer), 1)


if __name__ == "__main__":
    unittest.main()
