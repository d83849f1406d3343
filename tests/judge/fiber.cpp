// Fiber switching for the judge; see fiber.h.
#include "fiber.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "judge.h"

#if defined(__x86_64__) && !defined(JUDGE_UCONTEXT)
#define OWN_SWITCH 1
#else
#include <ucontext.h>
#endif

// AddressSanitizer has to know which stack is in use.
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void **fake_stack, const void *bottom,
                                                          size_t bytes);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void *fake_stack, const void **bottom,
                                                           size_t *bytes);
}

struct judge_fiber {
    void *stack_pointer = nullptr;
    char *stack = nullptr;
    size_t stack_bytes = 0;
    void *fake_stack = nullptr;
    void (*entry)() = nullptr;
#ifndef OWN_SWITCH
    ucontext_t context;
#endif
};

namespace {

const unsigned max_fibers = 6 * 1024;  // a block, and those that wait for work before theirs
const uint64_t canary = 0x7CA11AB1E57AC4EDull;

judge_fiber host;
judge_fiber *current = &host;
judge_fiber fibers[max_fibers];
unsigned made;

// All stacks in one stretch of huge pages, above one that takes the first stack's overrun: a
// barrier touches every one of them. Sanitizers need more room for each frame.
size_t stack_size() { return __sanitizer_start_switch_fiber ? 128 << 10 : 32 << 10; }

char *stack_number(unsigned i) {
    static char *slab;
    if (!slab) {
        const size_t huge = 2 << 20, bytes = (max_fibers + 1) * stack_size();
        void *start = mmap(nullptr, bytes + huge, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (start == MAP_FAILED) {
            judge_fault("no memory for stacks");
        }
        slab = (char *)(((uintptr_t)start + huge - 1) & ~(uintptr_t)(huge - 1));
        madvise(slab, bytes, MADV_HUGEPAGE);
    }
    return slab + (i + 1) * stack_size();
}

void find_host_stack() {
    pthread_attr_t attributes;
    void *bottom;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &bottom, &host.stack_bytes);
    pthread_attr_destroy(&attributes);
    host.stack = static_cast<char *>(bottom);
}

void first_entry() {
    if (__sanitizer_finish_switch_fiber) {
        __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
    }
    current->entry();
    abort();
}

}  // namespace

#ifdef OWN_SWITCH

// Saves the callee-saved registers on the old stack, stores its pointer, and takes up the new one.
extern "C" void judge_swap_stacks(void **from, void *to);
asm(R"(
    .text
    .globl judge_swap_stacks
    .type judge_swap_stacks, @function
judge_swap_stacks:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
    .size judge_swap_stacks, . - judge_swap_stacks
)");

static void swap_to(judge_fiber *from, judge_fiber *to) {
    judge_swap_stacks(&from->stack_pointer, to->stack_pointer);
}

// Each stack starts at another offset, so that the fibers' hot lines do not all fall into the same
// cache set.
static void prepare(judge_fiber *fiber, unsigned number) {
    void **top = (void **)(fiber->stack + fiber->stack_bytes - 64 * (number % 63 + 1));
    *--top = nullptr;  // where first_entry would return to; keeps the ABI's alignment
    *--top = (void *)first_entry;
    for (int i = 0; i < 6; i++) {
        *--top = nullptr;
    }
    fiber->stack_pointer = top;
}

#else

static void swap_to(judge_fiber *from, judge_fiber *to) {
    swapcontext(&from->context, &to->context);
}

static void prepare(judge_fiber *fiber, unsigned) {
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = fiber->stack_bytes;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, first_entry, 0);
}

#endif

judge_fiber *judge_new_fiber(void (*entry)()) {
    if (made == max_fibers) {
        judge_fault("more threads have begun than there are fibers");
    }
    judge_fiber *fiber = &fibers[made];
    fiber->stack = stack_number(made);
    fiber->stack_bytes = stack_size();
    fiber->entry = entry;
    memcpy(fiber->stack, &canary, sizeof canary);
    prepare(fiber, made);
    made++;
    return fiber;
}

judge_fiber *judge_current_fiber() { return current; }

judge_fiber *judge_host_fiber() { return &host; }

void judge_switch(judge_fiber *to) {
    judge_fiber *from = current;
    if (from == to) {
        return;
    }
    current = to;
    if (__sanitizer_start_switch_fiber) {
        if (!host.stack) {
            find_host_stack();
        }
        __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
    }
    swap_to(from, to);
    if (__sanitizer_finish_switch_fiber) {
        __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
    }
}

void judge_check_stack() {
    if (memcmp(current->stack, &canary, sizeof canary) != 0) {
        judge_fault("a thread's local variables overran its stack of %zu bytes",
                    current->stack_bytes);
    }
}
