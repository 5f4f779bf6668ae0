// A store over a table of this process; `key_prefix` is put in front of every key ("/" for what c10d clients see).
#pragma once

#include <memory>
#include <string>

#include "rendezvous/store_table.h"
#include "trireme/rendezvous/store.h"

namespace trireme::rendezvous {

[[nodiscard]] std::shared_ptr<Store> make_table_store(std::shared_ptr<StoreTable> table, std::string key_prefix);

/// "'a', 'b' (and 7 more)": keys in messages.
[[nodiscard]] std::string list_for_message(std::span<const std::string> keys);

/// "2.5 s" or "40 ms".
[[nodiscard]] std::string in_words(std::chrono::milliseconds duration);

}  // namespace trireme::rendezvous
