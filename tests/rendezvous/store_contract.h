// The kinds of stores that one test body runs over: in memory, below a prefix, our client against our server, and the
// server's own door to its data.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "support/patience.h"
#include "trireme/rendezvous/store.h"

namespace trireme::rendezvous {

struct StoreUnderTest {
  std::shared_ptr<TcpStoreServer> server;           ///< where there is one
  std::function<std::shared_ptr<Store>()> another;  ///< one more view of the same data
  std::shared_ptr<Store> store;
};

inline StoreUnderTest make_store(const std::string& kind) {
  StoreUnderTest made;
  if (kind == "memory" || kind == "prefix") {
    std::shared_ptr<Store> root = make_memory_store();
    if (kind == "prefix") root = make_prefix_store("p", root);
    made.another = [root] { return root; };
  } else {
    made.server = start_tcp_store_server({});
    const auto server = made.server;
    if (kind == "local") {
      made.another = [server] { return server->local(); };
    } else {
      made.another = [server] { return connect_tcp_store("127.0.0.1", server->port(), trireme::test::kPatience); };
    }
  }
  made.store = made.another();
  return made;
}

}  // namespace trireme::rendezvous
