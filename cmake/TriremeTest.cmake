# trireme_add_test(NAME n TIER unit|ranks|procs|gpu|soak SOURCES ... [LIBS ...] [PCH aten|torch]): one test executable of a component.
# Tests are found when ctest starts, not when we build, so that building starts no program that loads LibTorch.
find_package(GTest REQUIRED)
include(GoogleTest)

set(TRIREME_LIMIT_unit 10)
set(TRIREME_LIMIT_ranks 30)
set(TRIREME_LIMIT_procs 60)
set(TRIREME_LIMIT_gpu 60)
set(TRIREME_LIMIT_soak 1800)

function(trireme_add_test)
  cmake_parse_arguments(ARG "" "NAME;TIER;PCH" "SOURCES;LIBS" ${ARGN})
  if(NOT DEFINED TRIREME_LIMIT_${ARG_TIER})
    message(FATAL_ERROR "trireme_add_test(${ARG_NAME}): unknown TIER '${ARG_TIER}'; use unit, ranks, procs, gpu or soak")
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_include_directories(${ARG_NAME} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${ARG_NAME} PRIVATE TRIREME_SOURCE_DIR="${CMAKE_SOURCE_DIR}" TRIREME_BINARY_DIR="${CMAKE_BINARY_DIR}"
    TRIREME_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_LIBS} trireme_compile GTest::gmock GTest::gtest_main)
  if(ARG_PCH)
    trireme_use_pch(${ARG_NAME} ${ARG_PCH})
  endif()
  gtest_discover_tests(${ARG_NAME} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${ARG_TIER} TIMEOUT ${TRIREME_LIMIT_${ARG_TIER}})
endfunction()
