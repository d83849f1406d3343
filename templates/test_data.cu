//@key sources  the table of where the values of inputs come from
// ---- elements

enum dtype { F32, F16, BF16, I8, U8, I32, I64, BOOL, DTYPES };

static const struct {
    const char *name, *npy;
    size_t size;
} dtypes[DTYPES] = {{"f32", "<f4", 4}, {"f16", "<f2", 2}, {"bf16", "", 2},   {"i8", "|i1", 1},
                    {"u8", "|u1", 1},  {"i32", "<i4", 4}, {"i64", "<i8", 8}, {"bool", "|b1", 1}};

static dtype dtype_of(const char *name) {
    int i = 0;
    while (i < BOOL && strcmp(dtypes[i].name, name)) i++;
    return (dtype)i;
}

static bool is_float(dtype type) { return type <= BF16; }

static size_t count_of(const tensor *t) {
    size_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= (size_t)t->dims[i];
    return n;
}

static float from_f16(unsigned bits) {
    int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
    float v = ldexpf((float)fraction, -24);
    if (exponent) v = ldexpf((float)(fraction + 1024), exponent - 25);
    if (exponent == 31) v = fraction ? NAN : INFINITY;
    return bits >> 15 ? -v : v;
}

// Rounds to the nearest, ties to even.
static unsigned to_f16(float v) {
    unsigned sign = signbit(v) ? 0x8000 : 0;
    float size = fabsf(v);
    int exponent = 0;
    if (v != v) return sign | 0x7e00;
    if (size >= 65520.f) return sign | 0x7c00;
    frexpf(size, &exponent);
    if (exponent < -13 || size == 0) exponent = -13;  // subnormal: the step stays 2^-24
    return sign + ((unsigned)(exponent + 13) << 10) + (unsigned)rintf(ldexpf(size, 11 - exponent));
}

static float from_bf16(unsigned bits) {
    unsigned word = bits << 16;
    float v;
    memcpy(&v, &word, 4);
    return v;
}

static unsigned to_bf16(float v) {
    unsigned word;
    memcpy(&word, &v, 4);
    if (v != v) return word >> 16 | 64;
    return (word + 0x7fff + (word >> 16 & 1)) >> 16;
}

static float get_float(dtype type, const void *data, size_t i) {
    if (type == F32) return ((const float *)data)[i];
    unsigned bits = ((const unsigned short *)data)[i];
    return type == F16 ? from_f16(bits) : from_bf16(bits);
}

static void put_float(dtype type, void *data, size_t i, float v) {
    if (type == F32) ((float *)data)[i] = v;
    else ((unsigned short *)data)[i] = (unsigned short)(type == F16 ? to_f16(v) : to_bf16(v));
}

static long long get_int(dtype type, const void *data, size_t i) {
    switch (dtypes[type].size) {
    case 8: return ((const long long *)data)[i];
    case 4: return ((const int *)data)[i];
    default: break;
    }
    unsigned char byte = ((const unsigned char *)data)[i];
    return type == I8 ? (signed char)byte : byte;
}

static void put_int(dtype type, void *data, size_t i, long long v) {
    switch (dtypes[type].size) {
    case 8: ((long long *)data)[i] = v; break;
    case 4: ((int *)data)[i] = (int)v; break;
    default: ((signed char *)data)[i] = (signed char)v;
    }
}

// Where an input's values come from that no file gives: about normal with deviation a, or evenly
// from a to b.
struct source {
    unsigned long long seed;
    bool normal;
    double a, b;
};
$sources;

static long long between(long long a, long long b, unsigned long long z) {
    const unsigned long long span = (unsigned long long)b - (unsigned long long)a + 1;
    return (long long)((unsigned long long)a + (span ? z % span : z));
}

