#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The folder of a store: what is no store is not touched, only a store's own names are removed, no symbolic link is followed, everything is its
owner's alone; a store that cannot be used stops nobody; what a crash left is told from damage."""
import json
import os
import re
import resource
import shutil
import sqlite3
import stat
import subprocess
import tempfile
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
MODEL = os.path.join(SOURCE, "models", "reprise-mini.gguf")
SCHEMA = "<schema name='s'>Tom had <module name='a'>a red ball.</module><module name='b'>a dog.</module></schema>"
PROMPT = "<prompt schema='s'><a/>Where is it?</prompt>"


def reprise(*args, **more):
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True, check=False, **more)


def snapshot(folder):
    """Every name below, with kind, mode, time and bytes."""
    found = {}
    for at, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(at, name)
            st = os.lstat(path)
            content = b""
            if stat.S_ISREG(st.st_mode):
                with open(path, "rb") as f:
                    content = f.read()
            found[os.path.relpath(path, folder)] = (st.st_mode, st.st_mtime_ns if stat.S_ISREG(st.st_mode) else 0, content)
    return found


def write(path, text="x"):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def fill(path):
    """Until the disk is full."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        while os.write(fd, b"x" * 4096) > 0:
            pass
    except OSError:
        pass
    os.close(fd)


class StoreFolder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.schema, cls.prompt = (os.path.join(cls.folder.name, name) for name in ("s.xml", "p.xml"))
        write(cls.schema, SCHEMA)
        write(cls.prompt, PROMPT)
        cls.made = os.path.join(cls.folder.name, "made")
        cls.answer = cls.run_prompt(cls.made)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def run_prompt(cls, store, *more, **how):
        done = reprise("run", "-m", MODEL, "--schema", cls.schema, "--pml", cls.prompt, "-n", "3", "--json", "--store", store, *more, **how)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def setUp(self):
        self.own = tempfile.TemporaryDirectory()
        self.addCleanup(self.own.cleanup)
        self.store = os.path.join(self.own.name, "store")
        shutil.copytree(self.made, self.store)

    def path(self, *names):
        return os.path.join(self.store, *names)

    def cache(self, part, *args, status=0):
        done = reprise("cache", part, "--store", self.store, *args)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status in (0, 3) else done.stderr

    def rows(self):
        return json.loads(self.cache("ls", "--all", "--json"))["rows"]

    def check_answer(self, from_disk=None, **how):
        answer = self.run_prompt(self.store, **how)
        self.assertEqual(answer["text"], self.answer["text"])
        if from_disk is not None:
            self.assertEqual("disk" in {line["tier"] for line in answer["plan"]}, from_disk)

    def refused(self, folder, says):
        before = snapshot(folder)
        bundle = os.path.join(self.own.name, "s.rpb")
        if not os.path.exists(bundle):
            self.cache("export", "s", bundle)
        for args in (["run", "-m", MODEL, "--raw", "-p", "Tom", "-n", "1", "--store", folder], ["serve", "-m", MODEL, "--port", "0", "--store", folder],
                     ["run", "-m", MODEL, "--raw", "-p", "Tom", "-n", "1", "--read-only", "--store", folder],
                     ["cache", "gc", "--store", folder], ["cache", "rm", "--all", "--store", folder], ["cache", "pin", "--all", "--store", folder],
                     ["cache", "rebuild", "--store", folder], ["cache", "import", bundle, "--store", folder]):
            with self.subTest(args=args):
                done = reprise(*args)
                self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)
                self.assertIn("neither empty nor a Reprise store", done.stderr)
                self.assertIn(says, done.stderr)
                self.assertIn(os.path.realpath(folder), done.stderr)
                self.assertEqual(snapshot(folder), before)

    # ---- folders that are no store ----

    def test_foreign_folders_are_refused_and_not_touched(self):
        p = os.path.join(self.own.name, "p")
        write(os.path.join(p, "1", "photo.jpg"))
        write(os.path.join(p, "a", "main.c"))
        with sqlite3.connect(os.path.join(p, "index.db")) as db:
            db.execute("create table t(x)")
        db.close()
        self.refused(p, "(it contains '")

    def test_an_index_of_another_program_beside_a_lock(self):
        p = os.path.join(self.own.name, "p")
        write(os.path.join(p, "lock"), "")
        with sqlite3.connect(os.path.join(p, "index.db")) as db:
            db.execute("create table records(x)")
        db.close()
        self.refused(p, "'index.db'")

    def test_a_marker(self):
        with open(self.path("reprise-store"), encoding="utf-8") as f:
            self.assertRegex(f.read(), r"^reprise store\nformat 1\nversion \S+\ncreated \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n$")
        with open(self.path("reprise-store"), "w", encoding="utf-8") as f:
            f.write("reprise store\nformat 2\n")
        before = snapshot(self.store)
        self.assertIn("newer version", self.cache("gc", status=1))
        self.check_answer(from_disk=False)  # an engine goes on without it
        self.assertEqual(snapshot(self.store), before)

    def test_stores_without_a_marker_become_marked(self):
        os.remove(self.path("reprise-store"))
        with sqlite3.connect(self.path("index.db")) as db:
            db.execute("pragma application_id = 0")
        db.close()
        self.check_answer(from_disk=True)
        self.assertTrue(os.path.exists(self.path("reprise-store")))
        with sqlite3.connect(self.path("index.db")) as db:
            self.assertEqual(db.execute("pragma application_id").fetchone(), (0x52505369,))
        db.close()

    def test_an_empty_file_system_becomes_a_store(self):
        os.mkdir(os.path.join(self.own.name, "new"))
        os.mkdir(os.path.join(self.own.name, "new", "lost+found"))
        self.run_prompt(os.path.join(self.own.name, "new"))

    # ---- foreign names in a store ----

    def test_only_own_names_are_removed(self):
        key = self.rows()[0]["key"]
        other = "0123456789abcdef".replace(key[0], "")[0]
        foreign = [("1", "photo.jpg"), ("a", "x.tmp"), ("bad", "notes.txt"), ("2", ".hidden"), (other, key + ".rps"),
                   (key[0], key + ".rps.tmp"), (key[0], key + ".rps.1-1.tmp"), ("README",)]
        for names in foreign:
            write(self.path(*names))
        os.makedirs(self.path("3", "3" * 64 + ".rps"))  # a folder with the name of a record
        own = [(key[0], key + ".rps.77-1f-0.tmp"), ("bad", "5" * 64 + ".rps")]
        for names in own:
            write(self.path(*names))
        left = [self.path(*names) for names in foreign]
        self.assertEqual(json.loads(self.cache("stat", "--json"))["foreign"], len(left) + 1)
        self.assertIn("not part of the store: ignored", self.cache("stat"))
        self.check_answer(from_disk=True)
        self.cache("gc")
        for path in left:
            self.assertTrue(os.path.isfile(path), path)
        self.assertTrue(os.path.isdir(self.path("3", "3" * 64 + ".rps")))
        for names in own:
            self.assertFalse(os.path.exists(self.path(*names)), names)
        self.assertIn("no errors", self.cache("verify"))

    def test_no_link_below_the_folder_is_followed(self):
        outside = os.path.join(self.own.name, "outside")
        key = self.rows()[0]["key"]
        os.makedirs(os.path.join(outside, "sub"))
        write(os.path.join(outside, key + ".rps.1-1-1.tmp"))
        write(os.path.join(outside, "bad", "5" * 64 + ".rps"))
        shutil.copytree(self.path(key[0]), os.path.join(outside, "records"))
        before = snapshot(outside)
        shutil.rmtree(self.path(key[0]))
        os.symlink(os.path.join(outside, "records"), self.path(key[0]))
        os.symlink(os.path.join(outside, "bad"), self.path("bad"))
        for digit in "0123456789abcdef":
            if not os.path.lexists(self.path(digit)):
                os.symlink(outside, self.path(digit))
        os.remove(self.path("lock"))
        os.symlink(os.path.join(outside, "lock"), self.path("lock"))
        self.check_answer()
        self.assertEqual(snapshot(outside), before)
        os.remove(self.path("lock"))
        self.check_answer()
        self.cache("rm", "--all")
        self.cache("gc")
        self.cache("rebuild")
        os.rename(self.path("index.db"), os.path.join(outside, "index.db"))
        os.symlink(os.path.join(outside, "index.db"), self.path("index.db"))
        before = snapshot(outside)
        self.check_answer()
        self.assertEqual(snapshot(outside), before)

    def test_the_folder_itself_may_be_a_link(self):
        link = os.path.join(self.own.name, "link")
        os.symlink(self.store, link)
        self.assertIn("disk", {line["tier"] for line in self.run_prompt(link)["plan"]})

    # ---- rights ----

    def test_everything_is_its_owners_alone(self):
        os.chmod(self.store, 0o755)
        os.chmod(self.path("index.db"), 0o644)
        done = reprise("run", "-m", MODEL, "--raw", "-p", "Tom", "-n", "1", "--store", self.store, env={**os.environ, "REPRISE_LOG": "warn"},
                       preexec_fn=lambda: os.umask(0))
        self.assertEqual(len([line for line in done.stderr.splitlines() if "chmod 700" in line]), 1, done.stderr)
        new = os.path.join(self.own.name, "new")
        os.mkdir(new, 0o700)
        self.run_prompt(new, preexec_fn=lambda: os.umask(0))
        for folder in (self.store, new):
            for at, folders, files in os.walk(folder):
                for name in folders + files:
                    mode = os.lstat(os.path.join(at, name)).st_mode
                    self.assertEqual(mode & 0o077, 0, f"{name}: {mode:o}")

    # ---- stores that cannot be used now ----

    def pinned(self):
        return sorted(row["key"] for row in self.rows() if row["pinned"])

    def test_a_locked_index_is_left_alone(self):
        self.cache("pin", "s/a")
        pins = self.pinned()
        db = sqlite3.connect(self.path("index.db"), isolation_level=None)
        db.execute("pragma locking_mode = exclusive")
        db.execute("begin exclusive")
        try:
            self.check_answer(from_disk=True)  # read-only: the files say what they are
        finally:
            db.execute("rollback")
            db.close()
        self.assertEqual(self.pinned(), pins)
        self.assertFalse(os.path.exists(self.path("index.db.bad")))

    def test_few_open_files(self):
        self.cache("pin", "s/a")
        pins = self.pinned()
        for limit in (5, 6, 7, 8, 10):
            done = reprise("run", "-m", MODEL, "--raw", "-p", "Tom", "-n", "1", "--store", self.store,
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
            if "open_files" not in done.stderr and done.returncode != 0:
                self.assertIn("model", done.stderr)  # it could not even be read
        self.assertEqual(self.pinned(), pins)
        self.assertFalse(os.path.exists(self.path("index.db.bad")))

    @unittest.skipIf(os.geteuid() != 0, "mounts a small file system")
    def test_a_full_disk(self):
        disk = os.path.join(self.own.name, "disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "none", disk], capture_output=True, check=False).returncode != 0:
            self.skipTest("no file system can be mounted")
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        shutil.copytree(self.store, os.path.join(disk, "store"))
        self.store = os.path.join(disk, "store")
        self.cache("pin", "s/a")
        pins, rows = self.pinned(), self.rows()
        write(self.path("bad", "5" * 64 + ".rps"), "x" * 4096)
        write(self.path(rows[0]["key"][0], rows[0]["key"] + ".rps.1-1-1.tmp"), "x" * 100000)
        fill(os.path.join(disk, "filler"))
        self.check_answer(from_disk=True)
        self.assertEqual(json.loads(reprise("cache", "ls", "--json", "--all", "--store", self.store).stdout)["records"], len(rows))
        self.assertIn("1 leftover", self.cache("gc"))
        self.assertEqual(self.pinned(), pins)
        fill(os.path.join(disk, "filler"))
        self.assertIn("removed s/a", self.cache("rm", "s/a"))
        self.cache("rm", "--all")
        os.remove(os.path.join(disk, "filler"))
        self.assertEqual(self.rows(), [])
        self.assertIn("no errors", self.cache("verify"))

    # ---- what a crash left, and damage ----

    def test_verify_tells_leftovers_from_damage(self):
        key = self.rows()[0]["key"]
        write(self.path(key[0], key + ".rps.1-1-1.tmp"))
        self.assertIn("nothing is damaged", self.cache("verify", status=3))
        report = json.loads(self.cache("verify", "--json", status=3))
        self.assertEqual((report["well"], report["damaged"], report["flaws"]["leftover"]), (False, False, 1))
        self.cache("gc")
        with sqlite3.connect(self.path("index.db")) as db:
            db.execute("update records set cost_us = cost_us + 1 where rowid = (select min(rowid) from records)")
        db.close()
        self.assertIn("earlier record", self.cache("verify", status=3))
        self.assertIn("1 corrected row", self.cache("gc"))
        self.assertIn("no errors", self.cache("verify"))
        with open(self.path(key[0], key + ".rps"), "r+b") as f:
            f.seek(-1, 2)
            last = f.read(1)
            f.seek(-1, 2)
            f.write(bytes([last[0] ^ 1]))
        write(self.path(key[0], key + ".rps.1-1-1.tmp"))
        self.assertEqual(reprise("cache", "verify", "--store", self.store).returncode, 1)

    def test_the_least_budget(self):
        new = os.path.join(self.own.name, "new")
        done = reprise("run", "-m", MODEL, "--raw", "-p", "Tom", "-n", "1", "--store", new, "--disk", "1M")
        self.assertEqual(done.returncode, 1, done.stderr)
        least = re.search(r"\((\d+K)\) or more", done.stderr).group(1)
        self.run_prompt(new, "--disk", least)


    def test_side_files_of_sqlite_that_are_not_ours(self):
        """Issue 46: index.db-wal, -shm, -journal and lock as hard links to a file of the caller were overwritten, and index.db was chmod-ed."""
        victim = os.path.join(self.own.name, "victim")
        for name in ("index.db", "index.db-wal", "index.db-shm", "index.db-journal", "lock"):
            for make in (os.link, os.symlink, lambda _, path: os.mkfifo(path)):
                with self.subTest(name=name, make=make):
                    shutil.rmtree(self.store)
                    shutil.copytree(self.made, self.store)
                    write(victim, "mine" * 4096)
                    os.chmod(victim, 0o644)
                    if os.path.lexists(self.path(name)):
                        os.unlink(self.path(name))
                    make(victim, self.path(name))
                    done = reprise("run", "-m", MODEL, "--schema", self.schema, "--pml", self.prompt, "-n", "3", "--json", "--store", self.store)
                    self.assertEqual((done.returncode, json.loads(done.stdout)["text"]), (0, self.answer["text"]), done.stderr)
                    self.assertIn("continuing read-only", done.stderr)
                    self.cache("gc", status=1)
                    self.cache("ls")  # from the records
                    with open(victim, encoding="utf-8") as f:
                        self.assertEqual(f.read(), "mine" * 4096)
                    self.assertEqual(stat.S_IMODE(os.stat(victim).st_mode), 0o644)


if __name__ == "__main__":
    unittest.main()
