// Oracle: closed form. Rank r holds small integers that depend on r and the index, exact in every dtype, so results are
// compared for equality. The same tests serve every backend.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tuple>

#include "base/str.h"
#include "support/run_ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/collectives.h"

namespace trireme {
namespace {

using comm::Group;
using test::run_ranks;
using Param = std::tuple<int, int64_t>;  // ranks, elements

const std::vector<at::ScalarType> kAllTypes = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble,
                                               at::kInt,  at::kLong,     at::kByte,  at::kBool};

class Conformance : public testing::TestWithParam<Param> {
 protected:
  int n() const { return std::get<0>(GetParam()); }
  int64_t count() const { return std::get<1>(GetParam()); }
};

// What rank r passes in, as i64: ((3 r + i) mod 5), for bool mod 2.
at::Tensor values(int rank, int64_t count, at::ScalarType type, int64_t shift = 0) {
  const int64_t modulus = type == at::kBool ? 2 : 5;
  return at::remainder(at::arange(count, at::kLong) + (int64_t{3} * rank + shift), modulus);
}
at::Tensor input(int rank, int64_t count, at::ScalarType type, int64_t shift = 0) {
  return values(rank, count, type, shift).to(type);
}

std::string difference(const at::Tensor& got, const at::Tensor& want, at::ScalarType type) {
  if (got.numel() != want.numel()) return str("numel ", got.numel(), " instead of ", want.numel());
  const at::Tensor at = at::nonzero(got.to(at::kDouble).reshape(-1) != want.to(at::kDouble).reshape(-1));
  if (at.numel() == 0) return {};
  const auto i = at.flatten()[0].item<int64_t>();
  return str(c10::toString(type), "[", i, "] is ", got.reshape(-1)[i].item<double>(), " instead of ",
             want.reshape(-1)[i].item<double>(), ", ", at.size(0), " of ", got.numel(), " differ");
}
#define EXPECT_SAME(got, want, type) EXPECT_EQ(difference(got, want, type), "")

TEST_P(Conformance, AllReduceSumMinMaxOfEveryDtype) {
  run_ranks(n(), [&](Group& group) {
    for (const at::ScalarType type : kAllTypes) {
      at::Tensor sum = at::zeros(count(), at::kLong);
      at::Tensor min = values(0, count(), type);
      at::Tensor max = min.clone();
      for (int r = 0; r < n(); ++r) {
        const at::Tensor part = values(r, count(), type);
        sum += part;
        min = at::minimum(min, part);
        max = at::maximum(max, part);
      }
      if (type == at::kBool) sum = (sum != 0).to(at::kLong);
      at::Tensor x = input(group.rank(), count(), type);
      comm::all_reduce_sum(group, x).wait();
      EXPECT_SAME(x, sum, type);
      x = input(group.rank(), count(), type);
      comm::all_reduce_min(group, x).wait();
      EXPECT_SAME(x, min, type);
      x = input(group.rank(), count(), type);
      comm::all_reduce_max(group, x).wait();
      EXPECT_SAME(x, max, type);
    }
  });
}

TEST_P(Conformance, AllReduceAverageDividesOnce) {
  run_ranks(n(), [&](Group& group) {
    for (const at::ScalarType type : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
      at::Tensor sum = at::zeros(count(), at::kLong);
      for (int r = 0; r < n(); ++r) sum += values(r, count(), type);
      // The sum is exact; one division in f32 (f64 for f64), rounded once to the dtype.
      const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
      const at::Tensor want = sum.to(wide).div(n()).to(type);
      at::Tensor x = input(group.rank(), count(), type);
      comm::all_reduce_avg(group, x).wait();
      EXPECT_SAME(x, want, type);
    }
  });
}

TEST_P(Conformance, AllReduceOfAListIsOneOperation) {
  run_ranks(n(), [&](Group& group) {
    at::Tensor want = at::zeros(count(), at::kLong);
    for (int r = 0; r < n(); ++r) want += values(r, count(), at::kFloat);
    std::vector<at::Tensor> list = {input(group.rank(), count(), at::kFloat), at::full({3}, 1.0F),
                                    at::empty({0}, at::kFloat),
                                    input(group.rank(), count(), at::kFloat).reshape({1, -1})};
    comm::all_reduce_sum(group, list).wait();
    EXPECT_SAME(list[0], want, at::kFloat);
    EXPECT_SAME(list[1], at::full({3}, n(), at::kLong), at::kFloat);
    EXPECT_SAME(list[3], want, at::kFloat);
  });
}

TEST_P(Conformance, BroadcastFromEveryRoot) {
  run_ranks(n(), [&](Group& group) {
    for (const at::ScalarType type : kAllTypes) {
      for (int root = 0; root < n(); ++root) {
        at::Tensor x = input(group.rank(), count(), type);
        comm::broadcast(group, x, root).wait();
        EXPECT_SAME(x, values(root, count(), type), type);
      }
    }
  });
}

TEST_P(Conformance, AllGatherIntoAListAndIntoOne) {
  run_ranks(n(), [&](Group& group) {
    for (const at::ScalarType type : kAllTypes) {
      const at::Tensor mine = input(group.rank(), count(), type);
      std::vector<at::Tensor> parts;
      for (int r = 0; r < n(); ++r) parts.push_back(at::full({count()}, 1, type));
      comm::all_gather(group, parts, mine).wait();
      const at::Tensor whole = at::full({n(), count()}, 1, type);
      comm::all_gather_base(group, whole, mine).wait();
      for (int r = 0; r < n(); ++r) {
        EXPECT_SAME(parts[static_cast<size_t>(r)], values(r, count(), type), type);
        EXPECT_SAME(whole[r], values(r, count(), type), type);
      }
    }
  });
}

TEST_P(Conformance, ReduceScatterFromAListAndFromOne) {
  run_ranks(n(), [&](Group& group) {
    for (const at::ScalarType type : kAllTypes) {
      std::vector<at::Tensor> parts;
      for (int r = 0; r < n(); ++r) parts.push_back(input(group.rank(), count(), type, r));
      const at::Tensor whole = at::stack(parts);
      at::Tensor want = at::zeros(count(), at::kLong);
      for (int r = 0; r < n(); ++r) want += values(r, count(), type, group.rank());
      if (type == at::kBool) want = (want != 0).to(at::kLong);
      at::Tensor out = at::full({count()}, 1, type);
      comm::reduce_scatter_sum(group, out, parts).wait();
      EXPECT_SAME(out, want, type);
      out.fill_(1);
      comm::reduce_scatter_base_sum(group, out, whole).wait();
      EXPECT_SAME(out, want, type);
      if (at::isFloatingType(type)) {
        const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
        comm::reduce_scatter_base_avg(group, out, whole).wait();
        EXPECT_SAME(out, want.to(wide).div(n()).to(type), type);
      }
    }
  });
}

TEST_P(Conformance, AllToAllWithEvenAndUnevenParts) {
  run_ranks(n(), [&](Group& group) {
    const int me = group.rank();
    // From s to d go (s + 2 d) mod 4 rows of count() elements; some pairs get nothing.
    const auto rows = [](int from, int to) { return static_cast<int64_t>((from + 2 * to) % 4); };
    for (const at::ScalarType type : {at::kFloat, at::kLong, at::kByte}) {
      std::vector<int64_t> send, receive;
      std::vector<at::Tensor> in, out, want;
      for (int r = 0; r < n(); ++r) {
        send.push_back(rows(me, r));
        receive.push_back(rows(r, me));
        in.push_back(input(me, rows(me, r) * count(), type, r).reshape({rows(me, r), count()}));
        out.push_back(at::full({rows(r, me), count()}, 1, type));
        want.push_back(values(r, rows(r, me) * count(), type, me).reshape({rows(r, me), count()}));
      }
      comm::all_to_all(group, out, in).wait();
      for (int r = 0; r < n(); ++r) EXPECT_SAME(out[static_cast<size_t>(r)], want[static_cast<size_t>(r)], type);
      at::Tensor whole = at::full_like(at::cat(out), 1);
      comm::all_to_all_base(group, whole, at::cat(in), receive, send).wait();
      EXPECT_SAME(whole, at::cat(want), type);

      std::vector<at::Tensor> even_in, even_want;
      for (int r = 0; r < n(); ++r) {
        even_in.push_back(input(me, count(), type, r));
        even_want.push_back(values(r, count(), type, me));
      }
      at::Tensor even = at::full({n(), count()}, 1, type);
      comm::all_to_all_base(group, even, at::stack(even_in)).wait();
      EXPECT_SAME(even, at::stack(even_want), type);
    }
  });
}

// Oracle: the contract. What peers may still read is not written; a rank's own part in place is not read by them, and gives the same values.
TEST_P(Conformance, OutputsThatShareMemoryWithInputsAreRefusedOrRight) {
  run_ranks(n(), [&](Group& group) {
    const int me = group.rank();
    const auto refused = [&](const auto& call) {
      try {
        call();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument) << error.what();
        EXPECT_NE(std::string(error.what()).find("shares memory"), std::string::npos) << error.what();
        return;
      }
      ADD_FAILURE() << "not refused";
    };
    const at::Tensor buffer = at::zeros({n() + 1, count()}, at::kFloat);
    if (n() > 1 && count() > 0) {
      const at::Tensor low = buffer.narrow(0, 0, n());
      const at::Tensor high = buffer.narrow(0, 1, n());
      refused([&] { (void)comm::all_to_all_base(group, low, low); });
      refused([&] { (void)comm::all_to_all_base(group, low, high); });
      refused([&] { (void)comm::all_gather_base(group, low, buffer[(me + 1) % n()]); });
      refused([&] { (void)comm::reduce_scatter_base_sum(group, buffer[(me + 1) % n()], low); });
      std::vector<at::Tensor> parts = low.unbind(0);
      refused([&] { (void)comm::all_to_all(group, parts, parts); });
    }
    // In place, as c10d allows it; the calls above have left the group as it was.
    const at::Tensor all = at::zeros({n(), count()}, at::kFloat);
    all[me].copy_(input(me, count(), at::kFloat, 0));
    comm::all_gather_base(group, all, all[me]).wait();
    for (int r = 0; r < n(); ++r) EXPECT_SAME(all[r], values(r, count(), at::kFloat, 0), at::kFloat);
  });
}

