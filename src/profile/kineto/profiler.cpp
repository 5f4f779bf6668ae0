#include "trireme/profile/profiler.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>

#include "base/env.h"
#include "base/log.h"
#include "base/str.h"
#include "profile/profile_schedule.h"
#include "trireme/base/error.h"

// Exported by LibTorch; the header that declares it includes one of kineto's, which the wheel does not have.
namespace torch::autograd::profiler {
TORCH_API void addMetadataJson(const std::string& key,  // NOLINT(readability-identifier-naming): LibTorch's name
                               const std::string& value);
}

namespace trireme::profile {
namespace {

namespace kineto = torch::autograd::profiler;
namespace fs = std::filesystem;
using torch::profiler::impl::ActivityType;

int from_environment(const char* name, int otherwise) {
  const char* value = env_value(name);
  return value != nullptr ? static_cast<int>(std::strtol(value, nullptr, 10)) : otherwise;
}

}  // namespace

struct Profiler::Impl {
  explicit Impl(ProfilerOptions chosen) : options(std::move(chosen)) {
    check_profile_schedule(options.schedule);
    if (options.rank < 0) options.rank = from_environment("RANK", 0);
    if (options.world_size < 0) options.world_size = from_environment("WORLD_SIZE", 1);
    std::error_code error;
    fs::create_directories(options.folder, error);
    if (error) {
      throw Error(ErrorKind::kIo,
                  str("[profile.profiler] rank ", options.rank, "/", options.world_size, ": cannot make '",
                      options.folder, "': ", error.message(), ". Name a folder that this process may write to."));
    }
    enter(action_at(options.schedule, 0));
  }

  torch::profiler::impl::ProfilerConfig config() const {
    return torch::profiler::impl::ProfilerConfig(torch::profiler::impl::ProfilerState::KINETO, options.record_shapes,
                                                 options.record_memory);
  }
  // What the build or the machine does not have is passed over by kineto.
  static std::set<ActivityType> activities() { return {ActivityType::CPU, ActivityType::CUDA}; }

  void prepare() {
    if (torch::profiler::impl::profilerEnabled()) {
      throw Error(ErrorKind::kUnavailable, str("[profile.profiler] rank ", options.rank, "/", options.world_size,
                                               ": another profiler is on in this thread; end it first."));
    }
    kineto::prepareProfiler(config(), activities());
    prepared = true;
  }

  void start() {
    if (!prepared) prepare();
    kineto::enableProfiler(config(), activities());
    prepared = false;
    recording = true;
    first_step = step;
  }

  void mark_step() {
    mark.emplace(at::RecordScope::USER_SCOPE);
    if (mark->isActive()) mark->before(str("ProfilerStep#", step));
  }

  void stop(bool partial) {
    mark.reset();
    kineto::addMetadataJson("distributedInfo", str("{\"backend\": \"trireme\", \"rank\": ", options.rank,
                                                   ", \"world_size\": ", options.world_size, "}"));
    kineto::addMetadataJson("trireme", str("{\"cycle\": ", cycle, ", \"first_step\": ", first_step,
                                           ", \"last_step\": ", partial ? step - 1 : step,
                                           ", \"partial\": ", partial ? "true" : "false", "}"));
    const std::unique_ptr<kineto::ProfilerResult> result = kineto::disableProfiler();
    recording = false;
    const std::string file =
        (fs::path(options.folder) / str("rank", options.rank, ".cycle", cycle++, ".pt.trace.json")).string();
    std::error_code ignored;
    fs::remove(file, ignored);
    result->save(file);
    // kineto logs what goes wrong and returns.
    if (fs::file_size(file, ignored) == 0 || ignored) {
      throw Error(ErrorKind::kIo, str("[profile.profiler] rank ", options.rank, "/", options.world_size, ": '", file,
                                      "' was not written. Look at the space and the rights of its folder."));
    }
    files.push_back(file);
  }

  /// Begins `step`, whose action is `next`.
  void enter(ProfileAction next) {
    action = next;
    switch (next) {
      case ProfileAction::kNone:
        return;
      case ProfileAction::kWarmUp:
        if (!prepared) prepare();
        return;
      case ProfileAction::kRecord:
      case ProfileAction::kRecordAndSave:
        if (!recording) start();
        mark_step();
        return;
    }
  }

  void end_step() {
    mark.reset();
    if (action == ProfileAction::kRecordAndSave) stop(/*partial=*/false);
    ++step;
    enter(action_at(options.schedule, step));
  }

  void finish() {
    if (finished) return;
    finished = true;
    if (prepared && !recording) {  // a warm-up is ended as it was begun, and thrown away
      kineto::enableProfiler(config(), activities());
      (void)kineto::disableProfiler();
      prepared = false;
    }
    if (!recording) return;
    mark.reset();
    // The step that has begun counts only as far as it went; the last whole one is the one before.
    stop(/*partial=*/true);
  }

  ProfilerOptions options;
  std::vector<std::string> files;
  std::optional<at::RecordFunction> mark;
  ProfileAction action = ProfileAction::kNone;
  int64_t step = 0;
  int64_t first_step = 0;
  int cycle = 0;
  bool prepared = false;
  bool recording = false;
  bool finished = false;
};

Profiler::Profiler(ProfilerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}

Profiler::~Profiler() {
  try {
    impl_->finish();
  } catch (const std::exception& error) {
    log::error("profile", error.what());
  }
}

void Profiler::step() {
  if (!impl_->finished) impl_->end_step();
}
void Profiler::finish() { impl_->finish(); }
const std::vector<std::string>& Profiler::files() const noexcept { return impl_->files; }

}  // namespace trireme::profile
