// What the kernel's log says about dead GPUs, links and processes: dmesg (bracketed seconds or -T), journalctl -k, /var/log/messages,
// /dev/kmsg, and the log of NVIDIA's fabric manager.
#pragma once

#include <memory>

#include "diagnose/reader.h"

namespace trireme::diagnose {

[[nodiscard]] std::unique_ptr<LineReader> make_kernel_log_reader();

}  // namespace trireme::diagnose
