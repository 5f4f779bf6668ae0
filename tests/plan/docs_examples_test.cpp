#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/cluster_spec.h"
#include "plan/json_object.h"
#include "plan/machine_file.h"
#include "plan/model_file.h"

namespace trireme::plan {
namespace {

std::vector<std::string> json_blocks_of(const std::string& text) {
  const std::string open = "```json\n";
  std::vector<std::string> blocks;
  for (size_t at = text.find(open); at != std::string::npos; at = text.find(open, at)) {
    at += open.size();
    blocks.push_back(text.substr(at, text.find("```", at) - at));
  }
  return blocks;
}

// Oracle: the readers themselves: every example of a file in docs/planner.md is one that they accept whole.
TEST(PlannerDocument, ShowsFilesThatAreAccepted) {
  int models = 0, machines = 0, clusters = 0;
  for (const std::string& block : json_blocks_of(read_text(TRIREME_SOURCE_DIR "/docs/planner.md", "test"))) {
    const JsonObject top = JsonObject::parse(block, "docs/planner.md", "test");
    if (top.has("hosts")) {
      EXPECT_EQ(parse_cluster_file(block, "docs/planner.md", load_machines()).num_devices(), 28);
      ++clusters;
    } else if (top.has("devices")) {
      MachineCatalog catalog;
      catalog.add(block, "docs/planner.md");
      EXPECT_EQ(catalog.devices.size(), 1U);
      ++machines;
    } else {
      EXPECT_GT(total_parameters(parse_model(block, "docs/planner.md")), 0);
      ++models;
    }
  }
  EXPECT_EQ(models, 2);
  EXPECT_EQ(machines, 1);
  EXPECT_EQ(clusters, 1);
}

// Oracle: the document's own list of architectures is that of the program.
TEST(PlannerDocument, NamesEveryArchitecture) {
  const std::string text = read_text(TRIREME_SOURCE_DIR "/docs/planner.md", "test");
  for (const std::string& type : hf_model_types()) EXPECT_NE(text.find("`" + type + "`"), std::string::npos) << type;
}

}  // namespace
}  // namespace trireme::plan
