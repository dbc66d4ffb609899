# What `make install` puts where: the header, both libraries, the program, man pages, and the two ways by which other
# builds find the library (pkg-config and find_package).

install(TARGETS reprise reprise-static EXPORT RepriseTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/reprise.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET reprise-program)
  install(TARGETS reprise-program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
file(GLOB man_pages CONFIGURE_DEPENDS docs/man/*.1)
if(man_pages)
  install(FILES ${man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Reprise)
install(EXPORT RepriseTargets NAMESPACE Reprise:: DESTINATION ${package_dir})
configure_package_config_file(cmake/RepriseConfig.cmake.in RepriseConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(RepriseConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/RepriseConfig.cmake ${PROJECT_BINARY_DIR}/RepriseConfigVersion.cmake
        DESTINATION ${package_dir})

# reprise.pc finds its prefix from where it lies, so that an installed tree can be moved.
file(RELATIVE_PATH PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" PC_PREFIX "${PC_PREFIX}")
list(JOIN REPRISE_PC_REQUIRES " " PC_REQUIRES)
configure_file(cmake/reprise.pc.in reprise.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/reprise.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
