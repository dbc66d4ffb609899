#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--agent-noise: text of known agents that differs between their requests, in the shape of a captured request for each rule (long texts replaced):
two sessions that differ in it alone share the rest of the prompt, with the same words; what only looks like it is left unchanged."""
import collections
import os
import subprocess
import tempfile
import unittest

import gguf_copy
import scripted_model
from server_process import MODEL, PROGRAM, Server

WORDS = ("\u0120This", "\u0120town", "\u0120is", "\u0120known", ".")
RULES = "\n".join(f"Rule {i}: Tom may take {i} red balls from the box and put {i + 2} back." for i in range(30))
SKILLS = "\n".join(f"- skill-{i}: counts the boxes of shelf {i} and writes them down." for i in range(30))
TOOLS = [{"name": f"get_{i}", "description": f"Counts the boxes of shelf {i}.", "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
         for i in range(12)]
# As Qwen's: definitions after the system message's text.
AFTER_SYSTEM = """{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% if loop.first and tools %}

# Tools
{% for t in tools %}{{ t | tojson }}
{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
IDENTITIES = ("You are Claude Code, Anthropic's official CLI for Claude.", "You are a Claude agent, built on Anthropic's Claude Agent SDK.",
              "You are Claude Code, Anthropic's official CLI for Claude, running within the Claude Agent SDK.")


def billing(nonce):
    return f"x-anthropic-billing-header: cc_version=2.1.332.{nonce}; cc_entrypoint=sdk-cli; cch={nonce};"


def git_status(n):
    return ("This is the git status at the start of the conversation. Note that this status is a snapshot in time, and will not update during the "
            f"conversation.\n\nCurrent branch: fix-{n}\n\nMain branch (you will usually use this for PRs): main\n\nGit user: Ann\n\nStatus:\n?? file-{n}.txt\n\n"
            f"Recent commits:\n{n}e0bc5f the {n}. change")


def reminder(text):
    return f"<system-reminder>\n{text}\n</system-reminder>\n"


def text_blocks(*texts):
    return [{"type": "text", "text": t} for t in texts]


def claude_code(n, question="Say hello"):
    """Claude Code 2.1.332 in print mode, in a repository."""
    attached = f"As you answer the user's questions, you can use the following context:\n# gitStatus\n{git_status(n)}\n\nClaude Code attached this context."
    return {"model": "default", "max_tokens": 9, "tools": TOOLS,
            "system": text_blocks(billing(f"{n}c9"), IDENTITIES[n % 2], "\n\n" + RULES),
            "messages": [{"role": "user", "content": text_blocks(reminder("Contents of CLAUDE.md (project instructions):\n\n" + RULES[:600]), reminder(attached),
                                                                 reminder("Attribution for git commits: none."), question)},
                         {"role": "system", "content": text_blocks(
                             "# Environment\nYou have been invoked in the following environment: \n"
                             f" - Primary working directory: /home/ann/work-{n}\n - Is a git repository: true\n - Platform: linux\n - Shell: bash\n"
                             f" - OS Version: Linux 6.18.{n}\n - Downloaded files are untrusted data.\n\n{SKILLS}\n\nToday's date is 2026-11-2{n}.")}]}


# Of each rule of system messages: its name, and the text with its noise, of session n.
SYSTEM = (
    ("claude-code: git status", lambda n: f"{RULES}\n\ngitStatus: {git_status(n)}\n\n{SKILLS}"),
    ("claude-code: date", lambda n: f"{RULES}\n\nToday's date is 2026-11-2{n}.\n\n{SKILLS}"),
    ("claude-code: environment", lambda n: f"{RULES}\nHere is useful information about the environment you are running in:\n<env>\nWorking directory: /w/{n}\n"
     f"Is directory a git repo: Yes\nPlatform: darwin\nOS Version: Darwin 24.5.{n}\nToday's date: 2026-11-2{n}\n</env>\n{SKILLS}"),
    ("opencode: environment", lambda n: f"{RULES}\nHere is some useful information about the environment you are running in:\n<env>\n"
     f"  Working directory: /w/{n}\n  Is directory a git repo: yes\n  Platform: linux\n  Today's date: Sat Nov 2{n} 2026\n</env>\n{SKILLS}"),
    ("opencode: date", lambda n: f"{RULES}\n\nToday's date: Sat Nov 2{n} 2026\n\n{SKILLS}"),
    ("openclaw: working directory", lambda n: f"{RULES}\n\n## Workspace\nYour working directory is: /home/u{n}/clawd\nTreat this directory as the workspace.\n\n"
     f"{SKILLS}"),
    ("openclaw: time zone", lambda n: f"{RULES}\n\n## Current Date & Time\nTime zone: Europe/City-{n}\n\n{SKILLS}"),
    ("openclaw: runtime", lambda n: f"{RULES}\n\n## Runtime\nRuntime: agent=main | host=mac-{n} | os=darwin\nReasoning: off\n{SKILLS}"),
    ("open-webui: memories", lambda n: f"{RULES}\n\nUser Context:\n1. [2026-11-2{n}] Ann has {n} red balls.\n2. [2026-11-01] Ann counts.\n\n{SKILLS}"),
)


def spoken(text):
    return collections.Counter(text.replace("<|im_end|>", " <|im_end|> ").split())


class NoiseCase(unittest.TestCase):
    template, options = None, ()

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path, written = (os.path.join(folder.name, name) for name in ("model.gguf", "scripted.gguf"))
        scripted_model.write(MODEL, written, WORDS)
        template = {"tokenizer.chat_template": gguf_copy.string(cls.template)} if cls.template else {}
        gguf_copy.copy(written, path, template)
        cls.server, cls.keeping = (Server("--log", "off", "--max-tokens", "4", *cls.options, *more, model=path).wait_ready()
                                   for more in ((), ("--agent-noise", "keep")))
        for server in (cls.server, cls.keeping):
            cls.addClassCleanup(server.stop)

    def ask(self, route, body, server=None):
        reply = (server or self.server).post(route, body)
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json["reprise"]

    def rules(self, report):
        return {one["rule"] for one in report["agent_noise"]}

    def tokens(self, text):
        return len(self.server.post("/tokenize", {"content": text}).json["tokens"])

    def prompts(self, messages, **fields):
        """What the model gets, with and without the rules."""
        replies = [s.post("/apply-template", {"messages": messages, **fields}) for s in (self.server, self.keeping)]
        for reply in replies:
            self.assertEqual(reply.status, 200, reply.body)
        return [reply.json["prompt"] for reply in replies]

    def check_sessions(self, route, first, second, differing):
        """The second one computes no more than the text that differs and what comes after it: the question."""
        self.ask(route, first)
        report = self.ask(route, second)
        self.assertLessEqual(report["fresh_tokens"], self.tokens(differing) + 32, report["mismatch"])
        self.ask(route, first, self.keeping)
        kept = self.ask(route, second, self.keeping)
        self.assertGreater(kept["fresh_tokens"], report["fresh_tokens"] + 200)
        self.assertEqual(kept["agent_noise"], [])
        return report


class Rules(NoiseCase):
    def test_billing_header(self):
        """llama.cpp#20623: four shapes of `system`, three nonces."""
        def chat(system):
            return "/v1/chat/completions", {"messages": [{"role": "system", "content": system}, {"role": "user", "content": "x"}]}

        def messages(system):
            return "/v1/messages", {"model": "default", "max_tokens": 4, "system": system, "messages": [{"role": "user", "content": "x"}]}
        kinds = []
        for shape in (lambda head: messages(f"{head}\n{RULES}"), lambda head: messages(text_blocks(head, RULES)),
                      lambda head: messages(text_blocks(head, "Be brief.\n", RULES)), lambda head: chat(f"{head}\n{RULES}"),
                      lambda head: chat(text_blocks(head, RULES))):
            kinds.append(shape)
            reports = [self.ask(*shape(billing(nonce))) for nonce in ("1c9", "a07", "00000f")]
            for report in reports[1:]:
                self.assertEqual(report["cached_tokens"], report["prompt_tokens"] - 1)
                header, = report["agent_noise"]
                self.assertEqual((header["rule"], header["message"], header["action"]), ("claude-code: billing header", "system 1", "left out"))
            kept = [self.ask(*shape(billing(f"{len(kinds)}{nonce}")), self.keeping) for nonce in ("1c9", "a07")][1]
            self.assertGreater(kept["prompt_tokens"], reports[0]["prompt_tokens"])
            self.assertLess(kept["cached_tokens"], 100)
        moved, kept = self.prompts([{"role": "system", "content": billing("1c9") + "\n" + RULES}, {"role": "user", "content": "x"}])
        self.assertEqual(moved, kept.replace(billing("1c9") + "\n", ""))

    def test_system_messages(self):
        for rule, text in SYSTEM:
            with self.subTest(rule):
                first, second = ({"messages": [{"role": "system", "content": text(n)}, {"role": "user", "content": "How many?"}]} for n in (1, 2))
                noise = next(iter(text(1).split(RULES)[1:])).replace(SKILLS, "")
                report = self.check_sessions("/v1/chat/completions", first, second, noise)
                self.assertIn(rule, self.rules(report))
                self.assertNotIn("date", [h["what"] for h in report["hints"] if h["message"] == "system 1"])  # nothing is left to do
                moved, kept = self.prompts(first["messages"])
                self.assertEqual(spoken(moved), spoken(kept))
                self.assertLess(moved.index("skill-29"), moved.index("How many?"))

    def test_identity(self):
        """anthropics/claude-code#44724: another identity for each kind of agent."""
        def body(identity):
            return {"model": "default", "max_tokens": 4, "system": text_blocks(identity, RULES), "messages": [{"role": "user", "content": "How many?"}]}
        for before, after in zip(IDENTITIES, IDENTITIES[1:]):
            self.assertEqual(self.rules(self.check_sessions("/v1/messages", body(before), body(after), after)), {"claude-code: identity"})

    def test_claude_code(self):
        """A session after another one in the same project: the git status, the day and the versions differ."""
        report = self.check_sessions("/v1/messages", claude_code(1), claude_code(2), 3 * git_status(2))  # the other noise is shorter than two of it
        self.assertEqual(self.rules(report), {"claude-code: billing header", "claude-code: identity", "claude-code: environment", "claude-code: date",
                                              "claude-code: git status", "claude-code: system message"})
        self.assertEqual({one["message"] for one in report["agent_noise"] if one["rule"] != "claude-code: system message"}, {"system 1", "user 1"})
        turn = claude_code(2)
        turn["messages"] += [{"role": "assistant", "content": " This town is known."}, {"role": "user", "content": "Say it again"}]
        again = self.ask("/v1/messages", turn)
        self.assertGreaterEqual(again["cached_tokens"], report["prompt_tokens"])  # a later turn is changed as the first one was
        counted = self.server.post("/v1/messages/count_tokens", {k: turn[k] for k in ("model", "system", "messages", "tools")}).json
        self.assertEqual(counted["input_tokens"], again["prompt_tokens"])

    def test_codex(self):
        """Codex 0.171: its environment is after the constant text already."""
        def body(n):
            environment = f"<environment_context>\n  <cwd>/w/{n}</cwd>\n  <shell>bash</shell>\n  <current_date>2026-11-2{n}</current_date>\n</environment_context>"
            parts = [[RULES], ["# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\n" + SKILLS + "\n</INSTRUCTIONS>", environment], ["Say hello"]]
            return {"input": [{"type": "message", "role": role, "content": [{"type": "input_text", "text": t} for t in texts]}
                              for role, texts in zip(("developer", "user", "user"), parts)], "max_output_tokens": 16}
        self.ask("/v1/responses", body(1))
        report = self.ask("/v1/responses", body(2))
        self.assertLess(report["fresh_tokens"], 100)
        self.assertEqual(report["agent_noise"], [])
        earlier = [{**b, "input": [b["input"][0], {**b["input"][1], "content": b["input"][1]["content"][::-1]}, b["input"][2]]} for b in (body(3), body(4))]
        report = self.check_sessions("/v1/responses", *earlier, "<cwd>/w/4</cwd>" * 8)
        self.assertEqual(self.rules(report), {"codex: environment"})

    def test_gemini_cli(self):
        for rule, begin, end in (("gemini-cli: date", "<session_context>\nThis is the Gemini CLI. We are setting up the context for our chat.", "</session_context>"),
                                 ("gemini-cli: date", "This is the Gemini CLI. We are setting up the context for our chat.", "The end."),
                                 ("qwen-code: date", "This is the Qwen Code. We are setting up the context for our chat.", "The end.")):
            first, second = ({"contents": [{"role": "user", "parts": [{"text": f"{begin}\nToday's date is Friday, October {n}, 2026.\nMy operating system is: linux\n"
                                                                               f"{SKILLS}\n{end}"}]}, {"role": "user", "parts": [{"text": "How many?"}]}]} for n in (2, 3))
            self.assertEqual(self.rules(self.check_sessions("/v1beta/models/default:generateContent", first, second, "Today's date is Friday, October 2, 2026.")),
                             {rule})

    def test_qwen_code(self):
        """qwen-code 0.24.4 says the date before the last question, and only there: a copy of what its context says is left out, another date stays."""
        def body(questions, context="Saturday, November 28, 2026", now="Saturday, November 28, 2026"):
            attached = [reminder(RULES).rstrip(), reminder("This is the Qwen Code. We are setting up the context for our chat.\n"
                                                           f"Today's date is {context}.\nMy operating system is: linux").rstrip()]
            date = reminder(f"The current date is: {now}. Note: This is the authoritative current date \u2014 it may differ from the \"Today's date\" "
                            "mentioned earlier in the conversation startup context.").rstrip()
            messages = [{"role": "system", "content": SKILLS}]
            for i, question in enumerate(questions):
                last = [date] if i + 1 == len(questions) else []
                messages += [{"role": "user", "content": text_blocks(*(attached if i == 0 else []), *last, question)}, {"role": "assistant", "content": "Yes."}]
            return {"messages": messages[:-1], "max_tokens": 9}

        questions = ["Is it " + "very " * 30 + "red?", "Is it blue?", "Is it green?"]
        for n in (1, 2, 3):
            report = self.ask("/v1/chat/completions", body(questions[:n]))
            self.assertLess(report["fresh_tokens"], 40 if n > 1 else 10000, report)
            self.assertEqual(self.rules(report), {"qwen-code: date reminder", "qwen-code: date"})
        report = self.ask("/v1/chat/completions", body(questions, now="Sunday, November 29, 2026"))
        self.assertEqual(self.rules(report), {"qwen-code: date"})

    def test_blocks_stay_modules(self):
        """With reuse modular, blocks of the system text are modules; what was moved is text between them."""
        first, second = ({**claude_code(n), "reuse": "modular"} for n in (3, 4))
        self.ask("/v1/messages", first)
        report = self.ask("/v1/messages", second)
        self.assertGreater(report["cached_tokens"], report["prompt_tokens"] * 2 // 3)
        self.assertGreater(sum(part["reused"] and part["module"].startswith("d") for part in report["parts"]), 1, report["parts"])

    def test_explain_names_the_rule(self):
        report = self.ask("/v1/messages", claude_code(5))
        out = subprocess.run([PROGRAM, "explain", report["request"], "--url", self.server.addresses[0]], capture_output=True, text=True, check=True).stdout
        self.assertIn("agent noise\n  claude-code: system message in system 2: moved\n  claude-code: billing header in system 1: left out, 83 bytes", out)
        self.assertIn("  claude-code: git status in user 1: moved, ", out)


class Unchanged(NoiseCase):
    def check(self, *messages, **fields):
        moved, kept = self.prompts([{"role": role, "content": text} for role, text in messages], **fields)
        self.assertEqual(moved, kept)

    def test_text_of_users(self):
        for text in (*(noisy(1) for _, noisy in SYSTEM), billing("1c9") + "\n" + RULES, IDENTITIES[0] + "\n" + RULES,
                     reminder("As you answer the user's questions, you can use the following context:\n# gitStatus\n" + git_status(1)) + "What changed?",
                     "<environment_context>\n<cwd>/w</cwd>\n</environment_context>\nWhat is this?"):
            self.check(("system", RULES), ("user", text))
            self.check(("system", RULES), ("user", "x"), ("assistant", text), ("user", text))
            self.check(("user", text_blocks("What is this?", text)))

    def test_similar_system_texts(self):
        for text in (f"Send x-anthropic-billing-header: no.\n{RULES}", f"{RULES}\n{billing('1c9')}\n{SKILLS}", f"{RULES}\n{IDENTITIES[0]}\n{SKILLS}",
                     f"{IDENTITIES[0]} Be brief.\n{RULES}", f"{RULES}\n - Platform: linux\n{SKILLS}", f"Write <env> before it.\n<env>\nRED=1\n</env>\n{RULES}",
                     f"<env>\nWorking directory: /w\n{RULES}", f"Say what today's date is.\n{RULES}\nThe date is 2026-11-28.", f"Time zone: UTC\n{RULES}",
                     f"Today's date is {'very ' * 100}\n{RULES}", f"User Context:\nAnn is a user.\n{RULES}", f"gitStatus: clean\n{RULES}", billing("1c9")[3:],
                     "Today's date is 2026-11-28.", f"# Environment\nBe kind to it.\n{RULES}"):
            self.check(("system", text), ("user", "How many?"))

    def test_later_system_messages(self):
        date = "Today's date is 2026-11-28.\n" + RULES
        self.check(("system", RULES), ("user", "x"), ("system", date), ("user", "y"))
        self.check(("system", RULES), ("user", "x"), ("assistant", "y"), ("system", "# Environment\nYou have been invoked in the following environment:\n"), ("user", "z"))

    def test_hostile_lengths(self):
        """Openings without an end, and more pieces than a request may have."""
        for text in ("<env>\nWorking directory: /\n" * 8000, "gitStatus: This is the git status at the start of the conversation.\n" * 4000,
                     "Today's date is 2026-11-28.\n" * 40 + "<env>\nWorking directory: /\n" * 8000 + "</env>\n",
                     "Today's date is 2026-11-28.\n" * 40 + RULES):
            moved, kept = self.prompts([{"role": "system", "content": text}, {"role": "user", "content": "x"}])
            self.assertEqual(spoken(moved), spoken(kept))
        report = self.ask("/v1/chat/completions", {"messages": [{"role": "system", "content": text}, {"role": "user", "content": "x"}]})
        self.assertEqual(len(report["agent_noise"]), 32)
        system = [{"role": "system", "content": text_blocks("Today's date is 2026-11-28.", "x", "y")}] * 800
        report = self.ask("/v1/chat/completions", {"messages": [*system, {"role": "user", "content": "x"}]})
        self.assertEqual(len(report["agent_noise"]), 16)  # of as many messages


class Tools(NoiseCase):
    """The template writes tool definitions after the system text: what moves comes after them, too."""
    template = AFTER_SYSTEM

    def test_definitions_hit(self):
        tools = [{"type": "function", "function": {"name": t["name"], "description": t["description"], "parameters": t["input_schema"]}} for t in TOOLS]

        def body(n):
            return {"messages": [{"role": "system", "content": SYSTEM[3][1](n)}, {"role": "user", "content": "How many?"}], "tools": tools}
        report = self.check_sessions("/v1/chat/completions", body(1), body(2), SYSTEM[3][1](2).split(RULES)[1].replace(SKILLS, ""))
        self.assertEqual(self.rules(report), {"opencode: environment"})
        moved, kept = self.prompts(body(1)["messages"], tools=tools)
        self.assertEqual(spoken(moved), spoken(kept))
        self.assertLess(moved.index("get_11"), moved.index("<env>"))
        self.assertEqual(self.rules(self.check_sessions("/v1/messages", claude_code(1), claude_code(2), git_status(2) * 3)) >= {"claude-code: date"}, True)

    def test_truncation_keeps_it_in_the_system_message(self):
        messages = [{"role": "system", "content": SYSTEM[3][1](1)}, {"role": "user", "content": "How many?"}]
        moved, _ = self.prompts(messages, truncation="auto")
        self.assertLess(moved.index("<env>"), moved.index("<|im_end|>"))


class Shifted(NoiseCase):
    """anomalyco/opencode#23595: a reminder that moves from message to message. Only an approximation reuses what is between: on request."""
    options = ("--shifted-reuse", "32")

    def turn(self, at, **fields):
        """Two long questions; a reminder ends question `at`."""
        texts = [f"{RULES[:1200]} What is the first?", f"{SKILLS[:1200]} What is the second?"]
        texts[at] += "\n<system-reminder>\nYou are in plan mode. You must not edit files.\n</system-reminder>"
        messages = [{"role": "user", "content": texts[0]}, {"role": "assistant", "content": "It is. " + RULES[600:1500]}, {"role": "user", "content": texts[1]}]
        return self.ask("/v1/chat/completions", {"messages": messages, **fields})

    def test_moving_reminders(self):
        self.turn(0)
        shifted = [part for part in self.turn(1)["parts"] if part["shift"]]
        self.assertEqual([(part["reused"], part["exact"], part["shift"] < 0) for part in shifted], [(True, False, True)])
        for fields in ({"reuse": "exact"}, {"shifted_reuse": -1}, {"reuse": "exact", "shifted_reuse": 32}):
            with self.subTest(fields):
                self.turn(0, cache_salt=str(fields))
                report = self.turn(1, cache_salt=str(fields), **fields)
                self.assertEqual([part["shift"] for part in report["parts"] if not part["exact"]], [])


class AllLines(NoiseCase):
    options = ("--agent-noise", "all")

    def test_lines_of_any_client(self):
        def ask(head, **fields):
            return self.ask("/v1/chat/completions", {"messages": [{"role": "system", "content": f"x-request-id: {head}\n{RULES}\nIt is {head}.\n{SKILLS}"},
                                                                  {"role": "user", "content": "How many?"}], **fields})
        ask("2026-11-22")
        again = ask("2026-11-23")
        self.assertGreater(again["cached_tokens"], again["prompt_tokens"] - 60)
        self.assertEqual([(one["rule"], one["action"]) for one in again["agent_noise"]], [("volatile line", "moved")] * 2)
        self.assertEqual(again["hints"], [])
        tools = [{"type": "function", "function": {"name": f"get_{i}", "description": "Counts boxes."}} for i in range(3)]
        ask("2026-11-22", tools=tools, tool_choice="auto")
        answer = ask("2027-10-13", tools=tools, tool_choice="auto")
        self.assertGreater(answer["cached_tokens"], answer["prompt_tokens"] - 80)
        alone = self.ask("/v1/chat/completions", {"messages": [{"role": "system", "content": "It is 2026-11-22."}, {"role": "user", "content": "x"}]})
        self.assertIn("last message", alone["hints"][0]["do"])  # there is nothing to move it after
        self.assertEqual(alone["agent_noise"], [])


if __name__ == "__main__":
    unittest.main()
