// Files of a job made by a test, and what `trireme diagnose` says of them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/str.h"
#include "diagnose/from_samples.h"
#include "diagnose/job/diagnose.h"
#include "support/temp_dir.h"

namespace trireme::diagnose {

using Files = std::vector<std::pair<std::string, std::string>>;  ///< name and content

/// The files in a folder of their own, in this order.
inline Report diagnosed(const Files& files, std::optional<int> world_size = {}) {
  const test::TempDir folder;
  DiagnoseRequest request;
  request.world_size = world_size;
  for (const auto& [name, content] : files) {
    std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
    std::ofstream(folder / name, std::ios::binary) << content;
    request.paths.push_back(folder / name);
  }
  return diagnose(request);
}

/// One call of a flight-recorder dump.
struct RecordedCall {
  int64_t number = 0;
  std::string op;
  std::string input = "[[4]]";
  std::string output = "[[4]]";
  std::string dtype = "Float";
  std::string state = "completed";
  std::string more{};  ///< further keys, with a comma in front
};

/// A dump as _dump_fr_trace_json of PyTorch 2.7 writes it, with one group of `size` ranks.
inline std::string dump(int size, const std::vector<RecordedCall>& calls, const std::string& status = "") {
  std::string entries;
  for (size_t i = 0; i < calls.size(); ++i) {
    const RecordedCall& call = calls[i];
    const bool pair = call.op.starts_with("send") || call.op.starts_with("recv");
    entries +=
        str(i == 0 ? "" : ",", R"({"record_id":)", i,
            R"(,"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":)", pair ? 0 : call.number,
            R"(,"p2p_seq_id":)", pair ? call.number : 0, R"(,"op_id":)", i + 1, R"(,"profiling_name":"nccl:)", call.op,
            R"(","time_created_ns":)", 1000 + 10 * i, R"(,"input_sizes":)", call.input, R"(,"input_dtypes":[")",
            call.dtype, R"("],"output_sizes":)", call.output, R"(,"output_dtypes":[")", call.dtype, R"("],"state":")",
            call.state, R"(","retired":false,"timeout_ms":600000,"is_p2p":)", pair ? "true" : "false", call.more, "}");
  }
  std::string ranks;
  for (int rank = 0; rank < size; ++rank) ranks += str(rank == 0 ? "" : ", ", rank);
  return str(R"({"version":"2.7","nccl_version":"2.26.2","pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[)",
             ranks, R"(]"}},"pg_status":{"0":{)", status, R"(}},"entries":[)", entries, "]}");
}

inline std::string text_of(const Report& report) {
  std::string out;
  for (const Finding& finding : report.findings) {
    out += str(finding.code, " (", finding.confidence, ") ranks [", join(finding.ranks), "]: ", finding.cause, "\n");
  }
  for (const FileNote& file : report.files) out += str(file.file, ": ", join(file.kinds), ": ", file.note, "\n");
  return out;
}

/// The first finding must have this code, these ranks, and these words in its cause.
inline void expect_first(const Report& report, const std::string& code, const std::vector<int>& ranks,
                         const std::vector<std::string>& words) {
  ASSERT_FALSE(report.findings.empty()) << text_of(report);
  const Finding& first = report.findings.front();
  EXPECT_EQ(first.code, code) << text_of(report);
  EXPECT_EQ(first.ranks, ranks) << text_of(report);
  for (const std::string& word : words) EXPECT_THAT(first.cause, testing::HasSubstr(word)) << text_of(report);
  EXPECT_FALSE(first.evidence.empty());
  EXPECT_FALSE(first.advice.empty());
}

}  // namespace trireme::diagnose
