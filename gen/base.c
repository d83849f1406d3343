// Memory, text, interning and messages.

#if defined(EIN_REALLOC) != defined(EIN_FREE)
#error "EIN_REALLOC and EIN_FREE go together: what one of them allocates, the other one frees"
#endif
#ifndef EIN_REALLOC
#define EIN_REALLOC(p, n) realloc(p, n)
#define EIN_FREE(p) free(p)
#endif
#ifndef EIN_OUT_OF_MEMORY
#define EIN_OUT_OF_MEMORY() (fputs("einnet: out of memory\n", stderr), exit(5))
#endif

// Only broken invariants reach an assertion; no input does.
#ifndef EIN_ASSERT
#include <assert.h>
#define EIN_ASSERT(x) assert(x)
#endif

struct ein__chunk {
    struct ein__chunk *next;
    size_t used, cap;
};

enum { EIN__CHUNK = 64 * 1024, EIN__MAX_ERRORS = 20 };

static size_t ein__rounded_up(size_t size) { return (size + 15) & ~(size_t)15; }

EIN__FN void *ein__alloc(ein__arena *a, size_t size) {
    size = ein__rounded_up(size);
    struct ein__chunk *c = a->head;
    if (!c || c->cap - c->used < size) {
        size_t head = ein__rounded_up(sizeof *c);
        size_t cap = size > EIN__CHUNK ? size : EIN__CHUNK;
        c = EIN_REALLOC(NULL, head + cap);
        if (!c) EIN_OUT_OF_MEMORY();
        memset(c, 0, head + cap);
        c->cap = cap;
        c->next = a->head;
        a->head = c;
    }
    size_t head = ein__rounded_up(sizeof *c);
    void *p = (char *)c + head + c->used;
    c->used += size;
    return p;
}

EIN__FN void ein__arena_free(ein__arena *a) {
    while (a->head) {
        struct ein__chunk *next = a->head->next;
        EIN_FREE(a->head);
        a->head = next;
    }
}

// Frees what was allocated since the arena's head was `head`, `used` bytes of it in use.
EIN__FN void ein__arena_cut(ein__arena *a, struct ein__chunk *head, size_t used) {
    while (a->head != head) {
        struct ein__chunk *next = a->head->next;
        EIN_FREE(a->head);
        a->head = next;
    }
    if (!head) return;
    memset((char *)head + ein__rounded_up(sizeof *head) + used, 0, head->used - used);
    head->used = used;
}

#define EIN__NEW(arena, T, n) ((T *)ein__alloc(arena, (size_t)(n) * sizeof(T)))

// -------------------------------------------------------------------------------------- text

EIN__FN void ein__put_n(ein__buf *b, const char *s, size_t n) {
    if (b->cap - b->n < n + 1) {
        size_t cap = b->cap ? b->cap : 256;
        while (cap - b->n < n + 1) cap *= 2;
        b->s = EIN_REALLOC(b->s, cap);
        if (!b->s) EIN_OUT_OF_MEMORY();
        b->cap = cap;
    }
    if (n) memcpy(b->s + b->n, s, n);
    b->n += n;
    b->s[b->n] = 0;
}

EIN__FN void ein__put(ein__buf *b, const char *s) { ein__put_n(b, s, strlen(s)); }

EIN__FN void ein__vputf(ein__buf *b, const char *format, va_list args) {
    char small[512];
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(small, sizeof small, format, args);
    if (n >= 0 && (size_t)n < sizeof small) {
        ein__put_n(b, small, (size_t)n);
    } else if (n >= 0) {
        char *big = EIN_REALLOC(NULL, (size_t)n + 1);
        if (!big) EIN_OUT_OF_MEMORY();
        vsnprintf(big, (size_t)n + 1, format, again);
        ein__put_n(b, big, (size_t)n);
        EIN_FREE(big);
    }
    va_end(again);
}

// For integers and strings only: printf's floating-point forms depend on the locale.
EIN__PRINTF(2, 3) EIN__FN void ein__putf(ein__buf *b, const char *format, ...) {
    va_list args;
    va_start(args, format);
    ein__vputf(b, format, args);
    va_end(args);
}

EIN__FN void ein__buf_free(ein__buf *b) {
    EIN_FREE(b->s);
    *b = (ein__buf){0};
}

// Replaces whatever the locale uses as decimal point, so that "1,5" cannot appear.
static void ein__fix_point(char *s) {
    for (; *s; s++)
        if (!strchr("0123456789+-eEinfa", *s)) *s = '.';
}

