// All of Trireme's public headers.
#pragma once

#include "trireme/base/error.h"
#include "trireme/base/result.h"
#include "trireme/rendezvous/job_env.h"
#include "trireme/rendezvous/store.h"
