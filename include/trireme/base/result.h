// The outcome of something that may well not work ("this plan does not fit"): a value, or the reason why there is none.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "trireme/base/error.h"

namespace trireme {

/// Why there is no value. Implicitly converts into any Result<T>.
struct Reason {
  std::string text;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}         // NOLINT: implicit by design
  Result(Reason reason) : state_(std::in_place_index<1>, std::move(reason)) {}  // NOLINT: implicit by design

  [[nodiscard]] bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  /// The value; throws kInvalidArgument with the reason when there is none.
  [[nodiscard]] T& value() & {
    require();
    return std::get<0>(state_);
  }
  [[nodiscard]] const T& value() const& {
    require();
    return std::get<0>(state_);
  }
  [[nodiscard]] T&& value() && {
    require();
    return std::get<0>(std::move(state_));
  }

  /// The reason; empty when there is a value.
  [[nodiscard]] std::string reason() const { return ok() ? std::string{} : std::get<1>(state_).text; }

 private:
  void require() const {
    if (!ok()) throw Error(ErrorKind::kInvalidArgument, std::get<1>(state_).text);
  }
  std::variant<T, Reason> state_;
};

}  // namespace trireme
