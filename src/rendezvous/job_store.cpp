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

bool is_loopback(const std::string& host) {
  return host.empty() || host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127.");
}

/// Where rank 0 listens: this host only, or every address, since MASTER_ADDR may mean another one here (Debian gives a
/// host's own name 127.0.1.1) than to the ranks of other hosts.
TcpStoreServer::Options listen_options(const JobEnv& env) {
  TcpStoreServer::Options options;
  options.port = env.master_port;
  options.address = "::";
  if (is_loopback(env.master_addr)) options.address = env.master_addr.empty() ? "127.0.0.1" : env.master_addr;
  return options;
}

std::shared_ptr<TcpStoreServer> serve(const JobEnv& env, const TcpStoreServer::Options& options) {
  if (env.master_port == 0) return std::make_shared<PublishedServer>(env.run_id, options);
  return start_tcp_store_server(options);
}

}  // namespace

JobStore open_job_store(const JobEnv& env, std::chrono::milliseconds timeout) {
  if (env.world_size == 1 && env.master_addr.empty()) return {make_memory_store(), nullptr};
  if (env.agent_serves_store || env.rank != 0) {
    const int port = env.master_port != 0 ? env.master_port : await_port(env.run_id, timeout);
    return {connect_tcp_store(env.master_addr, port, timeout), nullptr};
  }
  const std::shared_ptr<TcpStoreServer> server = serve(env, listen_options(env));
  return {server->local(), server};
}

}  // namespace trireme::rendezvous
