# Cross-builds the LibTorch-free parts for aarch64 with Debian's g++-aarch64-linux-gnu, and runs their tests under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-L;/usr/aarch64-linux-gnu")

set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
# Header-only packages come from the host through cmake/cross: /usr/include as a whole would put the host's libc before the target's.
foreach(_package fmt spdlog CLI11 nlohmann_json)
  set(${_package}_DIR ${CMAKE_CURRENT_LIST_DIR}/cross)
endforeach()
