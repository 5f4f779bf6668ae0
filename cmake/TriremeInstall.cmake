# Installs headers, static libraries, programs and the CMake package `Trireme`. Included once, after all targets exist.
include(CMakePackageConfigHelpers)

# The two unions: Trireme::core (no LibTorch) and Trireme::trireme (everything).
get_property(_core GLOBAL PROPERTY TRIREME_CORE_LIBRARIES)
get_property(_all GLOBAL PROPERTY TRIREME_TORCH_LIBRARIES)
add_library(trireme_core INTERFACE)
target_link_libraries(trireme_core INTERFACE ${_core})
set_target_properties(trireme_core PROPERTIES EXPORT_NAME core)
add_library(trireme_all INTERFACE)
target_link_libraries(trireme_all INTERFACE ${_all} trireme_core)
set_target_properties(trireme_all PROPERTIES EXPORT_NAME trireme)
if(TRIREME_WITH_TORCH)
  target_link_libraries(trireme_all INTERFACE $<BUILD_INTERFACE:trireme_torch> $<INSTALL_INTERFACE:Trireme::torch>)
endif()
add_library(trireme::core ALIAS trireme_core)
add_library(trireme::trireme ALIAS trireme_all)

set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Trireme)
install(DIRECTORY include/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS trireme_core trireme_all ${_core} ${_all} EXPORT TriremeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT TriremeTargets NAMESPACE Trireme:: DESTINATION ${_package_dir})
foreach(_program trireme trireme-stacks trireme-train trireme-bench trireme-trace)
  if(TARGET ${_program})
    install(TARGETS ${_program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
# What the planner knows of devices and models.
install(DIRECTORY machines models DESTINATION ${CMAKE_INSTALL_DATADIR}/trireme FILES_MATCHING PATTERN "*.json")
# Where bash-completion and zsh look.
install(FILES completion/trireme.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME trireme)
install(FILES completion/_trireme DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)

configure_package_config_file(cmake/TriremeConfig.cmake.in ${CMAKE_BINARY_DIR}/TriremeConfig.cmake INSTALL_DESTINATION ${_package_dir})
# 0.x: a minor release may change the interface (CONTRIBUTING.md, version policy).
write_basic_package_version_file(${CMAKE_BINARY_DIR}/TriremeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TriremeConfig.cmake ${CMAKE_BINARY_DIR}/TriremeConfigVersion.cmake cmake/TriremeTorch.cmake
  DESTINATION ${_package_dir})
