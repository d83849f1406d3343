// Products of warpgroups (wgmma) of halves from shared memory: each warp makes its 16 of the 64
// rows, at once, so that what is to be waited for is there early.
#include "ptx.h"

namespace ptx {

namespace {

// Where a descriptor says that lines of terms lie (PTX ISA, matrix descriptor): rows of 128 or 64
// bytes, swizzled by as many; LEADING and STRIDE as bytes.
struct matrix {
    uint32_t start, leading, stride, row;
    bool across;  // rows in memory are terms of lines

    matrix(const warp &w, const inst &i, uint64_t d, bool a)
        : start((uint32_t)(d & 0x3fff) << 4),
          leading((uint32_t)(d >> 16 & 0x3fff) << 4),
          stride((uint32_t)(d >> 32 & 0x3fff) << 4),
          row(d >> 62 == 1 ? 128 : 64),
          across(a) {
        if (d >> 62 == 0 || d >> 62 == 3 || (d >> 49 & 7)) {
            fault(w, i, "a descriptor of another kind: %llx", (unsigned long long)d);
        }
    }

    // Of element (line, term).
    uint32_t at(int line, int term) const {
        uint32_t to = start;
        if (across) {
            const int lines = (int)row / 2;
            to += (uint32_t)(line / lines) * leading + (uint32_t)(term / 8) * stride +
                  (uint32_t)(term % 8) * row + (uint32_t)(line % lines) * 2;
        } else {
            to += (uint32_t)(line / 8) * stride + (uint32_t)(line % 8) * row + (uint32_t)term * 2;
        }
        return to ^ (to >> 7 & (row / 16 - 1)) << 4;
    }
};

float half_at(warp &w, const inst &i, uint32_t at) {
    if (at < shared_window || at - shared_window + 2 > w.block->of->shared_bytes) {
        fault(w, i, "a half at %lld of %zu bytes of shared memory", (long long)at - shared_window,
              w.block->of->shared_bytes);
    }
    uint16_t v;
    memcpy(&v, w.block->shared.data() + (at - shared_window), sizeof v);
    return from_half(v);
}

// Lists have D's registers, then the two descriptors.
void multiply_group(warp &w, const inst &i, uint32_t mask) {
    const std::vector<uint32_t> &o = w.block->of->code->lists[i.target];
    const int n = (int)(o.size() - 2) * 2;
    if (mask != ~0u) {
        fault(w, i, "wgmma without all lanes");
    }
    const matrix a(w, i, w.at<uint64_t>(o[o.size() - 2])[0], i.flags & 1);
    const matrix b(w, i, w.at<uint64_t>(o[o.size() - 1])[0], i.flags & 2);
    std::vector<float> columns((size_t)n * 16);
    for (int column = 0; column < n; column++) {
        for (int k = 0; k < 16; k++) {
            columns[(size_t)column * 16 + k] = half_at(w, i, b.at(column, k));
        }
    }
    for (int row = 0; row < 16; row++) {
        float of[16];
        for (int k = 0; k < 16; k++) {
            of[k] = half_at(w, i, a.at((int)(w.number % 4) * 16 + row, k));
        }
        for (int column = 0; column < n; column++) {
            const int r = column / 8 * 4 + row / 8 * 2 + column % 2;
            float &d = w.at<float>(o[r])[row % 8 * 4 + column % 8 / 2];
            double sum = d;
            for (int k = 0; k < 16; k++) {
                sum += (double)of[k] * columns[(size_t)column * 16 + k];
            }
            d = (float)sum;
        }
    }
}

}  // namespace

// Whether the instruction is known, and for a product how many columns it has (else 0).
bool choose_group(const opcode &op, inst &i, int &columns) {
    columns = 0;
    if (op.whole == "wgmma.fence.sync.aligned" || op.whole == "wgmma.commit_group.sync.aligned" ||
        op.whole == "wgmma.wait_group.sync.aligned") {
        i.run = [](warp &, const inst &, uint32_t) {
        };
        return true;
    }
    for (int n = 8; n <= 256; n += 8) {
        if (op.whole ==
            "wgmma.mma_async.sync.aligned.m64n" + std::to_string(n) + "k16.f32.f16.f16") {
            columns = n;
            i.run = multiply_group;
            return true;
        }
    }
    return false;
}

}  // namespace ptx
