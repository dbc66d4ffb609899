#!/usr/bin/env bash
# What the compiler made of each level's products: the instructions that the level is for, and none that its processors may lack.
# REPRISE_BUILD_DIR: the build; OBJDUMP: of its architecture.
set -euo pipefail
build=${REPRISE_BUILD_DIR:?} failed=0 checked=0

# expect FILE WANTED UNWANTED: patterns of lines that the disassembly holds, and holds not.
expect() {
    local object
    object=$(find "$build" -path "*/src/kernels/*/$1.c.o" | head -1)
    [ -n "$object" ] || return 0 # of another architecture
    "${OBJDUMP:-objdump}" -d --no-show-raw-insn "$object" >"$build/instructions"
    checked=$((checked + 1))
    local wanted unwanted
    wanted=$(grep -cE "$2" "$build/instructions" || true)
    unwanted=$(grep -cE "$3" "$build/instructions" || true)
    echo "$1: $wanted x $2, $unwanted x $3"
    [ "$wanted" -gt 0 ] && [ "$unwanted" -eq 0 ] || failed=1
}

expect linear_generic '\bret' '%ymm|%zmm'
expect linear_quant_avx2 'vpmaddubsw.*%ymm' 'vpdpbusd|%zmm|%[xy]mm(1[6-9]|2[0-9]|3[01])|%k[1-7]'
expect linear_quant_avxvnni '\{vex\} vpdpbusd .*%ymm' '%zmm|%[xy]mm(1[6-9]|2[0-9]|3[01])|%k[1-7]'
expect linear_quant_avx512 'vpdpbusd .*%zmm' '\{vex\}'
expect linear_float_avx512 'vfmadd.*%zmm' 'vdpbf16ps'
expect attention_avx512 'vfmadd.*%zmm' 'vdpbf16ps'
expect linear_quant_neon '\bsmlal' '\b(sdot|smmla)\b'
expect linear_quant_dotprod '\bsdot\b' '\bsmmla\b'
expect linear_quant_i8mm '\bsmmla\b' '\bsdot\b'
rm -f "$build/instructions"
[ "$checked" -gt 0 ] || { echo "no objects in $build" >&2; exit 1; }
exit $failed
