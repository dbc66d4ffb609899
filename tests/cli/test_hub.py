#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models by name: -m hf:OWNER/REPO[:QUANT] from a hub on this machine, with its cache, and the models of other programs in `reprise models`."""
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(SOURCE, "tests", "server"))

import gguf_copy  # noqa: E402
from hub_server import COMMIT, Hub  # noqa: E402
from server_process import Server  # noqa: E402

PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
MINI = os.path.join(SOURCE, "models", "reprise-mini.gguf")
WAIT_S = 120


def read(path):
    with open(path, "rb") as file:
        return file.read()


MODEL = read(MINI)
REPO = "acme/mini-GGUF"
VARIABLES = ("HF_ENDPOINT", "HF_HOME", "HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "LLAMA_CACHE", "OLLAMA_MODELS", "XDG_CACHE_HOME",
             "XDG_DATA_HOME")


def variant(folder, name):
    """The model under another name: other bytes."""
    path = os.path.join(folder, "variant.gguf")
    gguf_copy.copy(MINI, path, {"general.name": gguf_copy.string(name)})
    return read(path)


def split():
    """The model as two files: the first has the metadata, the second the tensors."""
    whole = gguf_copy.read(MINI)

    def of_part(number):
        return {"split.no": (2, number.to_bytes(2, "little")), "split.count": (2, (2).to_bytes(2, "little")),
                "split.tensors.count": (5, whole.n_tensors.to_bytes(4, "little"))}

    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, str(i)) for i in range(2)]
        gguf_copy.Gguf({**whole.metadata, **of_part(0)}, 0, b"", b"").write(paths[0])
        gguf_copy.Gguf(of_part(1), whole.n_tensors, whole.directory, whole.body).write(paths[1])
        return [read(path) for path in paths]


