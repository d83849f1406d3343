// What kernels of tiled products (emit_product.c) have in common, and how they load a factor. A
// block's threads fetch the tiles of both factors to shared memory as their index forms have them,
// guards included. The factors, the result and the epilogue each see the iterators merged as far as
// they alone allow: a filter is read along one long row of terms although the image needs channel
// and tap apart.

// Whether rows or columns have two values of a term that is no product (cross.c).
static bool ein__kcross_two(const ein__tiled *p, int side) {
    return p->crosses && p->values[side] > 1;
}

enum { EIN__FOUND_WORDS = 32 };  // registers of a thread for what the loads of a factor find

typedef struct ein__kprod {
    ein__tiled p;
    const ein__product_tile *t;
    int parts;                           // blocks that share the terms of a tile
    int64_t share;                       // terms of each, the last one no more than those ...
    int64_t longest;                     // ... and of the product that has more
    bool cluster;                        // such blocks are a cluster
    ein__math math;                      // of the tile
    int order[3][EIN__MAX_ITERS], n[3];  // rows, columns, batch: slots, outermost first
    int sum[EIN__MAX_ITERS], nsum;
    uint32_t used;                    // slots of the batch that some address needs
    ein__ex factor[2];                // what loads compute: reads, or maps in front of the product
    ein__ex main[2];                  // the largest read of each
    ein__kslot slot[EIN__MAX_ITERS];  // as they are before a part merges them
    ein__buf index, load[2], store;
    ein__buf found[2], make[2];  // what loads that compute find, and make of it once it is there
    // What the map behind the sums, and the factors of a row, find before these meet; or empty.
    ein__buf held, hold, row_held, row_hold;
    int together;         // vectors for which the map finds that just before they are stored, or 0
    const char *name[2];  // of the loads ...
    const char *along[2], *args[2], *call[2];  // ... and whether neighbours are terms
    const char *make_args[2];
    const char
        *early;  // the factor whose loads need not wait (product.cu), where the tile's need not
    ein__buf second;  // adds a second product, or empty
    ein__buf taps;    // fills a table of the terms' places, or empty
    int64_t tap_bytes;
    int tap_words;             // of each term
    bool fetched[2], wide[2];  // loads say where a factor lies (tiles_loads.cu); several elements
    int width;                 // neighbours that a load of the rows' factor gives
    ein__ex shift;             // what warps subtract from that factor's lines (norm.c), or none
    ein__buf start, room, totals, leave, factors, also;  // of a row operation, or empty
    ein__ex made[EIN__NORM_ROWS], stored;                // definitions in the product's iterators
    bool sums, ends;   // ends: zeros behind the last term are none (emit_cross.c)
    int kinds, first;  // of sums; the row operation's first value of those that the step computes
    int64_t shared;
} ein__kprod;

// Row i and column j of the tile that a thread stores, or the one whose sums it has added up.
static const char *ein__kprod_row(const ein__kprod *r) {
    return r->parts > 1 ? "tile.row(i, thread)" : "tile.row(i)";
}
static const char *ein__kprod_column(const ein__kprod *r) {
    return r->parts > 1 ? "tile.column(j, thread)" : "tile.column(j)";
}

// Steps of a tensor cores' tile that have room. A factor that passes through registers is one step
// ahead, and the other one gains little where it is further.
static int ein__kprod_stages(const ein__kgen *g, const ein__kprod *r) {
    if (r->fetched[0] && r->fetched[1])
        return ein__product_copied_stages(ein__gpu_of(g->ctx), r->t, r->longest, r->tap_bytes);
    bool copies = r->fetched[0] || r->fetched[1];
    return ein__product_stages(r->t, copies ? EIN__SHARED_FREE - r->tap_bytes : 0);
}

// Bytes of shared memory that have to be asked for.
static int ein__kprod_dynamic(const ein__kgen *g, const ein__kprod *r) {
    if (r->math == EIN__MATH_FP32) return 0;
    int bytes = r->t->patch ? (int)ein__patch_bytes(&r->p, r->t)
                            : ein__product_bytes(r->t, ein__kprod_stages(g, r));
    bytes += (int)r->tap_bytes;
    return bytes > EIN__SHARED_FREE ? bytes : 0;
}

// The table of the terms' places: behind the tile in what has to be asked for, which is all that a
// block may have on devices with smaller tiles.
static const char *ein__kprod_table(ein__kgen *g, const ein__kprod *r) {
    if (!r->taps.s) return "";
    int words = r->tap_words;
    const char *at =
        ein__kprod_dynamic(g, r)
            ? ein__namef(g->ctx,
                         "int%d *const taps =\n"
                         "    reinterpret_cast<int%d *>(dynamic_shared + sizeof tile);\n",
                         words, words)
            : ein__namef(g->ctx, "__shared__ int%d taps[%lld];\n", words,
                         (long long)(r->tap_bytes / words / 4));
    return ein__namef(g->ctx, "%s%s", at, r->taps.s);
}

