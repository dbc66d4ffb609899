#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The checks of CI find a planted fault of each kind. .ci/run refuses unknown steps, and every step is known to the forge and to CONTRIBUTING.md.
set -euo pipefail
cd "$REPRISE_SOURCE_DIR"
tools/check-includes --self-test
tools/check-format --self-test
tools/check-docs --self-test
tools/make_site --self-test

steps=$(.ci/run --list | awk '{ print $1 }')
for file in .github/workflows/ci.yml CONTRIBUTING.md; do
    for step in $steps; do
        grep -qE "(^|[^a-z-])$step([^a-z-]|\$)" "$file" ||
            { echo "test_checks: $file does not know the step $step of .ci/run" >&2; exit 1; }
    done
done
if .ci/run no-such-step 2>/dev/null; then echo "test_checks: .ci/run accepts an unknown step" >&2; exit 1; fi
echo "ok   checks"