class Named(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = folder.name
        self.env = {**{k: v for k, v in os.environ.items() if k not in VARIABLES}, "HOME": self.home, "no_proxy": "*"}
        self.cache = os.path.join(self.home, ".cache", "huggingface", "hub", "models--acme--mini-GGUF")

    def program(self, *args, env=None, text=None):
        return subprocess.run([PROGRAM, *args], input=text, capture_output=True, text=True, check=False, timeout=WAIT_S, env={**self.env, **(env or {})})

    def write(self, path, content):
        path = os.path.join(self.home, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path


class FromHub(Named):
    def setUp(self):
        super().setUp()
        self.q8, self.f16 = variant(self.home, "Q8"), variant(self.home, "F16")
        self.hub = Hub({REPO: {"README.md": b"# mini", "mini-F16.gguf": self.f16, "mini-Q8_0.gguf": self.q8, "mini-Q4_K_M.gguf": MODEL,
                               "mmproj-mini-Q4_K_M.gguf": b"GGUF projector"}})
        self.addCleanup(self.hub.close)
        self.env["HF_ENDPOINT"] = self.hub.url

    def path_of(self, name="hf:" + REPO, **more):
        done = self.program("pull", "--retry-delay", "0", name, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.rstrip("\n")

    def fails(self, says, name="hf:" + REPO, status=1, **more):
        done = self.program("pull", "--retry-delay", "0", "--retries", "2", name, **more)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertIn(says, done.stderr.splitlines()[-1])
        self.assertFalse(os.path.exists(os.path.join(self.cache, "refs", "main")))
        self.assertFalse(os.path.exists(os.path.join(self.cache, "snapshots")))
        return done

    def name_of(self, model, **more):
        done = self.program("inspect", "-m", model, "--json", **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["name"]

    def test_cache_is_the_hubs_own(self):
        path = self.path_of()
        self.assertEqual(path, os.path.join(self.cache, "snapshots", COMMIT, "mini-Q4_K_M.gguf"))
        blob = os.path.join("..", "..", "blobs", hashlib.sha256(MODEL).hexdigest())
        self.assertEqual(os.readlink(path), blob)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), MODEL)
        with open(os.path.join(self.cache, "refs", "main"), encoding="utf-8") as file:
            self.assertEqual(file.read(), COMMIT)
        self.assertEqual(sorted(os.listdir(os.path.join(self.cache, "blobs"))), [os.path.basename(blob)])
        files = self.hub.paths("files")
        self.assertEqual(self.path_of(), path)  # asks for the list again, and for no file
        self.assertEqual(self.hub.paths("files"), files)

    def test_quantizations(self):
        for name, content in (("", MODEL), (":Q4_K_M", MODEL), (":q8_0", self.q8), (":f16", self.f16), (":mini-F16.gguf", self.f16)):
            with self.subTest(name), open(self.path_of("hf:" + REPO + name), "rb") as file:
                self.assertEqual(file.read(), content)
        done = self.program("run", "-m", f"hf:{REPO}:Q4_K", "x")  # not a part of Q4_K_M
        self.assertEqual(done.returncode, 1)
        self.assertIn("no GGUF file of the repository has 'Q4_K' in its name: it has F16, Q4_K_M, Q8_0", done.stderr)
        del self.hub.repos[REPO]["mini-Q4_K_M.gguf"]
        with open(self.path_of(), "rb") as file:
            self.assertEqual(file.read(), self.q8)

    def test_run_downloads_once_and_is_offline_then(self):
        name = f"hf:{REPO}:Q8_0"
        self.assertEqual(self.name_of(name), "Q8")
        n = len(self.hub.asked)
        self.assertEqual(self.name_of(name), "Q8")
        self.assertEqual(len(self.hub.asked), n)  # a quantization that is in the cache: nothing is asked
        for env in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": ""}, {"HF_ENDPOINT": "http://127.0.0.1:1"}):
            with self.subTest(env):
                self.assertEqual(self.name_of(name, env=env), "Q8")
                self.assertEqual(self.name_of("hf:" + REPO, env=env), "Q8")  # not the default, but what is there
        self.assertEqual(len(self.hub.asked), n)
        self.assertNotEqual(self.name_of("hf:" + REPO), "Q8")  # the hub has the default
        self.hub.close()
        self.assertNotEqual(self.name_of("hf:" + REPO), "Q8")

    def test_resume(self):
        self.hub.plan = [lambda rest: rest[:len(rest) // 3], lambda rest: rest[:1000]]
        self.path_of()
        self.assertEqual(self.hub.ranges, [len(MODEL) // 3, len(MODEL) // 3 + 1000])

    def test_resume_in_a_later_run(self):
        self.hub.plan = [lambda rest: rest[:5000]] + 2 * [lambda rest: b""]
        done = self.program("pull", "--retry-delay", "0", "--retries", "0", f"hf:{REPO}:Q8_0")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(os.path.getsize(os.path.join(self.cache, "blobs", hashlib.sha256(self.q8).hexdigest() + ".part")), 5000)
        self.hub.plan = []
        self.path_of(f"hf:{REPO}:Q8_0")
        self.assertEqual(self.hub.ranges, [5000])

    def test_wrong_hash(self):
        self.hub.plan = [lambda rest: rest[:-1] + bytes([rest[-1] ^ 1])]
        self.fails("SHA-256 is")
        self.assertEqual(os.listdir(os.path.join(self.cache, "blobs")), [])
        self.path_of()

    def test_wrong_sizes(self):
        self.hub.edit = lambda answer: [s.update(size=s["size"] - 1) for s in answer["siblings"]]
        self.fails("more bytes than the")
        self.hub.edit = lambda answer: [s.update(size=s["size"] + 1) for s in answer["siblings"]]
        self.fails("bytes instead of")

    def test_what_is_no_model(self):
        self.hub.repos[REPO] = {"x-Q4_K_M.gguf": b"GGUF" + bytes(100)}
        self.fails("is not a readable GGUF model")
        self.hub.repos[REPO] = {"x.safetensors": b"x"}
        self.fails("the repository has no GGUF file")

    def test_hostile_lists(self):
        for path in ("../../../evil-Q4_K_M.gguf", "/evil-Q4_K_M.gguf", "a//b-Q4_K_M.gguf", "a/../b-Q4_K_M.gguf", "a\\b-Q4_K_M.gguf", "a\n-Q4_K_M.gguf",
                     "a/" * 9 + "b-Q4_K_M.gguf", "a" * 300 + "-Q4_K_M.gguf"):
            with self.subTest(path):
                self.hub.repos[REPO] = {path: MODEL}
                self.fails("the repository has no GGUF file")
        self.hub.repos[REPO] = {"mini-Q4_K_M.gguf": MODEL}
        for change in ({"lfs": {"sha256": "../../x", "size": 1}}, {"lfs": {"sha256": 7}}, {"size": -1}, {"size": 1 << 60}, {"size": "x", "lfs": None},
                       {"rfilename": 7}, {"lfs": None, "blobId": ".." * 20}):
            with self.subTest(change):
                self.hub.edit = lambda answer, change=change: answer["siblings"][0].update(change)
                self.fails("the repository has no GGUF file")
        for change in ({"sha": "../../.."}, {"sha": None}, {"siblings": {}}, {"siblings": [{}] * 20001}):
            with self.subTest(str(change)[:40]):
                self.hub.edit = lambda answer, change=change: answer.update(change)
                self.fails("is not that of a hub")
        self.hub.edit = lambda answer: answer.update(more="x" * (9 << 20))
        self.fails("the reply has more than 8388608 bytes")

    def test_split_model(self):
        parts = split()
        names = [f"Q4_K_M/big-Q4_K_M-0000{i}-of-00002.gguf" for i in (1, 2)]
        self.hub.repos[REPO] = dict(zip(names, parts))
        path = self.path_of()
        self.assertEqual(path, os.path.join(self.cache, "snapshots", COMMIT, names[0]))
        self.assertEqual(os.readlink(path), "../../../blobs/" + hashlib.sha256(parts[0]).hexdigest())
        self.assertEqual(self.program("run", "-m", "hf:" + REPO, "-n", "4", "--raw", "a").stdout,
                         self.program("run", "-m", MINI, "-n", "4", "--raw", "a").stdout)
        listed = [json.loads(line) for line in self.program("models", "--json").stdout.splitlines()]
        self.assertEqual([(m["name"], m["files"], m["bytes"]) for m in listed], [(f"hf:{REPO}:Q4_K_M", 2, sum(map(len, parts)))])
        os.unlink(os.path.join(self.cache, "snapshots", COMMIT, names[1]))
        self.assertEqual(self.program("models", "--json").stdout, "")
        del self.hub.repos[REPO][names[1]]
        done = self.program("pull", "hf:" + REPO)
        self.assertIn("the repository lacks 'Q4_K_M/big-Q4_K_M-00002-of-00002.gguf'", done.stderr)

    def test_token(self):
        self.hub.token = "hf_secret"
        self.fails("it needs a token: set HF_TOKEN")
        self.fails("it needs a token: set HF_TOKEN", env={"HF_TOKEN": "wrong"})
        self.fails("HF_TOKEN has spaces", env={"HF_TOKEN": "a b"})
        self.path_of(env={"HF_TOKEN": "hf_secret"})
        self.write(".cache/huggingface/token", b"hf_secret\n")
        self.path_of(f"hf:{REPO}:Q8_0")
        self.write("other/token", b"hf_secret")
        self.path_of(f"hf:{REPO}:F16", env={"HF_HOME": os.path.join(self.home, "other")})
        sent = {(role, key) for role, _, key in self.hub.asked}
        self.assertIn(("api", "Bearer hf_secret"), sent)
        self.assertEqual({key for role, key in sent if role == "files"}, {None})  # another host, where the hub redirects to

    def test_redirects_lead_to_http_only(self):
        for target in ("file:///etc/passwd", "ftp://127.0.0.1/x"):
            self.hub.redirect = target
            self.fails("rotocol")

    def test_new_revision(self):
        old = self.path_of()
        self.hub.commit = "f" * 40
        self.hub.repos[REPO]["mini-Q4_K_M.gguf"] = self.f16
        self.assertEqual(self.name_of("hf:" + REPO), self.name_of(MINI))  # the one that is there
        new = self.path_of()
        self.assertEqual(self.name_of("hf:" + REPO), "F16")
        self.assertNotEqual(old, new)
        self.assertTrue(os.path.exists(old))

    def test_wrong_use(self):
        for name in ("hf:", "hf:acme", "hf:acme/", "hf:/mini", "hf:acme/mini:", "hf:../mini", "hf:acme/..", "hf:acme/a/b", "hf:acme/mini:../x", "hf:a b/c"):
            with self.subTest(name):
                self.fails("hf:OWNER/REPO", name, status=2)
        self.fails("HF_ENDPOINT is not set", env={"HF_ENDPOINT": ""})
        self.fails("is no http or https URL", env={"HF_ENDPOINT": "file:///x"})
        self.fails("HF_HUB_OFFLINE is set", env={"HF_HUB_OFFLINE": "1"})
        self.fails("the hub has no such repository", "hf:acme/other")
        self.fails("cannot list its files", env={"HF_ENDPOINT": "http://127.0.0.1:1"})
        done = self.program("pull", "hf:" + REPO, "-o", self.home)
        self.assertEqual(done.returncode, 2)

    def test_chat_and_serve(self):
        done = self.program("chat", "-m", "hf:" + REPO, "-n", "4", "--history", "off", text="Hello\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("downloading mini-Q4_K_M.gguf", done.stderr)
        server = Server("--log", "off", model="hf:" + REPO, env={**self.env, "HF_HUB_OFFLINE": "1"}).wait_ready()
        self.addCleanup(server.stop)
        self.assertEqual(server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}).status, 200)


class OfOtherPrograms(Named):
    def listed(self):
        done = self.program("models", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return {m["name"]: m for m in map(json.loads, done.stdout.splitlines())}

    def ollama(self, name, content=MODEL, **layer):
        digest = hashlib.sha256(content).hexdigest()
        self.write(f".ollama/models/manifests/{name}", {"schemaVersion": 2, "layers": [
            {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:" + "0" * 64},
            {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + digest, "size": len(content), **layer}]})
        return self.write(f".ollama/models/blobs/sha256-{digest}", content)

    def test_none(self):
        done = self.program("models")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertIn("no models in " + self.home, done.stderr)

    def test_all(self):
        blob = self.ollama("registry.example/library/mini/latest")
        self.ollama("registry.example/acme/mini/1b")
        self.write(".cache/llama.cpp/acme_mini-GGUF_sub_mini-Q8_0.gguf", MODEL)
        self.write(".cache/llama.cpp/acme_mini-GGUF_sub_mini-Q8_0.gguf.json", {})
        self.write(".cache/llama.cpp/manifest=acme=mini-GGUF=Q8_0.json", {"ggufFile": {"rfilename": "sub/mini-Q8_0.gguf"}})
        self.write(".cache/llama.cpp/ggml-org_tiny.gguf", MODEL)
        self.write(".lmstudio/models/acme/mini-GGUF/mini.gguf", MODEL)
        self.write(".lmstudio/models/acme/mini-GGUF/mmproj-mini.gguf", MODEL)
        self.write(".local/share/reprise/models/own.gguf", MODEL)
        self.write(".local/share/reprise/models/other.gguf", b"GGUF nothing")
        found = self.listed()
        self.assertEqual({name: m["where"] for name, m in found.items()}, {
            "ollama:mini:latest": "ollama", "ollama:acme/mini:1b": "ollama", "llama.cpp:acme/mini-GGUF:Q8_0": "llama.cpp",
            "llama.cpp:ggml-org_tiny.gguf": "llama.cpp", "lmstudio:acme/mini-GGUF/mini.gguf": "lmstudio", "own.gguf": "reprise", "other.gguf": "reprise"})
        self.assertEqual(found["ollama:mini:latest"], {"name": "ollama:mini:latest", "where": "ollama", "path": blob, "bytes": len(MODEL), "files": 1,
                                                        "architecture": "llama", "supported": True, "quantization": found["own.gguf"]["quantization"]})
        self.assertRegex(found["own.gguf"]["quantization"], r"^[A-Z0-9_]+$")
        self.assertEqual((found["other.gguf"]["architecture"], found["other.gguf"]["supported"]), ("", False))
        table = self.program("models").stdout.splitlines()
        self.assertEqual(table[0].split(), ["NAME", "SIZE", "ARCHITECTURE", "QUANT", "WHERE"])
        self.assertEqual(len(table), 1 + len(found))
        self.assertIn("(unreadable)", [line for line in table if line.startswith("other.gguf")][0])
        expected = self.program("run", "-m", MINI, "-n", "4", "--raw", "a").stdout
        for name in ("ollama:mini:latest", "mini:latest", "ollama:mini", "mini:1b", "acme/mini-GGUF:Q8_0", "lmstudio:acme/mini-GGUF/mini.gguf", "mini.gguf",
                     "own.gguf"):
            with self.subTest(name):
                done = self.program("run", "-m", name, "-n", "4", "--raw", "a")
                self.assertEqual((done.returncode, done.stdout), (0, expected), done.stderr)
        self.assertEqual(self.program("models", "mini:latest").stdout, blob + "\n")
        self.write(".lmstudio/models/other/mini-GGUF/mini.gguf", MODEL)
        done = self.program("run", "-m", "mini.gguf", "a")
        self.assertEqual(done.returncode, 2)
        self.assertIn("several models have this name: give one of lmstudio:acme/mini-GGUF/mini.gguf, lmstudio:other/mini-GGUF/mini.gguf", done.stderr)
        for name in ("nothing.gguf", "ollama:nothing", "./own.gguf"):
            self.assertEqual(self.program("run", "-m", name, "a").returncode, 1)

    def test_hostile_manifests(self):
        self.write("secret.gguf", MODEL)
        for i, digest in enumerate(("sha256:../../../secret.gguf", "sha256:" + "g" * 64, "../secret.gguf", 7, "sha256:" + "a" * 64)):
            self.ollama(f"h/library/m{i}/latest", digest=digest)
        self.write(".ollama/models/manifests/h/library/big/latest", b" " * (2 << 20))
        self.write(".ollama/models/manifests/h/library/deep/latest", b"[" * 100000)
        self.write(".ollama/models/manifests/h/library/short", b"{}")
        self.write(".cache/llama.cpp/manifest=a=b=c.json", {"ggufFile": {"rfilename": "../../secret.gguf"}})
        self.write(".cache/llama.cpp/manifest=a=b=d.json", {"ggufFile": 7})
        self.assertEqual(self.listed(), {})

    def test_loops_and_depth(self):
        models = os.path.join(self.home, ".lmstudio", "models")
        self.write(".lmstudio/models/a/b/m.gguf", MODEL)
        self.write(".lmstudio/models/" + "d/" * 12 + "m.gguf", MODEL)
        os.symlink(models, os.path.join(models, "a", "loop"))
        os.mkfifo(os.path.join(models, "pipe.gguf"))
        self.assertIn("lmstudio:a/b/m.gguf", self.listed())
        self.assertLess(len(self.listed()), 8)

    def test_variables(self):
        for variable, path, name in (("LLAMA_CACHE", "x/m.gguf", "llama.cpp:m.gguf"), ("XDG_DATA_HOME", "x/reprise/models/m.gguf", "m.gguf"),
                                     ("HF_HUB_CACHE", "x/models--a--b/snapshots/" + "1" * 40 + "/m-Q8_0.gguf", "hf:a/b:Q8_0"),
                                     ("HF_HOME", "x/hub/models--a--b/snapshots/" + "1" * 40 + "/m.gguf", "hf:a/b:m.gguf")):
            with self.subTest(variable):
                self.write(os.path.join(variable, path), MODEL)
                done = self.program("models", "--json", env={variable: os.path.join(self.home, variable, "x")})
                self.assertEqual([json.loads(line)["name"] for line in done.stdout.splitlines()], [name])
                self.assertEqual(self.program("run", "-m", name, "-n", "1", "--raw", "a", env={variable: os.path.join(self.home, variable, "x")}).returncode, 0)


if __name__ == "__main__":
    unittest.main()
