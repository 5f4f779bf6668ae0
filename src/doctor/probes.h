// The things that doctor looks at, one function each; every one adds rows, findings and facts to a report.
#pragma once

#include "doctor/place.h"
#include "doctor/probe.h"

namespace trireme::doctor {

// probe_gpu.cpp
void probe_nvidia(const Place& place,
                  Report& report);        ///< driver, GPUs; nvidia-smi missing, refusing, hanging, or no GPU at all
void probe_nvidia_links(Report& report);  ///< nvidia-smi topo -m and nvlink --status; nothing where it is not there
void probe_cuda(const Place& place, Report& report);        ///< libcuda and libnccl, by dlopen
void probe_other_gpus(const Place& place, Report& report);  ///< rocm-smi, xpu-smi

// probe_fabric.cpp
void probe_ports(const Place& place, Report& report);      ///< /sys/class/infiniband, /dev/infiniband
void probe_isolation(const Place& place, Report& report);  ///< ACS and IOMMU, which hinder peer-to-peer

// probe_network.cpp
void probe_interfaces(const Place& place, Report& report);  ///< and which of them NCCL and Gloo would take
void probe_names(Report& report);                           ///< what the host's own name resolves to
void probe_tcp_ports(Report& report);                       ///< torchrun's default port, the range for clients
void probe_clock(Report& report);

// probe_limits.cpp
void probe_shared_memory(const Place& place, Report& report);  ///< /dev/shm
void probe_limits(const Place& place, Report& report);         ///< memlock, open files, processes
void probe_memory(const Place& place, Report& report);         ///< of the host and of the cgroup
void probe_cpus(const Place& place, Report& report);           ///< affinity, cgroup quota, NUMA nodes

// probe_system.cpp
void probe_mpi(Report& report);  ///< MPI, UCX, Slurm: which are there
void probe_libtorch(const std::string& train_program,
                    Report& report);  ///< what trireme-train loads; an empty name: it is not there
void probe_kernel_log(const Place& place, Report& report);

/// After all: do the versions that several probes found fit together?
void judge_versions(const Place& place, Report& report);

}  // namespace trireme::doctor
