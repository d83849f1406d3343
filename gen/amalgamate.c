// amalgamate.c - build tool: templates into C, modules into one header. C11, nothing else.
//
//     amalgamate embed templates/*.cu > build/templates.inc
//     amalgamate flatten -Ibuild gen/all.h > einnet.h
//
// `embed` writes each file as an array of line strings, so that a diff shows the line that changed
// and no literal grows past what C11 promises to take. It refuses a template whose placeholders are
// not those that its `//@key` lines declare (gen/emit/tmpl.c). `flatten` replaces every local
// include by the file's text, once, and changes nothing else. Both refuse what they cannot do
// exactly.
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 1000, MAX_PATH = 500, MAX_FILES = 200, MAX_DEPTH = 16, MAX_KEYS = 100 };

// Files of a flattened header, in the order of their appearance.
static struct {
    const char *search;  // second directory for includes, or NULL
    char *seen[MAX_FILES];
    int count;
} state;

static bool fail(const char *path, int line, const char *format, ...) {
    va_list list;
    va_start(list, format);
    fprintf(stderr, "amalgamate: %s:%d: ", path, line);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    return false;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// One line without its newline; 0 at the end, -1 when it is not a line of clean text.
static int read_line(FILE *file, char line[MAX_LINE]) {
    if (!fgets(line, MAX_LINE, file)) {
        return ferror(file) ? -1 : 0;
    }
    size_t size = strlen(line);
    if (!size || line[size - 1] != '\n') {
        return -1;
    }
    line[size - 1] = 0;
    return strpbrk(line, "\t\r") ? -1 : 1;
}

// ---- embed ----

static void put_string(const char *text) {
    fputs("    \"", stdout);
    for (; *text; text++) {
        if (strchr("\"\\?", *text)) {  // \? keeps trigraphs away
            putchar('\\');
        }
        putchar(*text);
    }
    fputs("\",\n", stdout);
}

// The placeholders that a template's head declares, and how many `//@if` are open.
typedef struct {
    const char *path;
    char key[MAX_KEYS][MAX_LINE];
    bool used[MAX_KEYS];
    int keys, open;
    bool body;  // the head is over
} declared;

// The length of the placeholder's name at `s`: letters and digits.
static size_t key_length(const char *s) {
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
}

static bool use_key(declared *d, int line, const char *name, size_t length) {
    for (int i = 0; i < d->keys; i++) {
        if (strlen(d->key[i]) == length && !memcmp(d->key[i], name, length)) {
            d->used[i] = true;
            return true;
        }
    }
    return fail(d->path, line, "no line '//@key %.*s' declares this placeholder", (int)length,
                name);
}

// The name behind `tag` where the line begins with it; NULL: it does not.
static const char *directive(const char *line, const char *tag) {
    const char *s = line + strspn(line, " ");
    size_t length = strlen(tag);
    return strncmp(s, tag, length) ? NULL : s + length + strspn(s + length, " ");
}

static bool check_line(declared *d, int number, const char *line) {
    const char *name = d->body ? NULL : directive(line, "//@key ");
    bool good = true;
    if (name) {
        if (d->keys == MAX_KEYS) {
            return fail(d->path, number, "more than %d placeholders", (int)MAX_KEYS);
        }
        memcpy(d->key[d->keys], name, key_length(name));
        d->keys++;
        return true;
    }
    d->body = true;
    if ((name = directive(line, "//@if "))) {
        d->open++;
        return use_key(d, number, name, key_length(name));
    }
    bool end = directive(line, "//@end") != NULL;
    if (end || directive(line, "//@else")) {
        if (!d->open) {
            return fail(d->path, number, "there is no //@if before this line");
        }
        d->open -= end;
        return true;
    }
    for (const char *s = line; (s = strchr(s, '$')); s++) {
        size_t length = key_length(s + 1);
        good = (!length || use_key(d, number, s + 1, length)) && good;
    }
    return good;
}

// What can only be said at a template's end.
static bool check_end(const declared *d, int number) {
    bool good = !d->open || fail(d->path, number, "an //@if has no //@end");
    for (int i = 0; i < d->keys; i++) {
        good = (d->used[i] || fail(d->path, i + 1, "nothing uses placeholder '%s'", d->key[i])) &&
               good;
    }
    return good;
}

static bool embed(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) {
        return fail(path, 0, "cannot be read");
    }
    static declared d;
    memset(&d, 0, sizeof d);
    d.path = path;
    const char *name = base_name(path);
    printf("static const char *const ein__tmpl_%.*s[] = {\n", (int)strcspn(name, "."), name);
    char line[MAX_LINE];
    int number = 0, got;
    bool good = true;
    while ((got = read_line(file, line)) > 0) {
        good = check_line(&d, ++number, line) && good;
        put_string(line);
    }
    puts("    0};");
    fclose(file);
    if (got) {
        return fail(path, number + 1, "long line, tab, or no newline at the end");
    }
    return check_end(&d, number) && good;
}

