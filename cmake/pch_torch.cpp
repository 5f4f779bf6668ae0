// Carries the precompiled header of models and recipes; see TriremeTorch.cmake.
