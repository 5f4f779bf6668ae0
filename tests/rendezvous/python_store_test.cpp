// Oracle: c10d's own TCPStore, through Python of the venv that the build uses: its client against our server, and our
// client against its server. The answers that store_test asserts are asked from it here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "support/patience.h"
#include "support/subprocess.h"
#include "trireme/base/error.h"
#include "trireme/rendezvous/store.h"

namespace trireme::rendezvous {
namespace {

using std::chrono::milliseconds;
using trireme::testing::Subprocess;
constexpr milliseconds kLong = trireme::test::kPatience;

std::string python() {
  const char* venv = TRIREME_SOURCE_DIR "/.venv/bin/python";
  if (access(venv, X_OK) == 0) return venv;
  return "python3";
}

/// Python code with a TCPStore `s`, run in a process of its own.
class PythonStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto probe = trireme::testing::run_program(
        {python(), "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"});
    if (probe.exit_code != 0) GTEST_SKIP() << python() << " has no torch; ./dev build installs it into .venv";
  }
  static std::unique_ptr<Subprocess> start(const std::string& code) {
    const std::string head =
        "import datetime, threading, sys\n"
        "import torch.distributed as d\n"
        "def connect(port): return d.TCPStore('127.0.0.1', port, None, False, datetime.timedelta(seconds=100), False)\n"
        "def name(call):\n"
        "  try: call()\n"
        "  except Exception as e: return type(e).__name__\n"
        "  return 'no error'\n";
    return std::make_unique<Subprocess>(std::vector<std::string>{python(), "-W", "ignore", "-u", "-c", head + code});
  }
};

TEST_F(PythonStoreTest, ItsClientUnderstandsOurServer) {
  const auto server = start_tcp_store_server({});
  const auto store = server->local();
  store->set("ours", "from C++");
  const auto client = start("s = connect(" + std::to_string(server->port()) + ")\n" + R"(
t = connect(s.port)
s.set('a', b'1\x00\xff'); assert s.get('a') == b'1\x00\xff'
assert s.get('ours') == b'from C++'
assert s.check(['a']) and not s.check(['a', 'nope'])
assert s.add('n', 5) == 5 and s.add('n', -7) == -2 and s.get('n') == b'-2'
assert s.compare_set('c', 'nope', 'v') == b'nope' and not s.check(['c'])
assert s.compare_set('c', '', 'v') == b'v' and s.compare_set('c', 'q', 'z') == b'v' and s.compare_set('c', 'v', 'w') == b'w'
s.append('ap', '1'); s.append('ap', '23'); assert s.get('ap') == b'123'
s.multi_set(['m0', 'm1'], ['v0', 'x' * 100000]); assert s.multi_get(['m0', 'm1']) == [b'v0', b'x' * 100000]
s.queue_push('q', '1'); s.queue_push('q', '2'); assert s.check(['q']) and s.queue_len('q') == 2
assert s.queue_pop('q') == b'1' and s.queue_pop('q') == b'2' and s.queue_len('q') == 0
assert name(lambda: s.queue_pop('q', False)) == 'QueueEmptyError'
assert sorted(k for k in s.list_keys() if len(k) < 3) == ['a', 'ap', 'c', 'm0', 'm1', 'n'], s.list_keys()
assert s.num_keys() == 7, s.num_keys()
assert s.delete_key('a') is True and s.delete_key('a') is False
w = threading.Thread(target=lambda: t.wait(['late1', 'late2'])); w.start()
s.set('late1', '1'); s.add('late2', 1); w.join()
assert name(lambda: s.wait(['never'], datetime.timedelta(milliseconds=50))) == 'DistStoreError'
assert s.get('late1') == b'1'
b = threading.Thread(target=lambda: t.barrier('bar', 2)); b.start(); s.barrier('bar', 2); b.join()
assert name(lambda: s.barrier('alone', 2, datetime.timedelta(milliseconds=50))) == 'DistStoreError'
u = s.clone(); u.set('clone', '1'); assert s.get('clone') == b'1'
big = b'y' * (8 << 20); s.set('big', big); assert s.get('big') == big
p = d.PrefixStore('pre', s); p.set('k', 'v'); assert s.get('pre/k') == b'v'
s.set('done', 'all asserted'); s.get('done')
)");
  EXPECT_EQ(client->wait(kLong), 0) << client->err();
  EXPECT_EQ(store->get("done", milliseconds(0)), "all asserted");
  EXPECT_EQ(store->get("pre/k", milliseconds(0)), "v");
}

