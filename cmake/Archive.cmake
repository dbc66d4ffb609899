# SPDX-License-Identifier: Apache-2.0
# reprise_archive(TARGET OUTPUT_NAME OBJECT...): a static library with the public symbols only.
#
# The objects are merged into one, and symbols of hidden visibility (all but RP_API's) become local: a program may define a function of
# any name that does not begin with rp_.
function(reprise_archive target output)
  set(merged ${PROJECT_BINARY_DIR}/${output}.merged.o)
  add_custom_command(
    OUTPUT ${merged}
    COMMAND ${CMAKE_LINKER} -r -o ${merged} ${ARGN}
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${merged}
    DEPENDS ${ARGN}
    COMMAND_EXPAND_LISTS VERBATIM
    COMMENT "Merging the objects of lib${output}.a")
  set_source_files_properties(${merged} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  add_library(${target} STATIC ${merged})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${output} LINKER_LANGUAGE C)
endfunction()
