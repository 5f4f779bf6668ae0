#include "diagnose/reader.h"

#include "diagnose/nccl_log.h"

namespace trireme::diagnose {

Readers all_readers() {
  Readers readers;
  readers.lines.push_back(make_nccl_network_reader());
  return readers;
}

}  // namespace trireme::diagnose
