//@key model   prefix of the program's symbols
//@key typed   convolutions have types of their own: not all are FP32
//@key scalar  type of a tensor's elements
// ---- convolutions whose channels cuDNN does not take last
// Such a call has its channels first: on copies of its tensors or, where these do not fit, on its
// tensors as they lie in memory with a copy of its filter.
enum { COPIES_NONE, COPIES_FILTER, COPIES_ALL };

// n x positions x channels elements from channels first to channels last, or back.
template <class T>
static __global__ void __launch_bounds__(256)
    k_move_channels(const T *from, T *to, unsigned channels, unsigned positions, size_t all,
                    int last) {
    const size_t i = blockIdx.x * (size_t)256 + threadIdx.x;
    if (i >= all) return;
    const size_t c = i / positions % channels, p = i % positions, n = i / positions / channels;
    const size_t at = (n * positions + p) * channels + c;
    if (last) to[at] = from[i];
    else to[i] = from[at];
}

// A tensor's elements by n, channels and positions; which: 0 data, 1 filter, 2 result.
typedef struct conv_extent {
    size_t n, channels, positions, bytes;  // bytes: of a copy, a multiple of 256
} conv_extent;

static conv_extent conv_extent_of(const conv_size *s, int which) {
    const int *axes = which == 0 ? s->in : which == 1 ? s->filter : s->out;
    conv_extent e = {(size_t)s->n, (size_t)(which ? s->f : s->c), 1, 0};
    if (which == 1) {
        e.n = (size_t)(s->transposed ? s->c : s->f);
        e.channels = (size_t)((s->transposed ? s->f : s->c) / s->group);
    }
    for (size_t i = 0; i < sizeof s->in / sizeof *s->in; i++) e.positions *= (size_t)axes[i];
    //@if typed
    const size_t element = s->half ? 2 : 4;
    //@else
    const size_t element = 4;
    //@end
    e.bytes = (e.n * e.channels * e.positions * element + 255) / 256 * 256;
    return e;
}

// Bytes of the copies in front of the workspace of the library.
static size_t conv_copies(const conv_size *s, int copies) {
    if (copies == COPIES_NONE) return 0;
    const size_t filter = conv_extent_of(s, 1).bytes;
    if (copies == COPIES_FILTER) return filter;
    return filter + conv_extent_of(s, 0).bytes + conv_extent_of(s, 2).bytes;
}

static int conv_move($model *m, const conv_size *s, int which, const void *from, void *to,
                     int last) {
    const conv_extent e = conv_extent_of(s, which);
    const size_t all = e.n * e.channels * e.positions;
    const unsigned grid = (unsigned)((all + 255) / 256), c = (unsigned)e.channels,
                   p = (unsigned)e.positions;
    cudaStream_t stream;
    CUDNN_CALL(m, s->name, cudnnGetStream(m->cudnn, &stream));
    //@if typed
    const unsigned short *a = (const unsigned short *)from;
    unsigned short *b = (unsigned short *)to;
    if (s->half) {
        CUDA_CALL(m, s->name,
                  launch_now(k_move_channels<unsigned short>, grid, 256, 0, stream, a, b, c, p, all,
                             last));
        return 0;
    }
    //@end
    const float *x = (const float *)from;
    float *y = (float *)to;
    CUDA_CALL(m, s->name,
              launch_now(k_move_channels<float>, grid, 256, 0, stream, x, y, c, p, all, last));
    return 0;
}

// Copies what the call reads to the front of its workspace; gives the copies and what is left.
static int conv_copy_in($model *m, const conv_call *c, const conv_size *s, const $scalar **x,
                        const $scalar **w, const $scalar **z, $scalar **y, void **workspace) {
    char *at = (char *)*workspace;
    CALL(conv_move(m, s, 1, *w, at, 0));
    *w = ($scalar *)at;
    at += conv_extent_of(s, 1).bytes;
    if (c->copies == COPIES_ALL) {
        CALL(conv_move(m, s, 0, *x, at, 0));
        *x = ($scalar *)at;
        at += conv_extent_of(s, 0).bytes;
        // What is added lies where the result will.
        if (*z) CALL(conv_move(m, s, 2, *z, at, 0));
        *y = ($scalar *)at;
        if (*z) *z = *y;
        at += conv_extent_of(s, 2).bytes;
    }
    *workspace = at;
    return 0;
}
