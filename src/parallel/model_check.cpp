#include "parallel/model_check.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string_view>

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

std::vector<std::string> all_gather(comm::CallQueue& queue, comm::Communicator& communicator, const std::string& mine,
                                    size_t bytes, std::string_view label) {
  std::string padded = mine;
  padded.resize(bytes);
  std::vector<std::string> all(static_cast<size_t>(communicator.size()), std::string(bytes, '\0'));
  std::vector<void*> outs;
  for (std::string& text : all) outs.push_back(text.data());
  comm::CallInfo info;
  info.op = comm::OpKind::kAllGather;
  info.dtype = comm::DType::kU8;
  info.num_dims = 1;
  info.dims[0] = static_cast<int64_t>(bytes);
  info.count = bytes;
  info.set_label(label);
  queue.wait(queue.issue(
      info, [&](const comm::CallInfo& numbered) { communicator.all_gather(numbered, padded.data(), outs, bytes); }));
  return all;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) break;  // padding
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

/// The lines of every rank; nothing when all are equal.
std::vector<std::string> differing_texts(comm::CallQueue& queue, comm::Communicator& communicator,
                                         const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  const std::array<uint64_t, 2> mine = {fnv1a(text), text.size()};
  const std::string digest(reinterpret_cast<const char*>(mine.data()), sizeof(mine));
  const std::vector<std::string> digests = all_gather(queue, communicator, digest, sizeof(mine), "model digest");
  size_t longest = 0;
  bool equal = true;
  for (const std::string& other : digests) {
    equal = equal && other == digests[0];
    std::array<uint64_t, 2> values{};
    std::copy(other.begin(), other.end(), reinterpret_cast<char*>(values.data()));
    longest = std::max<size_t>(longest, values[1]);
  }
  if (equal) return {};
  return all_gather(queue, communicator, text, longest, "model description");
}

[[noreturn]] void equal_after_all() {
  throw Error(ErrorKind::kInternal,
              "[parallel.ddp] model digests differ but the descriptions are equal; please report it.");
}

}  // namespace

void require_equal_models(comm::CallQueue& queue, comm::Communicator& communicator,
                          const std::vector<std::string>& lines) {
  const std::vector<std::string> texts = differing_texts(queue, communicator, lines);
  if (texts.empty()) return;
  const std::vector<std::string_view> first = split_lines(texts[0]);
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    const std::vector<std::string_view> other = split_lines(texts[rank]);
    for (size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
      const std::string_view a = i < first.size() ? first[i] : "nothing";
      const std::string_view b = i < other.size() ? other[i] : "nothing";
      if (a == b) continue;
      throw Error(ErrorKind::kMismatch,
                  str("[parallel.ddp] rank ", communicator.rank(), "/", communicator.size(), ": entry ", i,
                      " of the model differs: rank 0 has ", a, ", rank ", rank, " has ", b,
                      "; all ranks must build the same model. Look for what depends on the rank."));
    }
  }
  equal_after_all();
}

void require_equal_values(comm::CallQueue& queue, comm::Communicator& communicator,
                          const std::vector<std::string>& lines, int64_t step) {
  const std::vector<std::string> texts = differing_texts(queue, communicator, lines);
  if (texts.empty()) return;
  std::vector<std::vector<std::string_view>> all;
  for (const std::string& text : texts) all.push_back(split_lines(text));
  for (size_t i = 0; i < lines.size(); ++i) {
    std::map<std::string_view, std::vector<size_t>> ranks_of;
    for (size_t rank = 0; rank < all.size(); ++rank)
      ranks_of[i < all[rank].size() ? all[rank][i] : "nothing"].push_back(rank);
    if (ranks_of.size() == 1) continue;
    std::string sides;
    for (const auto& [line, ranks] : ranks_of) {
      sides += str(sides.empty() ? "" : "; ", ranks.size() == 1 ? "rank " : "ranks ", join(ranks), ": ", line);
    }
    throw Error(
        ErrorKind::kMismatch,
        str("[parallel.ddp] rank ", communicator.rank(), "/", communicator.size(), ": after ", step,
            " training steps the ranks hold different values. First difference: ", sides,
            ". All ranks must make the same updates: look for an update under a condition that depends on the rank, an "
            "optimizer with other settings, or a parameter that is written outside the optimizer."));
  }
  equal_after_all();
}

}  // namespace trireme::parallel
