# SPDX-License-Identifier: Apache-2.0
# The kernels and tests/kernel alone (REPRISE_KERNELS_ONLY): what can be built for another machine without its libraries.

enable_testing()
find_package(Threads REQUIRED)

file(GLOB base_sources CONFIGURE_DEPENDS src/base/*.c)
list(FILTER base_sources EXCLUDE REGEX "/hash\\.c$") # libsodium
file(GLOB_RECURSE kernel_sources CONFIGURE_DEPENDS src/kernels/*.c src/model/gguf/*.c) # golden blocks are GGUF
file(GLOB support_sources CONFIGURE_DEPENDS tests/support/kernel_*.c tests/support/*_on_avx2.c tests/support/vector_path.c tests/support/seed.c)
reprise_instruction_sets(kernel_sources)
reprise_instruction_sets(support_sources)

add_library(reprise-kernels STATIC ${base_sources} ${kernel_sources} ${support_sources})
target_include_directories(reprise-kernels PUBLIC src include tests)
target_compile_definitions(reprise-kernels PRIVATE REPRISE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(reprise-kernels PUBLIC reprise-options Threads::Threads m)

file(GLOB test_files CONFIGURE_DEPENDS tests/kernel/test_*.c)
foreach(file IN LISTS test_files)
  cmake_path(GET file STEM name)
  add_executable(${name} ${file})
  target_link_libraries(${name} PRIVATE reprise-kernels)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${REPRISE_TEST_TIMEOUT})
endforeach()
