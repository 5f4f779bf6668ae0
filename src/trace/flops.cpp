#include "trace/flops.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

namespace trireme::trace {
namespace {

using Dims = std::vector<int64_t>;

double product(const Dims& dims) {
  double result = 1;
  for (const int64_t dim : dims) result *= static_cast<double>(dim);
  return result;
}

/// [..., m, k] times [..., k, n] with equal leading dims, `rank` dims each.
std::optional<double> matrix_product(const OperatorArgs& args, size_t first, size_t rank) {
  if (args.dims.size() < first + 2) return std::nullopt;
  const Dims& a = args.dims[first];
  const Dims& b = args.dims[first + 1];
  if (a.size() != rank || b.size() != rank || a[rank - 1] != b[rank - 2]) return std::nullopt;
  if (rank == 3 && a[0] != b[0]) return std::nullopt;
  return 2 * product(a) * static_cast<double>(b[rank - 1]);
}

/// "[2, 2]" or "2".
Dims numbers_of(std::string_view text) {
  Dims numbers;
  while (!text.empty()) {
    const size_t digit = text.find_first_of("-0123456789");
    if (digit == std::string_view::npos) break;
    text.remove_prefix(digit);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{}) break;
    numbers.push_back(number);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
  }
  return numbers;
}

/// Products of two such numbers do not overflow.
bool plausible(const Dims& dims) {
  constexpr int64_t kMost = int64_t{1} << 30;
  return std::all_of(dims.begin(), dims.end(), [](int64_t dim) { return dim >= 0 && dim <= kMost; });
}

/// One value for each spatial dim; PyTorch lets one stand for all.
std::optional<int64_t> setting(const OperatorArgs& args, size_t index, size_t dim) {
  if (args.concrete.size() <= index) return std::nullopt;
  const Dims numbers = numbers_of(args.concrete[index]);
  if (numbers.empty()) return std::nullopt;
  if (!plausible(numbers)) return std::nullopt;
  return numbers.size() == 1 ? numbers[0] : dim < numbers.size() ? std::optional(numbers[dim]) : std::nullopt;
}

/// Of the forward. `at`: where input, weight, and the settings stride, padding, dilation, transposed stand among the arguments.
struct ConvolutionArgs {
  size_t input;
  size_t weight;
  size_t stride;
};

std::optional<double> convolution(const OperatorArgs& args, const ConvolutionArgs& at) {
  if (args.dims.size() <= std::max(at.input, at.weight) || args.concrete.size() <= at.stride + 3) return std::nullopt;
  const Dims& input = args.dims[at.input];
  const Dims& weight = args.dims[at.weight];
  if (input.size() < 3 || weight.size() != input.size() || !plausible(input) || !plausible(weight)) return std::nullopt;
  const bool transposed = args.concrete[at.stride + 3] == "True";
  // Each weight is used once for every output position (transposed: for every input position) of every sample.
  double positions = static_cast<double>(input[0]);
  for (size_t dim = 0; dim + 2 < input.size(); ++dim) {
    int64_t out = input[dim + 2];
    if (!transposed) {
      const auto stride = setting(args, at.stride, dim);
      const auto padding = setting(args, at.stride + 1, dim);
      const auto dilation = setting(args, at.stride + 2, dim);
      if (!stride || !padding || !dilation || *stride <= 0) return std::nullopt;
      out = (input[dim + 2] + 2 * *padding - *dilation * (weight[dim + 2] - 1) - 1) / *stride + 1;
    }
    if (out <= 0) return std::nullopt;
    positions *= static_cast<double>(out);
  }
  return 2 * positions * product(weight);
}

std::optional<double> convolution_backward(const OperatorArgs& args) {
  // (grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask)
  const auto forward = convolution(args, {1, 2, 4});
  if (!forward) return std::nullopt;
  // output_mask says which gradients are computed; the bias costs no products.
  if (args.concrete.size() <= 10) return 2 * *forward;
  const std::string_view mask = args.concrete[10];
  const size_t comma = mask.find(',');
  const bool input = mask.substr(0, comma).find("True") != std::string_view::npos;
  const bool weight =
      comma != std::string_view::npos &&
      mask.substr(comma + 1, mask.find(',', comma + 1) - comma - 1).find("True") != std::string_view::npos;
  if (mask.find("True") == std::string_view::npos && mask.find("False") == std::string_view::npos) return 2 * *forward;
  return (static_cast<double>(input) + static_cast<double>(weight)) * *forward;
}

/// Queries [B, H, L, D], keys [B, H', S, D], values [B, H', S, E]: Q K^T and P V.
std::optional<double> attention(const OperatorArgs& args, size_t first) {
  if (args.dims.size() < first + 3) return std::nullopt;
  const Dims& q = args.dims[first];
  const Dims& k = args.dims[first + 1];
  const Dims& v = args.dims[first + 2];
  if (q.size() != 4 || k.size() != 4 || v.size() != 4 || q[3] != k[3] || k[2] != v[2]) return std::nullopt;
  const double scores =
      static_cast<double>(q[0]) * static_cast<double>(q[1]) * static_cast<double>(q[2]) * static_cast<double>(k[2]);
  return 2 * scores * static_cast<double>(q[3] + v[3]);
}

constexpr std::array<std::string_view, 18> kNames = {
    "aten::mm",
    "aten::addmm",
    "aten::_addmm_activation",
    "aten::bmm",
    "aten::baddbmm",
    "aten::mv",
    "aten::dot",
    "aten::convolution",
    "aten::convolution_overrideable",
    "aten::convolution_backward",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_flash_attention_backward",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
    "aten::_scaled_dot_product_efficient_attention_backward",
    "aten::_scaled_dot_product_cudnn_attention_backward",
};

}  // namespace

bool counts_flops(std::string_view name) {
  for (const std::string_view one : kNames) {
    if (name == one) return true;
  }
  return false;
}

std::optional<double> flops_of(std::string_view name, const OperatorArgs& args) {
  if (name == "aten::mm") return matrix_product(args, 0, 2);
  if (name == "aten::addmm" || name == "aten::_addmm_activation") return matrix_product(args, 1, 2);
  if (name == "aten::bmm") return matrix_product(args, 0, 3);
  if (name == "aten::baddbmm") return matrix_product(args, 1, 3);
  if (name == "aten::mv") {
    if (args.dims.empty() || args.dims[0].size() != 2) return std::nullopt;
    return 2 * product(args.dims[0]);
  }
  if (name == "aten::dot") {
    if (args.dims.empty() || args.dims[0].size() != 1) return std::nullopt;
    return 2 * product(args.dims[0]);
  }
  // (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
  if (name == "aten::convolution" || name == "aten::convolution_overrideable") return convolution(args, {0, 1, 3});
  if (name == "aten::convolution_backward") return convolution_backward(args);
  if (name.starts_with("aten::_scaled_dot_product_")) {
    const bool backward = name.ends_with("_backward");
    const auto forward = attention(args, backward ? 1 : 0);  // the backward's first argument is the gradient
    if (!forward) return std::nullopt;
    return backward ? 2 * *forward : *forward;
  }
  return std::nullopt;
}

}  // namespace trireme::trace
