// Seconds, bytes and FLOPs that do not mix: a formula whose units are wrong does not compile.
//
//   Bytes{1e9} / BytesPerSecond{50e9}       is Seconds
//   Bytes{1e9} + Seconds{1}                 does not compile
//   Flops{1e12} / BytesPerSecond{50e9}      is no Seconds, and cannot be returned as such
//
// Counts (tokens, elements, layers, ranks) are plain double: they multiply everything.
#pragma once

#include <algorithm>
#include <compare>

namespace trireme::plan {

/// A number of second^S byte^B flop^F. Costs what a double costs.
template <int S, int B, int F>
struct Quantity {
  double value = 0;  ///< in SI units: the way out, for text and for what is no formula

  constexpr Quantity() = default;
  constexpr explicit Quantity(double number) : value(number) {}

  constexpr Quantity& operator+=(Quantity other) {
    value += other.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value -= other.value;
    return *this;
  }
  constexpr Quantity& operator*=(double factor) {
    value *= factor;
    return *this;
  }
  constexpr Quantity& operator/=(double factor) {
    value /= factor;
    return *this;
  }
  constexpr auto operator<=>(const Quantity&) const = default;

  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity{a.value + b.value}; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity{a.value - b.value}; }
  friend constexpr Quantity operator*(Quantity a, double factor) { return Quantity{a.value * factor}; }
  friend constexpr Quantity operator*(double factor, Quantity a) { return Quantity{factor * a.value}; }
  friend constexpr Quantity operator/(Quantity a, double factor) { return Quantity{a.value / factor}; }
};

template <int S, int B, int F, int S2, int B2, int F2>
constexpr auto operator*(Quantity<S, B, F> a, Quantity<S2, B2, F2> b) {
  if constexpr (S + S2 == 0 && B + B2 == 0 && F + F2 == 0)
    return a.value * b.value;
  else
    return Quantity<S + S2, B + B2, F + F2>{a.value * b.value};
}
/// A ratio of equal units is a plain number.
template <int S, int B, int F, int S2, int B2, int F2>
constexpr auto operator/(Quantity<S, B, F> a, Quantity<S2, B2, F2> b) {
  if constexpr (S == S2 && B == B2 && F == F2)
    return a.value / b.value;
  else
    return Quantity<S - S2, B - B2, F - F2>{a.value / b.value};
}

using Seconds = Quantity<1, 0, 0>;
using Bytes = Quantity<0, 1, 0>;
using Flops = Quantity<0, 0, 1>;
using BytesPerSecond = Quantity<-1, 1, 0>;
using FlopsPerSecond = Quantity<-1, 0, 1>;

}  // namespace trireme::plan
