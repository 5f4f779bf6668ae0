#include "diagnose/report.h"

#include <gmock/gmock.h>

#include "diagnose/excerpt.h"
#include "trireme/base/error.h"

namespace trireme::diagnose {
namespace {

using testing::HasSubstr;
using testing::Not;

Report full_report() {
  Report report;
  Finding finding{.code = "ports.down",
                  .cause = "mlx5_1 is down",
                  .severity = Severity::kError,
                  .confidence = 0.75,
                  .ranks = {1, 3},
                  .advice = "Plug it in.",
                  .evidence = {{"a.txt", 7, "State: Down"}},
                  .host = "node1"};
  report.findings.push_back(finding);
  report.checks.push_back({"ports", Check::State::kError, "1 of 2 down", "node1"});
  Topology topology;
  topology.gpus = 2;
  topology.links = {{"X", "NV2"}, {"NV2", "X"}};
  topology.numa = {0, std::nullopt};
  topology.nearest_nic = {{"NIC0"}, {}};
  report.facts.add_topology(topology);
  topology.gpus = 1;
  report.facts.add_topology(topology);
  report.facts.ports.push_back(
      {.device = "mlx5_1", .state = "Down", .link_layer = "Ethernet", .rate_gbps = 40, .usable = false});
  report.facts.versions.driver = "550.54.15";
  report.facts.network.push_back({.host = "node1", .rank = 3, .transport = "IB", .devices = {"mlx5_0:1"}});
  report.facts.memory.push_back({.file = "x", .line = 2, .ask_bytes = 5});
  report.files.push_back({"a.txt", {"ibstat"}, ""});
  report.hosts = {"node1"};
  return report;
}

// Oracle: what is read back and written again is the same text; and the members that others rely on stand in it by hand.
TEST(Report, JsonGoesBothWays) {
  const std::string json = to_json(full_report());
  EXPECT_EQ(to_json(report_from_json(json)), json);
  EXPECT_THAT(json, HasSubstr(R"("schema": 1,)"));
  EXPECT_THAT(json, HasSubstr(R"("severity": "error")"));
  EXPECT_THAT(json, HasSubstr(R"("cuda": null)"));
  EXPECT_THAT(json, HasSubstr(R"("usable": false)"));
  EXPECT_THAT(json, HasSubstr(R"("nics": null)"));
  EXPECT_THAT(json, HasSubstr(R"("capacity_bytes": null)"));
}

// Oracle: an empty report has the members of the contract, unknown is null.
TEST(Report, JsonOfNothing) {
  Report report;
  const std::string json = to_json(report);
  EXPECT_THAT(json, HasSubstr("\"findings\": []"));
  EXPECT_THAT(json, HasSubstr("\"topology\": null"));
  EXPECT_EQ(to_json(report_from_json(json)), json);
}

// Oracle: the kinds of error that the header promises; members of a wrong type are passed over.
TEST(Report, ReadsNoOtherJson) {
  EXPECT_THROW((void)report_from_json("{"), Error);
  EXPECT_THROW((void)report_from_json("[]"), Error);
  EXPECT_THROW((void)report_from_json(R"({"schema": 2})"), Error);
  const Report report = report_from_json(
      R"({"schema": 1, "findings": [{"cause": 5, "ranks": "x", "severity": "loud"}, 7], "facts": []})");
  EXPECT_EQ(report.findings.size(), 2U);
  EXPECT_EQ(report.findings[0].cause, "");
}

// Oracle: order by severity, then by confidence, by hand; equals keep their order.
TEST(Report, SortsTheMostProbableFirst) {
  Report report;
  const auto add = [&](const char* code, Severity severity, double confidence) {
    report.findings.push_back({.code = code, .cause = "", .severity = severity, .confidence = confidence});
  };
  add("c", Severity::kWarning, 1);
  add("b", Severity::kError, 0.5);
  add("d", Severity::kWarning, 1);
  add("a", Severity::kError, 0.9);
  report.sort();
  std::string order;
  for (const Finding& finding : report.findings) order += finding.code;
  EXPECT_EQ(order, "abcd");
  EXPECT_TRUE(report.has_errors());
}

// Oracle: no byte of the printed text is a control character but for the line's end, whatever stood in the files.
TEST(Report, ControlCharactersNeverReachTheTerminal) {
  const std::string bad =
      "\x1b]0;owned\x07 \x9b"
      "31m \xc2\x9b"
      "31m \xe2\x80\xae \x08 \x7f \xff \r";
  Report report;
  report.findings.push_back({.code = "x", .cause = bad, .advice = bad, .evidence = {{bad, 1, bad}}, .host = bad});
  report.checks.push_back({bad, Check::State::kWarning, bad, bad});
  report.files.push_back({bad, {}, bad});
  for (const char c : to_text(report, {})) {
    ASSERT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << static_cast<int>(c);
  }
  EXPECT_EQ(excerpt("a\tb\xc3\xa9"), "a b\xc3\xa9");
  EXPECT_EQ(excerpt("0123456789", 4), "0123...");
  EXPECT_NO_THROW((void)report_from_json(to_json(report)));
}

// Oracle: the layout by hand.
TEST(Report, TextForPeople) {
  Report report = full_report();
  report.files.push_back({"b.txt", {}, "empty"});
  EXPECT_EQ(to_text(report, {}),
            "error    node1  ports  1 of 2 down\n"
            "\n"
            "error    node1: mlx5_1 is down (likely)\n"
            "         ranks: 1, 3\n"
            "         Plug it in.\n"
            "           a.txt:7: State: Down\n"
            "\n"
            "b.txt: empty\n");
  EXPECT_EQ(to_text({}, {.nothing = "nothing found"}), "nothing found\n");
}

// Oracle: the bound of the header.
TEST(Report, EvidenceIsBounded) {
  Finding finding;
  for (int i = 0; i < 1000; ++i) add_evidence(finding, {"f", i, std::string(5000, 'x')});
  EXPECT_EQ(finding.evidence.size(), kMaxEvidence);
  EXPECT_EQ(finding.evidence[0].text.size(), 400U);
}

}  // namespace
}  // namespace trireme::diagnose
