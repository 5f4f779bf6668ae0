#include "diagnose/reader.h"

#include "diagnose/nccl_log.h"
#include "diagnose/topology.h"

namespace trireme::diagnose {

Readers all_readers() {
  Readers readers;
  readers.lines.push_back(make_topology_reader());
  readers.lines.push_back(make_nccl_network_reader());
  return readers;
}

}  // namespace trireme::diagnose
