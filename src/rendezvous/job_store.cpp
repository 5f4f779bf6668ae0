#include "base/str.h"
#include "rendezvous/port_file.h"
#include "trireme/rendezvous/job_env.h"

namespace trireme::rendezvous {
namespace {

/// Rank 0's server, together with the file that tells where it is.
class PublishedServer final : public TcpStoreServer {
 public:
  PublishedServer(const std::string& run_id, const Options& options)
      : server_(start_tcp_store_server(options)), file_(run_id, server_->port()) {}
  [[nodiscard]] int port() const override { return server_->port(); }
  [[nodiscard]] std::shared_ptr<Store> local() override { return server_->local(); }

 private:
  std::unique_ptr<TcpStoreServer> server_;
  PortFile file_;
};

}  // namespace

JobStore open_job_store(const JobEnv& env, std::chrono::milliseconds timeout) {
  if (env.world_size == 1 && env.master_addr.empty()) return {make_memory_store(), nullptr};
  const bool one_host = env.local_world_size == env.world_size;
  if (env.agent_serves_store || env.rank != 0) {
    const int port = env.master_port != 0 ? env.master_port : await_port(env.run_id, timeout);
    return {connect_tcp_store(env.master_addr, port, timeout), nullptr};
  }
  TcpStoreServer::Options options;
  // Ranks of other hosts can only come in where every address of this host is listened on.
  options.address = one_host ? "127.0.0.1" : "::";
  if (one_host && env.master_addr.find(':') != std::string::npos) options.address = env.master_addr;
  options.port = env.master_port;
  std::shared_ptr<TcpStoreServer> server;
  if (env.master_port == 0) {
    server = std::make_shared<PublishedServer>(env.run_id, options);
  } else {
    server = start_tcp_store_server(options);
  }
  return {server->local(), server};
}

}  // namespace trireme::rendezvous
