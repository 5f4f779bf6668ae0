// Oracle: by hand; for the collected messages the table beside them (m01_expected.tsv), whose figures are computed there from the texts.
#include <cmath>
#include <sstream>

#include "diagnose/job/oom_message.h"
#include "diagnose/job_fixture.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

int64_t gib(double value) { return std::llround(value * kGiB); }

TEST(OomMessage, OldForm) {
  const auto message = parse_oom_message(
      "RuntimeError: CUDA out of memory. Tried to allocate 100.00 MiB (GPU 1; 8.00 GiB total capacity; 2.00 GiB "
      "already allocated; "
      "50.00 MiB free; 2.05 GiB reserved in total by PyTorch)");
  ASSERT_TRUE(message);
  EXPECT_EQ(message->device, 1);
  EXPECT_EQ(message->ask, 100 << 20);
  EXPECT_EQ(message->capacity, gib(8));
  EXPECT_EQ(message->allocated, gib(2));
  EXPECT_EQ(message->free, 50 << 20);
  EXPECT_EQ(message->reserved, gib(2.05));
  EXPECT_EQ(explain(*message).code, "memory.other_process");
}

TEST(OomMessage, NewFormListsProcesses) {
  const auto message = parse_oom_message(
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB "
      "of which 1.00 GiB is free. "
      "Process 77 has 60.00 GiB memory in use. Including non-PyTorch memory, this process has 18.18 GiB memory in use. "
      "Of the allocated memory "
      "17.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated.");
  ASSERT_TRUE(message);
  EXPECT_EQ(message->other_processes, gib(60));
  EXPECT_EQ(message->unallocated(), 512 << 20);
  const OomVerdict verdict = explain(*message);
  EXPECT_EQ(verdict.code, "memory.other_process");
  EXPECT_THAT(verdict.cause, testing::HasSubstr("60.00 GiB of the 79.18 GiB"));
}

TEST(OomMessage, OtherDevicesAndVersions) {
  EXPECT_EQ(parse_oom_message("RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.98 GiB total "
                              "capacity; 14.00 GiB already allocated; 1.00 GiB free; 14.50 GiB "
                              "reserved in total by PyTorch)")
                ->reserved,
            gib(14.5));
  EXPECT_EQ(parse_oom_message("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.79 GiB total capacity; 6.50 "
                              "GiB already allocated; 10.00 MiB free; 6.60 GiB cached)")
                ->reserved,
            gib(6.6));
  const auto mps = parse_oom_message(
      "RuntimeError: MPS backend out of memory (MPS allocated: 8.00 GB, other allocations: 500.00 MB, max allowed: "
      "9.07 GB). Tried to allocate 1.00 GB on "
      "private pool.");
  ASSERT_TRUE(mps);
  EXPECT_EQ(mps->allocated, gib(8));
  EXPECT_FALSE(parse_oom_message("we tried to allocate memory"));
  EXPECT_FALSE(parse_oom_message("Tried to allocate many GiB"));
  EXPECT_FALSE(parse_oom_message("Tried to allocate -5.00 GiB"));
}

TEST(OomMessage, FoundInALogWithItsRank) {  // Y03 in small: an ask that no card could meet
  const Report report =
      diagnosed({{"logs/rank2.err",
                  "step 3\nTraceback (most recent call last):\n  File \"loss.py\", line 9, in iou\n    x = a[:, None] "
                  "- b\ntorch.OutOfMemoryError: CUDA out of memory. "
                  "Tried to allocate 4000.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which 30.00 GiB is free. "
                  "Of the allocated memory 40.00 GiB "
                  "is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.\n"}});
  expect_first(report, "memory.absurd_ask", {2}, {"no memory problem", "3.91 TiB"});
  ASSERT_EQ(report.facts.memory.size(), 1U);
  EXPECT_EQ(report.facts.memory[0].line, 5);
  EXPECT_EQ(report.findings.size(), 1U) << text_of(report);
}

/// "156.00 MiB" of the table.
double bytes_of(const std::string& cell) {
  const double number = std::stod(cell);
  return has(cell, "GiB") ? number * kGiB : has(cell, "MiB") ? number * 1024 * 1024 : number;
}

TEST(OomMessage, CollectedMessages) {
  TRIREME_NEEDS_SAMPLES(samples);
  const Report report = diagnose({{samples + "/memory/m01_oom_messages_one_per_line.txt"}, "", {}});
  std::ifstream table(samples + "/memory/m01_expected.tsv");
  std::string line;
  std::getline(table, line);
  // The verdicts are sentences; which of ours says the same.
  const std::map<std::string, std::string> kCodes = {{"1", "memory.other_process"}, {"2", "memory.big_ask"},
                                                     {"3", "memory.fragmented"},    {"4", "memory.fragmented"},
                                                     {"5", "memory.full"},          {"6", "memory.oversubscribed"},
                                                     {"7", "memory.absurd_ask"}};
  size_t rows = 0;
  while (std::getline(table, line)) {
    std::vector<std::string> cells;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, '\t');) cells.push_back(cell);
    ASSERT_EQ(cells.size(), 6U) << line;
    ASSERT_LT(rows, report.facts.memory.size());
    const MemoryAsk& ask = report.facts.memory[rows++];
    EXPECT_EQ(std::to_string(ask.line), cells[0]);
    const auto near = [&](const std::optional<int64_t>& got, const std::string& want) {
      ASSERT_TRUE(got) << line;
      EXPECT_NEAR(static_cast<double>(*got), bytes_of(want), 0.011 * kGiB)
          << line;  // two decimals, and a difference of two of them
    };
    near(ask.ask_bytes, cells[1]);
    near(ask.capacity_bytes, cells[2]);
    near(ask.allocated_bytes, cells[3]);
    near(ask.reserved_unallocated_bytes, cells[4]);
    const bool told = std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& finding) {
      return finding.code == kCodes.at(cells[0]) &&
             std::any_of(finding.evidence.begin(), finding.evidence.end(),
                         [&](const Evidence& evidence) { return std::to_string(evidence.line) == cells[0]; });
    });
    EXPECT_TRUE(told) << cells[0] << ": " << kCodes.at(cells[0]) << "\n" << text_of(report);
  }
  EXPECT_EQ(rows, 7U);
  for (const Finding& finding : report.findings) {
    switch (finding.evidence[0].line) {
      case 1:
        EXPECT_THAT(finding.cause, testing::HasSubstr("5.06 GiB"));
        break;
      case 5:  // 0.95 GiB
        EXPECT_THAT(finding.cause,
                    testing::AllOf(testing::HasSubstr("2.91 GiB together"), testing::HasSubstr("972.80 MiB")));
        break;
      case 7:
        EXPECT_THAT(finding.cause, testing::HasSubstr("127.61 TiB"));
        break;
      default:
        break;
    }
  }
}

}  // namespace
}  // namespace trireme::diagnose
