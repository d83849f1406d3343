// Tables of measured costs. A row is device, key, picoseconds, spread in 1/1000 and library
// versions between tabs; ` algo=` at the end of a key names the library's algorithm or engine that
// was measured, so a call has a row for each. The fastest is taken, and pinned in the emitted file
// to the version of the library that the row names. Rows of our own kernels (kernel_key.c) have the
// version of the emitter and, as `text`, the end of the kernel's name, which is a hash of its text.

typedef struct ein__cost_row {
    const char *device, *key, *algorithm;  // without ` algo=`; "": none
    int64_t ps, spread;                    // -1: not given
    const char *versions;
    const char *text;  // of a kernel: the end of its name, interned; "": not given
    int64_t version;   // of the library that makes the call, 0: not known
    int64_t age;       // version of cuDNN or cuBLAS, by which rows of one call are told apart
    const char *file;
    uint32_t line;
} ein__cost_row;

// A line being read; columns are bytes from 1.
typedef struct ein__cost_line {
    ein_ctx *ctx;
    const char *file, *start, *s, *end;
    uint32_t line;
    bool failed;
} ein__cost_line;

// An error at a place of a table instead of the model, whose name messages begin with.
static void ein__table_error(ein_ctx *ctx, const char *table, ein__pos pos, const char *what) {
    const char *model = ctx->file, *text = ctx->text;
    ctx->file = table;
    ctx->text = NULL;
    ein__error(ctx, EIN_BAD_INPUT, pos, "%s", what);
    ctx->file = model;
    ctx->text = text;
}

static void ein__cost_error(ein__cost_line *z, const char *at, const char *what) {
    if (z->failed) return;
    z->failed = true;
    ein__table_error(z->ctx, z->file, (ein__pos){z->line, (uint32_t)(at - z->start) + 1}, what);
}

// One field up to a tab or the line's end; moves behind it. NULL: the line has ended.
static const char *ein__cost_field(ein__cost_line *z, const char **at) {
    *at = z->s <= z->end ? z->s : z->end;
    if (z->s > z->end) return NULL;
    const char *from = z->s;
    while (z->s < z->end && *z->s != '\t') {
        if ((unsigned char)*z->s < 32 || *z->s == 127)
            ein__cost_error(z, z->s, "a control character in a row");
        z->s++;
    }
    const char *field = ein__name_n(z->ctx, from, (size_t)(z->s - from));
    z->s++;
    return field;
}

// Decimal digits, at most `digits` of them; -1: something else.
static int64_t ein__cost_number(const char *s, size_t digits) {
    int64_t v = 0;
    size_t n = strspn(s, "0123456789");
    if (!n || n > digits || s[n]) return -1;
    for (; *s; s++) v = v * 10 + (*s - '0');
    return v;
}

// A number field; -1 where it may be missing and is.
static int64_t ein__cost_count(ein__cost_line *z, bool needed, const char *what) {
    const char *at, *s = ein__cost_field(z, &at);
    int64_t v = s ? ein__cost_number(s, 18) : -1;
    if (v < 0 && (needed || (s && *s))) ein__cost_error(z, at, what);
    return v;
}

// ------------------------------------------------------------------------------------ algorithms

static bool ein__is_conv_key(const char *key) {
    return !strncmp(key, "conv ", 5) || !strncmp(key, "conv_data ", 10);
}

static bool ein__is_gemm_key(const char *key) { return !strncmp(key, "gemm ", 5); }

static bool ein__is_kernel_key(const char *key) { return !strncmp(key, "kernel ", 7); }

static bool ein__is_cost_key(const char *key) {
    return ein__is_conv_key(key) || ein__is_gemm_key(key) || ein__is_kernel_key(key) ||
           !strncmp(key, "grouped ", 8);
}

// What may follow ` algo=`: one of cuDNN's numbers, `lt:` and nine numbers of cublasLt, or the tile
// of a product of our own.
static bool ein__is_algorithm(const char *key, const char *s) {
    size_t tile = strspn(s, "0123456789abcdefghijklmnopqrstuvwxyz.");
    if (ein__is_kernel_key(key))
        return !strncmp(key, "kernel product ", 15) && tile && tile < 32 && !s[tile];
    if (ein__is_conv_key(key)) return s[0] >= '0' && s[0] <= (key[4] == '_' ? '5' : '7') && !s[1];
    if (!ein__is_gemm_key(key) || strncmp(s, "lt:", 3)) return false;
    s += 3;
    for (int k = 0; k < 9; k++) {
        // The library has 2^32 - 1 parts of a sum where an algorithm chooses their number.
        bool chooses = k == 3 && !strncmp(s, "4294967295", 10);
        size_t n = strspn(s, "0123456789");
        if (!n || (n > 5 && !(chooses && n == 10)) || s[n] != (k < 8 ? '.' : 0)) return false;
        s += n + (k < 8);
    }
    return true;
}

