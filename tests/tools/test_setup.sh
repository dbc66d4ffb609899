#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plain `make` installs nothing: it names missing packages and `make setup`, and stops. `make test` and `make demo` install them first.
set -euo pipefail
cd "$REPRISE_SOURCE_DIR"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_setup: $1" >&2; [ ! -f "$work/out" ] || cat "$work/out" >&2; exit 1; }

# An apt-get that only notes how it was called, and no library that pkg-config finds.
mkdir "$work/bin"
printf '#!/bin/sh\necho "$@" >>"%s/apt"\n' "$work" >"$work/bin/apt-get"
chmod +x "$work/bin/apt-get"
export PATH="$work/bin:$PATH" PKG_CONFIG_LIBDIR="$work" MAKEFLAGS=
unset MAKELEVEL # `make test` runs this too: no lines of a make within make

make all >"$work/out" 2>&1 && fail "make goes on without libraries"
grep -q '^missing: .*libexpat1-dev' "$work/out" || fail "make does not name the missing packages"
grep -q 'make setup' "$work/out" || fail "make does not say what to do"
[ ! -e "$work/apt" ] || fail "make calls apt-get"

if [ "$(id -u)" -eq 0 ]; then
    tools/setup >"$work/out" 2>&1 || fail "make setup fails"
    grep -q 'install .*libexpat1-dev' "$work/apt" || fail "make setup does not install what is missing"
fi
for goal in test demo; do
    make -n $goal >"$work/out" 2>&1 || true
    [ "$(grep -n -m1 '^tools/setup$' "$work/out" | cut -d: -f1)" = 1 ] || fail "make $goal does not begin with tools/setup"
done
make -n all >"$work/out" 2>&1
! grep -qx 'tools/setup' "$work/out" || fail "make calls tools/setup"

unset PKG_CONFIG_LIBDIR
tools/setup --check >"$work/out" 2>&1 || fail "something is missing on the machine that built this"
echo "ok   setup"