// Values that every implementation reproduces bit for bit: element i is drawn from a hash of the
// seed and i. Set 0 is the one that the model states.
static void seeded(const tensor *t, int input, int set, void *data) {
    const source *s = &sources[input];
    const unsigned long long golden = 0x9E3779B97F4A7C15ull;
    const unsigned long long seed = s->seed + 1000 * (unsigned long long)set;
    const float scale = (float)(s->a * 2.6429e-5), low = (float)s->a, width = (float)s->b - low;
    dtype type = dtype_of(t->dtype);
    size_t n = count_of(t);
    for (size_t i = 0; i < n; i++) {
        unsigned long long z = seed * golden + i + golden;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ z >> 27) * 0x94D049BB133111EBull;
        z ^= z >> 31;
        int sum = (int)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
        // Rounded before it is added, whether the machine fuses the two or not.
        float part = (float)(ldexp((double)(z >> 40), -24) * width);
        if (!is_float(type)) put_int(type, data, i, between((long long)s->a, (long long)s->b, z));
        else put_float(type, data, i, s->normal ? (float)(sum - 131070) * scale : low + part);
    }
}

// ---- files

// A whole file in memory that the caller frees.
static int read_file(const char *path, unsigned char **data, size_t *bytes) {
    *data = NULL;
    FILE *f = fopen(path, "rb");
    if (!f) return fail(BAD_FILE, path, strerror(errno));
    size_t cap = 1 << 16, n = 0, got = 1;
    int code = 0;
    if (!fseek(f, 0, SEEK_END)) {
        long size = ftell(f);
        if (size >= 0 && size < LONG_MAX) cap = (size_t)size + 1;
        rewind(f);
    }
    while (!code && got) {
        if (!*data || n == cap) {
            cap = *data ? cap * 2 : cap;
            void *more = realloc(*data, cap);
            if (!more) code = fail(FAILED, path, "host memory is exhausted");
            else *data = (unsigned char *)more;
        }
        if (!code) n += got = fread(*data + n, 1, cap - n, f);
    }
    if (!code && ferror(f)) code = fail(BAD_FILE, path, "cannot be read");
    fclose(f);
    *bytes = n;
    if (!code) return 0;
    free(*data);
    *data = NULL;
    return code;
}

// What is left of a .npy header.
struct header {
    const char *at, *end;
};

static bool take(header *h, const char *word) {
    size_t n = strlen(word);
    while (h->at < h->end && (*h->at == ' ' || *h->at == '\n' || *h->at == '\t')) h->at++;
    if ((size_t)(h->end - h->at) < n || memcmp(h->at, word, n)) return false;
    h->at += n;
    return true;
}

// A quoted word without escapes.
static bool take_word(header *h, char *word, size_t size) {
    size_t n = 0;
    char quote = take(h, "'") ? '\'' : '"';
    if (quote == '"' && !take(h, "\"")) return false;
    while (h->at < h->end && *h->at != quote && *h->at != '\\' && n + 1 < size)
        word[n++] = *h->at++;
    word[n] = 0;
    return h->at < h->end && *h->at++ == quote;
}

static bool take_shape(header *h, int *rank, long long *dims) {
    if (!take(h, "(")) return false;
    for (*rank = 0; !take(h, ")"); ++*rank) {
        if (*rank == 10) return false;
        long long d = 0;
        const char *start = h->at;
        while (h->at < h->end && *h->at >= '0' && *h->at <= '9' && d < LLONG_MAX / 16)
            d = d * 10 + (*h->at++ - '0');
        if (h->at == start) return false;
        dims[*rank] = d;
        if (take(h, ",")) continue;
        ++*rank;
        return take(h, ")");
    }
    return true;
}

// {'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 4), }, keys in any order.
static bool parse_header(header *h, char *descr, size_t size, int *rank, long long *dims) {
    int seen = 0;
    if (!take(h, "{")) return false;
    while (!take(h, "}")) {
        char key[16];
        int which;
        if (!take_word(h, key, sizeof key) || !take(h, ":")) return false;
        if (!strcmp(key, "descr") && take_word(h, descr, size)) which = 1;
        else if (!strcmp(key, "fortran_order") && take(h, "False")) which = 2;
        else if (!strcmp(key, "shape") && take_shape(h, rank, dims)) which = 4;
        else return false;
        if (seen & which) return false;
        seen |= which;
        if (take(h, ",")) continue;
        if (!take(h, "}")) return false;
        break;
    }
    take(h, "");
    return seen == 7 && h->at == h->end;
}

