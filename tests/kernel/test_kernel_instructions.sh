#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Instructions of each level's compiled products: those that define the level, and none that its processors may lack.
# REPRISE_BUILD_DIR: the build; OBJDUMP: of its architecture.
set -euo pipefail
build=${REPRISE_BUILD_DIR:?} failed=0

objdump() { command "${OBJDUMP:-objdump}" "$@"; }
object() { find "$build" -path "*/src/kernels/*/$1.c.o" | head -1; }
case $(objdump -f "$(object linear_generic)") in
*x86-64*) architecture=x86 ;;
*aarch64*) architecture=arm ;;
*) echo "no objects in $build, or of an architecture without levels" >&2; exit 1 ;;
esac

# expect ARCHITECTURE FILE WANTED UNWANTED: patterns that the disassembly must contain, and must not contain.
expect() {
    [ "$1" = $architecture ] || return 0
    local wanted unwanted
    objdump -d --no-show-raw-insn "$(object "$2")" >"$build/instructions"
    wanted=$(grep -cE "$3" "$build/instructions" || true)
    unwanted=$(grep -cE "$4" "$build/instructions" || true)
    echo "$2: $wanted x $3, $unwanted x $4"
    [ "$wanted" -gt 0 ] && [ "$unwanted" -eq 0 ] || failed=1
}

wide='%zmm|%[xy]mm(1[6-9]|2[0-9]|3[01])|%k[1-7]' # AVX-512
expect x86 linear_generic '\bret' '%ymm|%zmm'
expect x86 linear_quant_avx2 'vpmaddubsw.*%ymm' "vpdpbusd|$wide"
expect x86 linear_float_avx2 'vfmadd.*%ymm' "$wide"
expect x86 attention_avx2 'vfmadd.*%ymm' "$wide"
expect x86 vector_avx2 'vfmadd.*%ymm' "$wide"
expect x86 linear_quant_avxvnni '\{vex\} vpdpbusd .*%ymm' "$wide"
expect x86 linear_quant_avx512 'vpdpbusd .*%zmm' '\{vex\}|vdpbf16ps'
expect x86 linear_quant_amx 'tdpbssd ' '\{vex\}|vdpbf16ps'
expect x86 attention_int8_avx2 'vpmaddwd.*%ymm' "vpdpwssd|$wide"
expect x86 attention_int8_avxvnni '\{vex\} vpdpwssd .*%ymm' "$wide"
expect x86 attention_int8_avx512 'vpdpwssd .*%zmm' '\{vex\}|vdpbf16ps'
expect x86 linear_float_avx512 'vfmadd.*%zmm' '\{vex\}|vdpbf16ps'
expect x86 attention_avx512 'vfmadd.*%zmm' '\{vex\}|vdpbf16ps'
expect arm linear_generic '\bret' '\b(sdot|smmla)\b'
expect arm linear_quant_neon '\bsmlal' '\b(sdot|smmla)\b'
expect arm linear_float_neon '\bfmla\b' '\b(sdot|smmla)\b'
expect arm attention_neon '\bfmla\b' '\b(sdot|smmla)\b'
expect arm attention_int8_neon '\bsmlal' '\b(sdot|smmla)\b'
expect arm vector_neon '\bfmla\b' '\b(sdot|smmla)\b'
expect arm linear_quant_dotprod '\bsdot\b' '\bsmmla\b'
expect arm linear_quant_i8mm '\bsmmla\b' '\bsdot\b'
rm -f "$build/instructions"
exit $failed
