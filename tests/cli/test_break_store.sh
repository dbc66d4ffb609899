#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/break_store with fixed seeds, one of each scenario and those that found something; `make break-store` draws new ones.
set -euo pipefail
root=${REPRISE_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
for scenario in foreign kill damage full rights; do "$root/tools/break_store" 60 --seed 1 --rounds 1 --only $scenario; done
# The library that injects errors cannot be loaded before a sanitizer's.
if grep -qs '^REPRISE_SANITIZE:STRING=.' "${REPRISE_BUILD_DIR:-$root/build}/CMakeCache.txt"; then exit 0; fi
# A record that could not be examined for once (EMFILE) lost its row, and with it its pin.
"$root/tools/break_store" 120 --seed 1384926892 --rounds 1 --only fault