// Takes ` algo=` off the end of a key.
static const char *ein__split_algorithm(ein__cost_line *z, ein__cost_row *r, const char *at) {
    const char *mark = strstr(r->key, " algo=");
    if (!mark) return "";
    const char *algorithm = ein__name(z->ctx, mark + 6);
    const char *key = ein__name_n(z->ctx, r->key, (size_t)(mark - r->key));
    ein__engine engine;
    if (ein__is_conv_key(key) && ein__is_engine(algorithm)) {
        const char *bad = ein__read_engine(algorithm, &engine);
        if (bad)
            ein__cost_error(z, at + (mark - r->key) + 6 + (bad - algorithm),
                            "an engine is a number, then ,TYPE=CHOICE a setting, types ascending");
    } else if (!ein__is_algorithm(key, algorithm))
        ein__cost_error(z, at + (mark - r->key) + 1, "this call has no such algorithm");
    r->key = key;
    return algorithm;
}

// The number behind library `name` in a text like "cudnn 91900 cublas 130100"; 0: it is not there.
static int64_t ein__version_of(const char *versions, const char *name) {
    size_t n = strlen(name);
    for (const char *s = versions; (s = strstr(s, name)); s++) {
        if ((s != versions && s[-1] != ' ') || s[n] != ' ') continue;
        int64_t v = 0;
        for (s += n + 1; *s >= '0' && *s <= '9' && v < INT32_MAX / 10; s++) v = v * 10 + *s - '0';
        return v;
    }
    return 0;
}

// The word behind `text` there, interned; "": there is none.
static const char *ein__text_of(ein_ctx *ctx, const char *versions) {
    const char *s = strstr(versions, "text ");
    return s ? ein__name_n(ctx, s + 5, strcspn(s + 5, " ")) : ein__name(ctx, "");
}

static const char *ein__library_of(const ein__cost_row *r) {
    if (ein__is_kernel_key(r->key)) return "einnet";
    if (ein__is_conv_key(r->key)) return "cudnn";
    return *r->algorithm ? "cublaslt" : "cublas";
}

static const char *ein__kernel_word(ein__kind kind) {
    switch (kind) {
    case EIN__K_TRANSPOSE: return "transpose";
    case EIN__K_REDUCE: return "reduce";
    case EIN__K_PLACE: return "place";
    case EIN__K_ROW: return "row";
    case EIN__K_BAND: return "band";
    case EIN__K_BASIS: return "basis";
    case EIN__K_ATTENTION: return "attention";
    case EIN__K_PRODUCT: return "product";
    case EIN__K_MAP:
    case EIN__K_CONV:
    case EIN__K_CONV_DATA:
    case EIN__K_GEMM:
    default: return "map";
    }
}

static bool ein__spells(const char *s, size_t n, const char *word) {
    return strlen(word) == n && !strncmp(s, word, n);
}

// Whether the `n` bytes at `s` are a kind of kernels.
static bool ein__is_kernel_kind(const char *s, size_t n) {
    static const char *const joined[] = {"stitch", "siblings", "chain", "finish"};
    bool found = false;
    for (int k = EIN__K_MAP; k <= EIN__K_PRODUCT; k++)
        found |= ein__spells(s, n, ein__kernel_word((ein__kind)k));
    for (size_t i = 0; i < sizeof joined / sizeof *joined; i++)
        found |= ein__spells(s, n, joined[i]);
    return found;
}

// What is wrong with a row whose key begins like that of a kernel of ours; NULL: nothing.
static const char *ein__kernel_key_fault(const ein__cost_row *r) {
    const char *s = r->key + 7;
    size_t n = strcspn(s, " ");
    if (!ein__is_kernel_kind(s, n) || !s[n] || strspn(s + n + 1, "0123456789abcdef") != 16 ||
        s[n + 17])
        return "a kernel's key is 'kernel KIND ID', ID 16 hexadecimal digits";
    bool product = !strncmp(s, "product ", 8);
    return product && !*r->algorithm ? "a product's key ends with its tile: ' algo=TILE'" : NULL;
}

