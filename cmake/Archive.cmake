# SPDX-License-Identifier: Apache-2.0
# reprise_archive(TARGET OUTPUT_NAME OBJECT...): a static library with the public symbols only.
#
# After it is linked, its objects are merged into one, and symbols of hidden visibility (all but RP_API's) become local: a program may define a
# function of any name that does not begin with rp_.
function(reprise_archive target output)
  add_library(${target} STATIC ${ARGN})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${output} LINKER_LANGUAGE C)
  set(merged ${PROJECT_BINARY_DIR}/${output}.merged.o)
  add_custom_command(
    TARGET ${target}
    POST_BUILD
    COMMAND ${CMAKE_LINKER} -r -o ${merged} --whole-archive $<TARGET_FILE:${target}>
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${merged}
    COMMAND ${CMAKE_COMMAND} -E rm -f $<TARGET_FILE:${target}>
    COMMAND ${CMAKE_AR} rcs $<TARGET_FILE:${target}> ${merged}
    VERBATIM)
endfunction()