// The shortest decimal text that reads back as the same double: "0.125", "1e-05", "3e+01", "inf".
EIN__FN void ein__put_shortest(ein__buf *b, double v) {
    char s[40];
    if (v != v) {
        ein__put(b, "nan");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, v);
        if (strtod(s, NULL) == v) break;
    }
    ein__fix_point(s);
    ein__put(b, s);
}

// Small integers have no exponent.
static bool ein__put_whole(ein__buf *b, double v) {
    if (!(fabs(v) < 1e6) || v != (double)(int64_t)v || (v == 0 && signbit(v))) return false;
    ein__putf(b, "%lld", (long long)v);
    return true;
}

// The same, but "30".
EIN__FN void ein__put_f64(ein__buf *b, double v) {
    if (!ein__put_whole(b, v)) ein__put_shortest(b, v);
}

// A C string literal.
EIN__FN void ein__put_string(ein__buf *out, const char *s) {
    ein__put(out, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\' || c == '?') ein__putf(out, "\\%c", c);
        else if (c < 32 || c > 126) ein__putf(out, "\\%03o", c);
        else ein__put_n(out, s, 1);
    }
    ein__put(out, "\"");
}

// A C literal of type float: "0.125f", "3.f", "INFINITY" with its sign.
EIN__FN void ein__put_f32_literal(ein__buf *b, double v) {
    float f = (float)v;
    if (f != f) {
        ein__put(b, "NAN");
        return;
    }
    if (f - f != 0) {
        ein__put(b, f < 0 ? "-INFINITY" : "INFINITY");
        return;
    }
    if (ein__put_whole(b, (double)f)) {
        ein__put(b, ".f");
        return;
    }
    char s[40];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, (double)f);
        if ((float)strtod(s, NULL) == f) break;
    }
    ein__fix_point(s);
    ein__put(b, s);
    ein__put(b, strpbrk(s, ".e") ? "f" : ".f");
}

// Reads digits [. digits] [e [+-] digits] at `s` without the locale; `*end` is past it. Values
// beyond a double's range become infinite; the caller refuses those.
EIN__FN double ein__read_f64(const char *s, const char **end) {
    char copy[64], clean[64];
    size_t n = 0, i = 0;
    while (i < sizeof copy - 1 && s[i] &&
           (strchr("0123456789.", s[i]) || ((s[i] == 'e' || s[i] == 'E') && i) ||
            ((s[i] == '+' || s[i] == '-') && i && (s[i - 1] == 'e' || s[i - 1] == 'E')))) {
        copy[n++] = s[i++];
    }
    copy[n] = 0;
    // strtod wants the locale's own point: try the point as written, then put the locale's there.
    memcpy(clean, copy, sizeof clean);
    char *stop, *dot = strchr(clean, '.');
    double v = strtod(clean, &stop);
    if (dot && stop == dot) {
        char probe[8];
        snprintf(probe, sizeof probe, "%.1f", 0.5);
        *dot = probe[1];
        v = strtod(clean, &stop);
    }
    *end = s + (stop - clean);
    return v;
}

// -------------------------------------------------------------------------------------- hashes

#define EIN__FNV_START 0xcbf29ce484222325ull

EIN__FN uint64_t ein__fnv(uint64_t h, const void *data, size_t n) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3ull;
    return h;
}

