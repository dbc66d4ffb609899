# SPDX-License-Identifier: Apache-2.0
# What `make install` puts where: headers, libraries, the program, man pages, documentation and examples, and the two ways by which other
# builds find the libraries (pkg-config and find_package).

install(TARGETS ${installed_libraries} EXPORT RepriseTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
file(GLOB installed_headers CONFIGURE_DEPENDS include/*.h)
install(FILES ${installed_headers}
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs PATTERN man EXCLUDE)
install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples USE_SOURCE_PERMISSIONS)
if(TARGET reprise-program)
  install(TARGETS reprise-program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
file(GLOB man_pages CONFIGURE_DEPENDS docs/man/*.1)
if(man_pages)
  install(FILES ${man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()

# The Python package, where the prefix's Python looks for packages. A prefix without one gets the usual folder, for PYTHONPATH.
find_program(REPRISE_PYTHON NAMES python3)
if(REPRISE_PYTHON)
  install(CODE "execute_process(COMMAND \"${REPRISE_PYTHON}\" \"${PROJECT_SOURCE_DIR}/tools/python_folder\" \"\${CMAKE_INSTALL_PREFIX}\"
      OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    file(INSTALL \"${PROJECT_SOURCE_DIR}/python/reprise\" DESTINATION \"\${folder}\" PATTERN __pycache__ EXCLUDE)")
endif()

# Completion scripts, printed by the program itself, and systemd units, which contain the installed path.
if(TARGET reprise-program AND NOT CMAKE_CROSSCOMPILING)
  set(completion_bash ${CMAKE_INSTALL_DATADIR}/bash-completion/completions reprise)
  set(completion_zsh ${CMAKE_INSTALL_DATADIR}/zsh/site-functions _reprise)
  set(completion_fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d reprise.fish)
  foreach(shell bash zsh fish)
    list(GET completion_${shell} 0 folder)
    list(GET completion_${shell} 1 file)
    set(script ${PROJECT_BINARY_DIR}/completion/${file})
    install(CODE "file(MAKE_DIRECTORY \"${PROJECT_BINARY_DIR}/completion\")
      execute_process(COMMAND \"$<TARGET_FILE:reprise-program>\" completion ${shell} OUTPUT_FILE \"${script}\" COMMAND_ERROR_IS_FATAL ANY)")
    install(FILES ${script} DESTINATION ${folder})
  endforeach()
endif()
if(TARGET reprise-program)
  foreach(unit reprise.service reprise-node@.service reprise-route.service)
    install(CODE "set(REPRISE_BINDIR \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
      configure_file(\"${PROJECT_SOURCE_DIR}/share/systemd/${unit}\" \"${PROJECT_BINARY_DIR}/${unit}\" @ONLY)")
    install(FILES ${PROJECT_BINARY_DIR}/${unit} DESTINATION lib/systemd/system)
  endforeach()
  install(FILES share/systemd/reprise.socket DESTINATION lib/systemd/system)
  install(FILES share/reprise.conf share/node.conf share/route.conf share/systemd/gpu.conf share/grafana/reprise.json share/prometheus/reprise.rules.yml
          DESTINATION ${CMAKE_INSTALL_DATADIR}/reprise)
  install(DIRECTORY share/haproxy share/nginx share/compose share/helm DESTINATION ${CMAKE_INSTALL_DATADIR}/reprise)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Reprise)
install(EXPORT RepriseTargets NAMESPACE Reprise:: DESTINATION ${package_dir})
configure_package_config_file(cmake/RepriseConfig.cmake.in RepriseConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(RepriseConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/RepriseConfig.cmake ${PROJECT_BINARY_DIR}/RepriseConfigVersion.cmake
        DESTINATION ${package_dir})

# The .pc files derive their prefix from their own path: an installed tree can be moved.
file(RELATIVE_PATH PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" PC_PREFIX "${PC_PREFIX}")
foreach(library reprise reprise-tools reprise-server)
  set(PC_LIBRARY ${library})
  set(requires ${REPRISE_PC_REQUIRES})
  set(PC_DESCRIPTION "${PROJECT_DESCRIPTION}")
  if(library STREQUAL "reprise-server")
    list(APPEND requires ${REPRISE_SERVER_PC_REQUIRES})
    string(APPEND PC_DESCRIPTION ", with its HTTP server and its tools")
  elseif(library STREQUAL "reprise-tools")
    string(APPEND PC_DESCRIPTION ", with its tools")
  endif()
  list(JOIN requires " " PC_REQUIRES)
  configure_file(cmake/reprise.pc.in ${library}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${library}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
