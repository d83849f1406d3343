// Race mode. The .cu is compiled with -fsanitize=thread and linked without that sanitizer's
// runtime: the compiler then calls the hooks below on every load and store of a kernel, and this
// file judges them by CUDA's rules. Within a block __syncthreads orders all threads, a full-warp
// __syncwarp the lanes of that warp; launches are ordered. Two atomics never race. Blocks of one
// launch are ordered by fences and atomics alone: what a thread knows at its __threadfence (its own
// accesses and, by a barrier, its block's) goes with its next atomics to the word they change, and
// a later atomic of another thread on that word, followed by a fence, takes it over for that thread
// and, behind a barrier, for its block. It also reports reads of shared memory that the block has
// not written, and counts the bytes moved.
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <map>
#include <vector>

#include "judge.h"

// The judge's own variables that kernels read lie elsewhere; what is left of .bss, seen from a
// kernel, is shared memory.
extern "C" char __bss_start, _end;

namespace {

enum {
    has_write = 1,
    has_read = 2,
    write_is_atomic = 4,
    many_readers = 8,
    many_warps = 16,
    many_blocks = 32,
    split = 64
};

// The accesses to one word, or to one byte of a split word, since `launch` began: the last write
// and the readers since the last barrier. `many_readers`: other lanes of the reader's warp read at
// the same time; `many_warps`, `many_blocks`: others read, too.
struct cell {
    unsigned launch, write_block, read_block, write_barrier, read_barrier;
    unsigned short write_thread, read_thread, write_sync, read_sync;
    unsigned char flags;
};

const size_t page_bytes = 4096;

// Cells for one page: by word, and by byte for words with accesses narrower than a word.
struct shadow_page {
    cell words[page_bytes / 4];
    cell *bytes;
};

struct access {
    bool shared, write, atomic;
    unsigned thread, warp;
    const void *address;
};

long races;
judge_traffic traffic;

shadow_page **map_table(size_t pages) {
    void *table = mmap(nullptr, pages * sizeof(shadow_page *), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED) {
        judge_fault("no memory for the race checker");
    }
    return static_cast<shadow_page **>(table);
}

shadow_page *page_of(const char *address, bool shared) {
    static shadow_page **arena_pages = map_table(judge_arena_bytes / page_bytes);
    static shadow_page **bss_pages = map_table((size_t)(&_end - &__bss_start) / page_bytes + 2);
    uintptr_t base =
        shared ? (uintptr_t)&__bss_start / page_bytes : (uintptr_t)judge_arena / page_bytes;
    shadow_page *&page = (shared ? bss_pages : arena_pages)[(uintptr_t)address / page_bytes - base];
    if (!page) {
        page = static_cast<shadow_page *>(calloc(1, sizeof(shadow_page)));
        if (!page) {
            judge_fault("no memory for the race checker");
        }
    }
    return page;
}

cell *byte_cells(shadow_page *page) {
    if (!page->bytes) {
        page->bytes = static_cast<cell *>(calloc(page_bytes, sizeof(cell)));
        if (!page->bytes) {
            judge_fault("no memory for the race checker");
        }
    }
    return page->bytes;
}

void report(const char *what, const access &a, unsigned other_block, unsigned other_thread) {
    if (races++ < 5) {
        fprintf(stderr,
                "judge: race: %s at %s%p: block %u thread %u, against block %u thread %u (launch "
                "%u, barrier %u)\n",
                what, a.shared ? "shared " : "global ", a.address, judge_now.block, a.thread,
                other_block, other_thread, judge_now.launch, judge_now.barrier);
    }
}

// ---- what blocks of the running launch know of each other

// Of a block: everything before a barrier, and what one thread of it did until the next one.
struct known_part {
    unsigned barrier, thread;
};
typedef std::multimap<unsigned, known_part> knowledge;  // by block

struct taken_over {
    unsigned thread, barrier;  // who fenced, and when: the others know behind the next barrier
    knowledge what;
};

struct {
    unsigned launch, block;
    std::map<const volatile void *, knowledge> words;  // what atomics have left
    std::map<unsigned, knowledge> fenced, met;  // of the block, by thread: to leave, to take over
    std::vector<taken_over> own;                // of the block
} * order;

void enter_order() {
    if (!order) {
        order = new std::remove_reference_t<decltype(*order)>();
    }
    if (order->launch != judge_now.launch) {
        order->words.clear();
    }
    if (order->launch != judge_now.launch || order->block != judge_now.block) {
        order->fenced.clear();
        order->met.clear();
        order->own.clear();
    }
    order->launch = judge_now.launch;
    order->block = judge_now.block;
}

bool holds(const taken_over &t, unsigned thread) {
    return t.thread == thread || judge_now.barrier > t.barrier;
}

// Whether the running block's `thread` comes after what another block's one did.
bool is_ordered(unsigned thread, unsigned block, unsigned barrier, unsigned other) {
    enter_order();
    for (const taken_over &t : order->own) {
        if (!holds(t, thread)) {
            continue;
        }
        auto range = t.what.equal_range(block);
        for (auto k = range.first; k != range.second; ++k) {
            if (barrier < k->second.barrier ||
                (barrier == k->second.barrier && other == k->second.thread)) {
                return true;
            }
        }
    }
    return false;
}

void fence() {
    enter_order();
    unsigned thread = judge_self->linear;
    if (order->met.count(thread)) {
        order->own.push_back({thread, judge_now.barrier, order->met[thread]});
        order->met.erase(thread);
    }
    knowledge all = {{judge_now.block, {judge_now.barrier, thread}}};
    for (const taken_over &t : order->own) {
        if (holds(t, thread)) {
            all.insert(t.what.begin(), t.what.end());
        }
    }
    order->fenced[thread] = all;
}

void leave_and_meet(const volatile void *word) {
    if (!judge_self) {
        return;
    }
    enter_order();
    unsigned thread = judge_self->linear;
    knowledge &there = order->words[word];
    knowledge mine = order->fenced[thread];
    order->met[thread].insert(there.begin(), there.end());
    there.insert(mine.begin(), mine.end());
}

bool write_conflicts(const cell &c, const access &a) {
    if (!(c.flags & has_write) || (a.atomic && (c.flags & write_is_atomic))) {
        return false;
    }
    if (c.write_block != judge_now.block) {
        return !is_ordered(a.thread, c.write_block, c.write_barrier, c.write_thread);
    }
    if (c.write_thread == a.thread || c.write_barrier != judge_now.barrier) {
        return false;
    }
    return c.write_thread / 32u != a.warp ||
           c.write_sync == (unsigned short)judge_now.warp_sync[a.warp];
}

bool read_conflicts(const cell &c, const access &a) {
    if (!(c.flags & has_read)) {
        return false;
    }
    if (c.flags & many_blocks) {
        return true;
    }
    if (c.read_block != judge_now.block) {
        return !is_ordered(a.thread, c.read_block, c.read_barrier, c.read_thread);
    }
    if (c.read_barrier != judge_now.barrier) {
        return false;
    }
    if ((c.flags & many_warps) || c.read_thread / 32u != a.warp) {
        return true;
    }
    return c.read_sync == (unsigned short)judge_now.warp_sync[a.warp] &&
           ((c.flags & many_readers) || c.read_thread != a.thread);
}

void note_write(cell &c, const access &a) {
    c.write_block = judge_now.block;
    c.write_barrier = judge_now.barrier;
    c.write_sync = (unsigned short)judge_now.warp_sync[a.warp];
    c.write_thread = (unsigned short)a.thread;
    c.flags = (unsigned char)((c.flags & ~write_is_atomic) | has_write |
                              (a.atomic ? write_is_atomic : 0));
}

void note_read(cell &c, const access &a) {
    unsigned short sync = (unsigned short)judge_now.warp_sync[a.warp];
    bool same_time = (c.flags & has_read) && c.read_block == judge_now.block &&
                     c.read_barrier == judge_now.barrier;
    if ((c.flags & has_read) && c.read_block != judge_now.block) {
        c.flags |= many_blocks;  // nothing more to know: any later write of this launch is a race
    } else if (!same_time) {
        c.flags &= (unsigned char)~(many_readers | many_warps);
    } else if (c.read_thread / 32u != a.warp) {
        c.flags |= many_warps;
    } else if (c.read_sync == sync && c.read_thread != a.thread) {
        c.flags |= many_readers;
    } else if (c.read_sync != sync) {
        c.flags &= (unsigned char)~many_readers;
    }
    c.flags |= has_read;
    c.read_block = judge_now.block;
    c.read_barrier = judge_now.barrier;
    c.read_sync = sync;
    c.read_thread = (unsigned short)a.thread;
}

// Whether the access, made before its kernel has waited for the one before, meets one of that one.
bool overtakes(const cell &c, const access &a) {
    return !judge_self->ordered && !a.shared && c.launch + 1 == judge_now.launch &&
           ((c.flags & has_write) || (a.write && (c.flags & has_read)));
}

// Forgets what an earlier launch, or for shared memory an earlier block, did to the cell.
void refresh(cell &c, const access &a) {
    if (overtakes(c, a)) {
        report("access before cudaGridDependencySynchronize", a, c.write_block, c.write_thread);
    }
    bool other_block = a.shared && (((c.flags & has_write) && c.write_block != judge_now.block) ||
                                    ((c.flags & has_read) && c.read_block != judge_now.block));
    if (c.launch != judge_now.launch || other_block) {
        c = {};
        c.launch = judge_now.launch;
    }
}

void touch(cell &c, const access &a) {
    if (a.shared && !a.write && !(c.flags & has_write)) {
        report("read of unset memory", a, judge_now.block, a.thread);
    }
    if (write_conflicts(c, a)) {
        report(a.write ? "two writes" : "read and an earlier write", a, c.write_block,
               c.write_thread);
    } else if (a.write && read_conflicts(c, a)) {
        report("write and an earlier read", a, c.read_block, c.read_thread);
    }
    if (a.write) {
        note_write(c, a);
    } else if (!a.atomic) {
        note_read(c, a);
    }
}

void check_word(char *word, size_t from, size_t to, const access &a) {
    shadow_page *page = page_of(word, a.shared);
    size_t offset = (uintptr_t)word % page_bytes;
    cell &whole = page->words[offset / 4];
    bool narrow = to - from != 4;
    if (whole.launch != judge_now.launch && (judge_self->ordered || a.shared)) {
        whole.flags = 0;
    }
    if (!(whole.flags & split)) {
        refresh(whole, a);
        if (!narrow) {
            touch(whole, a);
            return;
        }
        cell *bytes = byte_cells(page) + offset;
        for (size_t i = 0; i < 4; i++) {
            bytes[i] = whole;
        }
        whole.flags |= split;
    }
    cell *bytes = byte_cells(page) + offset;
    for (size_t i = from; i < to; i++) {
        refresh(bytes[i], a);
        touch(bytes[i], a);
    }
}

void check(const void *address, size_t size, bool write, bool atomic) {
    if (!judge_self || size == 0) {
        return;
    }
    const char *start = static_cast<const char *>(address);
    access a = {start >= &__bss_start && start < &_end,
                write,
                atomic,
                judge_self->linear,
                judge_self->warp,
                address};
    if (!a.shared) {
        if (!judge_is_device(address)) {
            return;  // a local variable or an argument
        }
        (atomic  ? traffic.atomics
         : write ? traffic.stored
                 : traffic.loaded) += atomic && !write ? 0 : size;
    }
    uintptr_t begin = (uintptr_t)address, end = begin + size;
    for (uintptr_t word = begin & ~(uintptr_t)3; word < end; word += 4) {
        check_word((char *)word, begin > word ? begin - word : 0, end < word + 4 ? end - word : 4,
                   a);
    }
}

}  // namespace