// ------------------------------------------------------------------------------------ rows

static bool ein__read_cost_row(ein__cost_line *z, ein__cost_row *r) {
    const char *at;
    *r = (ein__cost_row){.file = z->file, .line = z->line};
    r->device = ein__cost_field(z, &at);
    if (!r->device || !*r->device) ein__cost_error(z, at, "a row begins with a device");
    r->key = ein__cost_field(z, &at);
    if (!r->key || !*r->key)
        ein__cost_error(z, at,
                        "the key of a call is missing (a row is: device, key, picoseconds, "
                        "spread, versions, with a tab between two)");
    r->algorithm = z->failed ? "" : ein__split_algorithm(z, r, at);
    const char *fault = z->failed || !ein__is_kernel_key(r->key) ? NULL : ein__kernel_key_fault(r);
    if (!z->failed && !ein__is_cost_key(r->key))
        fault = "a key begins with conv, conv_data, gemm, grouped or kernel";
    if (fault) ein__cost_error(z, at, fault);
    at = z->s;
    r->ps = ein__cost_count(z, true, "picoseconds are needed here, at most 18 digits");
    if (!r->ps) ein__cost_error(z, at, "nothing takes 0 picoseconds");
    r->spread = ein__cost_count(z, false, "the spread is a number, in 1/1000");
    r->versions = ein__cost_field(z, &at);
    if (!r->versions) r->versions = "";
    r->text = ein__text_of(z->ctx, r->versions);
    if (z->s <= z->end) ein__cost_error(z, z->s, "a row has five fields");
    if (z->failed) return false;
    r->version = ein__version_of(r->versions, ein__library_of(r));
    // cublasLt has numbers of its own, and its rows compete with those of cuBLAS.
    r->age = ein__version_of(r->versions, ein__is_conv_key(r->key) ? "cudnn" : "cublas");
    if (!r->age) r->age = r->version;
    return true;
}

// Which of two rows for the same measurement stays: 0 the old one, 1 the new one, -1 nobody says.
static int ein__preferred(const ein_ctx *ctx, const ein__cost_row *old, const ein__cost_row *r) {
    const char *how = ctx->desc.prefer ? ctx->desc.prefer : "";
    // Another text is another kernel: the emitter has changed since the older table.
    if (ein__is_kernel_key(r->key) && old->text != r->text) return 1;
    if (old->ps == r->ps || !strcmp(how, "first")) return 0;
    if (!strcmp(how, "last")) return 1;
    return !strcmp(how, "fastest") ? r->ps < old->ps : -1;
}

// Whether row `a` is what a call is planned with, and `b` is not: the newer library, then the
// shorter time. Ties go by the algorithm's text, whatever the order of tables.
static bool ein__is_better_row(const ein__cost_row *a, const ein__cost_row *b) {
    if (a->age != b->age) return a->age > b->age;
    if (a->ps != b->ps) return a->ps < b->ps;
    return strcmp(a->algorithm, b->algorithm) < 0;
}

static bool ein__keep_cost_row(ein_ctx *ctx, const ein__cost_row *r) {
    const char *same =
        ein__namef(ctx, "%s\t%s\t%s\t%lld", r->device, r->key, r->algorithm, (long long)r->age);
    ptrdiff_t at = shgeti(ctx->cost_rows, same);
    if (at < 0) {
        arrput(ctx->cost_row, *r);
        shput(ctx->cost_rows, same, (int)arrlen(ctx->cost_row) - 1);
        return true;
    }
    ein__cost_row *old = &ctx->cost_row[ctx->cost_rows[at].value];
    int better = ein__preferred(ctx, old, r);
    if (better < 0) {
        ein__table_error(
            ctx, r->file, (ein__pos){r->line, 1},
            ein__namef(ctx,
                       "%lld ps for '%s%s%s', but %s:%u says %lld ps; --prefer first, last or "
                       "fastest decides",
                       (long long)r->ps, r->key, *r->algorithm ? " algo=" : "", r->algorithm,
                       old->file, (unsigned)old->line, (long long)old->ps));
        return false;
    }
    if (better) *old = *r;
    return true;
}

