// Oracle: closed form. The environments are those that each launcher is documented to set.
#include "trireme/rendezvous/job_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <map>
#include <sstream>

#include "rendezvous/nodelist.h"
#include "support/patience.h"
#include "trireme/base/error.h"

namespace trireme::rendezvous {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

JobEnv detect(const Variables& variables) {
  return detect_job_env([&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

std::string complaint(const Variables& variables) {
  try {
    (void)detect(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "nothing was thrown";
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"GROUP_RANK", "1"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "job7"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables kMpirun = {{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"OMPI_COMM_WORLD_NODE_RANK", "1"},  {"PMIX_NAMESPACE", "3212967937"}};
const Variables kSrun = {{"SLURM_STEP_ID", "0"},
                         {"SLURM_JOB_ID", "77"},
                         {"SLURM_PROCID", "5"},
                         {"SLURM_STEP_NUM_TASKS", "7"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
                         {"SLURM_STEP_NODELIST", "cn[08-09]"},
                         {"MASTER_PORT", "29600"}};

Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}
Variables without(Variables base, const std::string& name) {
  base.erase(name);
  return base;
}

TEST(JobEnv, NothingIsAWorldOfOne) {
  const JobEnv job = detect({});
  EXPECT_EQ(job.world_size, 1);
  EXPECT_EQ(job.source, "none");
  const JobStore store = open_job_store(job, test::kPatience);
  store.store->set("a", "b");
  EXPECT_EQ(store.store->get("a", test::kPatience), "b");
  EXPECT_EQ(store.server, nullptr);
}

TEST(JobEnv, ReadsTorchrun) {
  const JobEnv job = detect(kTorchrun);
  EXPECT_EQ(job.source, "torchrun");
  EXPECT_EQ(job.rank, 5);
  EXPECT_EQ(job.world_size, 8);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_world_size, 4);
  EXPECT_EQ(job.group_rank, 1);
  EXPECT_EQ(job.master_addr, "node0");
  EXPECT_EQ(job.master_port, 29500);
  EXPECT_EQ(job.run_id, "job7");
  EXPECT_EQ(job.restart_count, 2);
  EXPECT_TRUE(job.agent_serves_store);
  EXPECT_EQ(job.run_dir, "");
  const JobEnv ours = detect(with(kTorchrun, {{"TRIREME_JOB_ID", "8f2c"}, {"TRIREME_RUN_DIR", "/runs/8f2c"}}));
  EXPECT_EQ(ours.source, "trireme run");
  EXPECT_EQ(ours.run_id, "8f2c");
  EXPECT_EQ(ours.run_dir, "/runs/8f2c");
}

TEST(JobEnv, ReadsMpirun) {
  const JobEnv job = detect(kMpirun);
  EXPECT_EQ(job.source, "mpirun");
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.world_size, 2);
  EXPECT_EQ(job.master_addr, "127.0.0.1");
  EXPECT_EQ(job.master_port, 0);
  EXPECT_EQ(job.run_id, "mpirun-3212967937");
  EXPECT_FALSE(job.agent_serves_store);
  EXPECT_THAT(complaint(with(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "4"}})),
              AllOf(HasSubstr("several hosts"), HasSubstr("MASTER_ADDR or MASTER_PORT")));
}

TEST(JobEnv, ReadsSrunButNotABatchScript) {
  const JobEnv job = detect(kSrun);
  EXPECT_EQ(job.source, "srun");
  EXPECT_EQ(job.rank, 5);
  EXPECT_EQ(job.world_size, 7);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_world_size, 3);
  EXPECT_EQ(job.group_rank, 1);
  EXPECT_EQ(job.master_addr, "cn08");
  EXPECT_EQ(job.master_port, 29600);
  // sbatch sets rank and number of tasks for the script itself, which is one process.
  EXPECT_EQ(detect(without(kSrun, "SLURM_STEP_ID")).source, "none");
  EXPECT_EQ(detect(with(kSrun, {{"SLURM_STEP_ID", "4294967291"}})).source, "none");
}

TEST(JobEnv, InnermostLauncherWins) {
  EXPECT_EQ(detect(with(kTorchrun, kMpirun)).rank, 5);
  EXPECT_EQ(detect(with(kMpirun, kSrun)).source, "mpirun");
}

TEST(JobEnv, NamesWhatIsHalfSetOrWrong) {
  EXPECT_THAT(complaint({{"RANK", "1"}}), AllOf(HasSubstr("RANK=1 is set but WORLD_SIZE is not")));
  EXPECT_THAT(complaint({{"WORLD_SIZE", "2"}}), HasSubstr("WORLD_SIZE=2 is set but RANK is not"));
  EXPECT_THAT(complaint({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK=2 is not below WORLD_SIZE=2"));
  EXPECT_THAT(complaint({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("MASTER_ADDR is not"));
  EXPECT_THAT(complaint({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}}), HasSubstr("MASTER_PORT is not"));
  EXPECT_THAT(complaint(with(kTorchrun, {{"RANK", "five"}})), HasSubstr("RANK='five' is no number"));
  EXPECT_THAT(complaint(with(kTorchrun, {{"MASTER_PORT", "70000"}})), HasSubstr("MASTER_PORT='70000'"));
  EXPECT_THAT(complaint(with(kTorchrun, {{"LOCAL_RANK", "4"}})), HasSubstr("LOCAL_RANK=4"));
}

TEST(JobEnv, ReportsContradictionsWithBothSources) {
  const Variables by_hand = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
  EXPECT_THAT(complaint(with(kMpirun, by_hand)),
              AllOf(HasSubstr("RANK=0 WORLD_SIZE=2 (set by the user or a script)"),
                    HasSubstr("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 (set by mpirun)")));
  EXPECT_THAT(complaint(with(kSrun, by_hand)), AllOf(HasSubstr("RANK=0 WORLD_SIZE=2"),
                                                     HasSubstr("SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=7 (set by srun)")));
  const JobEnv agreeing = detect(with(with(kMpirun, by_hand), {{"RANK", "1"}}));
  EXPECT_EQ(agreeing.rank, 1);
}

TEST(JobStore, RanksWithoutALauncherMeetThroughRankZero) {
  Variables base = {{"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}};
  base["PMIX_NAMESPACE"] = "test-" + std::to_string(getpid());
  // Each rank hands its store out with what it read: the server, rank 0's, must outlive the last reply.
  std::vector<std::future<std::pair<std::string, JobStore>>> ranks;
  for (int rank = 2; rank >= 0; --rank) {  // the server comes last
    ranks.push_back(std::async(std::launch::async, [&base, rank] {
      const std::string number = std::to_string(rank);
      const JobEnv job = detect(with(base, {{"OMPI_COMM_WORLD_RANK", number}, {"OMPI_COMM_WORLD_LOCAL_RANK", number}}));
      JobStore store = open_job_store(job, test::kPatience);
      if (rank == 1) store.store->set("from", "rank 1");
      std::string got = store.store->get("from", test::kPatience);
      store.store->barrier("end", 3, test::kPatience);
      return std::pair(std::move(got), std::move(store));
    }));
  }
  std::vector<std::pair<std::string, JobStore>> ended;
  for (auto& rank : ranks) ended.push_back(rank.get());
  for (const auto& [got, store] : ended) EXPECT_EQ(got, "rank 1");
}

TEST(Nodelist, ExpandsSlurmsForms) {
  const auto hosts = [](const char* list) { return expand_nodelist(list); };
  EXPECT_THAT(hosts("cn[08-11,20]"), testing::ElementsAre("cn08", "cn09", "cn10", "cn11", "cn20"));
  EXPECT_THAT(hosts("r[1-2]n[01-02]"), testing::ElementsAre("r1n01", "r1n02", "r2n01", "r2n02"));
  EXPECT_THAT(hosts("gpu-a-[1-2],gpu-b-7"), testing::ElementsAre("gpu-a-1", "gpu-a-2", "gpu-b-7"));
  EXPECT_THAT(hosts("login1"), testing::ElementsAre("login1"));
  EXPECT_THAT(hosts(""), testing::IsEmpty());
  EXPECT_EQ(first_host("node-801,node-869"), "node-801");
  EXPECT_EQ(first_host("cn[001-099999999]"), "cn001");
  EXPECT_THAT(tasks_per_host("4(x2),3"), testing::ElementsAre(4, 4, 3));
  for (const char* bad : {"a[1-", "a]1", "a[[1]]", "a[3-1]", "a[x]", "a[]", "n[0-999999]"}) {
    EXPECT_THROW((void)expand_nodelist(bad), Error) << bad;
  }
}

// Node lists as users of other systems reported them, where the file is there.
TEST(Nodelist, ExpandsReportedLists) {
  std::ifstream file(TRIREME_SOURCE_DIR "/../shared/cases/samples/slurm/nodelists.tsv");
  if (!file) GTEST_SKIP() << "../shared/cases/samples/slurm/nodelists.tsv is not there";
  std::string line;
  std::getline(file, line);
  int rows = 0;
  for (; std::getline(file, line); ++rows) {
    std::istringstream fields(line);
    std::string list;
    std::string first;
    std::string count;
    std::string hosts;
    for (std::string* field : {&list, &first, &count, &hosts}) std::getline(fields, *field, '\t');
    std::string joined;
    for (const std::string& host : expand_nodelist(list)) joined += (joined.empty() ? "" : " ") + host;
    EXPECT_EQ(joined, hosts);
    EXPECT_EQ(first_host(list), first);
  }
  EXPECT_GT(rows, 0);
}

}  // namespace
}  // namespace trireme::rendezvous