bool judge_race_report() {
    if (races) {
        fprintf(stderr, "judge: %ld races\n", races);
    }
    if (judge_env().report) {
        fprintf(stderr, "judge: global memory: loaded %llu stored %llu atomics %llu bytes\n",
                traffic.loaded, traffic.stored, traffic.atomics);
    }
    return races != 0;
}

void judge_race_traffic(judge_traffic *copy) { *copy = traffic; }

void judge_race_fence() {
    if (judge_self) {
        fence();
    }
}

// ---- the hooks that -fsanitize=thread calls

extern "C" {

#define ACCESS_HOOKS(bytes)                                                       \
    void __tsan_read##bytes(void *p) { check(p, bytes, false, false); }           \
    void __tsan_write##bytes(void *p) { check(p, bytes, true, false); }           \
    void __tsan_unaligned_read##bytes(void *p) { check(p, bytes, false, false); } \
    void __tsan_unaligned_write##bytes(void *p) { check(p, bytes, true, false); } \
    void __tsan_volatile_read##bytes(void *p) { check(p, bytes, false, false); }  \
    void __tsan_volatile_write##bytes(void *p) { check(p, bytes, true, false); }  \
    void __tsan_read_write##bytes(void *p) {                                      \
        check(p, bytes, false, false);                                            \
        check(p, bytes, true, false);                                             \
    }                                                                             \
    void __tsan_unaligned_read_write##bytes(void *p) { __tsan_read_write##bytes(p); }
