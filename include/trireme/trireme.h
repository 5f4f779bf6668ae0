// All of Trireme's public headers, and the names that most programs need.
#pragma once

#include "trireme/base/error.h"
#include "trireme/base/result.h"
#include "trireme/comm/busy.h"
#include "trireme/comm/collectives.h"
#include "trireme/comm/group.h"
#include "trireme/comm/init.h"
#include "trireme/memory/history.h"
#include "trireme/memory/leak_watch.h"
#include "trireme/memory/memory_report.h"
#include "trireme/memory/tracker.h"
#include "trireme/parallel/ddp.h"
#include "trireme/parallel/finite_check.h"
#include "trireme/profile/data_wait.h"
#include "trireme/profile/profiler.h"
#include "trireme/rendezvous/job_env.h"
#include "trireme/rendezvous/store.h"

namespace trireme {

using comm::busy;
using comm::BusyScope;
using comm::Group;
using comm::init;
using comm::InitOptions;
using comm::set_step;
using parallel::DdpOptions;
using parallel::DistributedDataParallel;
using parallel::GradientMode;
using profile::data_wait;
using profile::DataWait;

}  // namespace trireme
