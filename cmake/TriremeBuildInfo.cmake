# Run at build time (cmake -P): writes OUTPUT only when the commit has changed, so that nothing is rebuilt for nothing.
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --abbrev=10 --dirty=+ --exclude=*
  OUTPUT_VARIABLE _commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT _commit)
  set(_commit unknown)
endif()
set(_text "#include \"cli/build_info.h\"\n\nnamespace trireme::cli {\n
const char* const kVersion = \"${VERSION}\";
const char* const kCommit = \"${_commit}\";
const char* const kCompiler = \"${COMPILER}\";\n
}  // namespace trireme::cli\n")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} _before)
endif()
if(NOT "${_before}" STREQUAL "${_text}")
  file(WRITE ${OUTPUT} "${_text}")
endif()