EIN__FN uint64_t ein__splitmix(uint64_t x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// -------------------------------------------------------------------------------------- interning

enum { EIN__LEAST_SLOTS = 256 };  // of a table, a power of two

// Sixteen bytes at a time, in two chains that a processor runs side by side: interning is most of
// what deriving does. The order of ids does not depend on it.
static uint32_t ein__record_hash(const void *rec, size_t size) {
    const unsigned char *p = rec;
    uint64_t h = EIN__FNV_START ^ size, g = 0;
    for (; size >= 16; p += 16, size -= 16) {
        uint64_t word[2];
        memcpy(word, p, 16);
        h = (h ^ word[0]) * 0x9E3779B97F4A7C15ull;
        g = (g ^ word[1]) * 0xBF58476D1CE4E5B9ull;
        h ^= h >> 29;
        g ^= g >> 31;
    }
    if (size >= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = (h ^ word) * 0x9E3779B97F4A7C15ull;
        p += 8;
        size -= 8;
    }
    h = (h ^ g) * 0x94D049BB133111EBull;
    for (; size; p++, size--) h = (h ^ *p) * 0x100000001b3ull;
    return (uint32_t)(h ^ h >> 32);
}

// Puts the records into so many slots, a power of two.
static void ein__table_resize(ein__table *t, uint32_t n) {
    ein__slot *slot = EIN_REALLOC(NULL, n * sizeof *slot);
    if (!slot) EIN_OUT_OF_MEMORY();
    memset(slot, 0, n * sizeof *slot);
    for (uint32_t id = 1; id < (uint32_t)arrlen(t->rec); id++) {
        uint32_t at = t->hash[id] & (n - 1);
        while (slot[at].id) at = (at + 1) & (n - 1);
        slot[at] = (ein__slot){id, t->hash[id]};
    }
    EIN_FREE(t->slot);
    t->slot = slot;
    t->mask = n - 1;
}

// The slot of the record with these bytes, which is empty when there is none.
static uint32_t ein__record_slot(const ein__table *t, uint32_t hash, const char *rec, size_t size) {
    uint32_t at = hash & t->mask;
    for (; t->slot[at].id; at = (at + 1) & t->mask) {
        const ein__slot *s = &t->slot[at];
        if (s->hash == hash && t->size[s->id] == size &&
            !memcmp((const char *)t->rec[s->id] + t->derived, rec + t->derived, size - t->derived))
            break;
    }
    return at;
}

// Id of the record with these bytes, of which those that are derived may not be known yet; 0: there
// is none.
EIN__FN uint32_t ein__interned(const ein__table *t, const void *rec, size_t size) {
    if (!t->slot) return 0;
    uint32_t hash = ein__record_hash((const char *)rec + t->derived, size - t->derived);
    return t->slot[ein__record_slot(t, hash, rec, size)].id;
}

// Id of the record with these bytes (padding included: records are zeroed before they are filled).
EIN__FN uint32_t ein__intern(ein__arena *a, ein__table *t, const void *rec, size_t size) {
    if (!t->rec) {
        arrput(t->rec, NULL);
        arrput(t->hash, 0);
        arrput(t->size, 0);
    }
    if (!t->slot) ein__table_resize(t, EIN__LEAST_SLOTS);
    if ((uint32_t)arrlen(t->rec) * 2 > t->mask) ein__table_resize(t, 2 * (t->mask + 1));
    uint32_t hash = ein__record_hash((const char *)rec + t->derived, size - t->derived);
    uint32_t at = ein__record_slot(t, hash, rec, size);
    if (t->slot[at].id) return t->slot[at].id;
    void *copy = ein__alloc(a, size);
    memcpy(copy, rec, size);
    uint32_t id = (uint32_t)arrlen(t->rec);
    arrput(t->rec, copy);
    arrput(t->hash, hash);
    arrput(t->size, (uint32_t)size);
    t->slot[at] = (ein__slot){id, hash};
    return id;
}

// Forgets all records but the first `n`, the unused one among them. Slots were taken in the order
// of ids, so that those of the last ones are no part of the way to others. Few records lie in few
// slots, which caches hold.
EIN__FN void ein__table_cut(ein__table *t, ptrdiff_t n) {
    ptrdiff_t had = arrlen(t->rec);
    if (n < 1) n = 1;
    if (n >= had) return;
    uint32_t slots = t->mask + 1;
    while (slots > EIN__LEAST_SLOTS && (uint32_t)n * 8 < slots) slots /= 2;
    for (ptrdiff_t id = had - 1; id >= n && slots == t->mask + 1; id--) {
        uint32_t at = t->hash[id] & t->mask;
        while (t->slot[at].id != (uint32_t)id) at = (at + 1) & t->mask;
        t->slot[at].id = 0;
    }
    arrsetlen(t->rec, n);
    arrsetlen(t->hash, n);
    arrsetlen(t->size, n);
    if (slots != t->mask + 1) ein__table_resize(t, slots);
}

EIN__FN void ein__table_free(ein__table *t) {
    arrfree(t->rec);
    arrfree(t->hash);
    arrfree(t->size);
    EIN_FREE(t->slot);
    *t = (ein__table){0};
}

// One NUL-terminated copy per distinct text: names are equal when their pointers are.
EIN__FN const char *ein__name_n(ein_ctx *ctx, const char *s, size_t n) {
    char *copy = EIN_REALLOC(NULL, n + 1);
    if (!copy) EIN_OUT_OF_MEMORY();
    memcpy(copy, s, n);
    copy[n] = 0;
    uint32_t id = ein__intern(&ctx->arena, &ctx->names, copy, n + 1);
    EIN_FREE(copy);
    return ctx->names.rec[id];
}

EIN__FN const char *ein__name(ein_ctx *ctx, const char *s) {
    uint32_t id = ein__intern(&ctx->arena, &ctx->names, s, strlen(s) + 1);
    return ctx->names.rec[id];
}

EIN__PRINTF(2, 3) EIN__FN const char *ein__namef(ein_ctx *ctx, const char *format, ...) {
    ein__buf b = {0};
    va_list args;
    va_start(args, format);
    ein__vputf(&b, format, args);
    va_end(args);
    const char *name = ein__name(ctx, b.s ? b.s : "");
    ein__buf_free(&b);
    return name;
}

// -------------------------------------------------------------------------------------- messages

// Prints the source line and a caret below column `pos.col`; long lines are cut around it.
static void ein__put_caret(ein_ctx *ctx, ein__pos pos) {
    if (!ctx->text || !pos.line) return;
    const char *s = ctx->text, *end = ctx->text + ctx->length;
    for (uint32_t line = 1; line < pos.line && s < end; line++) {
        const char *nl = memchr(s, '\n', (size_t)(end - s));
        if (!nl) return;
        s = nl + 1;
    }
    const char *nl = memchr(s, '\n', (size_t)(end - s));
    size_t n = (size_t)((nl ? nl : end) - s), col = pos.col ? pos.col - 1 : 0, from = 0;
    if (col > n) col = n;
    if (col > 80) from = col - 60;
    if (n - from > 100) n = from + 100;
    ein__put(&ctx->errors, "    ");
    for (size_t i = from; i < n; i++) {
        char c = s[i] == '\t' ? ' ' : s[i];
        if ((unsigned char)c < 32 || c == 127) c = '?';
        ein__put_n(&ctx->errors, &c, 1);
    }
    ein__put(&ctx->errors, "\n    ");
    for (size_t i = from; i < col; i++) ein__put(&ctx->errors, " ");
    ein__put(&ctx->errors, "^\n");
}

// Reports `file:line:col: message` with source line and caret. The first error's status stays; more
// messages are added until the list is long enough.
EIN__PRINTF(4, 5)
EIN__FN ein_status ein__error(ein_ctx *ctx, ein_status status, ein__pos pos, const char *format,
                              ...) {
    if (ctx->status == EIN_OK) ctx->status = status;
    if (ctx->nerror++ >= EIN__MAX_ERRORS) return ctx->status;
    ein__put(&ctx->errors, ctx->file ? ctx->file : "einnet");
    if (pos.line) ein__putf(&ctx->errors, ":%u:%u", (unsigned)pos.line, (unsigned)pos.col);
    ein__put(&ctx->errors, ": ");
    size_t from = ctx->errors.n;
    va_list args;
    va_start(args, format);
    ein__vputf(&ctx->errors, format, args);
    va_end(args);
    // Names of the model may hold anything; a message is one line of text.
    for (size_t i = from; i < ctx->errors.n; i++)
        if ((unsigned char)ctx->errors.s[i] < 32 || ctx->errors.s[i] == 127) ctx->errors.s[i] = '?';
    ein__put(&ctx->errors, "\n");
    ein__put_caret(ctx, pos);
    return ctx->status;
}

// Tells how far the work is; false: it is to end.
EIN__FN bool ein__progress(ein_ctx *ctx) {
    const ein_desc *d = &ctx->desc;
    return !d->progress || d->progress(d->progress_user, &ctx->stats);
}

// An attempt that may run into a limit of the implementation and is then simply not made.
typedef struct ein__attempt {
    ein_status status;
    size_t text;
    int nerror;
} ein__attempt;

EIN__FN ein__attempt ein__try(const ein_ctx *ctx) {
    return (ein__attempt){ctx->status, ctx->errors.n, ctx->nerror};
}

// Takes back the messages since ein__try when a limit was met; false when it was.
EIN__FN bool ein__tried(ein_ctx *ctx, ein__attempt a) {
    if (ctx->status != EIN_RESOURCES || a.status == EIN_RESOURCES) return true;
    ctx->status = a.status;
    ctx->nerror = a.nerror;
    ctx->errors.n = a.text;
    if (ctx->errors.s) ctx->errors.s[a.text] = 0;
    return false;
}

EIN__FN char ein__small_letter(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

// Edit distance, capped: names further apart than `cap` are not worth suggesting. Two neighbours
// that changed places are one edit; a letter's case is none.
EIN__FN int ein__distance(const char *a, const char *b, int cap) {
    int rows[3][64], na = (int)strlen(a), nb = (int)strlen(b);
    if (na > 62 || nb > 62 || abs(na - nb) > cap) return cap + 1;
    for (int j = 0; j <= nb; j++) rows[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        char x = ein__small_letter(a[i - 1]), y = 0;
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            char z = ein__small_letter(b[j - 1]);
            int best = above[j - 1] + (x != z);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && x == y && ein__small_letter(a[i - 2]) == z;
            if (swapped && before[j - 2] + 1 < best) best = before[j - 2] + 1;
            row[j] = best;
            y = z;
        }
    }
    return rows[na % 3][nb];
}

// Edits that a slip of the pen may have made in `name`: in a short one, two make any other one.
EIN__FN int ein__edits(const char *name) {
    size_t n = strlen(name);
    return n > 4 ? 2 : n > 1 ? 1 : 0;
}

// Keeps in `*best` whichever of it and `candidate` is closer to `name`; `*distance` starts at 3.
EIN__FN void ein__suggest(const char *name, const char *candidate, const char **best,
                          int *distance) {
    int d = ein__distance(name, candidate, *distance);
    if (d < *distance && d <= ein__edits(name)) {
        *distance = d;
        *best = candidate;
    }
}

// -------------------------------------------------------------------------------------- integers

EIN__FN bool ein__mul_overflows(int64_t a, int64_t b, int64_t *r) {
    return __builtin_mul_overflow(a, b, r);
}

EIN__FN bool ein__add_overflows(int64_t a, int64_t b, int64_t *r) {
    return __builtin_add_overflow(a, b, r);
}

// a * b / c without overflow, saturating; no operand is negative.
EIN__FN int64_t ein__muldiv(int64_t a, int64_t b, int64_t c) {
    __extension__ typedef unsigned __int128 wide;
    int64_t product;
    // Divisions of 128 bits take long, and few products need them.
    if (!ein__mul_overflows(a, b, &product)) {
        int64_t v = product / c;
        return v > INT64_MAX / 4 ? INT64_MAX / 4 : v;
    }
    wide v = (wide)a * (wide)b / (wide)c;
    return v > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)v;
}

