// Records whose every field is a function of one number, so that a record made of two is recognised.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "profile/collective_trace.h"

namespace trireme::profile {

/// In a trace without groups `group` comes back as kUnlistedGroup.
inline TraceRecord record_of(uint64_t number) {
  TraceRecord record;
  record.call = number;
  record.queued_ns = number + 1;
  record.bytes = 3 * number + 5;
  for (int d = 0; d < 4; ++d) record.dims[d] = static_cast<int64_t>(number * 7 + static_cast<uint64_t>(d));
  record.step = static_cast<uint32_t>(number * 11);
  record.root = static_cast<int32_t>(number % 1000);
  record.op = static_cast<uint8_t>(number % 251);
  record.dtype = static_cast<uint8_t>(number % 13);
  record.reduce = static_cast<uint8_t>(number % 17);
  record.num_dims = static_cast<uint8_t>(number % 5);
  std::snprintf(record.label, sizeof(record.label), "label %020llu", static_cast<unsigned long long>(number));
  return record;
}

/// The fields of record_of(), not those that the trace itself sets.
inline testing::AssertionResult is_whole(const TraceRecord& got) {
  TraceRecord want = record_of(got.call);
  want.serial = got.serial;
  want.state = got.state;
  want.started_ns = got.started_ns;
  want.finished_ns = got.finished_ns;
  want.group = got.group;
  if (std::memcmp(&want, &got, sizeof(want)) == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "record " << got.serial << " of call " << got.call << " mixes several: bytes "
                                     << got.bytes << ", step " << got.step << ", label " << label_of(got);
}

}  // namespace trireme::profile
