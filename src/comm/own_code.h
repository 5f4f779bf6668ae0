// Marks the stretches in which a thread is in our own code inside somebody else's (autograd's), so that tests can count
// what we allocate.
#pragma once

namespace trireme::comm {

struct OwnCodeScope {
  OwnCodeScope() noexcept : outer(active) { active = true; }
  ~OwnCodeScope() { active = outer; }
  OwnCodeScope(const OwnCodeScope&) = delete;
  OwnCodeScope& operator=(const OwnCodeScope&) = delete;

  static inline thread_local bool active = false;
  bool outer;
};

}  // namespace trireme::comm
