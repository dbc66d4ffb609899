#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random requests from the grammar of HTTP/1.1 and mutations that break it (header_grammar.py)."""
import os
import unittest

import header_grammar
from server_process import ServerCase

SEED = int(os.environ.get("REPRISE_TEST_SEED", 20261128))
N = 10000 if os.environ.get("REPRISE_TEST_ABUSE") == "full" else 400


class HeaderGrammar(ServerCase):
    options = ("--head-timeout", "60000", "--body-timeout", "60000", "--idle-timeout", "60000")  # no limit of time hides a hang

    def test_one_reply_each(self):
        print(f"header grammar: REPRISE_TEST_SEED={SEED}")
        self.assertEqual(header_grammar.attack(self.server, SEED, n=N), N)
        self.assertEqual(self.server.wait_idle()["reprise_body_bytes"], 0)

    def test_every_illegal_head(self):
        """Each kind of illegal head, whatever the seed is: one 400, and the end."""
        generator = header_grammar.Generator(SEED)
        for what, change in header_grammar.ILLEGAL.items():
            data = change(generator.rng, generator.head(b"GET", b"/livez")) + header_grammar.BODY % 1
            with self.subTest(what=what, data=data):
                found = header_grammar.replies_of(header_grammar.exchange(self.server, generator.rng, data, True))
                self.assertEqual([status for status, _ in found], [400])


if __name__ == "__main__":
    unittest.main()
