#include "diagnose/reader.h"

#include "diagnose/ib_ports.h"
#include "diagnose/kernel_log.h"
#include "diagnose/nccl_log.h"
#include "diagnose/nvidia_smi.h"
#include "diagnose/topology.h"

namespace trireme::diagnose {

Readers all_readers() {
  Readers readers;
  readers.lines.push_back(make_topology_reader());
  readers.lines.push_back(make_nvidia_smi_reader());
  readers.lines.push_back(make_ib_ports_reader());
  readers.lines.push_back(make_kernel_log_reader());
  readers.lines.push_back(make_nccl_network_reader());
  return readers;
}

}  // namespace trireme::diagnose
