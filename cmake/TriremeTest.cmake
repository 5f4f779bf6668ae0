# trireme_add_test(NAME n TIER unit|ranks|procs|gpu|soak SOURCES ... [LIBS ...] [PCH aten|torch]): one test executable of a component.
# Tests are found when ctest starts, not when we build, so that building starts no program that loads LibTorch.
#
# The tier is the label. A soak executable is registered twice: as tier soak it runs its whole table (TRIREME_SOAK=full in the environment),
# and as tier procs, named sample.*, a tenth of it that it picks with a fixed seed.
if(CMAKE_CROSSCOMPILING)
  # The host's library is of no use there; Debian's package googletest brings the sources.
  add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
else()
  find_package(GTest REQUIRED)
endif()
include(GoogleTest)

# When a test is ended because it hangs. No aim for speed (that would be 1 s for a unit test, 5 s with rank threads, 20 s with processes): a
# machine that is slow or busy must not get there, and the waits inside tests (tests/support/patience.h) end before, with a reason.
foreach(_tier unit ranks procs gpu)
  set(TRIREME_LIMIT_${_tier} 300)
endforeach()
set(TRIREME_LIMIT_soak 1800)
if(TRIREME_SANITIZE OR CMAKE_CROSSCOMPILING)
  foreach(_tier unit ranks procs gpu soak)
    math(EXPR TRIREME_LIMIT_${_tier} "${TRIREME_LIMIT_${_tier}} * 5")
  endforeach()
endif()

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
  # Ranks want cores of their own: ctest -j starts nothing beside a test that counts as two processors on a machine of two.
  set(_processors 2)
  if(ARG_TIER STREQUAL "unit")
    set(_processors 1)
  endif()
  set(_environment "")
  if(ARG_TIER STREQUAL "soak")
    gtest_discover_tests(${ARG_NAME} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES TEST_PREFIX sample. TEST_LIST ${ARG_NAME}_SAMPLES
      PROPERTIES LABELS procs TIMEOUT ${TRIREME_LIMIT_procs} PROCESSORS ${_processors})
    set(_environment ENVIRONMENT TRIREME_SOAK=full)
  endif()
  gtest_discover_tests(${ARG_NAME} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
    PROPERTIES LABELS ${ARG_TIER} TIMEOUT ${TRIREME_LIMIT_${ARG_TIER}} PROCESSORS ${_processors} ${_environment})
endfunction()

# trireme_add_script_test(NAME n TIER t COMMAND ... [TIMEOUT seconds]): a test that is a command; exit code 77 means skipped.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
function(trireme_add_script_test)
  cmake_parse_arguments(ARG "" "NAME;TIER;TIMEOUT" "COMMAND" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT ${TRIREME_LIMIT_${ARG_TIER}})
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_COMMAND})
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS ${ARG_TIER} TIMEOUT ${ARG_TIMEOUT} PROCESSORS 2 SKIP_RETURN_CODE 77)
endfunction()
