// onnx_text.c - names, types and numbers as the language spells them, and where its lines break.
#include "onnx.h"

// ---- names ----

// What the language takes without quotes: dots may join parts of letters, digits and `_`.
static bool is_plain(const char *name) {
    static const char parts[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    if (!strcmp(name, "_") || (*name >= '0' && *name <= '9')) {
        return false;
    }
    for (const char *s = name;; s++) {
        size_t size = strspn(s, parts);
        s += size;
        if (!size || !*s) {
            return size > 0;
        }
        if (*s != '.') {
            return false;
        }
    }
}

void ox_put_quoted(char **text, const char *name) {
    arrput(*text, '"');
    for (const char *s = name; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            arrput(*text, '\\');
            arrput(*text, (char)c);
        } else if (c == '\n' || c == '\t') {
            ox_put(text, c == '\n' ? "\\n" : "\\t");
        } else if (c < 0x20 || c == 0x7f) {
            ox_put(text, "\\x%02x", (unsigned)c);
        } else {
            arrput(*text, (char)c);
        }
    }
    arrput(*text, '"');
}

void ox_put_name(char **text, const char *name) {
    if (is_plain(name)) {
        size_t size = strlen(name);
        memcpy(arraddnptr(*text, size), name, size);
    } else {
        ox_put_quoted(text, name);
    }
}

const char *ox_free_name(ox *o, const char *letter) {
    const char *name = letter;
    for (int digit = -1; digit < CLI_MAX_RANK; digit++) {
        const char *each = digit < 0 ? name : ox_format(o, "%s%d", name, digit);
        if (shgeti(o->taken, each) >= 0) {
            name = ox_format(o, "%s%s", name, letter);
            digit = -2;
        }
    }
    return name;
}

// The counter is kept per base, so that a thousand collisions cost a thousand look-ups.
const char *ox_fresh(ox *o, const char *base, const char *suffix) {
    char *name = ox_format(o, "%s%s", base, suffix);
    ptrdiff_t known = shgeti(o->counted, name);
    int number = known >= 0 ? o->counted[known].value : 1;
    char *tried = name;
    while (shgeti(o->taken, tried) >= 0) {
        tried = ox_format(o, "%s.%d", name, ++number);
    }
    shput(o->counted, name, number);
    shput(o->taken, tried, 1);
    return tried;
}

// ---- types and numbers ----

void ox_put_type(char **text, cli_dtype dtype, int rank, const int64_t *dims,
                 const char *const *sym) {
    ox_put(text, ": %s[", cli_dtype_name(dtype == CLI_F64 ? CLI_F32 : dtype));
    for (int a = 0; a < rank; a++) {
        ox_put(text, "%s", a ? "," : "");
        if (sym && sym[a]) {
            ox_put(text, "%s", sym[a]);
        } else {
            ox_put(text, "%lld", (long long)dims[a]);
        }
    }
    ox_put(text, "]");
}

void ox_put_float(char **text, double value) {
    char number[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, value);
        if (strtof(number, NULL) == (float)value) {
            break;
        }
    }
    char *e = strchr(number, 'e');
    if (e) {  // 1e-05 becomes 1e-5
        char *digits = e + 2;
        digits += strspn(digits, "0");
        ox_put(text, "%.*s%s%s", (int)(e + 1 - number), number, e[1] == '-' ? "-" : "", digits);
        return;
    }
    ox_put(text, "%s", number);
}

// ---- lines ----

// Characters from `at` up to one of `stops` or `size`; `*end` is the place reached.
static int columns(const char *s, ptrdiff_t at, ptrdiff_t size, const char *stops, ptrdiff_t *end) {
    int count = 0;
    for (; at < size && !strchr(stops, s[at]); at++) {
        count += ((unsigned char)s[at] & 0xc0) != 0x80;
    }
    *end = at;
    return count;
}

// Lines that are too long are broken where they may be, as the formatter does it.
char *ox_lay_out(char *marked) {
    enum { WIDTH = 100 };
    char *text = NULL;
    ptrdiff_t size = arrlen(marked);
    for (ptrdiff_t line = 0, end; line < size; line = end + 1) {
        int width = columns(marked, line, size, "\n", &end), column = 0;
        for (ptrdiff_t at = line, stop; at <= end; at = stop + 1) {
            int part = columns(marked, at, end, OX_BREAK OX_BREAK_FIRST, &stop);
            bool first = at > line && marked[at - 1] == *OX_BREAK_FIRST;
            bool breaks = at > line && width > WIDTH && (first || column + 1 + part > WIDTH);
            if (at > line) {
                ox_put(&text, breaks ? "\n    " : " ");
                column = breaks ? 4 : column + 1;
            }
            if (stop > at) {
                memcpy(arraddnptr(text, stop - at), marked + at, (size_t)(stop - at));
            }
            column += part;
        }
        arrput(text, '\n');
    }
    arrfree(marked);
    return text;
}
