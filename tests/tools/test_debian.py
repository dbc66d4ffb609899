#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""debian/ agrees with the tree: version, SONAME, build dependencies. `make test-deb` builds and uses the packages."""
import os
import re
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as f:
        return f.read()


class Debian(unittest.TestCase):
    def test_version_and_soname(self):
        major, minor, patch = (re.search(rf"#define RP_VERSION_{part} (\d+)", read("include", "reprise.h"))[1] for part in ("MAJOR", "MINOR", "PATCH"))
        self.assertRegex(read("debian", "changelog"), rf"\Areprise \({major}\.{minor}\.{patch}-\d+\) ")
        packages = re.findall(r"^Package: (\S+)", read("debian", "control"), re.M)
        self.assertEqual(packages, ["reprise", f"libreprise{major}.{minor}", f"libreprise-tools{major}.{minor}", f"libreprise-server{major}.{minor}", "libreprise-dev", "python3-reprise",
                                    "reprise-doc"])
        for package in packages:
            self.assertTrue(os.path.exists(os.path.join(SOURCE, "debian", f"{package}.install")), package)

    def test_build_dependencies(self):
        """Of tools/packages.txt all that the build needs: what is not for tests, nor always there on a builder."""
        needed = set()
        for line in read("tools", "packages.txt").split("\n[", 1)[0].splitlines():
            if line and not line.startswith("#"):
                name, _, purpose = line.split(None, 2)
                if "tests" not in purpose or name == "python3":
                    needed.add(name)
        given = re.search(r"^Build-Depends: ((?:.*\n)(?: .*\n)*)", read("debian", "control"), re.M)[1]
        listed = {re.split(r"[ (]", item.strip())[0] for item in given.split(",")}
        self.assertEqual(needed - listed, {"build-essential"})
        self.assertEqual(listed - needed, {"debhelper-compat", "dh-sequence-installsysusers", "dh-sequence-python3"})


if __name__ == "__main__":
    unittest.main()
