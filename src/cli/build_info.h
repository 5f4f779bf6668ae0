// What this binary was built from.
#pragma once

namespace trireme::cli {

extern const char* const kVersion;
extern const char* const kCommit;  ///< "1a2b3c4", with "+" behind when files were modified; "unknown" outside git
extern const char* const kCompiler;

}  // namespace trireme::cli
