# SPDX-License-Identifier: Apache-2.0
# Instruction sets: files named *_<set>.c alone get the flags of their set, and those of other architectures are not
# compiled. The levels that they make are in src/base/cpu.h.

set(reprise_flags_avx2 -mavx2 -mfma -mf16c)
set(reprise_flags_avxvnni ${reprise_flags_avx2} -mavxvnni)
set(reprise_flags_avx512 ${reprise_flags_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni)
# The number of bits of a shift is an int for gcc's intrinsics and unsigned for clang's.
list(APPEND reprise_flags_avx512 -Wno-sign-conversion)
set(reprise_flags_amx ${reprise_flags_avx512} -mamx-tile -mamx-int8)
set(reprise_flags_neon "")
set(reprise_flags_dotprod -march=armv8.2-a+dotprod)
set(reprise_flags_i8mm -march=armv8.2-a+dotprod+i8mm)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  # Before registers are chosen gcc moves loads forward until none is left: 23,158 loads and stores of vectors on the stack in
  # linear_quant_neon.c, 2,302 without (gcc 12; on x86-64 it is off anyway).
  foreach(set neon dotprod i8mm)
    list(APPEND reprise_flags_${set} -fno-schedule-insns)
  endforeach()
endif()

# Products keep unpacked weights on the stack: 32 KiB at most (src/kernels/README.md). Sanitizers make frames larger.
set(reprise_sets_flags -Wframe-larger-than=32768)
if(REPRISE_SANITIZE)
  set(reprise_sets_flags -O1)
endif()
if(REPRISE_SANITIZE MATCHES "undefined")
  # With these three, which AddressSanitizer sees anyway, clang needs three minutes and more for a file, without them half of one.
  list(APPEND reprise_sets_flags -fno-sanitize=null,pointer-overflow,object-size)
endif()

set(reprise_sets_x86 avx2 avxvnni avx512 amx)
set(reprise_sets_arm neon dotprod i8mm)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(reprise_sets ${reprise_sets_x86})
  set(reprise_foreign_sets ${reprise_sets_arm})
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(reprise_sets ${reprise_sets_arm})
  set(reprise_foreign_sets ${reprise_sets_x86})
else()
  set(reprise_sets "")
  set(reprise_foreign_sets ${reprise_sets_x86} ${reprise_sets_arm})
endif()

# Takes out of a list of sources what this architecture cannot run, and gives the rest their flags.
function(reprise_instruction_sets list)
  set(files ${${list}})
  foreach(set IN LISTS reprise_foreign_sets)
    list(FILTER files EXCLUDE REGEX "_${set}\\.c$")
  endforeach()
  foreach(set IN LISTS reprise_sets)
    set(own ${files})
    list(FILTER own INCLUDE REGEX "_${set}\\.c$")
    set_source_files_properties(${own} PROPERTIES COMPILE_OPTIONS "${reprise_flags_${set}};${reprise_sets_flags}")
  endforeach()
  set(${list} ${files} PARENT_SCOPE)
endfunction()
