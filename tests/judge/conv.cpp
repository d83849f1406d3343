// Convolution bodies; see conv.h. Output rows are handled in pieces whose unfolded input stays in
// the cache.
#include "conv.h"

#include <algorithm>
#include <vector>

#include "gemm.h"

namespace {

const long piece_floats = 1 << 18;

long volume(const int size[3]) { return (long)size[0] * size[1] * size[2]; }

// Input position of output position `out` and filter tap `tap` in dimension d.
int source(const judge_conv &c, int d, int out, int tap) {
    int k = c.flipped ? c.filter[d] - 1 - tap : tap;
    return out * c.stride[d] - c.pad[d] + k * c.dilation[d];
}

bool is_pointwise(const judge_conv &c) {
    for (int d = 0; d < 3; d++) {
        if (c.filter[d] != 1 || c.stride[d] != 1 || c.pad[d] != 0) {
            return false;
        }
    }
    return true;
}

// One row of the unfolded input: what tap `k` of the last dimension reads for all outputs of a
// line. `line` is NULL in the padding.
void unfold_line(const judge_conv &c, const float *line, int k, float *to) {
    int width = c.out[2], first = source(c, 2, 0, k);
    if (line && c.stride[2] == 1) {
        int begin = std::min(width, std::max(0, -first)),
            end = std::max(begin, std::min(width, c.in[2] - first));
        std::fill(to, to + begin, 0.0f);
        std::copy(line + first + begin, line + first + end, to + begin);
        std::fill(to + end, to + width, 0.0f);
        return;
    }
    for (int i = 0; i < width; i++) {
        int at = first + i * c.stride[2];
        to[i] = line && at >= 0 && at < c.in[2] ? line[at] : 0.0f;
    }
}

void fold_line(const judge_conv &c, const float *from, int k, float *line) {
    int first = source(c, 2, 0, k);
    for (int i = 0; i < c.out[2]; i++) {
        int at = first + i * c.stride[2];
        if (at >= 0 && at < c.in[2]) {
            line[at] += from[i];
        }
    }
}

// Calls visit(line offset in the channels or -1 in the padding, tap of the last dimension, position
// in the unfolded matrix) for every channel, tap and output line in [begin, end). The unfolded
// matrix is [channels * taps, (end - begin) * out width].
template <class Visit>
void for_lines(const judge_conv &c, long begin, long end, Visit visit) {
    long channels = c.in_channels / c.groups, at = 0;
    for (long channel = 0; channel < channels; channel++) {
        for (int k0 = 0; k0 < c.filter[0]; k0++) {
            for (int k1 = 0; k1 < c.filter[1]; k1++) {
                for (int k2 = 0; k2 < c.filter[2]; k2++) {
                    for (long line = begin; line < end; line++, at += c.out[2]) {
                        int i0 = source(c, 0, (int)(line / c.out[1]), k0),
                            i1 = source(c, 1, (int)(line % c.out[1]), k1);
                        bool inside = i0 >= 0 && i0 < c.in[0] && i1 >= 0 && i1 < c.in[1];
                        visit(inside ? ((channel * c.in[0] + i0) * c.in[1] + i1) * c.in[2] : -1l,
                              k2, at);
                    }
                }
            }
        }
    }
}

// How many output lines one piece holds.
long piece_lines(const judge_conv &c) {
    long row = (long)(c.in_channels / c.groups) * volume(c.filter) * c.out[2];
    return std::max(1l, piece_floats / std::max(1l, row));
}

}  // namespace

void judge_conv_forward(const judge_conv &c, float alpha, const float *x, const float *w,
                        float beta, float *y) {
    long channels = c.in_channels / c.groups, filters = c.out_channels / c.groups;
    long depth = channels * volume(c.filter), lines = (long)c.out[0] * c.out[1],
         pixels = volume(c.out), step = piece_lines(c);
    std::vector<float> unfolded(
        is_pointwise(c) ? 0 : (size_t)(depth * std::min(step, lines) * c.out[2]));
    for (long image = 0; image < (long)c.batch * c.groups; image++) {
        const float *in = x + image * channels * volume(c.in),
                    *taps = w + image % c.groups * filters * depth;
        float *out = y + image * filters * pixels;
        if (is_pointwise(c)) {
            judge_sgemm_rows(false, false, filters, pixels, depth, alpha, taps, depth, in, pixels,
                             beta, out, pixels);
            continue;
        }
        for (long begin = 0; begin < lines; begin += step) {
            long end = std::min(lines, begin + step), columns = (end - begin) * c.out[2];
            for_lines(c, begin, end, [&](long offset, int k, long at) {
                unfold_line(c, offset < 0 ? nullptr : in + offset, k, unfolded.data() + at);
            });
            judge_sgemm_rows(false, false, filters, columns, depth, alpha, taps, depth,
                             unfolded.data(), columns, beta, out + begin * c.out[2], pixels);
        }
    }
}

void judge_conv_backward(const judge_conv &c, float alpha, const float *w, const float *dy,
                         float beta, float *dx) {
    long channels = c.in_channels / c.groups, filters = c.out_channels / c.groups;
    long depth = channels * volume(c.filter), lines = (long)c.out[0] * c.out[1],
         pixels = volume(c.out), step = piece_lines(c);
    std::vector<float> unfolded((size_t)(depth * std::min(step, lines) * c.out[2]));
    long total = (long)c.batch * c.in_channels * volume(c.in);
    for (long i = 0; i < total; i++) {
        dx[i] = beta == 0 ? 0.0f : beta * dx[i];
    }
    for (long image = 0; image < (long)c.batch * c.groups; image++) {
        const float *out = dy + image * filters * pixels,
                    *taps = w + image % c.groups * filters * depth;
        float *in = dx + image * channels * volume(c.in);
        for (long begin = 0; begin < lines; begin += step) {
            long end = std::min(lines, begin + step), columns = (end - begin) * c.out[2];
            judge_sgemm_rows(true, false, depth, columns, filters, alpha, taps, depth,
                             out + begin * c.out[2], pixels, 0, unfolded.data(), columns);
            for_lines(c, begin, end, [&](long offset, int k, long at) {
                if (offset >= 0) {
                    fold_line(c, unfolded.data() + at, k, in + offset);
                }
            });
        }
    }
}