static void ein__kprod_free(ein__kprod *r) {
    ein__buf_free(&r->index);
    ein__buf_free(&r->taps);
    for (int k = 0; k < 2; k++) {
        ein__buf_free(&r->load[k]);
        ein__buf_free(&r->found[k]);
        ein__buf_free(&r->make[k]);
    }
    ein__buf_free(&r->held);
    ein__buf_free(&r->hold);
    ein__buf_free(&r->row_held);
    ein__buf_free(&r->row_hold);
    ein__buf_free(&r->store);
    ein__buf_free(&r->start);
    ein__buf_free(&r->room);
    ein__buf_free(&r->totals);
    ein__buf_free(&r->leave);
    ein__buf_free(&r->factors);
    ein__buf_free(&r->also);
    ein__buf_free(&r->second);
}

// Appends the slots of `mask` to `order`, those with the largest coefficient in `row` first.
static int ein__kprod_order(uint32_t mask, const ein__krow *row, int *order) {
    int n = 0;
    for (int i = 0; i < EIN__MAX_ITERS; i++) {
        if (!(mask >> i & 1)) continue;
        int at = n++;
        for (; at > 0 && row->k[order[at - 1]] < row->k[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

// The orders in which flat numbers count: the result's for columns and batch, so that neighbouring
// threads store neighbours; the first factor's for rows.
static void ein__kprod_orders(ein__kgen *g, ein__kprod *r, const ein__kscan *all) {
    ein__kscan one = ein__kscan_make(g);
    ein__kscan_row(g, &one, r->main[0]);
    const ein__krow *out = &all->row[arrlen(all->row) - 1];
    r->n[0] = ein__kprod_order(r->p.group[0], &one.near[0], r->order[0]);
    r->n[1] = ein__kprod_order(r->p.group[1], out, r->order[1]);
    r->n[2] = ein__kprod_order(r->p.group[2], out, r->order[2]);
    r->n[2] = ein__kmerge(g, all, r->order[2], r->n[2]);
    r->used = all->used;
    ein__kscan_free(&one);
}

// That for the terms of product `s`: of the factors' longer steps.
static void ein__kprod_terms(ein__kgen *g, const ein__scope *s, ein__kprod *r) {
    ein__kscan one = ein__kscan_make(g);
    ein__krow steps = {{0}};
    for (int k = 0; k < 2; k++) {
        ein__kscan_row(g, &one, r->main[k]);
        for (int i = 0; i < EIN__MAX_ITERS; i++) {
            int64_t step = one.near[k].k[i] < 0 ? -one.near[k].k[i] : one.near[k].k[i];
            if (steps.k[i] < step) steps.k[i] = step;
        }
    }
    uint32_t sums = ((1u << (s->nt + s->ns)) - 1) & ~((1u << s->nt) - 1);
    r->nsum = ein__kprod_order(sums, &steps, r->sum);
    bool alone;
    int n = 0, last = ein__product_last(g->ctx, s, &r->p, &alone);
    if (alone) {
        for (int i = 0; i < r->nsum; i++)
            if (r->sum[i] != last) r->sum[n++] = r->sum[i];
        r->sum[n] = last;
    }
    memcpy(r->slot, g->slot, sizeof r->slot);
    ein__kscan_free(&one);
}

// Name of the flat number that counts an order's slots: the slot itself where it is one.
static const char *ein__kprod_flat(const ein__kgen *g, const int *order, int n, const char *name) {
    return n == 1 ? g->slot[order[0]].name : name;
}

static const char *ein__kprod_below(const ein__kgen *g, const char *flat, int n, int64_t end) {
    if (n == 1) return ein__namef(g->ctx, "%s < %lld", flat, (long long)end);
    return ein__namef(g->ctx, "%s < %s", flat, ein__knumber(g, end));
}

// Declares what `body` mentions of the slots that count terms, of which the innermost one's extent
// is a multiple of a step: the others are those of the whole step.
static void ein__kprod_declare_step(ein__kgen *g, ein__buf *b, const int *order, int n,
                                    const char *term, const char *body) {
    const char *type = ein__kint(g), *last = g->slot[order[n - 1]].name;
    ein__buf digits = {0};
    uint32_t used = 0;
    ein__put(&digits, "");
    for (int i = 0; i + 1 < n; i++)
        if (ein__kmentions(body, g->slot[order[i]].name)) used |= 1u << order[i];
    const char *inner = ein__knumber(g, g->slot[order[n - 1]].n);
    ein__kdecompose(g, &digits, order, n - 1, used, ein__namef(g->ctx, "k0 / %s", inner));
    ein__put(b, digits.s);
    if (ein__kmentions(body, last))
        ein__putf(b, "const %s %s = (%s)(k0 %% %s + %s);\n", type, last, type, inner, term);
    ein__buf_free(&digits);
}

// Declares what `body` mentions of an order's slots, and of their flat number `flat`, which is
// `from`, in front of it.
static void ein__kprod_declare(ein__kgen *g, ein__buf *b, const int *order, int n, const char *flat,
                               const char *from, const char *body) {
    const char *u = ein__kunsigned(g), *type = ein__kint(g);
    ein__buf digits = {0};
    uint32_t used = 0;
    ein__put(&digits, "");
    for (int i = 0; i < n; i++)
        if (ein__kmentions(body, g->slot[order[i]].name)) used |= 1u << order[i];
    if (n == 1) {
        if (used) ein__putf(b, "const %s %s = (%s)(%s);\n", type, flat, type, from);
        ein__buf_free(&digits);
        return;
    }
    int vec = g->vec;
    g->vec = 1;
    ein__kdecompose(g, &digits, order, n, used, flat);
    g->vec = vec;
    if (used || ein__kmentions(body, flat)) ein__putf(b, "const %s %s = %s;\n", u, flat, from);
    ein__put(b, digits.s);
    ein__buf_free(&digits);
}

// How well a warp's lanes along an order's last slot read what lies side by side: elements of the
// run, at most a warp's, in 1/16 by the step between them.
static int64_t ein__kprod_run(const ein__kgen *g, const ein__kscan *s, const int *order, int n) {
    int64_t step = n ? s->near[0].k[order[n - 1]] : 0, run = n ? g->slot[order[n - 1]].n : 0;
    if (step < 0) step = -step;
    return step ? 16 * (run < 32 ? run : 32) / step : 0;
}

// The factor's address with `*width` lanes along `slot`, or half as many where these are no vector,
// but four at least; or else with one.
static ein__kaccess ein__kprod_access(ein__kgen *g, ein__ex read, int slot, int *width) {
    size_t mark[2] = {g->code[0].n, g->code[1].n};
    int nindex = g->nindex;
    for (; slot >= 0 && *width >= 4; *width /= 2) {
        g->vec = *width;
        g->vec_slot = slot;
        ein__kaccess at = ein__kaccess_of(g, read, 0);
        g->vec = 1;
        g->vec_slot = -1;
        if (at.vector) return at;
        // What was named for it is taken back.
        ein__kforget(g, 0);
        for (int k = 0; k < 2; k++) g->code[k].s[g->code[k].n = mark[k]] = 0;
        g->nindex = nindex;
    }
    *width = 1;
    return ein__kaccess_of(g, read, 0);
}

// What a factor is computed from: its reads, but those of positions.
static void ein__kprod_reads(const ein__kgen *g, ein__ex ex, ein__ex **list) {
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    if (x->op != EIN__X_READ) {
        for (uint32_t i = 0; i < x->nkid; i++) ein__kprod_reads(g, x->kid[i], list);
        return;
    }
    bool known = ein__kinner_of(g, x->val) != NULL;
    for (ptrdiff_t i = 0; i < arrlen(*list); i++) known |= (*list)[i].i == ex.i;
    if (!known) arrput(*list, ex);
}

// Makes a read a member of what a load finds, from one of `values`; as it is stored, since what
// converts it would wait for it. What is known before the loads, lanes of their own, and integers,
// which may be more than a float has digits for, stay in the text. Gives how many words the member
// has.
static int ein__kprod_find(ein__kgen *g, ein__ex read, ein__buf *found, ein__buf *values,
                           ein__buf *first) {
    ein__kaccess at = ein__kaccess_of(g, read, 0);
    bool floats = at.dtype == EIN__F32 || at.dtype == EIN__F16 || at.dtype == EIN__BF16;
    if (!floats || !at.level || (g->vec > 1 && !at.vector && at.step)) return 0;
    double pad = ein__kbits(ein__ex_get(g->ctx, read));
    bool half = at.dtype == EIN__F16 && pad == 0, bfloat = at.dtype == EIN__BF16 && pad == 0;
    const char *one = half ? "__half" : bfloat ? "__nv_bfloat16" : "float";
    const char *type = !at.vector ? one : half || bfloat ? "uint2" : "float4";
    const char *fill = ein__kliteral(g, pad).s,
               *value = ein__namef(g->ctx, "%s[%s]", at.param, at.at.s);
    const char *name = ein__namef(g->ctx, "v%d", g->nvalue++),
               *text = ein__namef(g->ctx, "f.%s", name);
    if (half || bfloat) fill = ein__namef(g->ctx, "%s()", type);
    else if (at.vector) fill = ein__kfill(g, fill);
    if ((half || bfloat) && at.vector)
        value = ein__namef(g->ctx, "*reinterpret_cast<const uint2 *>(%s)",
                           ein__kpointer(g, at.param, at.at.s));
    else if (at.vector) value = ein__kload4(g, &at);
    else if (!half && !bfloat) value = ein__kload(g, &at, at.level).s;
    if (at.guard) value = ein__namef(g->ctx, "%s ? %s : %s", at.guard, value, fill);
    ein__putf(found, "%s%s %s;", found->n ? "\n" : "", type, name);
    ein__putf(values, "f.%s = %s;\n", name, value);
    if (half || bfloat) {
        ein__kneed(g, half ? EIN__NEED_HALF : EIN__NEED_BF16);
        if (at.vector) ein__kneed(g, half ? EIN__NEED_HALF4 : EIN__NEED_BFLOAT4);
        name = ein__namef(g->ctx, "v%d", g->nvalue++);
        const char *value_of = at.vector ? half ? "half4_value" : "bfloat4_value"
                               : half    ? "__half2float"
                                         : "__bfloat162float";
        ein__putf(first, "const %s %s = %s(%s);\n", at.vector ? "float4" : "float", name, value_of,
                  text);
        text = name;
    }
    int n = g->nover++;
    g->over[n].ex = read;
    g->over[n].text = (ein__ktext){text, EIN__NAMED, 1};
    for (int i = 0; i < EIN__KLANES; i++)
        g->over[n].lane[i] =
            at.vector && i < g->vec ? ein__namef(g->ctx, "%s.%s", text, ein__klane[i]) : NULL;
    return !at.vector ? 1 : half || bfloat ? 2 : 4;
}

// Whether sums of groups of threads or of blocks meet behind the last step, or threads exchange
// them. Where none do, a thread has more sums, and no registers to spare.
static bool ein__kprod_meets(const ein__kprod *r) {
    return r->parts > 1 || r->t->parts > 1 || r->t->warpgroups;
}

// Asks for those of `reads` of which a thread has `times` (NULL: one) each, in `hold`, to where
// `first` makes values of them, as members of structure found_`name` in `out`. How many registers
// they take; 0, and nothing was named: there are none, or they take more than `most`.
static int ein__kprod_ask(ein__kgen *g, const ein__ex *reads, const int *times, int most,
                          const char *name, ein__buf *out, ein__buf *hold, ein__buf *first) {
    ein__buf members = {0}, *post = g->post;
    ein__needs needs = g->needs;
    ptrdiff_t named = arrlen(g->name);
    int nover = g->nover, words = 0;
    ein__put(hold, "");
    g->post = hold;
    for (ptrdiff_t i = 0; i < arrlen(reads) && g->nover < EIN__KOVER; i++) {
        size_t mark = hold->n;
        ptrdiff_t known = arrlen(g->name);
        int one = ein__kprod_find(g, reads[i], &members, hold, first);
        words += one * (times ? times[i] : 1);
        if (one) continue;
        hold->s[hold->n = mark] = 0;
        if (g->name) arrsetlen(g->name, known);
    }
    g->post = post;
    // Names of that place are not those of where the values are used.
    if (g->name) arrsetlen(g->name, named);
    bool fits = words && words <= most;
    if (fits) {
        ein__putf(out, "struct found_%s {\n", name);
        ein__kindent(out, members.s, 4);
        ein__put(out, "};\n");
    } else {
        g->nover = nover;
        g->needs = needs;
        ein__buf_free(hold);
        ein__buf_free(first);
    }
    ein__buf_free(&members);
    return fits ? words : 0;
}

// A factor that its loads compute or convert, one element or four along `slot`: what they find, of
// which `body` returns the values, and what they make of it, zero outside of `guard`. False: what
// they find is more than a thread has registers for.
static bool ein__kprod_compute(ein__kgen *g, ein__kprod *r, int side, ein__ex *reads,
                               const char *guard, ein__buf *body) {
    ein__buf values = {0}, first = {0};
    int nover = g->nover, words = 0;
    int64_t loads = (side ? r->t->cols : r->t->rows) * r->t->terms / EIN__PRODUCT_THREADS / g->vec;
    ein__put(&values, "");
    ein__put(&first, "");
    for (ptrdiff_t i = 0; i < arrlen(reads) && g->nover < EIN__KOVER; i++)
        words += ein__kprod_find(g, reads[i], &r->found[side], &values, &first);
    ein__putf(body, "%sfound_%s f;\n%sreturn f;\n", g->code[1].s, r->name[side], values.s);
    ein__kforget(g, 1);
    ein__buf_free(&g->code[1]);
    ein__put(&g->code[1], first.s);
    const char *v[4] = {NULL}, *value, *zero = "0.f";
    for (int i = 0; i < g->vec; i++) v[i] = ein__kvalue(g, r->factor[side], i).s;
    value = v[0];
    if (g->vec > 1) {
        value = ein__namef(g->ctx, "make_float4(%s, %s, %s, %s)", v[0], v[1], v[2], v[3]);
        zero = "make_float4(0.f, 0.f, 0.f, 0.f)";
    }
    ein__put(&r->make[side], g->code[1].s);
    if (*guard) ein__putf(&r->make[side], "return %s ? %s : %s;\n", guard, value, zero);
    else ein__putf(&r->make[side], "return %s;\n", value);
    bool fits = arrlen(reads) <= EIN__KOVER - nover && words * loads <= EIN__FOUND_WORDS;
    g->nover = nover;
    ein__buf_free(&values);
    ein__buf_free(&first);
    return fits;
}

// The same with four lanes where its reads allow, and finding nothing by itself where it has to.
static void ein__kprod_computed(ein__kgen *g, ein__kprod *r, int side, int slot, const char *guard,
                                bool *vector, ein__buf *body) {
    ein__ex *reads = NULL;
    size_t mark = g->code[0].n;
    ein__needs needs = g->needs;
    int nindex = g->nindex, nvalue = g->nvalue, scattered = g->scattered;
    ein__kprod_reads(g, r->factor[side], &reads);
    ein__kcount(g, r->factor[side]);
    g->inside = guard;
    for (int attempt = slot >= 0 ? 0 : 2; attempt < 4; attempt++) {
        *vector = attempt < 2;
        g->vec = *vector ? 4 : 1;
        g->vec_slot = *vector ? slot : -1;
        bool fits = ein__kprod_compute(g, r, side, attempt % 2 ? NULL : reads, guard, body);
        if (fits && (!*vector || g->scattered == scattered)) break;
        ein__kforget(g, 0);
        g->code[0].s[g->code[0].n = mark] = 0;
        ein__buf_free(&g->code[1]);
        ein__put(&g->code[1], "");
        ein__buf_free(&r->found[side]);
        ein__buf_free(&r->make[side]);
        ein__buf_free(body);
        g->needs = needs;
        g->nindex = nindex;
        g->nvalue = nvalue;
        g->scattered = scattered;
    }
    g->vec = 1;
    g->vec_slot = -1;
    g->inside = NULL;
    arrfree(reads);
}

// What a load gives: as many elements as 16 bytes hold, one after the other or all at once; halves
// for tiles of halves are left as they are, and may be four.
static const char *ein__kprod_value(ein__kgen *g, const ein__kprod *r, const ein__kaccess *at,
                                    int width, const char **zero) {
    bool half = r->math == EIN__MATH_FP16 && at->dtype == EIN__F16;
    *zero = half ? "__float2half_rn(0.f)" : "0.f";
    if (width == 1)
        return half ? ein__namef(g->ctx, "%s[%s]", at->param, at->at.s) : ein__kload(g, at, 1).s;
    *zero = !half        ? "make_float4(0.f, 0.f, 0.f, 0.f)"
            : width == 8 ? "make_uint4(0u, 0u, 0u, 0u)"
                         : "make_uint2(0u, 0u)";
    if (!half) return ein__kload4(g, at);
    return ein__namef(g->ctx, "*reinterpret_cast<const uint%d *>(%s)", width / 2,
                      ein__kpointer(g, at->param, at->at.s));
}

// Whether a load may say where it finds its elements: they are 16, 8 or 4 bytes and of the type
// that the tile holds.
static bool ein__kprod_fetches(const ein__kprod *r, const ein__kaccess *at, int width) {
    if (r->math != EIN__MATH_FP32 && r->t->stages == 1) return false;
    return r->math == EIN__MATH_FP16 ? at->dtype == EIN__F16 && width > 1 : at->dtype == EIN__F32;
}

// How far apart a read's addresses are for neighbours along `slot`; 0: that differs or is more than
// an unsigned counts bytes, or what it reads depends on the slot in other ways too. `s` has scanned
// the read first.
static int64_t ein__kprod_stride(const ein__kscan *s, int slot) {
    int64_t k = s->row[0].k[slot];
    return s->pinned >> slot & 1 || k < 0 || k > INT32_MAX / 8 ? 0 : k;
}

// Such a load.
static void ein__kprod_fetch(ein__kgen *g, const ein__kprod *r, const ein__kaccess *at, int width,
                             const char *guard, ein__buf *body) {
    bool half = r->math == EIN__MATH_FP16;
    const char *type = width == 8   ? "uint4"
                       : width == 1 ? half ? "__half" : "float"
                       : half       ? "uint2"
                                    : "float4";
    ein__putf(body, "return fetch<%s>(%s", type, ein__kpointer(g, at->param, at->at.s));
    ein__putf(body, guard ? ", %s);\n" : ");\n", guard);
}

// Line and term that a thread loads as its element `e`, alone or the first of `width`: neighbours
// are terms, or lines of the first ein__tile_side of a tile's, behind which the others follow.
static void ein__kprod_element(ein_ctx *c, bool along, int lines, int terms, int width,
                               const char **across, const char **term) {
    int side = ein__tile_side(lines), wide = (along ? terms : side) / width;
    const char *fast = wide > 1 ? ein__namef(c, "e %% %du", wide) : "0u",
               *slow = ein__namef(c, "e / %du", wide);
    if (width > 1) fast = ein__namef(c, "%s * %du", fast, width);
    if (!along && side < lines) {
        fast = ein__namef(c, "%s + e / %du * %du", fast, wide * terms, side);
        slow = ein__namef(c, "%s %% %du", slow, terms);
    }
    *across = along ? slow : fast;
    *term = along ? fast : slow;
}

// The names of the sum's slots at term `term` of a step, which begins at k0 unless the address has
// that by itself.
static void ein__kprod_declare_term(ein__kgen *g, ein__buf *load, const int *sum, int nsum,
                                    int terms, const char *term, bool moves, const char *body) {
    if (nsum > 1 && g->slot[sum[nsum - 1]].n % terms == 0)
        ein__kprod_declare_step(g, load, sum, nsum, term, body);
    else
        ein__kprod_declare(g, load, sum, nsum, ein__kprod_flat(g, sum, nsum, "k"),
                           moves ? term : ein__namef(g->ctx, "k0 + %s", term), body);
}

// How a factor is read, with the slots of its lines and terms merged as its reads allow.
static ein__kscan ein__kprod_scan(ein__kgen *g, const ein__kprod *r, int side, int *line_slot,
                                  int *nline, int *sum, int *nsum) {
    ein__kscan scan = ein__kscan_make(g);
    memcpy(g->slot, r->slot, sizeof r->slot);
    memcpy(line_slot, r->order[side], sizeof r->order[side]);
    memcpy(sum, r->sum, sizeof r->sum);
    ein__kscan_row(g, &scan, r->main[side]);
    if (r->factor[side].i != r->main[side].i) ein__kscan_expr(g, &scan, r->factor[side]);
    *nline = ein__kmerge(g, &scan, line_slot, r->n[side]);
    *nsum = ein__kmerge(g, &scan, sum, r->nsum);
    for (int i = 0; i < *nline; i++) g->slot[line_slot[i]].level = 1;
    for (int i = 0; i < *nsum; i++) g->slot[sum[i]].level = 1;
    return scan;
}

// Bytes between each of a thread's loads in one step and the next one, of lines and terms so many
// bytes apart, `wide` loads side by side; 0: these differ, or are too many.
static int64_t ein__kprod_apart(const ein__kprod *r, int side, int64_t line, int64_t term,
                                int wide) {
    int lines = side ? r->t->cols : r->t->rows, first = ein__tile_side(lines);
    int64_t apart = 0, rows = EIN__PRODUCT_THREADS / wide;
    if (!strcmp(r->along[side], "true")) apart = line * rows;
    else if (first == lines) apart = term * rows;
    else if (rows == r->t->terms) apart = line * first;
    return apart > INT32_MAX ? 0 : apart;
}

// How loads that say where a factor lies go on: a thread's in one step are as far from each other
// everywhere, and as far from those in the next one, so the rest of the address is known before the
// step, or before the loop; without tensor cores it is made again where a window's tap changes. Its
// lines are counted by slot `line` or several (-1), its terms, or those of one step, by `term` or
// several (-1); `steps`: all terms are. True: the loop's position is no part of the load.
static bool ein__kprod_calls(ein__kgen *g, ein__kprod *r, int side, const ein__kaccess *at,
                             const ein__kscan *scan, int line, int term, bool steps, int wide) {
    const char *name = r->name[side];
    int64_t size = ein__dtype_size(at->dtype);
    int64_t stride = term >= 0 ? ein__kprod_stride(scan, term) * size : 0;
    int64_t below = line >= 0 ? ein__kprod_stride(scan, line) * size : 0;
    int64_t apart = ein__kprod_apart(r, side, below, stride, wide);
    bool goes = r->fetched[side] && stride && r->p.depth % r->t->terms == 0, moves = goes && steps;
    r->call[side] = name;
    bool turns = goes && apart && !steps && g->slot[term].n > r->t->terms;
    turns = turns && r->math == EIN__MATH_FP32;
    if (turns || moves || apart) {
        ein__kneed(g, EIN__NEED_MOVED);
        ein__kneed(g, turns ? EIN__NEED_TURNING : moves ? EIN__NEED_MOVING : EIN__NEED_SPACED);
    }
    if (turns)
        r->call[side] = ein__namef(g->ctx, "turning<%lld, %lld, %lld>(%s)", (long long)stride,
                                   (long long)apart, (long long)g->slot[term].n, name);
    else if (moves)
        r->call[side] =
            ein__namef(g->ctx, "moving<%lld, %lld>(%s)", (long long)stride, (long long)apart, name);
    else if (apart) r->call[side] = ein__namef(g->ctx, "spaced<%lld>(%s)", (long long)apart, name);
    return moves;
}

// How a factor's lines and terms are counted where its loads are.
typedef struct ein__kfeed {
    int line_slot[EIN__MAX_ITERS], sum[EIN__MAX_ITERS], nline, nsum;
    const char *at_line, *at_term;
    bool moves;    // the loop's position is no part of the load
    int64_t taps;  // bytes of a table that says where the terms lie, or 0
} ein__kfeed;

// `body` as the text of a lambda of element e of the step from term k0 on.
static void ein__kprod_lambda(ein__kgen *g, const ein__kprod *r, int side, const ein__kfeed *f,
                              const char *across, const char *term, const ein__buf *body,
                              ein__buf *out) {
    ein__kprod_declare(g, out, f->line_slot, f->nline, f->at_line,
                       ein__namef(g->ctx, "%s0 + %s", side ? "n" : "m", across), body->s);
    if (!f->taps)
        ein__kprod_declare_term(g, out, f->sum, f->nsum, r->t->terms, term, f->moves, body->s);
    ein__put(out, body->s);
}

// The lambdas of a load that computes: of what it finds, and of what it makes of that; one where it
// finds nothing by itself.
static void ein__kprod_lambdas(ein__kgen *g, ein__kprod *r, int side, const ein__kfeed *f,
                               const char *across, const char *term, const ein__buf *body) {
    ein__buf make = r->make[side];
    r->make[side] = (ein__buf){0};
    bool finds = r->found[side].n > 0;
    ein__kprod_lambda(g, r, side, f, across, term, finds ? body : &make, &r->load[side]);
    if (finds) ein__kprod_lambda(g, r, side, f, across, term, &make, &r->make[side]);
    if (finds)
        r->call[side] = ein__namef(g->ctx, "computed(%s, make_%s)", r->name[side], r->name[side]);
    const char *s = finds ? r->make[side].s : "";
    r->make_args[side] =
        ein__namef(g->ctx, "unsigned%s, unsigned%s", ein__kmentions(s, "e") ? " e" : "",
                   ein__kmentions(s, "k0") ? " k0" : "");
    ein__buf_free(&make);
}

// Bytes of a table that has what the terms add to the places of a factor's loads: those of a thread
// in one step are of different terms, which are counted by several slots. 0: there is none. One
// factor has it.
static int64_t ein__kprod_tapped(ein__kgen *g, const ein__kprod *r, int side, const int *sum,
                                 int nsum) {
    uint32_t terms = 0;
    if (g->wide || r->tap_bytes || nsum < 2 || g->slot[sum[nsum - 1]].n % r->t->terms == 0)
        return 0;
    if (ein__kcross_two(&r->p, 0) || ein__kcross_two(&r->p, 1)) return 0;
    for (int i = 0; i < r->nsum; i++) terms |= 1u << r->sum[i];
    const ein__expr *read = ein__ex_get(g->ctx, r->factor[side]);
    int words = ein__tap_words(g->ctx, read, terms);
    bool packs = r->math != EIN__MATH_FP32 && words && ein__tap_packs(g->ctx, read, terms);
    if (packs) words = 2;
    int64_t bytes = ein__tap_bytes(r->t, r->p.depth, words);
    if (!bytes) return 0;
    g->taps = terms;
    g->tap_packed = packs;
    return bytes;
}

// The table that the loads of `side`, `wide` a line, take the terms' places from; behind the last
// term there is none. `guard` gets what that takes where no position has one.
static void ein__kprod_taps(ein__kgen *g, ein__kprod *r, int side, const int *sum, int nsum,
                            int64_t bytes, int wide, ein__buf *guard) {
    ein_ctx *c = g->ctx;
    ein__buf *b = &r->taps;
    int64_t terms = ein__ceil(r->p.depth, r->t->terms) * r->t->terms;
    int words = (int)(bytes / terms / 4);
    const char *word[4] = {"0", "0", "0", "0"};
    uint32_t used = 0;
    for (int i = 0; i <= g->ntap; i++) word[i] = g->tap[i];
    const char *none = g->tap_packed ? "-32768" : g->tap_low ? "-(1 << 30)" : "1 << 30";
    if (terms > r->p.depth) {
        const char *below = ein__namef(c, "k < %s", ein__knumber(g, r->p.depth));
        if (!g->ntap) ein__putf(guard, "%stap.y", guard->n ? " && " : "");
        if (!g->ntap) word[1] = below;
        else word[1] = ein__namef(c, "%s ? %s : %s", below, word[1], none);
    }
    if (g->tap_packed) word[1] = ein__namef(c, "(%s) * 65536 + ((%s) & 65535)", word[1], word[2]);
    ein__putf(b, "for (unsigned k = threadIdx.x; k < %lldu; k += 256u) {\n", (long long)terms);
    const char *four = words == 4 ? ein__namef(c, ", %s, %s", word[2], word[3]) : "";
    const char *put =
        ein__namef(c, "taps[k] = make_int%d(%s, %s%s);\n", words, word[0], word[1], four);
    for (int i = 0; i < nsum; i++)
        if (ein__kmentions(put, g->slot[sum[i]].name)) used |= 1u << sum[i];
    ein__buf body = {0};
    ein__kdecompose(g, &body, sum, nsum, used, "k");
    ein__put(&body, put);
    ein__kindent(b, body.s, 4);
    ein__put(b, "}\n");
    ein__buf_free(&body);
    r->tap_bytes = bytes;
    r->tap_words = words;
    r->args[side] = ein__namef(c, "unsigned e, const int%d &tap", words);
    r->call[side] = ein__namef(c, "tapped<%d, %d>(%s, taps)", wide,
                               wide * r->t->terms / EIN__PRODUCT_THREADS, r->name[side]);
    ein__kneed(g, EIN__NEED_TAPS);
}

// The end of a load that gives what it reads, or says where that lies.
static void ein__kprod_plain(ein__kgen *g, ein__kprod *r, int side, const ein__kaccess *at,
                             const ein__kscan *scan, ein__kfeed *f, int width, int wide,
                             ein__buf *guard, ein__buf *body) {
    const int *sum = f->sum, nsum = f->nsum;
    if (f->taps) ein__kprod_taps(g, r, side, sum, nsum, f->taps, wide, guard);
    if (at->guard) ein__putf(guard, "%s%s", guard->n ? " && " : "", at->guard);
    const char *zero, *value = ein__kprod_value(g, r, at, width, &zero);
    r->fetched[side] = ein__kprod_fetches(r, at, width);
    bool half_one = r->math == EIN__MATH_FP16 && at->dtype == EIN__F16 && width == 1;
    if (r->fetched[side] || half_one) {
        bool inner = nsum == 1 || (nsum && g->slot[sum[nsum - 1]].n % r->t->terms == 0);
        if (!f->taps)
            f->moves = ein__kprod_calls(g, r, side, at, scan, f->nline == 1 ? f->line_slot[0] : -1,
                                        inner ? sum[nsum - 1] : -1, nsum == 1, wide);
        ein__kprod_fetch(g, r, at, width, guard->n ? guard->s : NULL, body);
        if (f->moves) r->args[side] = "unsigned e";
    } else if (guard->n) {
        ein__putf(body, "return %s ? %s : %s;\n", guard->s, value, zero);
    } else {
        ein__putf(body, "return %s;\n", value);
    }
}

// What a load has named is forgotten.
static void ein__kprod_loaded(ein__kgen *g) {
    g->taps = 0;
    g->tap_packed = false;
    ein__kforget(g, 1);
    ein__buf_free(&g->code[1]);
    ein__put(&g->code[1], "");
}

// One factor's part of the loop: loads into registers, stores into the tile.
static void ein__kprod_load(ein__kgen *g, ein__kprod *r, int side) {
    ein_ctx *c = g->ctx;
    ein__ex read = r->factor[side];
    ein__dtype type = ein__kdtype(g, (ein__val){ein__ex_get(c, r->main[side])->val});
    bool half = type == EIN__F16, fp16 = r->math == EIN__MATH_FP16;
    bool converts = (half && !fp16) || type == EIN__BF16;
    // What a load finds nowhere is zero; what it computes may be padding.
    bool pads = ein__ex_get(c, read)->bits != 0;
    bool computed = read.i != r->main[side].i || converts || pads, vector = false;
    ein__kfeed f = {.moves = false};
    ein__kscan scan = ein__kprod_scan(g, r, side, f.line_slot, &f.nline, f.sum, &f.nsum);
    int64_t extent = r->p.extent[side], depth = r->p.depth;
    int tile = side ? r->t->cols : r->t->rows, terms = r->t->terms;
    bool along =
        ein__kprod_run(g, &scan, f.sum, f.nsum) > ein__kprod_run(g, &scan, f.line_slot, f.nline);
    // Sums along a line are those of threads that load it, or of warps that multiply it.
    along |= !side && r->sums && r->math == EIN__MATH_FP32;
    int lane = along ? f.sum[f.nsum - 1] : f.nline ? f.line_slot[f.nline - 1] : -1;
    int width = fp16 && half && !computed ? 8 : 4;
    if (lane >= 0 && scan.near[0].k[lane] != 1) lane = -1;
    if (lane >= 0 && width == 8 && g->slot[lane].n % width) width = 4;
    if (lane >= 0 && g->slot[lane].n % width) lane = -1;
    ein__kaccess at = {0};
    ein__buf body = {0}, guard = {0};
    ein__put(&guard, "");
    f.at_line = ein__kprod_flat(g, f.line_slot, f.nline, side ? "n" : "m");
    f.at_term = ein__kprod_flat(g, f.sum, f.nsum, "k");
    f.taps = computed || along ? 0 : ein__kprod_tapped(g, r, side, f.sum, f.nsum);
    if (extent % tile) ein__put(&guard, ein__kprod_below(g, f.at_line, f.nline, extent));
    if (depth % terms && !f.taps)
        ein__putf(&guard, "%s%s", guard.n ? " && " : "",
                  ein__kprod_below(g, f.at_term, f.nsum, depth));
    if (computed) {
        ein__kprod_computed(g, r, side, lane, guard.s, &vector, &body);
    } else {
        g->reached = guard.s;
        g->reached_level = 1;
        at = ein__kprod_access(g, read, lane, &width);
        g->reached = NULL;
    }
    if (computed && !vector) width = 1;
    const char *across, *term;
    int wide = (along ? terms : ein__tile_side(tile)) / width;
    ein__kprod_element(c, along, tile, terms, width, &across, &term);
    r->along[side] = along ? "true" : "false";
    if (!side) r->width = width;
    r->wide[side] = width > 1;
    r->call[side] = r->name[side];
    r->args[side] = "unsigned e, unsigned k0";
    if (computed) {
        ein__kprod_lambdas(g, r, side, &f, across, term, &body);
    } else {
        ein__put(&body, g->code[1].s);
        ein__kprod_plain(g, r, side, &at, &scan, &f, width, wide, &guard, &body);
        ein__kprod_lambda(g, r, side, &f, across, term, &body, &r->load[side]);
    }
    ein__kprod_loaded(g);
    ein__buf_free(&body);
    ein__buf_free(&guard);
    ein__kscan_free(&scan);
}