TEST_F(PythonStoreTest, OurClientUnderstandsItsServers) {
  for (const char* backend : {"True", "False"}) {
    SCOPED_TRACE(std::string("use_libuv=") + backend);
    const auto python = start(std::string("s = d.TCPStore('127.0.0.1', 0, None, True, datetime.timedelta(seconds=100), "
                                          "False, use_libuv=") +
                              backend + R"()
s.set('theirs', 'from Python')
print('port', s.port, flush=True)
assert s.get('ours') == b'from\x00C++'
s.wait(['end'], datetime.timedelta(seconds=100))
)");
    ASSERT_TRUE(python->await_output("\n", 1, kLong)) << python->err();
    const int port = std::stoi(python->out().substr(5));
    const auto store = connect_tcp_store("localhost", port, kLong);
    const auto other = connect_tcp_store("127.0.0.1", port, kLong);
    EXPECT_EQ(store->get("theirs", kLong), "from Python");
    store->set("ours", std::string("from\0C++", 8));
    EXPECT_EQ(store->add("n", 5), 5);
    EXPECT_EQ(store->add("n", -7), -2);
    EXPECT_EQ(store->compare_set("c", "nope", "v"), "nope");
    const std::vector<std::string> c{"c"};
    EXPECT_FALSE(store->check(c));
    EXPECT_EQ(store->compare_set("c", "", "v"), "v");
    EXPECT_EQ(store->compare_set("c", "q", "z"), "v");
    EXPECT_EQ(store->compare_set("c", "v", "w"), "w");
    store->append("ap", "1");
    store->append("ap", "23");
    EXPECT_EQ(store->get("ap", kLong), "123");
    const std::vector<std::string> keys{"m0", "m1"};
    const std::vector<std::string> values{"v0", std::string(100'000, 'x')};
    store->multi_set(keys, values);
    EXPECT_EQ(store->multi_get(keys, kLong), values);
    EXPECT_THAT(store->list_keys(), ::testing::UnorderedElementsAre("theirs", "ours", "n", "c", "ap", "m0", "m1"));
    EXPECT_EQ(store->num_keys(), 7);
    EXPECT_TRUE(store->delete_key("ap"));
    EXPECT_FALSE(store->delete_key("ap"));
    std::thread late([&] {
      other->set("late1", "1");
      other->add("late2", 1);
    });
    const std::vector<std::string> both{"late1", "late2"};
    EXPECT_NO_THROW(store->wait(both, kLong));
    late.join();
    try {
      (void)store->get("never", milliseconds(50));
      ADD_FAILURE() << "a value for a key that nobody has set";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kTimeout) << error.what();
    }
    EXPECT_EQ(store->get("late1", kLong), "1");
    std::thread second([&] { other->barrier("bar", 2, kLong); });
    EXPECT_NO_THROW(store->barrier("bar", 2, kLong));
    second.join();
    if (std::string(backend) == "True") {  // the older server of c10d has no queues
      store->queue_push("q", "1");
      store->queue_push("q", "2");
      EXPECT_EQ(store->queue_len("q"), 2);
      EXPECT_EQ(store->queue_pop("q", kLong), "1");
      EXPECT_EQ(store->queue_pop("q", kLong), "2");
    }
    store->set("end", "");
    EXPECT_EQ(python->wait(kLong), 0) << python->err();
  }
}

}  // namespace
}  // namespace trireme::rendezvous
