#include <charconv>

#include "base/str.h"
#include "parallel/ddp_options.h"
#include "trireme/base/error.h"
#include "trireme/parallel/ddp.h"

namespace trireme::parallel {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& text, const std::string& allowed) {
  throw Error(ErrorKind::kInvalidArgument, str("[parallel.ddp] option '", name, "' is '", text, "'; ", allowed, "."));
}

void check_bytes(const std::string& name, int64_t bytes) {
  if (bytes >= 1 && bytes <= kMaxBucketBytes) return;
  refuse(name, str(bytes),
         str("it must be a number of bytes from 1 to ", kMaxBucketBytes,
             " (1 makes a bucket of every parameter; the default is 26214400)"));
}

int64_t parse_bytes(const std::string& name, const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    refuse(name, text, str("it must be a whole number of bytes from 1 to ", kMaxBucketBytes, ", digits only"));
  }
  check_bytes(name, value);
  return value;
}

constexpr const char* kStepsAllowed = "it must be a whole number of steps, 0 for never";

int64_t parse_steps(const std::string& name, const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) refuse(name, text, kStepsAllowed);
  return value;
}

bool parse_bool(const std::string& name, const std::string& text) {
  if (text == "true") return true;
  if (text == "false") return false;
  refuse(name, text, "it must be true or false");
}

}  // namespace

void check_ddp_options(const DdpOptions& options) {
  check_bytes("first_bucket_bytes", options.first_bucket_bytes);
  check_bytes("bucket_bytes", options.bucket_bytes);
  if (options.check_values_every < 0) refuse("check_values_every", str(options.check_values_every), kStepsAllowed);
}

void set_ddp_option(DdpOptions& options, const std::string& name, const std::string& text) {
  if (name == "first_bucket_bytes") {
    options.first_bucket_bytes = parse_bytes(name, text);
  } else if (name == "bucket_bytes") {
    options.bucket_bytes = parse_bytes(name, text);
  } else if (name == "broadcast_buffers") {
    options.broadcast_buffers = parse_bool(name, text);
  } else if (name == "find_unused_parameters") {
    options.find_unused_parameters = parse_bool(name, text);
  } else if (name == "check_values_every") {
    options.check_values_every = parse_steps(name, text);
  } else if (name == "gradients") {
    if (text == "staged") {
      options.gradients = GradientMode::kStaged;
    } else if (text == "bucket_view") {
      options.gradients = GradientMode::kBucketView;
    } else if (text == "arena") {
      options.gradients = GradientMode::kArena;
    } else {
      refuse(name, text, "it must be staged, bucket_view or arena");
    }
  } else {
    throw Error(ErrorKind::kInvalidArgument,
                str("[parallel.ddp] there is no option '", name, "'; options are first_bucket_bytes, bucket_bytes, ",
                    "broadcast_buffers, find_unused_parameters, check_values_every and gradients."));
  }
}

}  // namespace trireme::parallel
