#include "trireme/plan/model_desc.h"

namespace trireme::plan {

int64_t ModelDesc::num_layers() const {
  int64_t number = 0;
  for (const LayerRun& run : layers) number += run.count;
  return number;
}

}  // namespace trireme::plan
