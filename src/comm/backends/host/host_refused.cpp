// What c10d's interface has and the host backend does not: refused by name, never done in another way.
#include "base/str.h"
#include "comm/backends/host/host_backend.h"
#include "trireme/base/error.h"

namespace trireme::comm {

void HostBackend::refuse(std::string_view operation) const {
  throw Error(ErrorKind::kUnsupported,
              str(site(operation).prefix(), "the backend 'host' has no ", operation,
                  "; it has allreduce, allreduce_coalesced, broadcast, allgather, _allgather_base, reduce_scatter, ",
                  "_reduce_scatter_base, alltoall, alltoall_base, barrier, send and recv."));
}

HostBackend::Works HostBackend::allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) {
  refuse("allreduce_sparse");
}
HostBackend::Works HostBackend::reduce(Tensors&, const c10d::ReduceOptions&) { refuse("reduce"); }
HostBackend::Works HostBackend::allgather_coalesced(std::vector<Tensors>&, Tensors&, const c10d::AllgatherOptions&) {
  refuse("allgather_coalesced");
}
HostBackend::Works HostBackend::gather(std::vector<Tensors>&, Tensors&, const c10d::GatherOptions&) {
  refuse("gather");
}
HostBackend::Works HostBackend::scatter(Tensors&, std::vector<Tensors>&, const c10d::ScatterOptions&) {
  refuse("scatter");
}
HostBackend::Works HostBackend::recvAnysource(Tensors&, int) { refuse("recvAnysource"); }
void HostBackend::monitoredBarrier(const c10d::BarrierOptions&, bool) { refuse("monitoredBarrier"); }
void HostBackend::waitForPendingWorks() { refuse("waitForPendingWorks"); }
void HostBackend::startCoalescing() { refuse("startCoalescing"); }
HostBackend::Works HostBackend::endCoalescing() { refuse("endCoalescing"); }
void HostBackend::setTimeout(std::chrono::milliseconds) { refuse("setTimeout"); }

}  // namespace trireme::comm
