# LibTorch for our own build: the target `trireme_torch`, and the precompiled headers that hold most of its compile time.
include(TriremeTorch)

trireme_find_torch(TRIREME_TORCH_DIR)
if(NOT TRIREME_TORCH_DIR)
  message(FATAL_ERROR "LibTorch was not found (looked at '${TRIREME_TORCH_LOOKED_AT}'). Run ./dev build, which installs the wheel, "
    "or set -DTRIREME_TORCH=<folder that has include/torch/headeronly/version.h>, or -DTRIREME_WITH_TORCH=OFF for the parts that do without.")
endif()
trireme_torch_version(${TRIREME_TORCH_DIR} TRIREME_TORCH_VERSION)
if(TRIREME_TORCH_VERSION VERSION_LESS 2.13)
  message(FATAL_ERROR "LibTorch ${TRIREME_TORCH_VERSION} in ${TRIREME_TORCH_DIR} is too old: 2.13 or newer is needed.")
endif()

set(TRIREME_CUDA AUTO CACHE STRING "use the CUDA parts of LibTorch: AUTO (if it has them), ON or OFF")
trireme_torch_has_cuda(${TRIREME_TORCH_DIR} _has_cuda)
if(TRIREME_CUDA STREQUAL "AUTO")
  set(TRIREME_HAVE_CUDA ${_has_cuda})
elseif(TRIREME_CUDA AND NOT _has_cuda)
  message(FATAL_ERROR "TRIREME_CUDA is ON, but LibTorch in ${TRIREME_TORCH_DIR} is a CPU build (no lib/libtorch_cuda.so). "
    "Use the CUDA wheel (./dev build cuda), or TRIREME_CUDA=AUTO.")
else()
  set(TRIREME_HAVE_CUDA ${TRIREME_CUDA})
endif()
message(STATUS "LibTorch ${TRIREME_TORCH_VERSION} in ${TRIREME_TORCH_DIR}; CUDA parts: ${TRIREME_HAVE_CUDA} (TRIREME_CUDA=${TRIREME_CUDA})")

set(TRIREME_TORCH_FOUND ${TRIREME_TORCH_DIR} CACHE INTERNAL "for ./dev check-torch")

add_library(trireme_torch INTERFACE)
trireme_describe_torch(trireme_torch ${TRIREME_TORCH_DIR} ${TRIREME_HAVE_CUDA})

# `aten` for library files, `torch` (torch/torch.h) for models, recipes and their tests.
foreach(_kind aten torch)
  add_library(trireme_pch_${_kind} OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch_${_kind}.cpp)
  target_include_directories(trireme_pch_${_kind} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(trireme_pch_${_kind} PRIVATE trireme_torch trireme_compile)
endforeach()
target_precompile_headers(trireme_pch_aten PRIVATE <ATen/ATen.h> <torch/csrc/autograd/engine.h> <torch/csrc/autograd/function_hook.h>
  <torch/csrc/autograd/functions/accumulate_grad.h> <torch/csrc/autograd/variable.h> <torch/csrc/distributed/c10d/ProcessGroup.hpp>
  <torch/csrc/distributed/c10d/Backend.hpp>)
target_precompile_headers(trireme_pch_torch PRIVATE <torch/torch.h> <torch/csrc/distributed/c10d/ProcessGroup.hpp>
  <torch/csrc/distributed/c10d/Backend.hpp>)

function(trireme_use_pch target kind)
  get_target_property(_type ${target} TYPE)
  if(_type STREQUAL "EXECUTABLE")
    # CMake would give -fPIE, and a precompiled header serves only code that is compiled as itself.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM trireme_pch_${kind})
endfunction()
