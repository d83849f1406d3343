// Convolutions on dense float tensors in channel-first order, as im2col and matrix products.
#ifndef JUDGE_CONV_H
#define JUDGE_CONV_H

// Shapes of a grouped convolution of up to three spatial dimensions (missing ones have size 1, pad
// 0). x is [batch, in_channels, in...], w is [out_channels, in_channels / groups, filter...], y is
// [batch, out_channels, out...].
struct judge_conv {
    int batch, groups, in_channels, out_channels;
    int in[3], out[3], filter[3], pad[3], stride[3], dilation[3];
    bool flipped;  // true convolution: the filter is read backwards
};

// y = alpha * conv(x, w) + beta * y
void judge_conv_forward(const judge_conv &c, float alpha, const float *x, const float *w,
                        float beta, float *y);

// dx = alpha * (the transposed convolution of dy with w) + beta * dx
void judge_conv_backward(const judge_conv &c, float alpha, const float *w, const float *dy,
                         float beta, float *dx);

#endif
