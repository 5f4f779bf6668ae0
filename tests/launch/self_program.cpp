// A program that starts its own ranks, as `trireme train` does: self_program N [code of rank 1 | bar].
// "bar": rank 0 leaves a line open on stderr, then rank 1 writes one, then rank 0 goes on.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "launch/job.h"
#include "trireme/rendezvous/job_env.h"

int main(int argc, char** argv) {
  trireme::launch::SelfOptions options;
  options.num_ranks = std::atoi(argv[1]);
  options.env["SELF_PROGRAM"] = "told";
  if (const auto code = trireme::launch::run_self_as_ranks(argc, argv, options)) {
    std::printf("launcher: %d\n", *code);
    return *code;
  }
  const auto env = trireme::rendezvous::detect_job_env();
  const auto job = trireme::rendezvous::open_job_store(env, std::chrono::seconds(100));
  job.store->barrier("all", env.world_size, std::chrono::seconds(100));
  if (argc > 2 && std::string_view(argv[2]) == "bar") {
    const auto in_turn = [&](int rank, const char* text, const char* key) {
      if (env.rank == rank) std::fputs(text, stderr);
      job.store->barrier(key, env.world_size, std::chrono::seconds(100));
    };
    in_turn(0, "bar 10 %", "first");
    in_turn(1, "a word from rank 1\n", "second");
    in_turn(0, "\rbar 20 %\n", "third");
    return 0;
  }
  const char* told = std::getenv("SELF_PROGRAM");
  std::printf("%s: rank %d of %d %s\n", argv[0], env.rank, env.world_size, told != nullptr ? told : "untold");
  return argc > 2 && env.rank == 1 ? std::atoi(argv[2]) : 0;
}
