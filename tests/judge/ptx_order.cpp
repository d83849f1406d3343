// What products of warpgroups have to be ordered with. They run by themselves, on what they find in
// registers and shared memory at some time until they are waited for: until then others may not
// write there, nor read the sums; what others did with the registers before needs wgmma.fence, what
// they wrote to shared memory fence.proxy.async. A barrier's part in that is for the race mode.
#include <algorithm>

#include "ptx.h"

namespace ptx {

namespace {

// What became of a register: a product on its way has it, and what others did since wgmma.fence.
enum : uint8_t { SUM = 1, FACTOR = 2, READ = 4, WRITTEN = 8 };

void hold(warp &w, const touches &t) {
    for (uint32_t r : t.writes) {
        w.registers[r] |= SUM;
    }
    for (uint32_t r : t.reads) {
        w.registers[r] |= FACTOR;
    }
}

unsigned thread_of(const warp &w, int lane) { return w.number * lanes + (unsigned)lane; }

}  // namespace

// Numbers the registers that products have, and says what of them every instruction touches.
void watch_registers(kernel &k) {
    if (k.products.empty()) {
        return;
    }
    std::vector<uint32_t> numbers(k.frame / 4, none);
    auto renumber = [&](std::vector<uint32_t> &places, bool fresh) {
        size_t kept = 0;
        for (uint32_t p : places) {
            if (fresh && numbers[p] == none) {
                numbers[p] = k.watched++;
            }
            if (numbers[p] != none) {
                places[kept++] = numbers[p];
            }
        }
        places.resize(kept);
    };
    for (touches &t : k.products) {
        renumber(t.writes, true);
        renumber(t.reads, true);
    }
    for (const effect &e : k.effects) {
        k.touched.push_back({e.reads, e.writes});
        renumber(k.touched.back().reads, false);
        renumber(k.touched.back().writes, false);
    }
}

void begin_order(cta &b) {
    const kernel &k = *b.of->code;
    for (warp &w : b.warps) {
        w.registers.assign(k.watched, 0);
        w.products.clear();
        w.batches = 0;
        w.sequence = 0;
        w.fenced = false;
    }
    if (k.watched) {
        b.known = order();
        b.known.writer.resize(b.shared.size() / 4 + 1);
        b.known.written.resize(b.shared.size() / 4 + 1);
        b.known.reading.resize(b.shared.size() / 16 + 1);
        b.known.coming.resize(b.shared.size() / 16 + 1);
        b.known.shown.resize(b.warps.size() * lanes);
    }
}

// The four warps of a group have to have done the same together.
void end_order(cta &b) {
    for (const warp &w : b.warps) {
        if (w.sequence != b.warps[w.number / 4 * 4].sequence) {
            judge_fault("kernel %s: warps %u and %u of a group multiply in different ways",
                        b.of->config.name, w.number / 4 * 4, w.number);
        }
    }
}

void note_registers(warp &w, const inst &i, const touches &t) {
    for (uint32_t r : t.reads) {
        if (w.registers[r] & SUM) {
            fault(w, i, "a sum is read, and its product has not been waited for");
        }
        w.registers[r] |= READ;
    }
    for (uint32_t r : t.writes) {
        if (w.registers[r] & (SUM | FACTOR)) {
            fault(w, i, "a register is written, and its product has not been waited for");
        }
        w.registers[r] |= WRITTEN;
    }
}

// A write to shared memory begins, at `at` from its beginning on ...
void begin_write(warp &w, const inst &i, uint32_t at, size_t bytes) {
    order &o = w.block->known;
    for (size_t part = at / 16; part <= (at + bytes - 1) / 16; part++) {
        if (o.reading[part]) {
            fault(w, i, "%zu bytes at %u are written, and who reads them there not waited for",
                  bytes, at);
        }
        o.coming[part]++;
    }
}

// ... and is over, for who made it.
void end_write(warp &w, int lane, uint32_t at, size_t bytes) {
    order &o = w.block->known;
    o.now++;
    for (size_t part = at / 16; part <= (at + bytes - 1) / 16; part++) {
        o.coming[part]--;
    }
    for (size_t word = at / 4; word <= (at + bytes - 1) / 4; word++) {
        o.writer[word] = (uint16_t)thread_of(w, lane);
        o.written[word] = o.now;
    }
}

// fence.proxy.async
void show_writes(warp &w, const inst &, uint32_t mask) {
    order &o = w.block->known;
    if (!w.registers.empty()) {
        o.now++;
        each(mask, [&](int l) { o.shown[thread_of(w, l)] = o.now; });
    }
}

// wgmma.fence
void fence_products(warp &w, const inst &i, uint32_t mask) {
    if (mask != ~0u || w.block->warps.size() % 4) {
        fault(w, i, "wgmma without all warps of a group");
    }
    for (uint8_t &r : w.registers) {
        r &= SUM | FACTOR;
    }
    w.fenced = true;
}

void commit_products(warp &w, const inst &, uint32_t) {
    for (product &p : w.products) {
        p.batch = p.committed ? p.batch : w.batches;
        p.committed = true;
    }
    w.batches++;
}

// All batches but the last ones that the operand says.
void await_products(warp &w, const inst &i, uint32_t) {
    order &o = w.block->known;
    auto over = [&](const product &p) {
        if (!p.committed || p.batch + i.offset >= w.batches) {
            return false;
        }
        for (uint32_t part : p.parts) {
            o.reading[part]--;
        }
        return true;
    };
    w.products.erase(std::remove_if(w.products.begin(), w.products.end(), over), w.products.end());
    for (uint8_t &r : w.registers) {
        r &= READ | WRITTEN;
    }
    for (const product &p : w.products) {
        hold(w, *p.registers);
    }
}

// One of the product of list i.target.
void begin_product(warp &w, const inst &i) {
    const touches &t = w.block->of->code->products[i.target];
    if (!w.fenced || w.block->warps.size() % 4) {
        fault(w, i,
              w.fenced ? "wgmma without all warps of a group" : "no wgmma.fence comes before");
    }
    for (uint32_t r : t.writes) {
        if (w.registers[r] & (FACTOR | READ | WRITTEN)) {
            fault(w, i, "a sum is in use, or was since wgmma.fence");
        }
    }
    for (uint32_t r : t.reads) {
        if (w.registers[r] & (SUM | WRITTEN)) {
            fault(w, i, "a factor is in use, or was written since wgmma.fence");
        }
    }
    // Only products of one shape take turns at their sums.
    for (const product &p : w.products) {
        const std::vector<uint32_t> &had = p.registers->writes;
        if (had != t.writes && std::find_first_of(had.begin(), had.end(), t.writes.begin(),
                                                  t.writes.end()) != had.end()) {
            fault(w, i, "a sum is another product's, which has not been waited for");
        }
    }
    hold(w, t);
    w.products.push_back({&t, 0, false, {}});
    w.sequence = w.sequence * 31 + (uint64_t)(&i - w.block->of->code->code.data()) + 1;
}

// The last product that has begun reads what lies there.
void read_shared(warp &w, const inst &i, uint32_t at, uint32_t bytes) {
    order &o = w.block->known;
    std::vector<uint32_t> &parts = w.products.back().parts;
    const uint32_t written = o.written[at / 4];
    if (o.coming[at / 16]) {
        fault(w, i, "%u bytes at %u are read, and copies to them not waited for", bytes, at);
    }
    // Shown by who wrote it, or, behind a barrier, by who reads it.
    if (written && o.shown[o.writer[at / 4]] <= written && o.shown[thread_of(w, 0)] <= written) {
        fault(w, i, "%u bytes at %u were written without a fence.proxy.async behind that", bytes,
              at);
    }
    if (parts.empty() || parts.back() != at / 16) {
        parts.push_back(at / 16);
        o.reading[at / 16]++;
    }
}

}  // namespace ptx
