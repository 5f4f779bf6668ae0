#include "diagnose/xid.h"

#include <algorithm>
#include <iterator>

namespace trireme::diagnose {
namespace {

constexpr const char* kProgram =
    "Usually the program's fault: an access out of bounds in a kernel. Run it under compute-sanitizer; if other "
    "programs show it on the same GPU "
    "only, test the GPU (dcgmi diag -r 3).";
constexpr const char* kReset =
    "Stop the jobs on this GPU and reset it: nvidia-smi -r -i <GPU>, or reboot the host. If it comes back, take the "
    "host out and have the GPU "
    "tested (dcgmi diag -r 3).";
constexpr const char* kReboot = "Drain the host and reboot it; if it comes back after that, reseat or replace the GPU.";
constexpr const char* kLinks =
    "Look at the links: nvidia-smi nvlink --status; nvidia-smi nvlink -e. Reset the GPUs that they join, all together; "
    "check the fabric manager "
    "(systemctl status nvidia-fabricmanager).";
constexpr const char* kMemory =
    "Reset the GPU when its jobs have ended, so that the row is mapped away: nvidia-smi -r -i <GPU>. See nvidia-smi -q "
    "-d ROW_REMAPPER.";

constexpr Severity kInfo = Severity::kInfo;
constexpr Severity kWarning = Severity::kWarning;
constexpr Severity kError = Severity::kError;

// After NVIDIA's public Xid catalogue, in our words.
constexpr XidMeaning kTable[] = {
    {8, kError, "the GPU stopped processing", kReset},
    {13, kError, "a kernel did something illegal (graphics engine exception)", kProgram},
    {31, kError, "a kernel or copy touched memory that is not mapped (MMU fault)", kProgram},
    {32, kError, "a broken command stream reached the GPU",
     "Driver or PCIe fault; look for PCIe errors in the same log. "},
    {38, kError, "the driver's firmware failed", "Update the driver; if it stays, test the GPU (dcgmi diag -r 3)."},
    {43, kError, "the GPU stopped a program's channel; the program dies",
     "Mostly follows another fault of that program: look at its own error and at the Xid before."},
    {44, kError, "the graphics engine failed during a context switch", kReset},
    {45, kInfo, "channels were cleaned up because the process ended",
     "Follows a kill or another fault; look for what came before."},
    {48, kError, "a memory error that ECC cannot correct", kMemory},
    {54, kError, "auxiliary power is not connected", "Check the GPU's power cables."},
    {56, kError, "the display engine failed", kReset},
    {57, kError, "the GPU's memory interface failed", kReboot},
    {58, kError, "the GPU's memory clock failed", kReboot},
    {61, kError, "the GPU's internal micro-controller halted", kReset},
    {62, kError, "the GPU's internal micro-controller halted", kReset},
    {63, kWarning, "a memory row was marked for remapping (or a page retired)", kMemory},
    {64, kError, "a memory row could not be remapped (or a page not retired)", kReset},
    {66, kError, "an illegal access by the driver", "Update the driver."},
    {68, kError, "the video processor failed", kReset},
    {69, kError, "the graphics engine got a bad method", kProgram},
    {73, kError, "the video encoder failed", kReset},
    {74, kError, "an NVLink error", kLinks},
    {78, kError, "a virtual GPU could not start", "Check the vGPU manager and licence."},
    {79, kError, "the GPU has fallen off the PCIe bus", kReboot},
    {92, kWarning, "many memory errors that ECC corrected",
     "Watch it: nvidia-smi -q -d ECC; test the GPU if the count grows."},
    {94, kError, "a memory error that hit one program only (contained)", kMemory},
    {95, kError, "a memory error that may have hit every program on the GPU (uncontained)", kReset},
    {109, kError, "a context switch timed out", kReset},
    {110, kError, "a security fault", kReset},
    {119, kError, "the GSP processor stopped answering (RPC timeout)",
     "Reset the GPU or reboot the host (nvidia-smi -r -i <GPU>); update driver and GPU firmware. If it comes back: "
     "options nvidia NVreg_EnableGpuFirmware=0 switches GSP off on GPUs before Blackwell."},
    {120, kError, "the GSP processor failed",
     "Reset the GPU or reboot the host (nvidia-smi -r -i <GPU>); update driver and GPU firmware."},
    {121, kWarning, "an error on the chip-to-chip link, corrected", "Watch it; reset the GPU if the count grows."},
    {122, kError, "the driver could not read or write the GPU's SPI flash", kReboot},
    {123, kError, "the driver could not talk to the power manager", kReset},
    {124, kError, "a copy engine failed", kReset},
    {125, kError, "the GPU's inventory ROM cannot be used", kReboot},
    {136, kError, "a link training failed", kLinks},
    {137, kError, "an NVLink privilege error: a peer's access was refused",
     "Usually the program's fault on another GPU (an access out of bounds of a peer's memory)."},
    {140, kError, "a memory error that ECC cannot correct", kReset},
    {143, kError, "the GPU's initialisation failed", kReboot},
    {144, kError, "an NVLink error (link)", kLinks},
    {145, kError, "an NVLink error (remote link)", kLinks},
    {146, kError, "an NVLink error (transport)", kLinks},
    {147, kError, "an NVLink error (transport)", kLinks},
    {148, kError, "an NVLink error (routing)", kLinks},
    {149, kError, "an NVLink error (network)", kLinks},
    {150, kError, "an NVLink error (firmware)", kLinks},
    {154, kWarning, "the driver says what must be done about this GPU",
     "Do what the line says (reset, reboot, drain)."},
};

}  // namespace

const XidMeaning* find_xid(int number) noexcept {
  const auto* found = std::lower_bound(std::begin(kTable), std::end(kTable), number,
                                       [](const XidMeaning& row, int wanted) { return row.number < wanted; });
  return found != std::end(kTable) && found->number == number ? found : nullptr;
}

}  // namespace trireme::diagnose