// Copies the elements of a .npy file into `data`, refusing everything that is not this tensor.
// Half-precision inputs may come as f4: .npy has no bfloat16.
static int parse_npy(const char *path, const unsigned char *p, size_t n, const tensor *t,
                     void *data) {
    dtype type = dtype_of(t->dtype);
    if (n < 12 || memcmp(p, "\x93NUMPY", 6) || p[6] < 1 || p[6] > 3 || p[7])
        return fail(BAD_FILE, path, "not a .npy file of version 1, 2 or 3");
    size_t start = p[6] == 1 ? 10 : 12, length = p[8] | (size_t)p[9] << 8;
    if (p[6] > 1) length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (length > n - start) return fail(BAD_FILE, path, "the file ends inside its header");
    header h = {(const char *)p + start, (const char *)p + start + length};
    char descr[8] = "";
    int rank = 0;
    long long dims[10] = {0};
    if (!parse_header(&h, descr, sizeof descr, &rank, dims))
        return fail(BAD_FILE, path, "the header does not describe a plain array in C order");
    bool same = rank == t->rank, wide = is_float(type) && !strcmp(descr, "<f4");
    for (int i = 0; same && i < rank; i++) same = dims[i] == t->dims[i];
    if (!same) return fail(BAD_FILE, path, "the shape is not the input's");
    if (!wide && strcmp(descr, dtypes[type].npy))
        return fail(BAD_FILE, path, "the element type is not the input's");
    const unsigned char *from = p + start + length;
    size_t count = count_of(t), size = wide ? 4 : dtypes[type].size;
    if (n - start - length != count * size)
        return fail(BAD_FILE, path, "the data is shorter or longer than the header says");
    if (!wide || type == F32) memcpy(data, from, count * size);
    for (size_t i = 0; wide && type != F32 && i < count; i++) {
        float v;
        memcpy(&v, from + 4 * i, 4);
        put_float(type, data, i, v);
    }
    return 0;
}

// NAME.npy in `dir`; bytes of the name that a file name should not have become %XX.
static int open_output(const char *dir, const char *name, FILE **f) {
    size_t room = strlen(dir) + 3 * strlen(name) + 8, n;
    char *path;
    TRY(host_alloc((void **)&path, room));
    n = (size_t)snprintf(path, room, "%s/", dir);
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        plain = plain || c == '_' || c == '.' || c == '-';
        n += (size_t)snprintf(path + n, room - n, plain ? "%c" : "%%%02X", c);
    }
    memcpy(path + n, ".npy", 5);
    *f = fopen(path, "wb");
    int code = *f ? 0 : fail(FAILED, path, strerror(errno));
    free(path);
    return code;
}

static int write_npy(const char *dir, const tensor *t, const void *data) {
    char head[512];
    FILE *f;
    dtype type = dtype_of(t->dtype);
    const char *descr = is_float(type) ? "<f4" : dtypes[type].npy;
    int n = snprintf(head, sizeof head, "{'descr': '%s', ", descr);
    n += snprintf(head + n, sizeof head - (size_t)n, "'fortran_order': False, 'shape': (");
    for (int i = 0; i < t->rank; i++)
        n += snprintf(head + n, sizeof head - (size_t)n, "%lld,", t->dims[i]);
    n += snprintf(head + n, sizeof head - (size_t)n, "), }");
    while ((10 + n + 1) % 64) head[n++] = ' ';
    head[n++] = '\n';
    TRY(open_output(dir, t->name, &f));
    unsigned char magic[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)n, (unsigned char)(n >> 8)};
    size_t count = count_of(t);
    bool ok = fwrite(magic, 1, 10, f) == 10 && fwrite(head, 1, (size_t)n, f) == (size_t)n;
    if (type == F16 || type == BF16) {
        for (size_t i = 0; ok && i < count; i++) {
            float v = get_float(type, data, i);
            ok = fwrite(&v, 4, 1, f) == 1;
        }
    } else if (ok) {
        ok = fwrite(data, dtypes[type].size, count, f) == count;
    }
    if (fclose(f)) ok = false;
    return ok ? 0 : fail(FAILED, t->name, "the output could not be written");
}
