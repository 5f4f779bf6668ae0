# Finds LibTorch in a pip wheel (or an unpacked libtorch) and describes it as the imported target `trireme_torch`.
#
# find_package(Torch) is not used: with a CUDA wheel it demands nvcc of the same version, although nothing of ours is CUDA source.
# Order: TRIREME_TORCH, CMAKE_PREFIX_PATH, then the Python named by TRIREME_PYTHON (default: .venv here, else python3), asked without importing torch.

set(_torch_dir "${TRIREME_TORCH}")
if(NOT _torch_dir AND DEFINED ENV{TRIREME_TORCH})
  set(_torch_dir "$ENV{TRIREME_TORCH}")
endif()
if(NOT _torch_dir)
  find_path(_torch_prefix include/torch/headeronly/version.h PATHS ${CMAKE_PREFIX_PATH} NO_DEFAULT_PATH NO_CACHE)
  if(_torch_prefix)
    set(_torch_dir ${_torch_prefix})
  endif()
endif()
if(NOT _torch_dir)
  if(NOT TRIREME_PYTHON)
    if(EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
      set(TRIREME_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python)
    else()
      set(TRIREME_PYTHON python3)
    endif()
  endif()
  execute_process(COMMAND ${TRIREME_PYTHON} -c
    "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE _torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT EXISTS "${_torch_dir}/include/torch/headeronly/version.h")
  message(FATAL_ERROR "LibTorch was not found (looked at '${_torch_dir}'). Run ./dev build, which installs the wheel, "
    "or set -DTRIREME_TORCH=<folder that has include/torch/headeronly/version.h>, or -DTRIREME_WITH_TORCH=OFF for the parts that do without.")
endif()

file(STRINGS "${_torch_dir}/include/torch/headeronly/version.h" _v REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
foreach(_part MAJOR MINOR PATCH)
  string(REGEX REPLACE ".*TORCH_VERSION_${_part} ([0-9]+).*" "\\1" TRIREME_TORCH_${_part} "${_v}")
endforeach()
set(TRIREME_TORCH_VERSION ${TRIREME_TORCH_MAJOR}.${TRIREME_TORCH_MINOR}.${TRIREME_TORCH_PATCH})
if(TRIREME_TORCH_VERSION VERSION_LESS 2.13)
  message(FATAL_ERROR "LibTorch ${TRIREME_TORCH_VERSION} in ${_torch_dir} is too old: 2.13 or newer is needed.")
endif()
set(TRIREME_TORCH_DIR ${_torch_dir})
message(STATUS "LibTorch ${TRIREME_TORCH_VERSION} in ${_torch_dir}")

add_library(trireme_torch INTERFACE)
target_include_directories(trireme_torch SYSTEM INTERFACE $<BUILD_INTERFACE:${_torch_dir}/include>
  $<BUILD_INTERFACE:${_torch_dir}/include/torch/csrc/api/include>)
target_compile_definitions(trireme_torch INTERFACE USE_DISTRIBUTED)
target_link_directories(trireme_torch INTERFACE $<BUILD_INTERFACE:${_torch_dir}/lib>)
# libtorch is a stub that keeps operator registrations alive: it must stay in the dynamic section although nothing refers to it.
target_link_libraries(trireme_torch INTERFACE $<BUILD_INTERFACE:-Wl,--no-as-needed -ltorch -ltorch_cpu -lc10 -Wl,--as-needed>)
target_link_options(trireme_torch INTERFACE $<BUILD_INTERFACE:LINKER:-rpath,${_torch_dir}/lib>)

# Two precompiled headers, shared by all targets: `aten` for library files, `torch` (torch/torch.h) for models, recipes and their tests.
foreach(_kind aten torch)
  add_library(trireme_pch_${_kind} OBJECT ${CMAKE_SOURCE_DIR}/cmake/pch_${_kind}.cpp)
  target_include_directories(trireme_pch_${_kind} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(trireme_pch_${_kind} PRIVATE trireme_torch trireme_compile)
endforeach()
target_precompile_headers(trireme_pch_aten PRIVATE <ATen/ATen.h> <torch/csrc/autograd/engine.h> <torch/csrc/autograd/function_hook.h>
  <torch/csrc/autograd/functions/accumulate_grad.h> <torch/csrc/autograd/variable.h> <torch/csrc/distributed/c10d/ProcessGroup.hpp>
  <torch/csrc/distributed/c10d/Backend.hpp>)
target_precompile_headers(trireme_pch_torch PRIVATE <torch/torch.h> <torch/csrc/distributed/c10d/ProcessGroup.hpp>
  <torch/csrc/distributed/c10d/Backend.hpp>)

function(trireme_use_pch target kind)
  target_precompile_headers(${target} REUSE_FROM trireme_pch_${kind})
endfunction()