ACCESS_HOOKS(1)
ACCESS_HOOKS(2)
ACCESS_HOOKS(4)
ACCESS_HOOKS(8)
ACCESS_HOOKS(16)

void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
void __tsan_read_range(void *p, size_t bytes) { check(p, bytes, false, false); }
void __tsan_write_range(void *p, size_t bytes) { check(p, bytes, true, false); }

// The compilers turn copies of structures into calls of these; the link redirects them here
// (--wrap).
void *__real_memcpy(void *to, const void *from, size_t bytes);
void *__real_memmove(void *to, const void *from, size_t bytes);
void *__real_memset(void *to, int value, size_t bytes);

void *__wrap_memcpy(void *to, const void *from, size_t bytes) {
    check(from, bytes, false, false);
    check(to, bytes, true, false);
    return __real_memcpy(to, from, bytes);
}

void *__wrap_memmove(void *to, const void *from, size_t bytes) {
    check(from, bytes, false, false);
    check(to, bytes, true, false);
    return __real_memmove(to, from, bytes);
}

void *__wrap_memset(void *to, int value, size_t bytes) {
    check(to, bytes, true, false);
    return __real_memset(to, value, bytes);
}

void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
    return __wrap_memcpy(to, from, bytes);
}
void *__tsan_memmove(void *to, const void *from, size_t bytes) {
    return __wrap_memmove(to, from, bytes);
}
void *__tsan_memset(void *to, int value, size_t bytes) { return __wrap_memset(to, value, bytes); }

