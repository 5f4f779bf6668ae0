#include "support/model_check/memory.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace trireme::model {
namespace {

bool acquires(std::memory_order order) {
  return order == std::memory_order_acquire || order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}
bool releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}
bool is_sc(std::memory_order order) { return order == std::memory_order_seq_cst; }

size_t at(int index) { return static_cast<size_t>(index); }

}  // namespace

void View::join(const View& other) {
  for (size_t i = 0; i < words.size(); ++i) words[i] = std::max(words[i], other.words[i]);
  for (size_t i = 0; i < accesses.size(); ++i) accesses[i] = std::max(accesses[i], other.accesses[i]);
}

void Memory::reset(int num_threads) {
  num_threads_ = num_threads;
  num_words_ = 0;
  num_cells_ = 0;
  views_.fill({});
}

int Memory::add_word() {
  if (num_words_ == kMaxWords) throw std::length_error("model: too many words");
  Word& word = words_[at(num_words_)];
  word.messages.clear();
  word.messages.emplace_back();  // zero, known to all
  word.sc_floor = 0;
  word.futex_floor = 0;
  word.storing_thread = -1;
  return num_words_++;
}

int Memory::add_cell() {
  if (num_cells_ == kMaxCells) throw std::length_error("model: too many cells");
  cells_[at(num_cells_)] = {};
  return num_cells_++;
}

int Memory::newest(int word) const { return static_cast<int>(words_[at(word)].messages.size()) - 1; }
uint32_t Memory::value_at(int word, int message) const { return words_[at(word)].messages[at(message)].value; }

int Memory::first_readable(int thread, int word, std::memory_order order) const {
  const int known = views_[at(thread)].words[at(word)];
  return is_sc(order) ? std::max<int>(known, words_[at(word)].sc_floor) : known;
}

uint32_t Memory::load(int thread, int word, std::memory_order order, int message) {
  View& view = views_[at(thread)];
  const Message& read = words_[at(word)].messages[at(message)];
  if (acquires(order)) view.join(read.view);
  skip_to(thread, word, message);
  if (is_sc(order)) words_[at(word)].sc_floor = std::max(words_[at(word)].sc_floor, static_cast<uint8_t>(message));
  return read.value;
}

void Memory::append(int thread, int word, uint32_t value, const View& view) {
  Word& target = words_[at(word)];
  if (target.messages.size() > 250) throw std::length_error("model: too many messages");
  const auto index = static_cast<uint8_t>(target.messages.size());
  target.messages.push_back({value, view});
  target.messages.back().view.words[at(word)] = index;
  views_[at(thread)].words[at(word)] = index;
}

void Memory::store(int thread, int word, std::memory_order order, uint32_t value) {
  Word& target = words_[at(word)];
  // A store of another thread may come before or after ours in the modification order, unless we have seen it.
  const bool seen_all = views_[at(thread)].words[at(word)] + size_t{1} == target.messages.size();
  if (target.storing_thread >= 0 && target.storing_thread != thread && !seen_all) {
    throw std::logic_error("model: two threads store to one word unseen; the model would miss modification orders");
  }
  target.storing_thread = thread;
  append(thread, word, value, releases(order) ? views_[at(thread)] : View{});
  if (is_sc(order)) target.sc_floor = static_cast<uint8_t>(newest(word));
}

uint32_t Memory::exchange(int thread, int word, std::memory_order order, uint32_t value) {
  const Message old = words_[at(word)].messages.back();
  View& view = views_[at(thread)];
  if (acquires(order)) view.join(old.view);
  View carried = old.view;
  if (releases(order)) carried.join(view);
  append(thread, word, value, carried);
  if (is_sc(order)) words_[at(word)].sc_floor = static_cast<uint8_t>(newest(word));
  return old.value;
}

void Memory::skip_to(int thread, int word, int message) {
  uint8_t& known = views_[at(thread)].words[at(word)];
  known = std::max(known, static_cast<uint8_t>(message));
}

void Memory::futex_woken(int thread, int word) {
  Word& target = words_[at(word)];
  target.futex_floor = std::max(target.futex_floor, views_[at(thread)].words[at(word)]);
}

void Memory::futex_look(int thread, int word) { skip_to(thread, word, words_[at(word)].futex_floor); }

const char* Memory::read_cell(int thread, int cell, uint32_t& value) {
  Cell& target = cells_[at(cell)];
  View& view = views_[at(thread)];
  for (int other = 0; other < num_threads_; ++other) {
    if (other != thread && view.accesses[View::write_index(cell, other)] != target.writes[at(other)]) {
      return "a read races with a write";
    }
  }
  value = target.value;
  view.accesses[View::read_index(cell, thread)] = ++target.reads[at(thread)];
  return nullptr;
}

const char* Memory::write_cell(int thread, int cell, uint32_t value) {
  Cell& target = cells_[at(cell)];
  View& view = views_[at(thread)];
  for (int other = 0; other < num_threads_; ++other) {
    if (other == thread) continue;
    if (view.accesses[View::write_index(cell, other)] != target.writes[at(other)]) return "two writes race";
    if (view.accesses[View::read_index(cell, other)] != target.reads[at(other)]) return "a write races with a read";
  }
  target.value = value;
  view.accesses[View::write_index(cell, thread)] = ++target.writes[at(thread)];
  return nullptr;
}

uint64_t Memory::hash(const std::array<bool, kMaxThreads>& alive) const {
  std::array<uint8_t, kMaxWords> base{};
  base.fill(255);
  for (int t = 0; t < num_threads_; ++t) {
    if (!alive[at(t)]) continue;
    for (size_t w = 0; w < base.size(); ++w) base[w] = std::min(base[w], views_[at(t)].words[w]);
  }
  const auto relative = [&](int word, uint8_t index) -> uint64_t {
    return index > base[at(word)] ? index - base[at(word)] : 0U;
  };
  uint64_t result = 17;
  const auto mix_view = [&](const View& view) {
    uint64_t packed = 0;
    for (int w = 0; w < num_words_; ++w) {
      packed = packed << 8 | relative(w, view.words[at(w)]);
      if (w % 8 == 7) {
        result = mix(result, packed);
        packed = 0;
      }
    }
    result = mix(result, packed);
    const size_t bytes = at(num_cells_) * kMaxThreads * 2;
    for (size_t i = 0; i < bytes; i += 8) {
      uint64_t part = 0;
      std::memcpy(&part, view.accesses.data() + i, std::min<size_t>(8, bytes - i));
      result = mix(result, part);
    }
  };
  for (int t = 0; t < num_threads_; ++t) {
    if (alive[at(t)]) mix_view(views_[at(t)]);
  }
  for (int w = 0; w < num_words_; ++w) {
    const Word& word = words_[at(w)];
    result = mix(result, relative(w, word.sc_floor) << 8 | relative(w, word.futex_floor));
    for (size_t m = base[at(w)]; m < word.messages.size(); ++m) {
      result = mix(result, word.messages[m].value);
      mix_view(word.messages[m].view);
    }
    result = mix(result, 0xabcd);
  }
  for (int c = 0; c < num_cells_; ++c) {
    const Cell& cell = cells_[at(c)];
    result = mix(result, cell.value);
    for (int t = 0; t < num_threads_; ++t) {
      result = mix(result, uint64_t{cell.writes[at(t)]} << 8 | cell.reads[at(t)]);
    }
  }
  return result;
}

}  // namespace trireme::model
