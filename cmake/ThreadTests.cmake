# SPDX-License-Identifier: Apache-2.0
# Which tests ThreadSanitizer's build has. It makes a test ten times as slow and finds what the other builds do not: data
# races. It has the tests in which threads share something: the queue of jobs, workers, streams, the disk, servers. It
# leaves out those with one thread, and those that repeat on the same threads what others do, with other families, formats,
# prompts or options.

set(thread_test_areas backend base cli cluster crash engine exactness model oracle server)

set(thread_tests_left_out
    backend/backend_registry
    base/base base/bytes base/io base/json_read
    cli/bench cli/break_store cli/cache cli/demo cli/devices cli/embed cli/eval cli/eval_score cli/examples cli/lint cli/manual cli/palette cli/quantize
    cli/run_form cli/split cli/store_folder cli/words
    cluster/index cluster/policies cluster/router cluster/router_failures cluster/router_random cluster/signature cluster/simulation cluster/wire
    engine/audit_formats engine/audit_table engine/context_shift engine/cost_model engine/edits engine/module_states engine/prompt_logprobs
    engine/prompt_lookup engine/prompts engine/recompute engine/reductions engine/resumed engine/sampler engine/sampling engine/scaffolds engine/scopes
    engine/store_folder engine/store_folder_faults engine/store_opening engine/timings engine/token_chunks engine/truncation engine/windows
    exactness/cuts
    model/chat_format model/gguf model/gguf_damage model/gguf_split model/golden model/infill model/kv_axes model/model_damage model/model_open
    model/pre_tokenizer model/probe model/reduction model/reference_golden model/sentencepiece model/sequence_methods model/tiny_model model/tokenizer
    model/tokenizer_oracle model/wordpiece
    oracle/exactness_families oracle/oracle_families oracle/weight_types
    server/content_decode server/kv_event_batch server/reuse_reports server/route_frames server/schema_registry server/tool_conventions
    server/tool_round_trip)

# Keeps in the list of test files `files` those that ThreadSanitizer's build has.
function(reprise_thread_tests files)
  set(kept "")
  set(left_out "")
  foreach(file IN LISTS ${files})
    cmake_path(GET file PARENT_PATH folder)
    cmake_path(GET folder FILENAME area)
    cmake_path(GET file STEM name)
    string(REGEX REPLACE "^test_" "" short ${name})
    if(${area}/${short} IN_LIST thread_tests_left_out)
      list(APPEND left_out ${area}/${short})
    elseif(area IN_LIST thread_test_areas)
      list(APPEND kept ${file})
    endif()
  endforeach()
  foreach(name IN LISTS thread_tests_left_out)
    if(NOT name IN_LIST left_out)
      message(FATAL_ERROR "cmake/ThreadTests.cmake leaves out ${name}, and there is no such test")
    endif()
  endforeach()
  set(${files} ${kept} PARENT_SCOPE)
endfunction()
