// Products of warpgroups (wgmma), of halves from shared memory and of TF32 whose first factor is in
// registers: each warp makes its 16 of the 64 rows, at once, so that what is to be waited for is
// there early.
#include "ptx.h"

namespace ptx {

namespace {

// Where a descriptor says that lines of terms lie (PTX ISA, matrix descriptor): rows of 128 or 64
// bytes, swizzled by as many; LEADING and STRIDE as bytes.
struct matrix {
    uint32_t start, leading, stride, row;
    bool across;  // rows in memory are terms of lines: of halves alone

    matrix(const warp &w, const inst &i, uint64_t d, bool a)
        : start((uint32_t)(d & 0x3fff) << 4),
          leading((uint32_t)(d >> 16 & 0x3fff) << 4),
          stride((uint32_t)(d >> 32 & 0x3fff) << 4),
          row(d >> 62 == 1 ? 128 : 64),
          across(a) {
        if (d >> 62 == 0 || d >> 62 == 3 || (d >> 49 & 7)) {
            fault(w, i, "a descriptor of another kind: %llx", (unsigned long long)d);
        }
        // Rows take turns in eights, or of 64 bytes in pairs of them.
        if (start / 128 % (row / 16)) {
            fault(w, i, "a matrix begins within a pattern: %llx", (unsigned long long)d);
        }
    }

    // Of element (line, term).
    uint32_t at(int line, int term, uint32_t size) const {
        uint32_t to = start;
        if (across) {
            const int lines = (int)row / 2;
            to += (uint32_t)(line / lines) * leading + (uint32_t)(term / 8) * stride +
                  (uint32_t)(term % 8) * row + (uint32_t)(line % lines) * 2;
        } else {
            to +=
                (uint32_t)(line / 8) * stride + (uint32_t)(line % 8) * row + (uint32_t)term * size;
        }
        return to ^ (to >> 7 & (row / 16 - 1)) << 4;
    }
};

// The word of `size` bytes there.
uint32_t word_at(warp &w, const inst &i, uint32_t at, uint32_t size) {
    if (at < shared_window || at - shared_window + size > w.block->of->shared_bytes) {
        fault(w, i, "%u bytes at %lld of %zu bytes of shared memory", size,
              (long long)at - shared_window, w.block->of->shared_bytes);
    }
    read_shared(w, i, at - shared_window, size);
    uint32_t v = 0;
    memcpy(&v, w.block->shared.data() + (at - shared_window), size);
    return v;
}

float half_at(warp &w, const inst &i, uint32_t at) {
    return from_half((uint16_t)word_at(w, i, at, 2));
}

// Of a word in TF32 the last 13 bits are not read.
float tf32_of(uint32_t word) { return __builtin_bit_cast(float, word & ~0x1fffu); }

// d += rows columns, of K terms.
template <int K>
void add_products(warp &w, const std::vector<uint32_t> &d, int n, const float (&rows)[16][K],
                  const std::vector<float> &columns) {
    for (int row = 0; row < 16; row++) {
        for (int column = 0; column < n; column++) {
            const int r = column / 8 * 4 + row / 8 * 2 + column % 2;
            float &to = w.at<float>(d[r])[row % 8 * 4 + column % 8 / 2];
            double sum = to;
            for (int k = 0; k < K; k++) {
                sum += (double)rows[row][k] * columns[(size_t)column * K + k];
            }
            to = (float)sum;
        }
    }
}

void want_all(const warp &w, const inst &i, uint32_t mask) {
    if (mask != ~0u) {
        fault(w, i, "wgmma without all lanes");
    }
}

// Lists have D's registers, then the two descriptors.
void multiply_halves(warp &w, const inst &i, uint32_t mask) {
    const std::vector<uint32_t> &o = w.block->of->code->lists[i.target];
    const int n = (int)(o.size() - 2) * 2;
    want_all(w, i, mask);
    begin_product(w, i);
    const matrix a(w, i, w.at<uint64_t>(o[o.size() - 2])[0], i.flags & 1);
    const matrix b(w, i, w.at<uint64_t>(o[o.size() - 1])[0], i.flags & 2);
    std::vector<float> columns((size_t)n * 16);
    for (int column = 0; column < n; column++) {
        for (int k = 0; k < 16; k++) {
            columns[(size_t)column * 16 + k] = half_at(w, i, b.at(column, k, 2));
        }
    }
    float rows[16][16];
    for (int row = 0; row < 16; row++) {
        for (int k = 0; k < 16; k++) {
            rows[row][k] = half_at(w, i, a.at((int)(w.number % 4) * 16 + row, k, 2));
        }
    }
    add_products(w, o, n, rows, columns);
}

// Lists have D's registers, A's four and B's descriptor.
void multiply_tf32_group(warp &w, const inst &i, uint32_t mask) {
    const std::vector<uint32_t> &o = w.block->of->code->lists[i.target];
    const size_t a = o.size() - 5;
    const int n = (int)a * 2;
    want_all(w, i, mask);
    begin_product(w, i);
    const matrix b(w, i, w.at<uint64_t>(o[a + 4])[0], false);
    std::vector<float> columns((size_t)n * 8);
    for (int column = 0; column < n; column++) {
        for (int k = 0; k < 8; k++) {
            columns[(size_t)column * 8 + k] = tf32_of(word_at(w, i, b.at(column, k, 4), 4));
        }
    }
    float rows[16][8];
    for (int l = 0; l < lanes; l++) {
        for (int q = 0; q < 4; q++) {
            rows[l / 4 + q % 2 * 8][l % 4 + q / 2 * 4] = tf32_of(w.at<uint32_t>(o[a + q])[l]);
        }
    }
    add_products(w, o, n, rows, columns);
}

}  // namespace

// Whether the instruction is known, and for a product how many columns it has (else 0); `fragment`:
// its first factor is in registers.
bool choose_group(const opcode &op, inst &i, int &columns, bool &fragment) {
    columns = 0;
    i.run = op.whole == "wgmma.fence.sync.aligned"          ? fence_products
            : op.whole == "wgmma.commit_group.sync.aligned" ? commit_products
            : op.whole == "wgmma.wait_group.sync.aligned"   ? await_products
                                                            : nullptr;
    if (i.run) {
        return true;
    }
    for (int n = 8; n <= 256; n += 8) {
        const std::string shape = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(n);
        fragment = op.whole == shape + "k8.f32.tf32.tf32";
        if (fragment || op.whole == shape + "k16.f32.f16.f16") {
            columns = n;
            i.run = fragment ? multiply_tf32_group : multiply_halves;
            return true;
        }
    }
    return false;
}

}  // namespace ptx
