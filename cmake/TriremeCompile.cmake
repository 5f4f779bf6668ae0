# Compile options that every target of ours shares. Targets that reuse a precompiled header must have equal options, so they are set
# here, in one place, and nowhere else.

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM AND NOT CMAKE_CROSSCOMPILING)
  add_link_options(-fuse-ld=mold)
endif()

add_library(trireme_compile INTERFACE)
# Sums must not depend on whether the compiler fuses a multiply and an add (docs/numerics.md).
target_compile_options(trireme_compile INTERFACE -Wall -Wextra -Wpedantic -Wno-unknown-pragmas -ffp-contract=off
  -fpch-preprocess $<$<CONFIG:RelWithDebInfo>:-g1>)
if(TRIREME_WERROR)
  target_compile_options(trireme_compile INTERFACE -Werror)
endif()
# GCC's ThreadSanitizer does not model fences and warns at each; our synchronisation file avoids them under it (comm/transport/sync.h).
if(TRIREME_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
elseif(TRIREME_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(TRIREME_SANITIZE)
  message(FATAL_ERROR "TRIREME_SANITIZE is '${TRIREME_SANITIZE}'; use address or thread, or leave it empty.")
endif()
if(TRIREME_SANITIZE AND TRIREME_WITH_TORCH)
  message(FATAL_ERROR "TRIREME_SANITIZE needs TRIREME_WITH_TORCH=OFF: the wheel is not instrumented, so reports across it are false.")
endif()

if(TRIREME_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR TRIREME_WITH_TORCH)
    message(FATAL_ERROR "TRIREME_FUZZ needs clang and TRIREME_WITH_TORCH=OFF; use 'cmake --preset fuzz'.")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()

# trireme_add_library(NAME SOURCES ... [LIBS ...] [TORCH]): one component, static, with the include folders of the project. LIBS reach users
# of the installed package, so third-party ones that are header-only or private are linked by `PRIVATE $<BUILD_INTERFACE:...>` instead.
function(trireme_add_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC ${ARG_LIBS} PRIVATE $<BUILD_INTERFACE:trireme_compile>)
  target_compile_features(${name} PUBLIC cxx_std_20)
  if(ARG_TORCH)
    target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:trireme_torch> $<INSTALL_INTERFACE:Trireme::torch>)
    trireme_use_pch(${name} aten)
    set_property(GLOBAL APPEND PROPERTY TRIREME_TORCH_LIBRARIES ${name})
  else()
    set_property(GLOBAL APPEND PROPERTY TRIREME_CORE_LIBRARIES ${name})
  endif()
endfunction()
