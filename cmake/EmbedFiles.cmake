# SPDX-License-Identifier: Apache-2.0
# Files as bytes inside of a program, by CMake alone.
#
#   reprise_embed_files(TARGET <target> SYMBOL <name> ROOT <folder> FILES <file>...)
#
# adds a C source to the target that defines `const base_embedded <name>[]` (base/embedded.h): a row for each file, called by its path
# below ROOT, and behind them one without a name. It is made anew when a file changes. The build calls this file as a script for it.

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  # cmake -DOUT=... -DSYMBOL=... -DROOT=... -DFILES=a|b|... -P EmbedFiles.cmake
  string(REPLACE "|" ";" files "${FILES}")
  set(arrays "")
  set(rows "")
  set(n 0)
  foreach(file IN LISTS files)
    file(READ ${file} hex HEX)
    file(SIZE ${file} bytes)
    file(RELATIVE_PATH name ${ROOT} ${file})
    string(REGEX REPLACE "(..)" "0x\\1," hex "${hex}")
    # The byte behind the last makes a string of a text.
    string(APPEND arrays "static const unsigned char file_${n}[] = {${hex}0};\n")
    string(APPEND rows "    {\"${name}\", file_${n}, ${bytes}},\n")
    math(EXPR n "${n} + 1")
  endforeach()
  file(WRITE ${OUT} "#include \"base/embedded.h\"\n\nextern const base_embedded ${SYMBOL}[];\n\n${arrays}\n"
                    "const base_embedded ${SYMBOL}[] = {\n${rows}    {0, 0, 0},\n};\n")
  return()
endif()

set(reprise_embed_script ${CMAKE_CURRENT_LIST_FILE})

function(reprise_embed_files)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "TARGET;SYMBOL;ROOT" "FILES")
  cmake_path(ABSOLUTE_PATH arg_ROOT)
  list(TRANSFORM arg_FILES PREPEND ${PROJECT_SOURCE_DIR}/ REGEX "^[^/]")
  set(out ${PROJECT_BINARY_DIR}/embedded/${arg_SYMBOL}.c)
  string(REPLACE ";" "|" list "${arg_FILES}")
  add_custom_command(OUTPUT ${out}
                     COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DSYMBOL=${arg_SYMBOL} -DROOT=${arg_ROOT} "-DFILES=${list}" -P
                             ${reprise_embed_script}
                     DEPENDS ${arg_FILES} ${reprise_embed_script} COMMENT "Embedding ${arg_SYMBOL}" VERBATIM)
  target_sources(${arg_TARGET} PRIVATE ${out})
endfunction()
