// cmd_diff.c - unified differences of two texts.
#include "cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONTEXT = 3,
    // Cells of the table. Emitted files stay well below it; beyond it the part between the first
    // and the last difference is printed as replaced.
    MAX_CELLS = 1 << 25
};

typedef struct {
    const char *text;
    size_t length;  // newline included, where there is one
} line_ref;

typedef struct {
    line_ref *line;
    size_t count;
} lines;

// One step of the edit script: `count` lines kept (' '), removed ('-') or added ('+').
typedef struct {
    char kind;
    size_t old_at, new_at, count;
} edit;

typedef struct {
    lines old, new;
    edit *edit;
    size_t count, room;
} script;

static lines split(const char *text, size_t size) {
    lines l = {NULL, 0};
    size_t room = 0;
    const char *end = text + size;
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *next = newline ? newline + 1 : end;
        if (l.count == room) {
            room = room ? room * 2 : 256;
            l.line = cli_realloc(l.line, room * sizeof *l.line);
        }
        l.line[l.count++] = (line_ref){text, (size_t)(next - text)};
        text = next;
    }
    return l;
}

static bool same(const script *s, size_t old_at, size_t new_at) {
    const line_ref *a = &s->old.line[old_at], *b = &s->new.line[new_at];
    return a->length == b->length && !memcmp(a->text, b->text, a->length);
}

static void add(script *s, char kind, size_t old_at, size_t new_at, size_t count) {
    if (!count) {
        return;
    }
    if (s->count && s->edit[s->count - 1].kind == kind) {
        s->edit[s->count - 1].count += count;
        return;
    }
    if (s->count == s->room) {
        s->room = s->room ? s->room * 2 : 64;
        s->edit = cli_realloc(s->edit, s->room * sizeof *s->edit);
    }
    s->edit[s->count++] = (edit){kind, old_at, new_at, count};
}

// The middle part: old[a0 + i] against new[b0 + j] for i < n, j < m, where neither the first nor
// the last lines agree. table[i][j] is the length of the longest common subsequence of what is left
// from (i, j) on; n * m is small enough for it to fit 16 bits, since the shorter side is.
static void edit_middle(script *s, size_t a0, size_t n, size_t b0, size_t m) {
    if (!n || !m || n > MAX_CELLS / m - 1 || n + 1 > MAX_CELLS / (m + 1)) {
        add(s, '-', a0, b0, n);
        add(s, '+', a0 + n, b0, m);
        return;
    }
    size_t width = m + 1;
    uint16_t *table = cli_alloc((n + 1) * width * sizeof *table);
    for (size_t i = n; i-- > 0;) {
        for (size_t j = m; j-- > 0;) {
            uint16_t down = table[(i + 1) * width + j], right = table[i * width + j + 1];
            table[i * width + j] = same(s, a0 + i, b0 + j)
                                       ? (uint16_t)(table[(i + 1) * width + j + 1] + 1)
                                       : (down > right ? down : right);
        }
    }
    size_t i = 0, j = 0;
    while (i < n || j < m) {
        if (i < n && j < m && same(s, a0 + i, b0 + j)) {
            add(s, ' ', a0 + i++, b0 + j++, 1);
        } else if (i < n && (j == m || table[(i + 1) * width + j] >= table[i * width + j + 1])) {
            add(s, '-', a0 + i++, b0 + j, 1);
        } else {
            add(s, '+', a0 + i, b0 + j++, 1);
        }
    }
    free(table);
}

static void make_script(script *s) {
    size_t n = s->old.count, m = s->new.count, head = 0, tail = 0;
    while (head < n && head < m && same(s, head, head)) {
        head++;
    }
    while (tail < n - head && tail < m - head && same(s, n - tail - 1, m - tail - 1)) {
        tail++;
    }
    add(s, ' ', 0, 0, head);
    edit_middle(s, head, n - head - tail, head, m - head - tail);
    add(s, ' ', n - tail, m - tail, tail);
}

static void print_lines(FILE *out, char kind, const lines *from, size_t at, size_t count) {
    for (size_t i = at; i < at + count; i++) {
        const line_ref *l = &from->line[i];
        fputc(kind, out);
        fwrite(l->text, 1, l->length, out);
        if (!l->length || l->text[l->length - 1] != '\n') {
            fputs("\n\\ No newline at end of file\n", out);
        }
    }
}

// "-12,7": an empty range names the line before it.
static void print_range(FILE *out, char sign, size_t at, size_t count) {
    fprintf(out, "%c%zu", sign, count ? at + 1 : at);
    if (count != 1) {
        fprintf(out, ",%zu", count);
    }
}

// One hunk: edits first..last, the kept lines around them cut to the context.
static void print_hunk(FILE *out, const script *s, size_t first, size_t last) {
    size_t old_count = 0, new_count = 0;
    const edit *e = &s->edit[first];
    size_t before = 0, after = 0;
    if (first && e[-1].kind == ' ') {
        before = e[-1].count < CONTEXT ? e[-1].count : CONTEXT;
    }
    if (last + 1 < s->count) {
        after = s->edit[last + 1].count < CONTEXT ? s->edit[last + 1].count : CONTEXT;
    }
    for (size_t i = first; i <= last; i++) {
        old_count += s->edit[i].kind != '+' ? s->edit[i].count : 0;
        new_count += s->edit[i].kind != '-' ? s->edit[i].count : 0;
    }
    fputs("@@ ", out);
    print_range(out, '-', e->old_at - before, old_count + before + after);
    fputc(' ', out);
    print_range(out, '+', e->new_at - before, new_count + before + after);
    fputs(" @@\n", out);
    print_lines(out, ' ', &s->old, e->old_at - before, before);
    for (size_t i = first; i <= last; i++) {
        const edit *k = &s->edit[i];
        bool added = k->kind == '+';
        print_lines(out, k->kind, added ? &s->new : &s->old, added ? k->new_at : k->old_at,
                    k->count);
    }
    if (after) {
        print_lines(out, ' ', &s->old, s->edit[last + 1].old_at, after);
    }
}

// Hunks: changes with at most twice the context between them are printed together.
static void print_hunks(FILE *out, const script *s) {
    for (size_t i = 0; i < s->count; i++) {
        if (s->edit[i].kind == ' ') {
            continue;
        }
        size_t last = i;
        for (size_t j = i + 1; j < s->count; j++) {
            if (s->edit[j].kind != ' ') {
                last = j;
            } else if (s->edit[j].count > 2 * CONTEXT) {
                break;
            }
        }
        print_hunk(out, s, i, last);
        i = last;
    }
}

bool cmd_diff(FILE *out, const char *old_name, const char *old, size_t old_size,
              const char *new_name, const char *new, size_t new_size) {
    if (old_size == new_size && !memcmp(old, new, old_size)) {
        return false;
    }
    script s;
    memset(&s, 0, sizeof s);
    s.old = split(old, old_size);
    s.new = split(new, new_size);
    make_script(&s);
    fprintf(out, "--- %s\n+++ %s\n", old_name, new_name);
    print_hunks(out, &s);
    free(s.edit);
    free(s.old.line);
    free(s.new.line);
    return true;
}
