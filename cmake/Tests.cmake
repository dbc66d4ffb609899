# SPDX-License-Identifier: Apache-2.0
# Tests, fuzzers, benchmarks and tools. Each is found by its name; a folder may be empty.
#
#   tests/<area>/test_x.c   one program, one ctest `area/x`, label `area`; .sh and .py files are run as they are
#   tests/support/*.c       a library for the tests (models, reference, random documents)
#   fuzz/fuzz_x.c           LLVMFuzzerTestOneInput; fuzz/replay.c runs it over fuzz/corpus/x as ctest `fuzz_replay_x`
#   bench/x.c               build/bench/x; bench/support/*.c is a library for them
#   tools/x.c               build/x

enable_testing()
pkg_check_modules(cmocka REQUIRED IMPORTED_TARGET cmocka)
if(NOT TARGET PkgConfig::jansson)
  pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)
endif()

# Internal headers are open to these programs: they are linked with the archive that has all symbols.
add_library(reprise-internal INTERFACE)
target_include_directories(reprise-internal INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(reprise-internal INTERFACE reprise-tools-tree reprise-tree PkgConfig::cmocka Threads::Threads m reprise-options)

file(GLOB support_sources CONFIGURE_DEPENDS tests/support/*.c)
file(GLOB kernel_support_sources CONFIGURE_DEPENDS tests/support/kernel_*.c tests/support/*_on_avx2.c)
list(REMOVE_ITEM support_sources ${kernel_support_sources})
if(support_sources)
  add_library(reprise-support STATIC ${support_sources})
  target_include_directories(reprise-support PUBLIC tests)
  target_link_libraries(reprise-support PUBLIC reprise-internal PRIVATE PkgConfig::jansson)
  # Where tests/golden is, for programs that are run by hand.
  target_compile_definitions(reprise-support PRIVATE REPRISE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(reprise-internal INTERFACE reprise-support)
endif()
# For tests/kernel alone: emulated instruction sets take a sanitizing compiler minutes.
if(kernel_support_sources)
  reprise_instruction_sets(kernel_support_sources)
  # Emulated instructions need no speed, and gcc 12 takes three times as long for these files at -O3.
  set_property(SOURCE ${kernel_support_sources} APPEND PROPERTY COMPILE_OPTIONS -O1 -Wno-frame-larger-than)
  add_library(reprise-kernel-support STATIC EXCLUDE_FROM_ALL ${kernel_support_sources})
  target_link_libraries(reprise-kernel-support PUBLIC reprise-internal)
endif()

# What a test may ask its environment for.
set(test_environment REPRISE_SOURCE_DIR=${PROJECT_SOURCE_DIR} REPRISE_BUILD_DIR=${PROJECT_BINARY_DIR}
                     ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=1
                     LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/lsan.supp:print_suppressions=0
                     UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1:suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp)
if(TARGET reprise-program)
  list(APPEND test_environment REPRISE_PROGRAM=$<TARGET_FILE:reprise-program>)
endif()

# Each test has a processor of its own: engines in it have one thread unless it asks for more, because those of two tests at a time would wait for
# each other. ThreadSanitizer's tests have all processors.
set(test_affinity ON)
if(REPRISE_SANITIZE MATCHES "thread")
  set(test_affinity OFF)
endif()
function(reprise_test_properties name label)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${REPRISE_TEST_TIMEOUT} LABELS "${label}"
                                          ENVIRONMENT "${test_environment}" PROCESSOR_AFFINITY ${test_affinity})
endfunction()

file(GLOB test_files CONFIGURE_DEPENDS tests/*/test_*)
list(FILTER test_files EXCLUDE REGEX "/tests/vulkan/") # cmake/Vulkan.cmake
if(NOT libcurl IN_LIST REPRISE_PC_REQUIRES)
  list(FILTER test_files EXCLUDE REGEX "/test_pool_(http|s3)")
endif()
set(threads_only OFF)
if(REPRISE_SANITIZE MATCHES "thread")
  set(threads_only ON)
  include(cmake/ThreadTests.cmake)
  reprise_thread_tests(test_files)
endif()
foreach(file IN LISTS test_files)
  cmake_path(GET file STEM name)
  cmake_path(GET file EXTENSION kind)
  cmake_path(GET file PARENT_PATH folder)
  cmake_path(GET folder FILENAME area)
  string(REGEX REPLACE "^test_" "" short ${name})
  if(kind STREQUAL ".c")
    add_executable(test_${area}_${short} ${file})
    set_target_properties(test_${area}_${short} PROPERTIES RUNTIME_OUTPUT_DIRECTORY tests/${area} OUTPUT_NAME ${name})
    target_link_libraries(test_${area}_${short} PRIVATE reprise-internal)
    if(area STREQUAL "server")
      target_link_libraries(test_${area}_${short} PRIVATE reprise-server-tree PkgConfig::jansson PkgConfig::libmicrohttpd)
    endif()
    if(area MATCHES "^(structured|template)$")
      target_link_libraries(test_${area}_${short} PRIVATE PkgConfig::jansson)
    endif()
    if(area STREQUAL "kernel")
      target_link_libraries(test_${area}_${short} PRIVATE reprise-kernel-support)
    endif()
    if(area STREQUAL "cli" AND TARGET reprise-cli)
      target_link_libraries(test_${area}_${short} PRIVATE reprise-cli)
    endif()
    add_test(NAME ${area}/${short} COMMAND test_${area}_${short})
  elseif(kind STREQUAL ".sh" OR kind STREQUAL ".py")
    add_test(NAME ${area}/${short} COMMAND ${file})
  else()
    continue()
  endif()
  set(labels ${area})
  # Tests that draw from a seed (tests/support/seed.h): `make test-random` repeats them with new ones.
  file(STRINGS ${file} seeded REGEX "test_seed\\(|check_main\\(|REPRISE_TEST_SEED" LIMIT_COUNT 1)
  if(seeded)
    list(APPEND labels random)
  endif()
  reprise_test_properties(${area}/${short} "${labels}")
endforeach()

# Tests of more than half a minute, in the sanitizers' builds above all, start first: the last ones to end would leave a core idle. Where tests have
# run before, ctest orders them by the times that it measured.
foreach(long IN ITEMS crash/crash engine/context_shift engine/failures engine/latent engine/module_states engine/recurrent engine/reductions
                      exactness/cuts exactness/schedules model/golden oracle/oracle oracle/oracle_families server/reuse_reports server/route_edges
                      template/hostile template/template template/template_jinja)
  if(TEST ${long})
    set_tests_properties(${long} PROPERTIES COST 60)
  endif()
endforeach()

# A build with a sanitizer has the tests alone, and ThreadSanitizer's those above.
if(threads_only)
  return()
endif()

# Engine tests once more, with KV in memory that faults for everyone but the backend (tests/trapped/trapped_backend.c): prefixes, modules, their
# formats and reductions, shifts, blending, the disk.
foreach(short IN ITEMS audit_formats blend focus formats keeping live_store recompute reductions requests windows)
  add_executable(test_trapped_${short} tests/engine/test_${short}.c tests/trapped/trapped_backend.c)
  set_target_properties(test_trapped_${short} PROPERTIES RUNTIME_OUTPUT_DIRECTORY tests/trapped OUTPUT_NAME test_${short})
  target_link_libraries(test_trapped_${short} PRIVATE reprise-internal)
  target_link_options(test_trapped_${short} PRIVATE LINKER:--wrap=cpu_backend_new)
  add_test(NAME trapped/${short} COMMAND test_trapped_${short})
  reprise_test_properties(trapped/${short} trapped)
endforeach()

if(REPRISE_VULKAN)
  reprise_vulkan_tests()
endif()

# A KV format that the product does not have (tests/f8). Copies of two headers get a row more each, and the sources with a table of all formats or
# elements are compiled again with them. All other objects are the product's.
set(f8_headers ${PROJECT_BINARY_DIR}/f8)
function(reprise_add_row from to last row)
  file(READ ${from} text)
  string(REPLACE "${last}" "${last} ${row}" more "${text}")
  if(more STREQUAL text)
    message(FATAL_ERROR "${from} has no row ${last}: tests/f8 adds one after it")
  endif()
  file(CONFIGURE OUTPUT ${f8_headers}/${to} CONTENT "${more}" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${from})
endfunction()
file(GLOB public_headers CONFIGURE_DEPENDS include/*.h) # they include each other from their own folder
foreach(header IN LISTS public_headers)
  cmake_path(GET header FILENAME name)
  if(NOT name STREQUAL "reprise_quality.h")
    configure_file(${header} ${f8_headers}/${name} COPYONLY)
  endif()
endforeach()
reprise_add_row(include/reprise_quality.h reprise_quality.h "X(KIVI2, 6, \"kivi2\", 2BIT, 2BIT)" "X(F8, 100, \"f8\", F8, F8)")
reprise_add_row(src/kv/kv_format.h kv/kv_format.h "X(2BIT, 2, KV_ENCODED)" "X(F8, 8, KV_FLOATS)")
set(f8_sources tests/f8/f8_element.c)
foreach(file IN LISTS sources)
  file(STRINGS ${file} tables REGEX "RP_KV_FORMATS|RP_KV_FORMAT_NAMES|RP_N_KV_FORMATS|KV_ELEMENTS|KV_N_ELEMENTS" LIMIT_COUNT 1)
  if(tables)
    list(APPEND f8_sources ${file})
  endif()
endforeach()
add_executable(test_f8 tests/f8/check_f8.c ${f8_sources})
set_target_properties(test_f8 PROPERTIES RUNTIME_OUTPUT_DIRECTORY tests/f8)
target_include_directories(test_f8 BEFORE PRIVATE ${f8_headers})
target_include_directories(test_f8 SYSTEM PRIVATE ${libxxhash_INCLUDE_DIRS})
target_link_libraries(test_f8 PRIVATE reprise-internal ${private_libraries})
add_test(NAME f8/f8 COMMAND test_f8)
reprise_test_properties(f8/f8 f8)

# A program of examples/, linked as an embedder's is, with the bundled model.
add_executable(example_tools examples/tools.c)
target_link_libraries(example_tools PRIVATE reprise reprise-options)
add_test(NAME structured/example COMMAND example_tools ${PROJECT_SOURCE_DIR}/models/reprise-mini.gguf "What is the weather in Miami?")
reprise_test_properties(structured/example structured)
set_tests_properties(structured/example PROPERTIES PASS_REGULAR_EXPRESSION
  "call call_0: weather {\"city\": ?\"[^\n]*}\nanswer: {\"sky\": ?\"(sunny|rainy)\", ?\"degrees\": ?-?[0-9]+}")

# The Python package, with the library that this build makes. A library with AddressSanitizer needs its runtime first in the process, and Python
# does not free what it holds at its end. Not under ThreadSanitizer, which does not know Python's own locks (tests/engine/test_stream.c has threads).
find_program(PYTEST NAMES pytest-3 pytest)
if(PYTEST AND TARGET reprise-program AND NOT REPRISE_SANITIZE MATCHES "thread")
  set(python_environment ${test_environment} REPRISE_LIBRARY=$<TARGET_FILE:reprise-tools> PYTHONDONTWRITEBYTECODE=1)
  if(REPRISE_SANITIZE MATCHES "address")
    set(runtime libasan.so)
    if(CMAKE_C_COMPILER_ID MATCHES "Clang")
      set(runtime libclang_rt.asan-${CMAKE_SYSTEM_PROCESSOR}.so)
    endif()
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=${runtime} OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
    list(APPEND python_environment LD_PRELOAD=${runtime} ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PYTHONMALLOC=malloc)
  endif()
  file(GLOB python_tests CONFIGURE_DEPENDS python/tests/test_*.py)
  foreach(file IN LISTS python_tests)
    cmake_path(GET file STEM name)
    string(REGEX REPLACE "^test_" "" short ${name})
    add_test(NAME python/${short} COMMAND ${PYTEST} -q -p no:cacheprovider ${file} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}/python)
    reprise_test_properties(python/${short} python)
    set_tests_properties(python/${short} PROPERTIES ENVIRONMENT "${python_environment}")
  endforeach()
endif()

file(GLOB fuzz_files CONFIGURE_DEPENDS fuzz/fuzz_*.c)
foreach(file IN LISTS fuzz_files)
  cmake_path(GET file STEM name)
  string(REGEX REPLACE "^fuzz_" "" short ${name})
  add_executable(replay_${short} ${file} fuzz/replay.c)
  set(programs replay_${short})
  if(REPRISE_FUZZ)
    add_executable(${name} ${file})
    separate_arguments(engine UNIX_COMMAND "${REPRISE_FUZZ_ENGINE}")
    target_link_libraries(${name} PRIVATE ${engine})
    list(APPEND programs ${name})
    list(APPEND fuzzers ${name})
  endif()
  foreach(program IN LISTS programs)
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY fuzz)
    # libFuzzer has no header that declares the entry point.
    target_compile_options(${program} PRIVATE -Wno-missing-prototypes)
    target_link_libraries(${program} PRIVATE reprise-internal)
    if(short STREQUAL "template")
      target_link_libraries(${program} PRIVATE PkgConfig::jansson)
    endif()
    if(short MATCHES "^(requests|http_stream|content_coding|tool_calls)$")
      target_link_libraries(${program} PRIVATE reprise-server-tree PkgConfig::jansson PkgConfig::libmicrohttpd)
    endif()
  endforeach()
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/fuzz/corpus/${short})
    add_test(NAME fuzz_replay_${short} COMMAND replay_${short} ${PROJECT_SOURCE_DIR}/fuzz/corpus/${short})
    reprise_test_properties(fuzz_replay_${short} fuzz)
  endif()
endforeach()

# `ninja fuzzers`, and their names for the scripts that run or ship them: fuzz/fuzzers.txt in the build folder.
if(REPRISE_FUZZ)
  add_custom_target(fuzzers DEPENDS ${fuzzers})
  list(JOIN fuzzers "\n" fuzzer_lines)
  file(CONFIGURE OUTPUT fuzz/fuzzers.txt CONTENT "${fuzzer_lines}\n")
endif()

if(REPRISE_SANITIZE)
  return()
endif()

file(GLOB bench_support_sources CONFIGURE_DEPENDS bench/support/*.c)
reprise_instruction_sets(bench_support_sources)
add_library(bench-support STATIC ${bench_support_sources})
target_include_directories(bench-support PUBLIC bench/support)
target_link_libraries(bench-support PUBLIC reprise-internal)

file(GLOB bench_files CONFIGURE_DEPENDS bench/*.c)
foreach(file IN LISTS bench_files)
  cmake_path(GET file STEM name)
  add_executable(bench_${name} ${file})
  set_target_properties(bench_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY bench OUTPUT_NAME ${name})
  target_link_libraries(bench_${name} PRIVATE bench-support)
  if(name STREQUAL "bench_http")
    target_link_libraries(bench_${name} PRIVATE reprise-cli) # its HTTP client, and the server
  endif()
endforeach()

if(REPRISE_VULKAN)
  reprise_vulkan_benchmarks()
endif()

file(GLOB tool_files CONFIGURE_DEPENDS tools/*.c)
foreach(file IN LISTS tool_files)
  cmake_path(GET file STEM name)
  add_executable(tool_${name} ${file})
  set_target_properties(tool_${name} PROPERTIES OUTPUT_NAME ${name})
  target_link_libraries(tool_${name} PRIVATE reprise-internal)
endforeach()
