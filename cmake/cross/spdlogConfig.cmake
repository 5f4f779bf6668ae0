include(${CMAKE_CURRENT_LIST_DIR}/fmt-config.cmake)
header_only(spdlog::spdlog_header_only spdlog SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY=1)
target_link_libraries(spdlog::spdlog_header_only INTERFACE fmt::fmt-header-only)
