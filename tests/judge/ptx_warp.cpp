// What lanes of a warp do together: shuffles, votes, matrices. The warp has seen to it that all who
// take part are here.
#include "ptx.h"

namespace ptx {

namespace {

enum { up, down, butterfly, index };

// A lane that is not there gives all bits set.
void shuffle(warp &w, const inst &i, uint32_t mask) {
    uint32_t *d = w.at<uint32_t>(i.o[0]), from[lanes];
    const uint32_t *b = w.at<uint32_t>(i.o[2]), *c = w.at<uint32_t>(i.o[3]);
    memcpy(from, w.at<uint32_t>(i.o[1]), sizeof from);
    uint32_t within = 0;
    for (uint32_t left = mask; left; left &= left - 1) {
        const int l = __builtin_ctz(left), by = b[l] & 31;
        const int segment = c[l] >> 8 & 31, clamp = c[l] & 31;
        const int first = l & segment, last = first | (clamp & ~segment & 31);
        int j = i.flags == up          ? l - by
                : i.flags == down      ? l + by
                : i.flags == butterfly ? l ^ by
                                       : first | (by & ~segment & 31);
        bool in = i.flags == up ? j >= last : j <= last;
        j = in ? j : l;
        within |= (uint32_t)in << l;
        d[l] = mask >> j & 1 ? from[j] : ~0u;
    }
    if (i.o[19] != none) {
        uint32_t *p = w.at<uint32_t>(i.o[19]);
        *p = (*p & ~mask) | within;
    }
}

enum { v_ballot, v_any, v_all, v_uni };

void vote(warp &w, const inst &i, uint32_t mask) {
    uint32_t p = *w.at<uint32_t>(i.o[1]);
    p = (i.flags & 0x80 ? ~p : p) & mask;
    if ((i.flags & 3) == v_ballot) {
        uint32_t *d = w.at<uint32_t>(i.o[0]);
        each(mask, [&](int l) { d[l] = p; });
        return;
    }
    const bool any = p != 0, all = p == mask;
    const bool r = (i.flags & 3) == v_any ? any : (i.flags & 3) == v_all ? all : all || !any;
    uint32_t *d = w.at<uint32_t>(i.o[0]);
    *d = (*d & ~mask) | (r ? mask : 0);
}

void active(warp &w, const inst &i, uint32_t mask) {
    uint32_t *d = w.at<uint32_t>(i.o[0]);
    each(mask, [&](int l) { d[l] = mask; });
}

void meet(warp &, const inst &, uint32_t) {}

enum { r_add, r_and, r_or, r_xor, r_umin, r_umax, r_smin, r_smax };

void reduce(warp &w, const inst &i, uint32_t mask) {
    uint32_t *d = w.at<uint32_t>(i.o[0]);
    const uint32_t *a = w.at<uint32_t>(i.o[1]);
    uint32_t r = a[__builtin_ctz(mask)];
    for (uint32_t left = mask & (mask - 1); left; left &= left - 1) {
        const uint32_t v = a[__builtin_ctz(left)];
        switch (i.flags) {
        case r_add: r += v; break;
        case r_and: r &= v; break;
        case r_or: r |= v; break;
        case r_xor: r ^= v; break;
        case r_umin: r = v < r ? v : r; break;
        case r_umax: r = v > r ? v : r; break;
        case r_smin: r = (int32_t)v < (int32_t)r ? v : r; break;
        default: r = (int32_t)v > (int32_t)r ? v : r;
        }
    }
    each(mask, [&](int l) { d[l] = r; });
}

// ---- matrices of 8 x 8 numbers of 16 bits, whose rows' addresses lanes 8m to 8m + 7 give

void load_matrices(warp &w, const inst &i, uint32_t mask) {
    if (mask != ~0u) {
        fault(w, i, "ldmatrix without all lanes");
    }
    uint16_t all[4][8][8];
    for (int r = 0; r < 8 * i.count; r++) {
        uint64_t a = (uint64_t)i.offset;
        if (i.base != none) {
            a += i.address_bytes == 8 ? w.at<uint64_t>(i.base)[r] : w.at<uint32_t>(i.base)[r];
        }
        if (a % 16 || a < shared_window || a - shared_window + 16 > w.block->of->shared_bytes) {
            fault(w, i, "a row of 16 bytes at %lld of %zu bytes of shared memory",
                  (long long)a - shared_window, w.block->of->shared_bytes);
        }
        memcpy(all[r / 8][r % 8], w.block->shared.data() + (a - shared_window), 16);
    }
    for (int m = 0; m < i.count; m++) {
        uint32_t *d = w.at<uint32_t>(i.o[m]);
        for (int l = 0; l < lanes; l++) {
            const int row = l / 4, column = l % 4 * 2;
            d[l] = i.flags ? all[m][column][row] | (uint32_t)all[m][column + 1][row] << 16
                           : all[m][row][column] | (uint32_t)all[m][row][column + 1] << 16;
        }
    }
}

// ---- products of matrices: D[16][8] = A[16][K] B[K][8] + C

// Sums are made in double: a device has at least these products, in an order of its own.
template <int K>
void multiply(warp &w, const inst &i, const float (&a)[16][K], const float (&b)[K][8], int at) {
    float r[4][lanes];
    for (int l = 0; l < lanes; l++) {
        for (int k = 0; k < 4; k++) {
            const int row = l / 4 + (k >= 2 ? 8 : 0), column = l % 4 * 2 + k % 2;
            double sum = w.at<float>(i.o[at + k])[l];
            for (int t = 0; t < K; t++) {
                sum += (double)a[row][t] * b[t][column];
            }
            r[k][l] = (float)sum;
        }
    }
    for (int k = 0; k < 4; k++) {
        memcpy(w.at<float>(i.o[k]), r[k], sizeof r[k]);
    }
}

// Registers of two halves: A's are rows g and g + 8 at terms 2t and 2t + 1, then 8 terms further.
template <int K>
void multiply_halves(warp &w, const inst &i, uint32_t mask) {
    if (mask != ~0u) {
        fault(w, i, "mma without all lanes");
    }
    const int words = K / 4;
    float a[16][K], b[K][8];
    for (int l = 0; l < lanes; l++) {
        for (int h = 0; h < 2 * words; h++) {
            const uint32_t v = w.at<uint32_t>(i.o[4 + h / 2])[l] >> 16 * (h % 2);
            a[l / 4 + (h / 2 % 2 ? 8 : 0)][l % 4 * 2 + h % 2 + (h >= 4 ? 8 : 0)] =
                from_half((uint16_t)v);
        }
        for (int h = 0; h < words; h++) {
            const uint32_t v = w.at<uint32_t>(i.o[4 + words + h / 2])[l] >> 16 * (h % 2);
            b[l % 4 * 2 + h % 2 + (h >= 2 ? 8 : 0)][l / 4] = from_half((uint16_t)v);
        }
    }
    multiply<K>(w, i, a, b, 4 + words + words / 2);
}

// Of a word in TF32 the last 13 bits are not read.
void multiply_tf32(warp &w, const inst &i, uint32_t mask) {
    if (mask != ~0u) {
        fault(w, i, "mma without all lanes");
    }
    auto value = [&](int o, int l) {
        return __builtin_bit_cast(float, w.at<uint32_t>(i.o[o])[l] & ~0x1fffu);
    };
    float a[16][8], b[8][8];
    for (int l = 0; l < lanes; l++) {
        for (int k = 0; k < 4; k++) {
            a[l / 4 + (k % 2 ? 8 : 0)][l % 4 + (k >= 2 ? 4 : 0)] = value(4 + k, l);
        }
        for (int k = 0; k < 2; k++) {
            b[l % 4 + 4 * k][l / 4] = value(8 + k, l);
        }
    }
    multiply<8>(w, i, a, b, 10);
}

// ---- the choice

bool choose_matrix(opcode &op, choice &c) {
    static const std::map<std::string, handler> kinds = {
        {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", multiply_halves<16>},
        {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", multiply_halves<8>},
        {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", multiply_tf32}};
    auto found = kinds.find(op.whole);
    if (found == kinds.end()) {
        return false;
    }
    op.parts.clear();
    c.at->run = found->second;
    const size_t words = found->second == multiply_halves<8> ? 3 : 6;
    c.types.assign(8 + words, "b32");
    return true;
}

bool choose_ldmatrix(opcode &op, choice &c) {
    inst &i = *c.at;
    bool right = op.take("sync") && op.take("aligned") && op.take("m8n8") && op.take("b16") &&
                 (op.take("shared") || op.take("shared::cta"));
    i.flags = op.take("trans");
    i.count = op.take("x4") ? 4 : op.take("x2") ? 2 : op.take("x1") ? 1 : 0;
    i.where = space::shared;
    i.run = load_matrices;
    c.types.assign(i.count, "b32");
    return right && i.count;
}

bool choose_shuffle(opcode &op, choice &c) {
    c.at->flags = op.take("up")     ? up
                  : op.take("down") ? down
                  : op.take("bfly") ? butterfly
                  : op.take("idx")  ? index
                                    : 9;
    c.at->run = shuffle;
    c.types = {"b32", "b32", "b32", "b32", "b32"};
    c.at->members = 4;
    return op.take("sync") && op.take("b32") && c.at->flags != 9;
}

bool choose_vote(opcode &op, choice &c) {
    bool ballot = op.take("ballot");
    c.at->flags = ballot ? v_ballot : op.take("any") ? v_any : op.take("all") ? v_all : v_uni;
    op.take("uni");
    c.at->run = vote;
    c.types = {ballot ? "b32" : "pred", "pred", "b32"};
    c.at->members = 2;
    return op.take("sync") && op.take(ballot ? "b32" : "pred");
}

bool choose_reduce(opcode &op, choice &c) {
    static const std::map<std::string, int> all = {
        {"add u32", r_add},  {"add s32", r_add},  {"and b32", r_and},
        {"or b32", r_or},    {"xor b32", r_xor},  {"min u32", r_umin},
        {"max u32", r_umax}, {"min s32", r_smin}, {"max s32", r_smax}};
    bool sync = op.take("sync");
    if (op.parts.size() != 2) {
        return false;
    }
    auto found = all.find(op.parts[0] + " " + op.parts[1]);
    op.parts.clear();
    c.at->run = reduce;
    c.types = {"b32", "b32", "b32"};
    c.at->members = 2;
    return sync && found != all.end() && (c.at->flags = (uint8_t)found->second, true);
}

// All threads of the block, at barrier 0, or of its cluster.
bool choose_barrier(opcode &op, choice &c, const statement &s) {
    inst &i = *c.at;
    if (op.base == "bar" && op.take("warp")) {
        i.kind = step::meet;
        i.run = meet;
        i.members = 0;
        c.types = {"b32"};
        return op.take("sync");
    }
    if (op.take("cluster")) {
        i.kind = op.take("arrive") ? step::arrive : op.take("wait") ? step::join : step::trap;
        i.flags = i.kind == step::arrive && op.take("relaxed");
        op.take(i.kind == step::arrive ? "release" : "acquire");
        return i.kind != step::trap && op.take("aligned");
    }
    i.kind = step::barrier;
    op.take("aligned");
    const size_t number = op.take("red") ? 1 : 0;
    if (number) {
        i.flags = op.take("or") ? 1 : op.take("and") ? 2 : 0;
        c.types = {"pred", "u32", "pred"};
        if (!i.flags || !op.take("pred")) {
            return false;
        }
    } else {
        c.types = {"u32"};
        if (!op.take("sync")) {
            return false;
        }
    }
    return s.operands.size() == c.types.size() && s.operands[number].kind == operand::number &&
           s.operands[number].value == 0;
}

}  // namespace

bool choose_warp(opcode &op, choice &c, const statement &s) {
    if (op.base == "bar" || op.base == "barrier") {
        return choose_barrier(op, c, s);
    }
    if (op.base == "activemask") {
        op.take("b32");
        c.at->run = active;
        c.types = {"b32"};
        return true;
    }
    bool known = op.base == "mma"        ? choose_matrix(op, c)
                 : op.base == "ldmatrix" ? choose_ldmatrix(op, c)
                 : op.base == "shfl"     ? choose_shuffle(op, c)
                 : op.base == "vote"     ? choose_vote(op, c)
                 : op.base == "redux"    ? choose_reduce(op, c)
                                         : false;
    if (known) {
        c.at->kind = step::meet;
    }
    return known;
}

}  // namespace ptx
