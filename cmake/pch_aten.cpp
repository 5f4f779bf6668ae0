// Carries the precompiled header of library files; see TriremeTorch.cmake.
