# Instruction sets: files named src/kernels/<folder>/*_<set>.c alone get the flags of their set, and those of other architectures are not
# compiled. The levels that they make are in src/base/cpu.h.

set(reprise_flags_avx2 -mavx2 -mfma -mf16c)
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

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(reprise_kernel_folder x86)
  set(reprise_sets avx2)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(reprise_kernel_folder arm)
  set(reprise_sets neon dotprod i8mm)
else()
  set(reprise_kernel_folder generic)
  set(reprise_sets "")
endif()

# Takes out of a list of sources what this architecture cannot run, and gives the rest their flags.
function(reprise_instruction_sets list)
  set(files ${${list}})
  foreach(folder x86 arm)
    if(NOT folder STREQUAL reprise_kernel_folder)
      list(FILTER files EXCLUDE REGEX "/src/kernels/${folder}/")
    endif()
  endforeach()
  foreach(set IN LISTS reprise_sets)
    set(own ${files})
    list(FILTER own INCLUDE REGEX "_${set}\\.c$")
    set_source_files_properties(${own} PROPERTIES COMPILE_OPTIONS "${reprise_flags_${set}}")
  endforeach()
  set(${list} ${files} PARENT_SCOPE)
endfunction()
