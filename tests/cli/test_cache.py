#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise cache`: its parts over a real store; `simulate`: table, JSON, curves, the trace of REPRISE_TEST_DATA; what it says when it is
used wrongly."""
import json
import os
import re
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
TRACE = os.path.join(os.environ.get("REPRISE_TEST_DATA", "/nowhere"), "traces", "mooncake_conversation_trace.jsonl")
MODEL = os.path.join(SOURCE, "models", "reprise-mini.gguf")
SCHEMA = """<schema name="cities"><system>You are a guide.</system><user><module name="plan">Plan a trip to this city.
<union><module name="miami">Welcome to Miami.</module><module name="lisbon">Lisbon is best seen on foot.</module></union></module>
<module name="{long}">And a module with a long name.</module></user></schema>"""
LONG = "a" * 60
POLICIES = ["LRU", "LFU", "ARC", "S3-FIFO", "Reprise", "optimum"]


def cache(*args, stdin=None):
    return subprocess.run([PROGRAM, "cache", *args], capture_output=True, text=True, check=False, input=stdin)


def line(ids, tokens=None):
    return json.dumps({"timestamp": 0, "input_length": tokens or 512 * len(ids), "output_length": 1, "hash_ids": ids}) + "\n"


class Cache(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        # room for three: LRU drops 3 for 4, the future keeps it
        self.trace = self.path("small.jsonl", line([1, 2]) + line([3]) + line([1, 2], 1000) + line([4]) + line([3]))

    def path(self, name, content=None):
        path = os.path.join(self.folder.name, name)
        if content is not None:
            with open(path, "w", encoding="utf-8") as f:
                f.write(content)
        return path

    def simulate(self, *args):
        done = cache("simulate", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def fails(self, status, says, *args):
        done = cache(*args)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(says, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_wrong_use(self):
        self.fails(2, "needs a command")
        self.fails(2, "did you mean 'simulate'", "simulat")
        self.fails(2, "'reprise cache --help'", "zzz")
        self.fails(2, "unknown option '--json'", "--json")
        self.fails(2, "needs TRACE", "simulate")
        self.fails(2, "unexpected argument", "simulate", self.trace, "x")
        for sizes in ("", "0", "1/0", "3/2", "1/2,", "x", "-1", "1.5", "1/2/3", "99999999999999999999", ",".join(["1"] * 65)):
            with self.subTest(sizes=sizes):
                self.fails(2, "--sizes", "simulate", self.trace, "--sizes", sizes)

    def test_weights(self):
        env = {**os.environ, "XDG_CACHE_HOME": os.path.join(self.folder.name, "none", "cache")}
        folder = os.path.join(env["XDG_CACHE_HOME"], "reprise", "weights")

        def program(*args):
            return subprocess.run([PROGRAM, *args], capture_output=True, text=True, check=False, env=env)

        def answer(*args):
            done = program("run", "-m", MODEL, "--raw", "-p", "Tom", "-n", "4", *args)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        def files(*args):
            return json.loads(program("cache", "weights", "--json", *args).stdout)["files"]

        expected = answer("--weights-cache", "off")
        self.assertEqual(answer(), expected)  # small models get no file unless a limit is given
        self.assertFalse(os.path.exists(folder))
        for _ in range(2):
            self.assertEqual(answer("--weights-cache", "1G"), expected)
        if not os.path.exists(folder):
            return  # this processor does not repack
        [first] = files("--verify")
        self.assertEqual((first["fault"], first["temporary"], os.path.dirname(first["path"])), ("", False, folder))
        self.assertEqual(os.stat(first["path"]).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700)
        with open(first["path"], "r+b") as f:
            f.seek(first["bytes"] - 3)
            byte = f.read(1)
            f.seek(first["bytes"] - 3)
            f.write(bytes([byte[0] ^ 1]))
        self.assertEqual(program("cache", "weights").returncode, 0)
        damaged = program("cache", "weights", "--verify")
        self.assertEqual(damaged.returncode, 1)
        self.assertIn("(damaged)", damaged.stdout)
        os.truncate(first["path"], first["bytes"] // 2)
        self.assertIn("removed 1 file", program("cache", "weights", "--gc").stdout)
        self.assertEqual(answer("--weights-cache", "1G"), expected)
        self.assertIn("removed 0 files", program("cache", "weights", "--rm", "0" * 64).stdout)
        self.assertIn("removed 1 file", program("cache", "weights", "--rm", first["model"][:8]).stdout)
        store = os.path.join(self.folder.name, "store")
        for _ in range(2):
            self.assertEqual(answer("--store", store, "--weights-cache", "1G"), expected)
        [kept] = files("--store", store)
        self.assertEqual(os.path.dirname(kept["path"]), os.path.join(store, "weights"))
        usage = json.loads(program("cache", "stat", "--store", store, "--json").stdout)
        self.assertEqual((usage["weights_files"], usage["weights_bytes"], usage["foreign"]), (1, kept["bytes"], 0))
        self.assertIn("removed 1 file", program("cache", "weights", "--store", store, "--rm", "all").stdout)
        self.fails(2, "exclude each other", "weights", "--gc", "--verify")
        self.fails(2, "at least 4 digits", "weights", "--rm", "12")
        done = program("run", "-m", MODEL, "--raw", "-p", "Tom", "--weights-cache", "0")
        self.assertEqual(done.returncode, 2)
        self.assertIn("or 'off'", done.stderr)

    def test_traces_are_checked(self):
        self.fails(1, "/nowhere/x", "simulate", "/nowhere/x")
        self.fails(1, ":2: ", "simulate", self.path("bad.jsonl", line([1]) + "[]\n"))
        other = self.path("other.jsonl", line([1, 2]) + line([3, 2]))
        self.fails(1, "request 1: block 2 follows another block", "simulate", other)
        self.fails(1, "/nowhere/c.svg", "simulate", self.trace, "--svg", "/nowhere/c.svg")

    def test_help(self):
        listed, explained = cache("--help"), cache("simulate", "--help")
        self.assertIn("simulate", listed.stdout)
        for args, same in ((["cache"], listed), (["cache", "simulate"], explained)):
            done = subprocess.run([PROGRAM, "help", *args], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (0, same.stdout))
        with open(os.path.join(SOURCE, "docs", "man", "reprise-cache.1"), encoding="utf-8") as f:
            page = f.read()
        options = re.findall(r"^ +(?:-., )?--([a-z]+)", explained.stdout, re.M)
        self.assertGreater(len(options), 4)
        for option in options:
            self.assertIn(f"Fl -{option}", page)

    def test_results_worked_out_by_hand(self):
        report = json.loads(self.simulate(self.trace, "--sizes", "4,3/4", "--json", "--attention", "1000000000"))
        self.assertEqual((report["requests"], report["blocks"], report["working_set_blocks"], report["prompt_tokens"]), (5, 7, 4, 3560))
        three, four = report["sizes"]
        self.assertEqual((three["size"], three["blocks"], four["size"], four["blocks"]), ("3/4", 3, "4", 4))
        self.assertEqual(list(three["policies"]), POLICIES)
        self.assertEqual(three["policies"]["LRU"]["hit_tokens"], 1000)
        self.assertEqual(three["policies"]["optimum"]["hit_tokens"], 1512)
        for policy in POLICIES:
            cell = four["policies"][policy]
            self.assertEqual(cell["hit_tokens"], 1512)
            self.assertAlmostEqual(cell["hit_percent"], 100 * 1512 / 3560, places=2)
            self.assertAlmostEqual(cell["saved_percent"], cell["hit_percent"], places=2)
        few = json.loads(self.simulate(self.trace, "--count", "2", "--json"))
        self.assertEqual((few["requests"], few["working_set_blocks"]), (2, 3))

    def test_table(self):
        rows = self.simulate(self.trace, "--sizes", "1/2,3").splitlines()
        self.assertEqual(rows[-3].split(), ["size", "blocks"] + POLICIES)
        self.assertEqual(rows[-2].split()[:2], ["1/2", "2"])
        self.assertEqual(rows[-1].split()[:2], ["3", "3"])
        with open(self.trace, encoding="utf-8") as f:
            self.assertEqual(cache("simulate", "-", "--sizes", "1/2,3", stdin=f.read()).stdout.splitlines(), rows)

    def test_curves(self):
        for sizes in ("1/4,1/2,1/1", "2", "3,3"):
            svg = self.path("curves.svg")
            self.simulate(self.trace, "--sizes", sizes, "--svg", svg)
            root = ElementTree.parse(svg).getroot()
            curves = [e for e in root.iter("{http://www.w3.org/2000/svg}polyline")]
            self.assertEqual(len(curves), 2 * len(POLICIES))  # with the legend's
            for curve in curves:
                for point in curve.get("points").split():
                    x, y = map(float, point.split(","))
                    self.assertTrue(0 <= x <= float(root.get("width")) and 0 <= y <= float(root.get("height")))
            text = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
            for policy in POLICIES:
                self.assertIn(policy, text)

    @unittest.skipUnless(os.path.exists(TRACE), "REPRISE_TEST_DATA has no trace")
    def test_our_policy_saves_more(self):
        report = json.loads(self.simulate(TRACE, "--json"))
        self.assertEqual(report["working_set_blocks"], 182790)
        for size in report["sizes"][:-1]:
            saved = {policy: cell["saved_percent"] for policy, cell in size["policies"].items()}
            for policy in ("LRU", "LFU", "ARC", "S3-FIFO"):
                self.assertGreater(saved["Reprise"], saved[policy], size["size"])
            self.assertGreaterEqual(saved["optimum"], saved["Reprise"])
        self.assertEqual(len({cell["hit_tokens"] for cell in report["sizes"][-1]["policies"].values()}), 1)


class Store(unittest.TestCase):
    """The parts that work on a store, as a user sees them."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.made = os.path.join(cls.folder.name, "made")
        cls.key = os.path.join(cls.folder.name, "key")
        with open(cls.key, "w", encoding="utf-8") as f:
            f.write("5a" * 32 + "\n")
        os.chmod(cls.key, 0o600)
        cls.run_prompts(cls.made)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def run_prompts(cls, store, *more):
        schema = os.path.join(cls.folder.name, "cities.xml")
        with open(schema, "w", encoding="utf-8") as f:
            f.write(SCHEMA.format(long=LONG))
        prompts = []
        for name in ("miami", "lisbon"):
            path = os.path.join(cls.folder.name, name + ".xml")
            with open(path, "w", encoding="utf-8") as f:
                f.write(f'<prompt schema="cities"><plan><{name}/></plan><{LONG}/>Where to?</prompt>')
            prompts += ["--pml", path]
        done = subprocess.run([PROGRAM, "run", "-m", MODEL, "--schema", schema, *prompts, "-n", "4", "--store", store, "--json", *more],
                              capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def setUp(self):
        self.copies = tempfile.TemporaryDirectory()
        self.addCleanup(self.copies.cleanup)
        self.store = os.path.join(self.copies.name, "store")
        subprocess.run(["cp", "-r", self.made, self.store], check=True)

    def cache(self, part, *args, status=0, store=None, errors=0):
        done = cache(part, "--store", store or self.store, *args)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), errors, done.stderr)
        return done.stderr if errors else done.stdout

    def rows(self, *args, store=None):
        return json.loads(self.cache("ls", "--json", *args, store=store))["rows"]

    def names(self, *args, store=None):
        return [row["name"] for row in self.rows(*args, store=store)]

    def record(self, name):
        key = next(row["key"] for row in self.rows("--all") if row["name"] == name)
        return os.path.join(self.store, key[0], key + ".rps")

    def test_ls(self):
        lines = self.cache("ls").splitlines()
        self.assertRegex(lines[0], "^model [0-9a-f]{16}$")
        self.assertEqual(lines[1].split(), ["NAME", "TOKENS", "SIZE", "KV", "TIER", "USES", "USED", "TTL", "PIN"])
        self.assertEqual([line.split()[0] for line in lines[2:7]],
                         ["cities", "cities/" + LONG, "cities/plan", "cities/plan/lisbon", "cities/plan/miami"])
        self.assertTrue(lines[7].startswith("(prompts and answers)"))
        self.assertRegex(lines[-1], r"^5 modules in \d+ records, \d+ tokens, [0-9.]+ [KM]iB$")
        self.assertEqual(len({line.index(" disk ") for line in lines[2:8]}), 1)
        whole = json.loads(self.cache("ls", "--json"))
        self.assertEqual(whole["bytes"], sum(row["bytes"] for row in whole["rows"]))
        self.assertEqual(whole["records"], len(self.rows("--all")))
        self.assertEqual(self.names("cities/plan"), ["cities/plan", "cities/plan/lisbon", "cities/plan/miami"])
        sizes = [row["bytes"] for row in self.rows("--sort", "size")]
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        self.assertIn("'nope'", self.cache("ls", "nope", status=1, errors=1))

    def test_ls_fits_a_terminal(self):
        command = f"stty cols 80; {PROGRAM} cache ls --store {self.store}"
        shown = subprocess.run(["script", "-qec", command, "/dev/null"], capture_output=True, text=True, check=False,
                               env=dict(os.environ, LC_ALL="C.UTF-8"))
        if shown.returncode != 0:
            self.skipTest("there is no script(1)")
        lines = shown.stdout.replace("\r", "").splitlines()
        self.assertTrue(any("\u2026" in line for line in lines), lines)
        for line in lines:
            self.assertLessEqual(len(line), 80, line)

    def test_another_model_is_shown_as_such(self):
        self.run_prompts(self.store, "--kv-format", "f32")
        rows = self.rows()
        models = sorted({row["model"] for row in rows})
        self.assertEqual(len(models), 2)
        self.assertEqual(self.cache("ls").count("\nmodel "), 1)  # and one in the first line
        self.assertEqual({row["model"] for row in self.rows("--model", models[0][:6])}, {models[0]})
        stat = json.loads(self.cache("stat", "--json"))
        self.assertEqual([m["model"] for m in stat["models"]], models)
        self.assertIn("removed", self.cache("rm", "--model", models[1][:10]))
        self.assertEqual({row["model"] for row in self.rows()}, {models[0]})

    def test_kv_formats_are_reported(self):
        self.run_prompts(self.store, "--kv-format", "int8")
        formats = {row["kv_format"] for row in self.rows()}
        self.assertEqual(formats, {"f16", "int8"})
        stat = json.loads(self.cache("stat", "--json"))
        self.assertEqual(sum(f["records"] for f in stat["kv_formats"]), stat["records"])
        self.assertEqual({f["kv_format"] for f in stat["kv_formats"]}, {"f16", "int8"})
        f16, int8 = (next(f for f in stat["kv_formats"] if f["kv_format"] == name) for name in ("f16", "int8"))
        self.assertEqual(f16["tokens"], int8["tokens"])
        self.assertLess(int8["bytes"], f16["bytes"])
        self.assertRegex(self.cache("stat"), r"(?m)^KV int8 ")

    def test_layers_in_f16(self):
        int8, mixed, file = (os.path.join(self.copies.name, name) for name in ("int8", "mixed", "cities.rpb"))
        self.run_prompts(int8, "--kv-format", "int8")
        cold = self.run_prompts(mixed, "--kv-format", "int8", "--kv-f16-layers", "1-2")
        size = {store: sum(row["bytes"] for row in self.rows(store=store)) for store in (self.store, int8, mixed)}
        self.assertEqual({row["kv_format"] for row in self.rows(store=mixed)}, {"int8"})
        self.assertLess(size[int8], size[mixed])
        self.assertLess(size[mixed], size[self.store])
        schema = ("--schema", os.path.join(self.folder.name, "cities.xml"))

        def recomputed(*args):
            report = self.cache("verify", "-m", MODEL, "--sample", "0", "--kv-format", "int8", *args, *schema, "--json", store=mixed)
            return json.loads(report)["recomputed"]
        counts = recomputed("--kv-f16-layers", "2,1")
        self.assertGreater(counts["checked"], 0)
        self.assertEqual((counts["different"], counts["unreadable"]), (0, 0))
        self.assertEqual(recomputed()["candidates"], 0)  # of another fingerprint, as with other layers
        self.assertEqual(recomputed("--kv-f16-layers", "0")["candidates"], 0)
        self.cache("export", "cities", file, store=mixed)
        other = os.path.join(self.copies.name, "other")
        self.cache("import", file, store=other)
        warm = self.run_prompts(other, "--kv-format", "int8", "--kv-f16-layers", "1-2")
        self.assertEqual([r["tokens"] for r in warm], [r["tokens"] for r in cold])
        self.assertIn("disk", {line["tier"] for line in warm[0]["plan"]})

    def test_stat(self):
        stat = json.loads(self.cache("stat", "--json"))
        taken = sum(os.lstat(os.path.join(at, name)).st_blocks * 512
                    for at, folders, files in os.walk(self.store) for name in folders + files)
        self.assertEqual(stat["total_bytes"], taken + os.lstat(self.store).st_blocks * 512)
        self.assertEqual((stat["pinned"], stat["expired"], stat["bad"], stat["leftovers"], stat["encrypted"]), (0, 0, 0, 0, 0))
        self.assertEqual(stat["records"], stat["modules"] + stat["texts"])
        shown = self.cache("stat")
        for word in ("records", "modules", "prompts and answers", "encrypted", "pinned", "index", "total", "model "):
            self.assertIn(word, shown)
        self.assertLessEqual(max(len(line) for line in shown.splitlines() if not line.startswith("store ")), 80)

    def test_verify(self):
        self.assertRegex(self.cache("verify"), r"^\d+ records, .* read: no errors\n$")
        path = self.record("cities/plan/miami")
        with open(path, "r+b") as f:
            f.seek(-1, 2)
            last = f.read(1)
            f.seek(-1, 2)
            f.write(bytes([last[0] ^ 1]))
        lines = self.cache("verify", status=1).splitlines()
        self.assertTrue(lines[0].startswith("damaged ") and path in lines[0], lines)
        self.assertIn("1 finding", lines[-1])
        report = json.loads(self.cache("verify", "--json", status=1))
        self.assertEqual((report["well"], report["flaws"]["record"], report["findings"][0]["path"]), (False, 1, path))
        self.assertTrue(os.path.exists(path))

    def test_verify_names_what_cannot_be_recomputed(self):
        plain = self.cache("verify", "-m", MODEL, "--sample", "0")
        counts = json.loads(self.cache("verify", "-m", MODEL, "--sample", "0", "--json"))["recomputed"]
        self.assertEqual(counts["candidates"], counts["checked"] + counts["unknown_scope"] + counts["unknown_module"])
        self.assertGreater(counts["unknown_scope"], 0)
        self.assertRegex(plain, rf"(?m)^{counts['unknown_scope']} records? not recomputed: text after modules \(a store does not hold which ")
        self.assertRegex(plain, rf"(?m)^{counts['unknown_module']} records? not recomputed: modules whose schema was not given")
        plain = self.cache("verify", "-m", MODEL, "--sample", "0", "--schema", os.path.join(self.folder.name, "cities.xml"))
        self.assertIn("text after modules", plain)
        self.assertNotIn("modules whose schema", plain)

    def test_rm(self):
        self.assertRegex(self.cache("rm", "cities/plan"), r"removed cities/plan/miami: 1 record, [^\n]*\nremoved 3 records, ")
        self.assertEqual(self.names(), ["cities", "cities/" + LONG, ""])
        key = self.rows("--all")[0]["key"]
        self.assertIn("removed cities: 1 record, ", self.cache("rm", "--key", key[:12]))
        self.assertIn("removed 0 records", self.cache("rm", "--expired"))
        self.cache("rm", "--all")
        self.assertEqual(self.cache("ls"), "no records\n")
        self.assertIn("'cities': see 'reprise cache ls'", self.cache("rm", "cities", status=1, errors=1))

    def test_pin(self):
        self.assertIn("pinned cities/plan/miami: 1 record", self.cache("pin", "cities/plan/miami"))
        self.assertEqual([row["name"] for row in self.rows() if row["pinned"]], ["cities/plan/miami"])
        self.assertTrue(any(line.startswith("cities/plan/miami ") and line.endswith(" yes") for line in self.cache("ls").splitlines()))
        self.cache("unpin", "--all")
        self.assertFalse(any(row["pinned"] for row in self.rows()))

    def test_gc_and_rebuild(self):
        left = self.record("cities/plan") + ".1-1-1.tmp"
        with open(left, "w", encoding="utf-8") as f:
            f.write("half")
        self.assertIn("1 leftover", self.cache("gc"))
        self.assertFalse(os.path.exists(left))
        before = [(row["key"], row["name"], row["uses"]) for row in self.rows("--all")]
        self.assertIn(f"entered {len(before)} records", self.cache("rebuild"))
        self.assertEqual([(row["key"], row["name"], row["uses"]) for row in self.rows("--all")], before)
        self.assertIn("no errors", self.cache("verify"))

    def test_export_and_import(self):
        file, other = os.path.join(self.copies.name, "cities.rpb"), os.path.join(self.copies.name, "other")
        cold = self.run_prompts(os.path.join(self.copies.name, "cold"))
        self.assertRegex(self.cache("export", "cities", file), r"^exported cities: \d+ records, \d+ tokens, ")
        self.assertIn("imported cities: ", self.cache("import", file, store=other))
        self.assertIn("were already in the store", self.cache("import", file, store=other))
        warm = self.run_prompts(other)
        self.assertEqual([r["text"] for r in warm], [r["text"] for r in cold])
        self.assertEqual([r["tokens"] for r in warm], [r["tokens"] for r in cold])
        self.assertIn("disk", {line["tier"] for line in warm[0]["plan"]})
        with open(file, "r+b") as f:
            f.seek(5000)
            byte = f.read(1)
            f.seek(5000)
            f.write(bytes([byte[0] ^ 4]))
        third = os.path.join(self.copies.name, "third")
        self.assertIn("record 1 of ", self.cache("import", file, store=third, status=1, errors=1))
        self.assertEqual(self.cache("ls", store=third), "no records\n")
        self.assertIn("'paris'", self.cache("export", "paris", file, status=1, errors=1))

    def test_encrypted(self):
        secret, file = os.path.join(self.copies.name, "secret"), os.path.join(self.copies.name, "cities.rpb")
        os.chmod(self.key, 0o644)
        self.assertIn("others may read or change the store's key (mode 644): chmod 600",
                      self.cache("ls", "--store-key", self.key, store=self.made, status=2, errors=1))
        os.chmod(self.key, 0o600)
        self.run_prompts(secret, "--store-key", self.key)
        self.assertIn("(encrypted: give --store-key)", self.cache("ls", store=secret))
        self.assertEqual(self.names("--store-key", self.key, store=secret)[:1], ["cities"])
        self.assertIn("give their key", self.cache("export", "cities", file, store=secret, status=1, errors=1))
        self.cache("export", "cities", file, "--store-key", self.key, store=secret)
        self.assertIn("cipher", self.cache("verify", store=secret, status=1))
        self.cache("verify", "--store-key", self.key, store=secret)
        other = os.path.join(self.copies.name, "other")
        self.cache("import", file, "--store-key", self.key, store=other)
        stat = json.loads(self.cache("stat", "--json", store=other))
        self.assertEqual((stat["encrypted"], stat["unreadable"]), (stat["records"], stat["records"]))

    def test_used_wrongly(self):
        for args in (["rm"], ["rm", "--key", "xyz1"], ["rm", "--key", "ab"], ["pin", "--model", ""], ["ls", "--sort", "age"],
                     ["ls", "a", "b"],
                     ["export", "cities"], ["import"], ["gc", "cities"]):
            with self.subTest(args=args):
                self.cache(*args, status=2, errors=1)
        for part in ("ls", "stat", "verify", "rm", "pin", "unpin", "gc", "rebuild", "export", "import"):
            with self.subTest(part=part):
                args = {"rm": ["--all"], "pin": ["--all"], "unpin": ["--all"], "export": ["a", "b"], "import": ["a"]}.get(part, [])
                done = cache(part, *args)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn("needs --store: give --store DIR", done.stderr)
                status = 1
                self.cache(part, *args, store="/nowhere/store", status=status, errors=1)
                if part != "import":
                    self.cache(part, *args, store=self.copies.name, status=status, errors=1)  # a folder that is no store

    def test_an_engine_has_it(self):
        holder = subprocess.Popen(["flock", "-x", os.path.join(self.store, "lock"), "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        holder.stdin.write(b"x\n")
        holder.stdin.flush()
        holder.stdout.readline()  # it has the lock
        try:
            for args in (["rm", "--all"], ["pin", "--all"], ["unpin", "--all"], ["gc"], ["rebuild"], ["import", "x"]):
                self.assertIn("the store is in use by", self.cache(*args, status=1, errors=1))
            for part in ("ls", "stat"):
                self.cache(part)
            self.assertIn("were not compared", self.cache("verify"))
        finally:
            holder.stdin.close()
            holder.wait()
            holder.stdout.close()

    def test_help_and_the_manual_agree(self):
        listed = cache("--help").stdout
        with open(os.path.join(SOURCE, "docs", "man", "reprise-cache.1"), encoding="utf-8") as f:
            page = f.read()
        parts = re.findall(r"^  ([a-z]+) +[a-z]", listed, re.M)
        self.assertGreaterEqual(set(parts), {"ls", "stat", "verify", "rm", "pin", "unpin", "gc", "rebuild", "export", "import", "simulate"})
        for part in parts:
            self.assertIn(part, page)
            for option in re.findall(r"^ +(?:-., )?--([a-z0-9-]+)", cache(part, "--help").stdout, re.M):
                self.assertIn("Fl -" + option, page, part)


if __name__ == "__main__":
    unittest.main()
