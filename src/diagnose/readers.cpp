#include "diagnose/reader.h"

namespace trireme::diagnose {

Readers all_readers() {
  Readers readers;
  return readers;
}

}  // namespace trireme::diagnose