// The same without a division, which is most of what estimates would take.
EIN__FN int64_t ein__times(int64_t a, int64_t b) {
    int64_t product;
    bool over = ein__mul_overflows(a, b, &product) || product > INT64_MAX / 4;
    return over ? INT64_MAX / 4 : product;
}

EIN__FN int64_t ein__plus(int64_t a, int64_t b) {
    return a > INT64_MAX / 4 - b ? INT64_MAX / 4 : a + b;
}

EIN__FN int64_t ein__ceil(int64_t a, int64_t b) { return a / b + (a % b != 0); }

EIN__FN int64_t ein__floordiv(int64_t a, int64_t b) {
    int64_t q = a / b;
    return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

EIN__FN int64_t ein__floormod(int64_t a, int64_t b) {
    int64_t rest = a % b;
    return rest && (rest < 0) != (b < 0) ? rest + b : rest;
}

EIN__FN int64_t ein__gcd(int64_t a, int64_t b) {
    if (a < 0) a = -a;
    if (b < 0) b = -b;
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

// Elements of a shape; EIN__MAX_ELEMENTS + 1 when there are more than that.
EIN__FN int64_t ein__elements(const ein__shape *s) {
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++)
        if (ein__mul_overflows(n, s->d[i], &n) || n > EIN__MAX_ELEMENTS)
            return EIN__MAX_ELEMENTS + 1;
    return n;
}

EIN__FN int ein__dtype_size(ein__dtype t) {
    static const int size[EIN__NDTYPE] = {4, 2, 2, 1, 1, 4, 8, 1};
    return size[t];
}

EIN__FN const char *ein__dtype_name(ein__dtype t) {
    static const char *const name[EIN__NDTYPE] = {"f32", "f16", "bf16", "i8",
                                                  "u8",  "i32", "i64",  "bool"};
    return name[t];
}
