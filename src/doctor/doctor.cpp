#include "doctor/doctor.h"

#include "doctor/probes.h"

namespace trireme::doctor {

diagnose::Report examine_host(const DoctorOptions& options) {
  using std::chrono::seconds;
  const Place& place = options.place;
  const std::vector<Probe> probes = {
      // Above what its calls of tools may take together, so that their own words are heard.
      {"NVIDIA driver", seconds(10), [&](Report& report) { probe_nvidia(place, report); }},
      {"topology", seconds(18), [](Report& report) { probe_nvidia_links(report); }},
      {"CUDA", seconds(10), [&](Report& report) { probe_cuda(place, report); }},
      {"other GPUs", seconds(18), [&](Report& report) { probe_other_gpus(place, report); }},
      {"LibTorch", seconds(10), [&](Report& report) { probe_libtorch(options.train_program, report); }},
      {"IB and RoCE ports", seconds(3), [&](Report& report) { probe_ports(place, report); }},
      {"ACS and IOMMU", seconds(6), [&](Report& report) { probe_isolation(place, report); }},
      {"interfaces", seconds(5), [&](Report& report) { probe_interfaces(place, report); }},
      {"host name", seconds(5), [](Report& report) { probe_names(report); }},
      {"TCP ports", seconds(2), [](Report& report) { probe_tcp_ports(report); }},
      {"clock", seconds(2), [](Report& report) { probe_clock(report); }},
      {"shared memory", seconds(2), [&](Report& report) { probe_shared_memory(place, report); }},
      {"limits", seconds(2), [&](Report& report) { probe_limits(place, report); }},
      {"memory", seconds(2), [&](Report& report) { probe_memory(place, report); }},
      {"CPUs", seconds(2), [&](Report& report) { probe_cpus(place, report); }},
      {"MPI, UCX, Slurm", seconds(5), [](Report& report) { probe_mpi(report); }},
      {"kernel log", seconds(5), [&](Report& report) { probe_kernel_log(place, report); }},
  };
  diagnose::Report report = run_probes(probes);
  judge_versions(place, report);
  report.sort();
  return report;
}

}  // namespace trireme::doctor
