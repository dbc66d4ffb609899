#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds every fuzzer for OSS-Fuzz or ClusterFuzzLite: see README.md. They set CC, CFLAGS, LIB_FUZZING_ENGINE and OUT;
# CMake has the list of fuzzers. Without them it builds the same with this machine's clang:
# OUT=/tmp/fuzzers fuzz/oss-fuzz/build.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${OUT:?OUT, a folder for the fuzzers, is not set}"
work=${WORK:-$PWD/build-fuzz}/oss-fuzz
engine=${LIB_FUZZING_ENGINE:--fsanitize=fuzzer}
flags=${CFLAGS:--O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all}

# Debug without flags of its own: CFLAGS chooses optimisation and sanitizers. The fuzzers run on a machine without our libraries, which
# are therefore copied to $OUT/lib; --disable-new-dtags makes the path hold for the libraries' own libraries, too.
cmake -S . -B "$work" -G Ninja -DCMAKE_C_COMPILER="${CC:-clang}" -DCMAKE_C_FLAGS="$flags" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG= \
    -DCMAKE_EXE_LINKER_FLAGS='-Wl,-rpath,$ORIGIN/lib,--disable-new-dtags' -DREPRISE_FUZZ=ON -DREPRISE_FUZZ_ENGINE="$engine" >/dev/null
cmake --build "$work" --target fuzzers

mkdir -p "$OUT/lib"
while read -r name; do
    cp "$work/fuzz/$name" "$OUT/"
    ldd "$work/fuzz/$name" | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | grep -vE '/lib(c|m|pthread|dl|rt|gcc_s)\.so' | xargs -r cp -nt "$OUT/lib"
    corpus=fuzz/corpus/${name#fuzz_}
    [ ! -d "$corpus" ] || python3 -m zipfile -c "$OUT/${name}_seed_corpus.zip" "$corpus"/*
    printf '[libfuzzer]\nmax_len = 65536\nrss_limit_mb = 2560\ntimeout = 25\n' >"$OUT/$name.options"
done <"$work/fuzz/fuzzers.txt"
ls -1 "$OUT"
