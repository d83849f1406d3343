// Says what a segmentation fault was about before the process dies of it (status 139): a kernel
// that leaves its memory, or host code that touches device memory. AddressSanitizer has its own
// report.
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "judge.h"

extern "C" __attribute__((weak)) void __asan_init();

static void report(int signal_number, siginfo_t *info, void *) {
    char text[300];
    int length;
    if (judge_self) {
        length = snprintf(text, sizeof text,
                          "judge: kernel %s, block (%u,%u,%u), thread %u: invalid or misaligned "
                          "access, address %p%s\n",
                          judge_kernel_name(), blockIdx.x, blockIdx.y, blockIdx.z,
                          judge_self->linear, info->si_addr,
                          judge_is_device(info->si_addr) ? " (not in a live allocation)" : "");
    } else {
        length = snprintf(text, sizeof text, "judge: host code: invalid access, address %p%s\n",
                          info->si_addr, judge_is_device(info->si_addr) ? " (device memory)" : "");
    }
    if (write(STDERR_FILENO, text, (size_t)length) < 0) {
        _exit(JUDGE_EXIT_FAULT);
    }
    signal(signal_number, SIG_DFL);  // the access is repeated when the handler returns
}

void judge_misaligned(const void *p, size_t multiple) {
    if (!judge_self) {
        judge_fault("host code: %p is no multiple of %zu", p, multiple);
    }
    judge_fault("kernel %s, block (%u,%u,%u), thread %u: address %p is no multiple of %zu",
                judge_kernel_name(), blockIdx.x, blockIdx.y, blockIdx.z, judge_self->linear, p,
                multiple);
}

void judge_report_crashes() {
    if (__asan_init) {
        return;
    }
    static char stack[64 << 10];  // the fault may be the overrun of a small stack
    stack_t alternative = {};
    alternative.ss_sp = stack;
    alternative.ss_size = sizeof stack;
    sigaltstack(&alternative, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = report;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
}
