// Tables of records that are cut, and contexts that forget what a plan had made.

enum { RECORDS = 4000 };

// A record of its own length for each number.
static size_t numbered(int i, char to[32]) {
    return (size_t)snprintf(to, 32, "%d%.*s", i * 7919, i % 9, "xxxxxxxxx") + 1;
}

// Whether a table has just the first `n` of the records, by their ids.
static bool has_first(const ein__table *t, int n) {
    char rec[32];
    bool ok = arrlen(t->rec) == n + 1;
    for (int i = 0; i < RECORDS && ok; i++) {
        size_t size = numbered(i, rec);
        ok = ein__interned(t, rec, size) == (i < n ? (uint32_t)i + 1 : 0);
        if (ok && i < n) ok = !memcmp(t->rec[i + 1], rec, size);
    }
    return ok;
}

static void test_cuts(void) {
    ein__table t = {0};
    ein__arena a = {0};
    char rec[32];
    int n = 0;
    for (int round = 0; round < 60; round++) {
        for (int to = (int)(random_u64() % RECORDS); n < to; n++) {
            size_t size = numbered(n, rec);
            CHECK(ein__intern(&a, &t, rec, size) == (uint32_t)n + 1, "record %d is new", n);
        }
        CHECK(has_first(&t, n), "%d records", n);
        // To most of them, or few, for which fewer slots do.
        n = round % 3 ? n - n / 5 : n / 40;
        ein__table_cut(&t, n + 1);
        CHECK(has_first(&t, n), "%d records after a cut", n);
        CHECK(t.mask + 1 <= EIN__LEAST_SLOTS || (uint32_t)(n + 1) * 8 >= t.mask + 1,
              "%u slots of %d records", t.mask + 1, n);
    }
    ein__table_free(&t);
    ein__arena_free(&a);
}

// What is made once more after it was forgotten is what it was the first time.
static void test_unmade(void) {
    ein_ctx *ctx = open_context();
    new_input(ctx, "v", 1, (int64_t[]){8}, EIN__F32);
    ein__val a = lower_text(ctx, "a[h] = exp(v[h])"), b[2];
    uint32_t body[2];
    struct ein__chunk *chunk = ctx->forms.head;
    size_t used = chunk->used;
    ein__made made = ein__made_now(ctx);
    for (int k = 0; k < 2; k++) {
        b[k] = lower_text(ctx, "b[h,g] = a[h] * tanh(v[g]) + v[7-h]");
        body[k] = ein__scope_of(ctx, b[k])->body.i;
        CHECK(arrlen(ein__ex_reads(ctx, (ein__ex){body[k]})) == 3, "it reads three");
        ein__unmake(ctx, &made);
        ein__made now = ein__made_now(ctx);
        CHECK(now.value == made.value && !memcmp(now.form, made.form, sizeof now.form),
              "nothing is left");
        CHECK(ctx->forms.head == chunk && chunk->used == used, "nor is memory");
    }
    CHECK(b[0].i == b[1].i && body[0] == body[1], "the same ids");
    CHECK(ctx->unmade == 2 && ein__is_map(ctx, a), "two values were forgotten, others were not");
    ein_close(ctx);
}

static void test_unmake(void) {
    test_cuts();
    test_unmade();
}