// ---- flatten ----

// The file of `#include "name"` in `from`: beside it, else in the second directory.
static FILE *open_include(const char *from, const char *name, char path[MAX_PATH]) {
    int directory = (int)(base_name(from) - from);
    FILE *file = NULL;
    if (snprintf(path, MAX_PATH, "%.*s%s", directory, from, name) < MAX_PATH) {
        file = fopen(path, "r");
    }
    if (!file && state.search && snprintf(path, MAX_PATH, "%s/%s", state.search, name) < MAX_PATH) {
        file = fopen(path, "r");
    }
    return file;
}

// `#include` with whatever follows it in `rest`; only the plainest spelling is understood, and any
// other line with the word in a directive is refused.
static bool is_include(const char *line, const char **rest) {
    const char *s = line + strspn(line, " ");
    if (*s != '#') {
        return false;
    }
    s += 1 + strspn(s + 1, " ");
    if (strncmp(s, "include", 7)) {
        return false;
    }
    *rest = s + 7 + strspn(s + 7, " ");
    return true;
}

static bool remember(const char *name) {
    for (int i = 0; i < state.count; i++) {
        if (!strcmp(state.seen[i], name)) {
            return false;
        }
    }
    size_t size = strlen(name) + 1;
    char *copy = state.count < MAX_FILES ? malloc(size) : NULL;
    if (!copy) {
        return false;
    }
    state.seen[state.count++] = memcpy(copy, name, size);
    return true;
}

static bool flatten(FILE *file, const char *path, int depth);

static bool flatten_include(const char *from, int number, const char *rest, int depth) {
    char name[MAX_LINE], path[MAX_PATH];
    size_t size = strcspn(rest + 1, "\"");
    if (rest[1 + size] != '"' || rest[2 + size]) {
        return fail(from, number, "an include that is not plain \"name\" or <name>");
    }
    memcpy(name, rest + 1, size);
    name[size] = 0;
    if (depth == MAX_DEPTH || !remember(base_name(name))) {
        return fail(from, number, "%s is included twice, or too deep", name);
    }
    FILE *file = open_include(from, name, path);
    if (!file) {
        return fail(from, number, "%s is not there", name);
    }
    printf("/* ---- %s ---- */\n", base_name(name));
    bool good = flatten(file, path, depth + 1);
    fclose(file);
    return good;
}

static bool flatten(FILE *file, const char *path, int depth) {
    char line[MAX_LINE];
    int number = 0, got;
    while ((got = read_line(file, line)) > 0) {
        const char *rest;
        number++;
        if (!is_include(line, &rest) || *rest == '<') {
            puts(line);
        } else if (*rest != '"') {
            return fail(path, number, "an include that is not plain \"name\" or <name>");
        } else if (!flatten_include(path, number, rest, depth)) {
            return false;
        }
    }
    return !got || fail(path, number + 1, "long line, tab, or no newline at the end");
}

static bool flatten_root(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) {
        return fail(path, 0, "cannot be read");
    }
    printf("// Generated from %s by `make header`. DO NOT EDIT.\n", path);
    bool good = flatten(file, path, 0);
    fclose(file);
    for (int i = 0; i < state.count; i++) {
        free(state.seen[i]);
    }
    return good;
}

static int usage(void) {
    fputs("usage: amalgamate embed FILE...\n       amalgamate flatten [-IDIRECTORY] ROOT\n",
          stderr);
    return 2;
}

int main(int argc, char **argv) {
    bool good = true;
    if (argc >= 3 && !strcmp(argv[1], "embed")) {
        for (int i = 2; i < argc; i++) {
            good = embed(argv[i]) && good;
        }
    } else if (argc >= 3 && !strcmp(argv[1], "flatten")) {
        int root = 2;
        if (!strncmp(argv[root], "-I", 2)) {
            state.search = argv[root++] + 2;
        }
        if (root + 1 != argc) {
            return usage();
        }
        good = flatten_root(argv[root]);
    } else {
        return usage();
    }
    if (fflush(stdout) || ferror(stdout)) {
        return fail("standard output", 0, "cannot be written"), 1;
    }
    return good ? 0 : 1;
}
