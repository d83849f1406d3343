// What eval.c has for gen.c.

extern double *content[8192];  // by value: logical elements, row-major

// Fills content[v] from the definition.
void compute(ein_ctx *ctx, ein__val v);

// The next position of slot[from..to) in a box; false: there is none, and all are 0 again.
bool step_box(const int64_t *n, int from, int to, int64_t *slot);
