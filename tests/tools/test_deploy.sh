#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The texts for operators in share/: options that they name exist, the chart's objects agree with each other; HAProxy and systemd read their files
# where they are installed. `make test-deploy` uses more programs.
set -euo pipefail
cd "$REPRISE_SOURCE_DIR"
if ! python3 -c 'import yaml' 2>/dev/null; then
    echo "skip deploy: Python's yaml is not here" >&2
    exit 0
fi
tools/check_deploy --self-test
tools/check_deploy --program "$REPRISE_PROGRAM"
echo "ok   deploy"
