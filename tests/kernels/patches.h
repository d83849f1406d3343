// Products whose windows are multiplied from a patch in shared memory: tiles whose boxes end
// within the result and beyond it, all parities of terms, windows of one to three dimensions,
// forwards and backwards, and epilogues. tests/kernels/run counts that patches are what they
// become.

typedef struct patch_case {
    int c, f, h, w, r, s, stride, dilation, pad;
    bool last, back;  // the image's channels are innermost; the window is read backwards
} patch_case;

// y[n,f,h,w] = sum(c,r,s) x[n,c,...] k[f,c,r,s], stored with pixels or channels innermost as the
// tile has them.
static void patch_window(ein_ctx *ctx, const patch_case *p, bool channels, int form) {
    int64_t n = 2, oh = (p->h + 2 * p->pad - p->dilation * (p->r - 1) - 1) / p->stride + 1,
            ow = (p->w + 2 * p->pad - p->dilation * (p->s - 1) - 1) / p->stride + 1;
    ein__val x = input(ctx, EIN__F32, 4, DIMS(n, p->c, p->h, p->w)),
             k = input(ctx, EIN__F32, 4, DIMS(p->f, p->c, p->r, p->s)),
             b = input(ctx, EIN__F32, 1, DIMS(p->f)),
             z = input(ctx, EIN__F32, 4, DIMS(n, p->f, oh, ow));
    ein__ix in = it(ctx, 0, n), jf = it(ctx, 1, p->f), ih = it(ctx, 2, oh), iw = it(ctx, 3, ow);
    ein__ix ic = it(ctx, 4, p->c), ir = it(ctx, 5, p->r), is = it(ctx, 6, p->s);
    int sign = p->back ? -1 : 1, from = p->back ? p->dilation * (p->r - 1) - p->pad : -p->pad,
        side = p->back ? p->dilation * (p->s - 1) - p->pad : -p->pad;
    ein__ix row = ADDC(ADD(SCALE(ih, p->stride), SCALE(ir, sign * p->dilation)), from),
            col = ADDC(ADD(SCALE(iw, p->stride), SCALE(is, sign * p->dilation)), side);
    ein__val y = define(ctx, EIN__F32, EIN__R_SUM, 4, 3, DIMS(n, p->f, oh, ow, p->c, p->r, p->s),
                        BIN(MUL, READ(x, 0, in, ic, row, col), READ(k, 0, jf, ic, ir, is)));
    ein__ex sum = BIN(ADD, READ(y, 0, in, jf, ih, iw), READ(b, 0, jf));
    if (form % 2) sum = BIN(ADD, sum, READ(z, 0, in, jf, ih, iw));
    ein__val e = define(ctx, form % 3 == 1 ? EIN__F16 : EIN__F32, EIN__R_NONE, 4, 0,
                        DIMS(n, p->f, oh, ow), UN(RELU, sum));
    if (p->last) layout(ctx, x, "0231", 0, 0);
    if (form % 4 == 2) layout(ctx, k, "1230", 0, 0);
    layout(ctx, e, channels ? "0231" : NULL, form % 3 == 2 ? 4 : 0, form % 3 == 2 ? 4 : 0);
    CHECK("patch_window", EIN__K_PRODUCT, y, e);
}

// y[l,f] = sum(c,t) x[c,l+t] k[c,t,f]: lines in one dimension, and as many windows of a volume.
static void patch_line(ein_ctx *ctx, int64_t l, int64_t f, int64_t t, bool channels) {
    ein__val x = input(ctx, EIN__F32, 2, DIMS(2, l)), k = input(ctx, EIN__F32, 3, DIMS(2, t, f));
    ein__ix il = it(ctx, 0, l), jf = it(ctx, 1, f), ic = it(ctx, 2, 2), tap = it(ctx, 3, t);
    ein__val y = define(ctx, EIN__F32, EIN__R_SUM, 2, 2, DIMS(l, f, 2, t),
                        BIN(MUL, READ(x, 0, ic, ADDC(ADD(il, tap), -1)), READ(k, 0, ic, tap, jf)));
    layout(ctx, y, channels ? "01" : "10", 0, 0);
    CHECK("patch_line", EIN__K_PRODUCT, y);
}

static void patch_volume(ein_ctx *ctx, int64_t n, int64_t f, bool channels) {
    ein__val x = input(ctx, EIN__F32, 3, DIMS(n, n + 1, n)),
             k = input(ctx, EIN__F32, 4, DIMS(f, 3, 3, 3));
    ein__ix at[3], tap[3];
    for (uint32_t i = 0; i < 3; i++) {
        tap[i] = it(ctx, 4 + i, 3);
        at[i] = ADDC(ADD(it(ctx, 1 + i, n + (i == 1)), tap[i]), -1);
    }
    ein__val y = define(ctx, EIN__F32, EIN__R_SUM, 4, 3, DIMS(f, n, n + 1, n, 3, 3, 3),
                        BIN(MUL, READ(x, 0, at[0], at[1], at[2]),
                            READ(k, 0, it(ctx, 0, f), tap[0], tap[1], tap[2])));
    layout(ctx, y, channels ? "1230" : NULL, 0, 0);
    CHECK("patch_volume", EIN__K_PRODUCT, y);
}

static void patches(ein_ctx *ctx) {
    static const patch_case of[] = {
        {3, 64, 17, 37, 7, 7, 2, 1, 3, false, false}, {1, 40, 21, 18, 9, 9, 1, 1, 4, false, false},
        {3, 33, 16, 32, 3, 3, 1, 1, 1, true, false},  {2, 20, 19, 20, 3, 5, 1, 2, 2, false, true},
        {4, 70, 16, 16, 2, 2, 1, 1, 0, true, true},   {3, 8, 25, 23, 5, 5, 1, 1, 2, false, false},
        {1, 16, 24, 30, 4, 4, 2, 1, 1, true, false},
    };
    for (int tile = EIN__PRODUCT_PLAIN + 1; tile <= EIN__PRODUCT_TILES; tile++) {
        const ein__product_tile *t = &ein__product_table[tile - 1];
        force_tile(ctx, tile);
        for (int i = 0; i < 3; i++)
            patch_window(ctx, &of[(3 * tile + i) % COUNT(of)], t->patch == 1, tile + i);
        patch_line(ctx, 250 + tile % 7, 24 + tile % 2 * 9, 5 + tile % 3, t->patch == 1);
        if (tile % 3 == 0) patch_volume(ctx, 9, 36, t->patch == 1);
    }
    force_tile(ctx, 0);
}
