# SPDX-License-Identifier: Apache-2.0
"""python -m reprise: command.py."""

import sys

from .command import main

sys.exit(main())
