// A file as text, NUL not included; NULL when it cannot be read.
static char *read_text(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    if (!f) return NULL;
    if (!fseek(f, 0, SEEK_END)) {
        long size = ftell(f);
        rewind(f);
        text = size >= 0 ? malloc((size_t)size + 1) : NULL;
        *n = text ? fread(text, 1, (size_t)size, f) : 0;
    }
    fclose(f);
    return text;
}
