// Template engine. A template is CUDA that compiles as it stands (with sample definitions of its
// placeholders); a placeholder is an identifier `$name`, ended by anything but a letter or digit.
//
//     //@key NAME  meaning      head: declares a placeholder; head lines are not emitted
//     //@if NAME / //@else / //@end   keeps lines when NAME's text is neither empty nor "0"
//     $name;                    alone on its line: any number of lines, at this line's indentation
//
// Logic stays in C: there are no loops and no expressions here.

#include "templates.inc"

typedef struct ein__key {
    const char *name, *text;
} ein__key;

enum { EIN__TMPL_DEPTH = 8, EIN__COLUMNS = 100 };

static bool ein__tmpl_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// Length of the placeholder's name after the `$` at s, 0 if there is none.
static size_t ein__tmpl_name(const char *s) {
    size_t n = 0;
    while (ein__tmpl_word(s[n])) n++;
    return n;
}

static int ein__tmpl_find(const ein__key *keys, int nkey, const char *s, size_t n) {
    for (int i = 0; i < nkey; i++)
        if (strlen(keys[i].name) == n && !memcmp(keys[i].name, s, n)) return i;
    return -1;
}

// The line's word after `tag`, or NULL when the line is not this directive.
static const char *ein__tmpl_directive(const char *line, const char *tag, size_t *n) {
    while (*line == ' ') line++;
    size_t len = strlen(tag);
    if (strncmp(line, tag, len)) return NULL;
    line += len;
    while (*line == ' ') line++;
    *n = ein__tmpl_name(line);
    return line;
}

// Whether the space at s[at] stands outside of string literals and not next to or behind the start
// of a comment.
static bool ein__tmpl_legal(const char *s, size_t at) {
    bool quoted = false;
    for (size_t i = 0; i < at; i++) {
        if (s[i] == '\\' && quoted) i++;
        else if (s[i] == '"') quoted = !quoted;
        else if (!quoted && s[i] == '/' && s[i + 1] == '/') return false;
    }
    return !quoted && !(s[at + 1] == '/' && s[at + 2] == '/');
}

// Where to break a line of which `most` characters fit: after a comma or semicolon in the second
// half, else before an operator, else at any space. 0: nowhere.
static size_t ein__tmpl_cut(const char *s, size_t least, size_t most) {
    size_t any = 0, before = 0;
    for (size_t i = most; i > least; i--) {
        if (s[i] != ' ' || s[i + 1] == '*' || !ein__tmpl_legal(s, i)) continue;
        if ((s[i - 1] == ',' || s[i - 1] == ';') && i > (least + most) / 2) return i;
        if (!before && strchr("?:&+", s[i + 1])) before = i;
        if (!any) any = i;
    }
    return before > (least + most) / 2 ? before : any;
}

// Breaks lines that got too long at the last space that fits.
static void ein__tmpl_line(ein__buf *out, const char *s, size_t n) {
    size_t indent = 0;
    while (n && s[n - 1] == ' ') n--;
    while (indent < n && s[indent] == ' ') indent++;
    bool first = true;
    bool fixed = indent < n && (s[indent] == '#' || !strncmp(s + indent, "//", 2));
    while (!fixed && n > EIN__COLUMNS - (first ? 0 : indent + 4)) {
        size_t room = EIN__COLUMNS - (first ? 0 : indent + 4);
        size_t cut = ein__tmpl_cut(s, first ? indent : 0, room);
        if (!cut) break;
        if (!first) ein__putf(out, "%*s", (int)indent + 4, "");
        ein__put_n(out, s, cut);
        ein__put(out, "\n");
        s += cut + 1;
        n -= cut + 1;
        first = false;
    }
    if (!first) ein__putf(out, "%*s", (int)indent + 4, "");
    ein__put_n(out, s, n);
    ein__put(out, "\n");
}

// Each line of `text` at `indent`; preprocessor lines stand at the margin.
static void ein__tmpl_block(ein__buf *out, const char *text, size_t indent) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        ein__buf line = {0};
        if (n && *text != '#') ein__putf(&line, "%*s", (int)indent, "");
        ein__put_n(&line, text, n);
        ein__tmpl_line(out, line.s, line.n);
        ein__buf_free(&line);
        text += n + (text[n] != 0);
    }
}

// Writes one template line with its placeholders replaced.
static void ein__tmpl_expand(ein__buf *out, const char *line, const ein__key *keys, int nkey) {
    size_t indent = strspn(line, " "), n = 0;
    if (line[indent] == '$') n = ein__tmpl_name(line + indent + 1);
    if (n && !strcmp(line + indent + 1 + n, ";")) {
        int k = ein__tmpl_find(keys, nkey, line + indent + 1, n);
        EIN_ASSERT(k >= 0 && keys[k].text);
        ein__tmpl_block(out, keys[k].text, indent);
        return;
    }
    ein__buf text = {0};
    ein__put(&text, "");
    const char *plain = line;
    for (const char *s = line; *s; s++) {
        n = *s == '$' ? ein__tmpl_name(s + 1) : 0;
        if (!n) continue;
        int k = ein__tmpl_find(keys, nkey, s + 1, n);
        EIN_ASSERT(k >= 0 && keys[k].text);
        ein__put_n(&text, plain, (size_t)(s - plain));
        ein__put(&text, keys[k].text);
        s += n;
        plain = s + 1;
    }
    ein__put(&text, plain);
    ein__tmpl_line(out, text.s, text.n);
    ein__buf_free(&text);
}

// The number of head lines. Both lists must be the same set.
static int ein__tmpl_head(const char *const *lines, const ein__key *keys, int nkey) {
    int head = 0;
    size_t n;
    for (const char *s; lines[head]; head++) {
        if (!(s = ein__tmpl_directive(lines[head], "//@key ", &n))) break;
        EIN_ASSERT(ein__tmpl_find(keys, nkey, s, n) >= 0);
    }
    EIN_ASSERT(head == nkey);
    return head;
}

// Expands a template. A key that it does not declare, or one that is declared and not given, is an
// internal error; that its lines use what its head declares was checked when it was embedded
// (amalgamate.c). A NULL text may be given for a key whose lines are all switched off.
EIN__FN void ein__tmpl_put(ein__buf *out, const char *const *lines, const ein__key *keys,
                           int nkey) {
    bool on[EIN__TMPL_DEPTH] = {true};
    int depth = 0;
    size_t n;
    for (int i = ein__tmpl_head(lines, keys, nkey); lines[i]; i++) {
        const char *s;
        if ((s = ein__tmpl_directive(lines[i], "//@if ", &n))) {
            int k = ein__tmpl_find(keys, nkey, s, n);
            EIN_ASSERT(k >= 0 && depth + 1 < EIN__TMPL_DEPTH);
            const char *text = keys[k].text;
            on[++depth] = text && *text && strcmp(text, "0");
        } else if (ein__tmpl_directive(lines[i], "//@else", &n)) {
            EIN_ASSERT(depth > 0);
            on[depth] = !on[depth];
        } else if (ein__tmpl_directive(lines[i], "//@end", &n)) {
            EIN_ASSERT(depth > 0);
            depth--;
        } else {
            bool all = true;
            for (int d = 1; d <= depth; d++) all = all && on[d];
            if (all) ein__tmpl_expand(out, lines[i], keys, nkey);
        }
    }
    EIN_ASSERT(depth == 0);
}
