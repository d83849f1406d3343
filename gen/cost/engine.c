// Engines of cuDNN's graph API as tables of costs name them: `engine:28`, or with settings, a type
// and a choice each, `engine:28,2=5,13=0`. Types ascend and numbers have no other digits than they
// need, so an engine with its settings has one text.

enum { EIN__SETTINGS = 24 };  // of one engine

typedef struct ein__engine {
    int number, settings;
    int setting[EIN__SETTINGS][2];  // type, choice
} ein__engine;

EIN__FN bool ein__is_engine(const char *algorithm) {
    return algorithm && !strncmp(algorithm, "engine:", 7);
}

// A number of at most `most` digits; moves behind it.
static bool ein__engine_number(const char **s, size_t most, int *v) {
    size_t n = strspn(*s, "0123456789");
    if (!n || n > most || (n > 1 && **s == '0')) return false;
    for (*v = 0; n; n--, ++*s) *v = *v * 10 + (**s - '0');
    return true;
}

// Reads such a text. NULL: it is one; else what is wrong stands there.
EIN__FN const char *ein__read_engine(const char *text, ein__engine *e) {
    const char *s = text + 7;
    *e = (ein__engine){0};
    if (!ein__is_engine(text)) return text;
    if (!ein__engine_number(&s, 4, &e->number)) return s;
    while (*s == ',') {
        const char *at = s + 1;
        int *to = e->setting[e->settings], last = e->settings ? to[-2] : -1;
        if (e->settings == EIN__SETTINGS) return s;
        s++;
        if (!ein__engine_number(&s, 3, &to[0]) || to[0] <= last) return at;
        if (*s != '=') return s;
        bool negative = *++s == '-';
        at = s;
        s += negative;
        if (!ein__engine_number(&s, 9, &to[1]) || (negative && !to[1])) return at;
        if (negative) to[1] = -to[1];
        e->settings++;
    }
    return *s ? s : NULL;
}
