// Device memory of the judge: one reserved range that only device code can touch. Allocations never
// share or reuse addresses, start at 256 bytes and no more alignment than that, are filled with
// 0xFF (NaN), have redzones on both sides, and stay closed once freed.
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>

#include "judge.h"

extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(void const volatile *start, size_t bytes);
__attribute__((weak)) void __asan_unpoison_memory_region(void const volatile *start, size_t bytes);
}

namespace {

const size_t page_bytes = 4096;
const size_t huge_bytes = 2 << 20;
const size_t redzone = 256;
const unsigned char poison = 0xFF;

// [first, first + reserved) are whole pages; the caller's bytes start `redzone` after `first`.
struct allocation {
    char *first;
    size_t reserved, bytes;
    char *data() const { return first + redzone; }
};

std::map<const char *, allocation> &live() {
    static auto *allocations = new std::map<const char *, allocation>;  // by data()
    return *allocations;
}

std::map<const char *, size_t> &pinned() {
    static auto *allocations = new std::map<const char *, size_t>;
    return *allocations;
}

char *reserve_arena() {
    void *start = mmap(nullptr, judge_arena_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) {
        perror("judge: cannot reserve address space");
        _exit(2);
    }
    return (char *)(((uintptr_t)start + huge_bytes - 1) & ~(uintptr_t)(huge_bytes - 1));
}

size_t arena_used;
size_t memory_used;
int open_depth;

size_t round_up(size_t value, size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

const allocation *find_allocation(const void *pointer) {
    auto after = live().upper_bound((const char *)pointer);
    if (after == live().begin()) {
        return nullptr;
    }
    const allocation &found = std::prev(after)->second;
    return (const char *)pointer <= found.data() + found.bytes ? &found : nullptr;
}

void check_redzones(const allocation &a) {
    if (__asan_poison_memory_region) {
        return;  // closed to device code already
    }
    for (const char *p = a.first; p < a.first + a.reserved; p++) {
        if (p == a.data()) {
            p += a.bytes;
            if (p == a.first + a.reserved) {
                break;
            }
        }
        if ((unsigned char)*p != poison) {
            judge_fault("device memory written %s an allocation of %zu bytes, at offset %td",
                        p < a.data() ? "before" : "after", a.bytes, p - a.data());
        }
    }
}

bool new_allocation(size_t bytes, allocation *result) {
    const size_t limit = judge_env().memory;
    if (bytes > limit || memory_used + round_up(bytes, redzone) > limit) {
        return false;
    }
    size_t unit = bytes >= huge_bytes ? huge_bytes : page_bytes;
    size_t start = round_up(arena_used, unit), reserved = round_up(bytes + 2 * redzone, unit);
    if (start + reserved + page_bytes > judge_arena_bytes - huge_bytes) {
        return false;
    }
    char *first = judge_arena + start;
    if (mprotect(first, reserved, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    if (unit == huge_bytes) {
        madvise(first, reserved, MADV_HUGEPAGE);
    }
    memset(first, poison, reserved);
    *result = {first, reserved, bytes};
    if (__asan_poison_memory_region) {
        __asan_poison_memory_region(first, reserved);
        __asan_unpoison_memory_region(result->data(), bytes);
    }
    if (open_depth == 0) {
        mprotect(first, reserved, PROT_NONE);
    }
    arena_used = start + reserved + page_bytes;  // the page between two allocations is never opened
    memory_used += round_up(bytes, redzone);
    return true;
}

void protect_all(int protection) {
    for (auto &entry : live()) {
        mprotect(entry.second.first, entry.second.reserved, protection);
    }
}

}  // namespace

extern const size_t judge_arena_bytes = (size_t)1 << 38;
char *const judge_arena = reserve_arena();

void judge_open_memory() {
    if (open_depth++ == 0) {
        protect_all(PROT_READ | PROT_WRITE);
    }
}

void judge_close_memory() {
    if (--open_depth == 0) {
        protect_all(PROT_NONE);
    }
}

bool judge_is_device(const void *pointer) {
    return (const char *)pointer >= judge_arena &&
           (const char *)pointer < judge_arena + judge_arena_bytes;
}

bool judge_in_device(const void *pointer, size_t bytes) {
    const allocation *a = find_allocation(pointer);
    return a && bytes <= (size_t)(a->data() + a->bytes - (const char *)pointer);
}

bool judge_allocation(const void *pointer, const void **first, size_t *bytes) {
    const allocation *a = find_allocation(pointer);
    if (a) {
        *first = a->data();
        *bytes = a->bytes;
    }
    return a != nullptr;
}

bool judge_is_pinned(const void *pointer) {
    auto after = pinned().upper_bound((const char *)pointer);
    return after != pinned().begin() &&
           (const char *)pointer < std::prev(after)->first + std::prev(after)->second;
}

void judge_check_redzones() {
    judge_open_memory();
    for (auto &entry : live()) {
        check_redzones(entry.second);
    }
    judge_close_memory();
}

cudaError_t cudaMalloc(void **pointer, size_t bytes) {
    JUDGE_CALL(cudaErrorMemoryAllocation);
    if (cudaError_t error = judge_forbid_capture()) {
        return judge_error(error);
    }
    *pointer = nullptr;
    if (bytes == 0) {
        return cudaSuccess;
    }
    allocation a;
    if (!new_allocation(bytes, &a)) {
        return judge_error(cudaErrorMemoryAllocation);
    }
    live()[a.data()] = a;
    judge_ledger("cudaMalloc", 1);
    *pointer = a.data();
    return cudaSuccess;
}

// Releases even when a failure is injected, as the real one does when it reports an earlier
// asynchronous error.
cudaError_t cudaFree(void *pointer) {
    bool fails = judge_entry(__func__);
    if (!fails && judge_forbid_capture() != cudaSuccess) {
        return judge_error(cudaErrorStreamCaptureUnsupported);
    }
    judge_drain_all();
    if (pointer) {
        auto found = live().find((const char *)pointer);
        if (found == live().end()) {
            fprintf(stderr, "judge: cudaFree of %p, which is not a live allocation\n", pointer);
            return judge_error(cudaErrorInvalidValue);
        }
        allocation a = found->second;
        mprotect(a.first, a.reserved, PROT_READ);
        check_redzones(a);
        mprotect(a.first, a.reserved, PROT_NONE);
        madvise(a.first, a.reserved, MADV_DONTNEED);
        if (__asan_poison_memory_region) {
            __asan_poison_memory_region(a.first, a.reserved);
        }
        memory_used -= round_up(a.bytes, redzone);
        live().erase(found);
        judge_ledger("cudaMalloc", -1);
    }
    return fails ? judge_error(judge_injected(cudaErrorUnknown)) : cudaSuccess;
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes) {
    JUDGE_CALL(cudaErrorMemoryAllocation);
    *pointer = malloc(bytes ? bytes : 1);
    if (!*pointer) {
        return judge_error(cudaErrorMemoryAllocation);
    }
    memset(*pointer, poison, bytes);
    pinned()[(const char *)*pointer] = bytes;
    judge_ledger("cudaMallocHost", 1);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *pointer) {
    bool fails = judge_entry(__func__);
    judge_drain_all();
    if (pointer) {
        if (!pinned().erase((const char *)pointer)) {
            fprintf(stderr, "judge: cudaFreeHost of %p, which is not a live allocation\n", pointer);
            return judge_error(cudaErrorInvalidValue);
        }
        free(pointer);
        judge_ledger("cudaMallocHost", -1);
    }
    return fails ? judge_error(judge_injected(cudaErrorUnknown)) : cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    JUDGE_CALL(cudaErrorUnknown);
    *total = judge_env().memory;
    *available = *total - memory_used;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer) {
    JUDGE_CALL(cudaErrorInvalidValue);
    *attributes = {};
    attributes->device = -1;
    attributes->type = cudaMemoryTypeUnregistered;
    if (pointer && judge_in_device(pointer, 1)) {
        attributes->type = cudaMemoryTypeDevice;
        attributes->device = 0;
        attributes->devicePointer = const_cast<void *>(pointer);
    } else if (judge_is_pinned(pointer)) {
        attributes->type = cudaMemoryTypeHost;
        attributes->device = 0;
        attributes->devicePointer = attributes->hostPointer = const_cast<void *>(pointer);
    }
    return cudaSuccess;
}

namespace {

// Each side must be what the direction says: a range inside one live allocation, or host memory.
bool copy_sides_ok(const void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind == cudaMemcpyDefault) {
        to_device = judge_is_device(to);
        from_device = judge_is_device(from);
    }
    bool to_ok = to_device ? judge_in_device(to, bytes) : to && !judge_is_device(to);
    bool from_ok = from_device ? judge_in_device(from, bytes) : from && !judge_is_device(from);
    if (!to_ok || !from_ok) {
        fprintf(stderr, "judge: copy of %zu bytes: the %s is %s\n", bytes,
                to_ok ? "source" : "destination",
                (to_ok ? from_device : to_device) ? "not inside live device memory"
                                                  : "not host memory");
    }
    return to_ok && from_ok;
}

cudaError_t copy_async(void *to, const void *from, size_t bytes, cudaStream_t stream) {
    bool capturing = judge_is_capturing(stream);
    if (!capturing && !judge_is_device(from) && !judge_is_pinned(from)) {
        char *staged = static_cast<char *>(
            malloc(bytes));  // pageable memory may be reused once the call returns
        if (!staged) {
            return judge_error(cudaErrorMemoryAllocation);
        }
        memcpy(staged, from, bytes);
        return judge_enqueue(stream, [=] {
            memcpy(to, staged, bytes);
            free(staged);
        });
    }
    cudaError_t error = judge_enqueue(stream, [=] { memmove(to, from, bytes); });
    if (!capturing && !judge_is_device(to) && !judge_is_pinned(to)) {
        judge_drain(stream);
    }
    return error;
}

}  // namespace

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    JUDGE_CALL(cudaErrorUnknown);
    if (cudaError_t error = judge_forbid_capture()) {
        return judge_error(error);
    }
    if (bytes == 0) {
        return cudaSuccess;
    }
    if (!copy_sides_ok(to, from, bytes, kind)) {
        return judge_error(cudaErrorInvalidValue);
    }
    judge_drain(nullptr);
    judge_open_memory();
    memmove(to, from, bytes);
    judge_close_memory();
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    JUDGE_CALL(cudaErrorUnknown);
    if (!judge_stream_ok(stream)) {
        return judge_error(cudaErrorInvalidResourceHandle);
    }
    if (bytes == 0) {
        return cudaSuccess;
    }
    if (!copy_sides_ok(to, from, bytes, kind)) {
        return judge_error(cudaErrorInvalidValue);
    }
    return judge_error(copy_async(to, from, bytes, stream));
}

static cudaError_t fill(void *to, int value, size_t bytes, cudaStream_t stream) {
    if (!judge_stream_ok(stream)) {
        return judge_error(cudaErrorInvalidResourceHandle);
    }
    if (bytes != 0 && !judge_in_device(to, bytes)) {
        fprintf(stderr, "judge: memset of %zu bytes is not inside live device memory\n", bytes);
        return judge_error(cudaErrorInvalidValue);
    }
    return judge_error(judge_enqueue(stream, [=] { memset(to, value, bytes); }));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    JUDGE_CALL(cudaErrorUnknown);
    if (cudaError_t error = judge_forbid_capture()) {
        return judge_error(error);
    }
    return fill(to, value, bytes, nullptr);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    JUDGE_CALL(cudaErrorUnknown);
    return fill(to, value, bytes, stream);
}
