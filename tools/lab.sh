#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The lab: a chroot of Debian sid, outside of the tree, with the software that Reprise is compared with: Hugging Face
# transformers, torch and llama.cpp. Needed to regenerate tests/golden, never to build or to test. tools/test_deb makes
# a chroot of Debian 12 with it.
#
#   tools/lab.sh setup            creates the lab if it does not exist
#   tools/lab.sh run CMD ARG...   runs a command in it; the repository is /repo there, and the working directory
#   tools/lab.sh golden [NAME...] regenerates tests/golden, all or some models, and lets llama.cpp check it
#   tools/lab.sh formats          regenerates tests/golden/formats
#   tools/lab.sh samplers         regenerates tests/golden/samplers.txt
#   tools/lab.sh vocabularies     regenerates tests/golden/vocab
#   tools/lab.sh embeddings       regenerates tests/golden/embeddings, and the WordPiece vocabularies of tests/golden/vocab
#   tools/lab.sh tokenizers [SECONDS [SEED]]
#                                 compares build/token_ids with other tokenizers on random texts
#
# REPRISE_LAB         its folder: /var/tmp/reprise-lab unless set; 2 GB
# REPRISE_LAB_MIRROR  a Debian mirror; unless set, the one of this machine's apt
# REPRISE_LAB_SUITE   the Debian suite: sid unless set
# REPRISE_LAB_ROOT    the chroot's folder: SUITE in that of the lab unless set
# REPRISE_LAB_PACKAGES  the packages to install, instead of those below; installed packages stay
#
# Needs root: it mounts in a namespace of its own, and no mount remains.
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
lab=${REPRISE_LAB:-/var/tmp/reprise-lab}
suite=${REPRISE_LAB_SUITE:-sid}
root=${REPRISE_LAB_ROOT:-$lab/$suite}

packages=(
    python3-torch python3-transformers python3-gguf   # the reference, and the writer of GGUF
    python3-sentencepiece python3-tokenizers          # reference tokenizers
    libllama-dev llama.cpp-tools gcc libc6-dev        # the peer, and a compiler for its client
)

[ -z "${REPRISE_LAB_PACKAGES:-}" ] || read -ra packages <<<"$REPRISE_LAB_PACKAGES"

fail() { echo "lab: $1" >&2; exit 1; }

mirror() {
    [ -z "${REPRISE_LAB_MIRROR:-}" ] || { echo "$REPRISE_LAB_MIRROR"; return; }
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -m1 -E '/debian/?$' ||
        fail "apt's sources name no Debian mirror; set REPRISE_LAB_MIRROR"
}

# Runs a command in the chroot, with the repository, /proc and /dev mounted.
inside() {
    unshare --mount bash -euc '
        root=$1 repo=$2; shift 2
        mount --bind "$repo" "$root/repo"
        mount --rbind /dev "$root/dev"
        mount -t proc proc "$root/proc"
        exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PYTHONDONTWRITEBYTECODE=1 \
            HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 sh -c "cd /repo && exec \"\$@\"" lab "$@"' lab "$root" "$repo" "$@"
}

# apt of the chroot: no fsync, no recommended packages, no documentation; the mirror may be a snapshot some weeks old.
configure() {
    mkdir -p "$root.new/repo"
    cat >"$root.new/etc/apt/apt.conf.d/99lab" <<'APT'
APT::Install-Recommends "false";
Acquire::Check-Valid-Until "false";
Acquire::Check-Date "false";
APT
    cat >"$root.new/etc/dpkg/dpkg.cfg.d/lab" <<'DPKG'
force-unsafe-io
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/locale/*
DPKG
    printf '#!/bin/sh\nexit 101\n' >"$root.new/usr/sbin/policy-rc.d" # no package starts a service
    chmod +x "$root.new/usr/sbin/policy-rc.d"
}

bootstrap() {
    command -v debootstrap >/dev/null || apt-get install -y -q --no-install-recommends debootstrap >/dev/null 2>&1 ||
        fail "debootstrap is missing and apt-get could not install it: run apt-get update, then again"
    local from
    from=$(mirror)
    rm -rf "$root.new"
    mkdir -p "$lab"
    echo "lab: debootstrap of $suite from $from into $root"
    debootstrap --variant=minbase "$suite" "$root.new" "$from" >"$lab/debootstrap.log" 2>&1 ||
        fail "debootstrap failed: $(grep -E '^[EW]:' "$lab/debootstrap.log" | tail -1) (see $lab/debootstrap.log)"
    configure
    mv "$root.new" "$root"
}

has_packages() { chroot "$root" dpkg -s "${packages[@]}" 2>/dev/null | grep -c '^Status: install ok installed' | grep -qx ${#packages[@]}; }

setup() {
    [ "$(id -u)" -eq 0 ] || fail "needs root: debootstrap and chroot do"
    [ -d "$root" ] || bootstrap
    has_packages && return
    echo "lab: installing ${packages[*]}"
    { inside dpkg --configure -a && inside apt-get update -q && inside apt-get install -y -q "${packages[@]}" && inside apt-get clean; } \
        >"$lab/apt.log" 2>&1 || fail "apt-get failed in $root: $(grep -E '^E:' "$lab/apt.log" | tail -1) (see $lab/apt.log)"
}

case ${1:-} in
setup) setup; echo "lab: ready in $root" ;;
run)
    [ $# -gt 1 ] || fail "run what? tools/lab.sh run CMD ARG..."
    setup
    shift
    inside "$@"
    ;;
golden)
    setup
    shift
    inside python3 tools/golden/make.py "$@"
    inside python3 tools/golden/peer.py "$@"
    ;;
formats)
    setup
    inside python3 tools/golden/formats.py
    ;;
samplers)
    setup
    inside sh -c 'gcc -O2 -Wall -Wextra tools/golden/samplers.c -lllama -o /tmp/samplers && /tmp/samplers' >"$repo/tests/golden/samplers.txt.new"
    mv "$repo/tests/golden/samplers.txt.new" "$repo/tests/golden/samplers.txt"
    ;;
vocabularies)
    setup
    inside python3 tools/golden/vocabularies.py
    ;;
embeddings)
    setup
    inside python3 tools/golden/embeddings.py
    ;;
tokenizers)
    setup
    shift
    [ -x "$repo/build/token_ids" ] || fail "build/token_ids is missing: run make"
    cd "$repo"
    coproc ours { exec build/token_ids; }
    # reopened: bash closes a coprocess's descriptors, and copies of them, when it runs a program
    inside python3 tools/golden/compare_tokenizers.py "$@" 3</dev/fd/"${ours[0]}" 4>/dev/fd/"${ours[1]}"
    ;;
*) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
