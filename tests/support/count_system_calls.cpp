#include "support/count_system_calls.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>

namespace trireme::test {
namespace {

std::atomic<int64_t> g_count{0};

}  // namespace

int64_t num_system_calls() noexcept { return g_count.load(std::memory_order_relaxed); }

#if defined(__x86_64__)

// The one place whose system calls the filter lets through: the handler carries out from here what it has counted.
extern "C" long trireme_counted_syscall(long number, long a, long b, long c, long d, long e, long f);
extern "C" const char trireme_counted_syscall_end[];
asm(R"(
  .text
  .globl trireme_counted_syscall
  .type trireme_counted_syscall, @function
trireme_counted_syscall:
  mov %rdi, %rax
  mov %rsi, %rdi
  mov %rdx, %rsi
  mov %rcx, %rdx
  mov %r8, %r10
  mov %r9, %r8
  mov 8(%rsp), %r9
  syscall
  .globl trireme_counted_syscall_end
trireme_counted_syscall_end:
  ret
)");

namespace {

void on_system_call(int /*signal*/, siginfo_t* info, void* context) {
  g_count.fetch_add(1, std::memory_order_relaxed);
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  registers[REG_RAX] =
      trireme_counted_syscall(info->si_syscall, registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                              registers[REG_R10], registers[REG_R8], registers[REG_R9]);
}

}  // namespace

std::string start_counting_system_calls() {
  struct sigaction action = {};
  action.sa_sigaction = on_system_call;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (sigaction(SIGSYS, &action, nullptr) != 0) return "sigaction failed";
  // The address after the `syscall` instruction is what the kernel sees.
  const auto end = reinterpret_cast<uintptr_t>(trireme_counted_syscall_end);
  const auto low = static_cast<uint32_t>(end);
  const auto high = static_cast<uint32_t>(end >> 32);
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 5, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, instruction_pointer)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, low, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, instruction_pointer) + 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, high, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program = {static_cast<unsigned short>(std::size(filter)), filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return "PR_SET_NO_NEW_PRIVS is refused";
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) {
    return std::string("no seccomp filter: ") + std::strerror(errno);
  }
  return {};
}

#else

std::string start_counting_system_calls() { return "written for x86_64 only"; }

#endif

}  // namespace trireme::test