void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}

// Only one CUDA thread runs at a time, so the operations themselves can be plain. CUDA has no
// atomic loads of bytes: those are of g++'s guards of static arrays of classes, of __half too.
#define ATOMIC_HOOKS(bits, T)                                                                    \
    T __tsan_atomic##bits##_load(const volatile T *p, int) {                                     \
        if (bits > 8) check((const void *)p, sizeof(T), false, true);                            \
        return *p;                                                                               \
    }                                                                                            \
    void __tsan_atomic##bits##_store(volatile T *p, T value, int) {                              \
        check((const void *)p, sizeof(T), true, true);                                           \
        *p = value;                                                                              \
    }                                                                                            \
    T __tsan_atomic##bits##_compare_exchange_val(volatile T *p, T expected, T value, int, int) { \
        check((const void *)p, sizeof(T), true, true);                                           \
        T old = *p;                                                                              \
        if (old == expected) {                                                                   \
            *p = value;                                                                          \
            leave_and_meet(p);                                                                   \
        }                                                                                        \
        return old;                                                                              \
    }                                                                                            \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile T *p, T *expected, T value, int,  \
                                                      int) {                                     \
        T old = __tsan_atomic##bits##_compare_exchange_val(p, *expected, value, 0, 0);           \
        int same = old == *expected;                                                             \
        *expected = old;                                                                         \
        return same;                                                                             \
    }                                                                                            \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile T *p, T *expected, T value, int a,  \
                                                    int b) {                                     \
        return __tsan_atomic##bits##_compare_exchange_strong(p, expected, value, a, b);          \
    }
ATOMIC_HOOKS(8, unsigned char)
ATOMIC_HOOKS(16, unsigned short)
ATOMIC_HOOKS(32, unsigned)
ATOMIC_HOOKS(64, unsigned long)

}  // extern "C"