TEST_P(Conformance, SendAndReceiveAroundTheRingReceiveFirst) {
  if (n() == 1) GTEST_SKIP() << "a rank cannot send to itself";
  run_ranks(n(), [&](Group& group) {
    const int next = (group.rank() + 1) % n();
    const int previous = (group.rank() + n() - 1) % n();
    for (int round = 0; round < 3; ++round) {
      const at::Tensor mine = input(group.rank(), count(), at::kFloat, round);
      at::Tensor theirs = at::full({count()}, 9, at::kFloat);
      comm::Work sent = comm::send(group, mine, next);
      // Every rank waits for its receive first: this would stop for ever if it held up the send.
      comm::recv(group, theirs, previous).wait();
      sent.wait();
      EXPECT_SAME(theirs, values(previous, count(), at::kFloat, round), at::kFloat);
    }
  });
}

TEST_P(Conformance, WorksMayBeWaitedInAnyOrderOrNotAtAll) {
  run_ranks(n(), [&](Group& group) {
    at::Tensor a = at::full({count()}, 1, at::kFloat);
    at::Tensor b = at::full({count()}, 2, at::kFloat);
    at::Tensor c = at::full({count()}, 3, at::kFloat);
    comm::Work first = comm::all_reduce_sum(group, a);
    {
      const comm::Work dropped = comm::all_reduce_sum(group, b);
    }
    comm::all_reduce_sum(group, c).wait();
    EXPECT_TRUE(first.done());
    first.wait();
    first.wait();
    EXPECT_SAME(a, at::full({count()}, n(), at::kLong), at::kFloat);
    EXPECT_SAME(b, at::full({count()}, 2 * n(), at::kLong), at::kFloat);
    EXPECT_SAME(c, at::full({count()}, 3 * n(), at::kLong), at::kFloat);
    comm::barrier(group);
  });
}

INSTANTIATE_TEST_SUITE_P(Host, Conformance,
                         testing::Combine(testing::Values(1, 2, 3, 4, 7), testing::Values(0, 1, 5, 1000, 65'537)),
                         [](const testing::TestParamInfo<Param>& info) {
                           return str("n", std::get<0>(info.param), "count", std::get<1>(info.param));
                         });

}  // namespace
}  // namespace trireme
