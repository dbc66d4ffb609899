# SPDX-License-Identifier: Apache-2.0
# How everything is compiled: language, warnings, floating point, sanitizers. Applied through the target reprise-options,
# which is never installed.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(reprise-options INTERFACE)

# No contraction: a*b+c rounds as it is written, on every compiler and in every build (the exactness rule). No
# -ffast-math and no -march=native either; files named after an instruction set alone get its flags
# (InstructionSets.cmake).
target_compile_options(
  reprise-options INTERFACE -ffp-contract=off -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes
                            -Wmissing-prototypes $<$<BOOL:${REPRISE_WERROR}>:-Werror>)

# Assertions and logs name files from the root of the tree on: builds of two folders are equal.
target_compile_options(reprise-options INTERFACE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)

if(REPRISE_SANITIZE)
  target_compile_options(reprise-options INTERFACE -fsanitize=${REPRISE_SANITIZE} -fno-sanitize-recover=all
                                                   -fno-omit-frame-pointer)
  target_link_options(reprise-options INTERFACE -fsanitize=${REPRISE_SANITIZE})
endif()

if(REPRISE_COVERAGE)
  target_compile_options(reprise-options INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(reprise-options INTERFACE --coverage)
endif()

if(REPRISE_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "REPRISE_FUZZ needs clang: cmake --preset fuzz")
  endif()
  target_compile_options(reprise-options INTERFACE -fsanitize=fuzzer-no-link)
endif()