// The best row of every key of the context's device.
static void ein__index_costs(ein_ctx *ctx) {
    const char *device = ein__gpu_of(ctx)->name;
    shfree(ctx->costs);
    ctx->kernel_rows = 0;
    for (ptrdiff_t i = 0; i < arrlen(ctx->cost_row); i++) {
        const ein__cost_row *r = &ctx->cost_row[i];
        if (strcmp(r->device, device)) continue;
        ctx->kernel_rows += ein__is_kernel_key(r->key);
        ptrdiff_t at = shgeti(ctx->costs, r->key);
        if (at < 0) shput(ctx->costs, r->key, (int)i);
        else if (ein__is_better_row(r, &ctx->cost_row[ctx->costs[at].value]))
            ctx->costs[at].value = (int)i;
    }
}

EIN__FN bool ein__add_costs(ein_ctx *ctx, const char *name, const char *text, size_t length) {
    const char *end = text + length;
    ein__cost_line z = {.ctx = ctx, .file = ein__name(ctx, name), .line = 1};
    const char *prefer = ctx->desc.prefer ? ctx->desc.prefer : "";
    uint64_t h = ctx->cost_hash ? ctx->cost_hash : EIN__FNV_START;
    ctx->cost_hash = ein__fnv(ein__fnv(h, prefer, strlen(prefer)), text, length);
    for (const char *s = text; s < end; z.line++) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        if (!stop) stop = end;
        ein__cost_row row;
        z.start = z.s = s;
        z.end = stop > s && stop[-1] == '\r' ? stop - 1 : stop;
        if (z.end > s && *s != '#' &&
            (!ein__read_cost_row(&z, &row) || !ein__keep_cost_row(ctx, &row)))
            return false;
        s = stop + 1;
    }
    ein__index_costs(ctx);
    return true;
}

// The row that `key` is planned with on the context's GPU; NULL when no table has one.
EIN__FN const ein__cost_row *ein__row_of(const ein_ctx *ctx, const char *key) {
    if (!shlen(ctx->costs)) return NULL;
    ptrdiff_t at = shgeti(((ein_ctx *)ctx)->costs, key);
    return at >= 0 ? &ctx->cost_row[ctx->costs[at].value] : NULL;
}

// The measured cost of `key`; false when no table has it.
EIN__FN bool ein__measured(const ein_ctx *ctx, const char *key, int64_t *ps) {
    const ein__cost_row *r = ein__row_of(ctx, key);
    if (r) *ps = r->ps;
    return r != NULL;
}

// Text of the algorithm that a row pins, with its version; NULL: the library chooses.
EIN__FN const char *ein__pinned(const ein__cost_row *r, int64_t *version) {
    if (!r || !*r->algorithm || !r->version) return NULL;
    *version = r->version;
    return strncmp(r->algorithm, "lt:", 3) ? r->algorithm : r->algorithm + 3;
}

static int ein__row_order(const void *a, const void *b) {
    const ein__cost_row *x = *(ein__cost_row *const *)a, *y = *(ein__cost_row *const *)b;
    int r = strcmp(x->device, y->device);
    if (!r) r = strcmp(x->key, y->key);
    if (!r) r = strcmp(x->algorithm, y->algorithm);
    return r ? r : (x->age > y->age) - (x->age < y->age);
}

// All rows of all devices, sorted: one table out of several. The rows themselves stay where
// ctx->cost_rows and ctx->costs have them.
EIN__FN void ein__emit_costs(const ein_ctx *ctx, ein__buf *out) {
    ein__cost_row **sorted = NULL;
    for (ptrdiff_t i = 0; i < arrlen(ctx->cost_row); i++) arrput(sorted, &ctx->cost_row[i]);
    if (sorted) qsort(sorted, (size_t)arrlen(sorted), sizeof *sorted, ein__row_order);
    for (ptrdiff_t i = 0; i < arrlen(sorted); i++) {
        const ein__cost_row *r = sorted[i];
        ein__putf(out, "%s\t%s%s%s\t%lld\t", r->device, r->key, *r->algorithm ? " algo=" : "",
                  r->algorithm, (long long)r->ps);
        if (r->spread >= 0) ein__putf(out, "%lld", (long long)r->spread);
        ein__putf(out, "\t%s\n", r->versions);
    }
    arrfree(sorted);
}

// Whether the row that `key` is planned with, of a kernel, is of the text that `name` ends with.
EIN__FN bool ein__is_row_of(const ein_ctx *ctx, const char *key, const char *name) {
    const ein__cost_row *r = ein__row_of(ctx, key);
    const char *text = strrchr(name, '_');
    return r && text && (!*r->text || !strcmp(r->text, text + 1));
}
