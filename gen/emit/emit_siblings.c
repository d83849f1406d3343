// Horizontally fused kernels (siblings.c): each as a function of a thread's number, and the kernel
// whose blocks call one of them.

// The call of member `k`, by the first threads that are left in blocks of their own.
static void ein__put_sibling(ein__kgen *g, const ein__step *step, int k, const ein__launch *part,
                             int block, ein__buf *to) {
    int64_t taken = ein__ceil(part->threads, block) * block;
    bool last = k == step->npeer;
    const char *y = k ? ein__namef(g->ctx, "y%d", k) : "y", *in = last ? "" : "    ";
    if (!last) ein__putf(to, "if (id < %lldu) {\n", (long long)taken);
    ein__put(to, in);
    if (part->threads < taken) ein__putf(to, "if (id < %lldu) ", (long long)part->threads);
    ein__putf(to, "%s(", part->name);
    for (int i = 0; i < part->narg; i++) {
        bool own = part->arg[i].i == ein__step_member(step, k)->out.i;
        ein__putf(to, "%s, ", own ? y : ein__kparam(g, part->arg[i]));
    }
    ein__put(to, "id);\n");
    if (!last) ein__putf(to, "    return;\n}\nid -= %lldu;\n", (long long)taken);
}

static void ein__emit_siblings(ein_ctx *ctx, const ein__step *step, ein__buf *out, ein__launch *l) {
    ein__launch part[EIN__SIBLINGS], all = {.of = step->name};
    int64_t threads = 0, blocks = 0;
    ein__buf calls = {0};
    for (int k = 0; k <= step->npeer; k++) {
        const ein__step *s = ein__step_member(step, k);
        ein__slice whole = {.v = s->out};
        ein__emit_slice(ctx, s, &whole, &all, &part[k]);
        if (ctx->status) return;
        threads = ein__plus(threads, part[k].threads);
    }
    int block = ein__kblock(threads);
    ein__kgen g = ein__kgen_make(ctx, step->val[0], false, 1);
    for (int k = 0; k <= step->npeer; k++) {
        ein__put_sibling(&g, step, k, &part[k], block, &calls);
        g.needs |= part[k].needs;
        blocks = ein__plus(blocks, ein__ceil(part[k].threads, block));
    }
    g.peer = step->peer;
    g.npeer = step->npeer;
    *l = all;
    if (ein__kgrid(ctx, l, blocks, block)) {
        ein__key keys[] = {{0},
                           {0},
                           {"bound", ein__namef(ctx, "%d", block)},
                           {"thread", ein__kthread_id(&g, block)},
                           {"parts", calls.s}};
        ein__kfinish(&g, step->out, "siblings", ein__tmpl_siblings, keys, EIN__COUNT(keys), out, l);
    }
    ein__buf_free(&calls);
    ein__kgen_free(&g);
}
