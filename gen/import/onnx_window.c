// onnx_window.c - rows of positions that are the places of a window, as an assignment to slices of
// several axes is exported: number by number a place to begin and a step along one axis of the
// rows. They are seen as such where they are known, and where they would be, but for their size.
#include "onnx.h"

// Statements that are followed to what one expands; the largest number of a position.
enum { MAX_FOLLOWED = 16, MAX_NUMBER = 1 << 30 };

// What a tensor of integers holds: base + the sum of index * step.
typedef struct {
    int64_t base, step[CLI_MAX_RANK];
} ramp;

// The numbers first, first + every, .. of a constant, as a tensor of its first `rank` axes.
static bool known_ramp(const ox_const *c, int64_t first, int64_t every, int rank, ramp *r) {
    int64_t stride = 1, strides[CLI_MAX_RANK], count;
    if (ox_is_float(c->dtype) || !cli_count(rank, c->dims, &count) || !count ||
        (!c->splat && count > OX_FOLD_LIMIT)) {
        return false;
    }
    r->base = ox_geti(c, first);
    for (int a = rank - 1; a >= 0; a--) {
        strides[a] = stride;
        r->step[a] = 0;
        if (!c->splat && c->dims[a] > 1) {
            int64_t next = ox_geti(c, first + stride * every);
            if (next < -MAX_NUMBER || next > MAX_NUMBER || r->base < -MAX_NUMBER ||
                r->base > MAX_NUMBER) {
                return false;
            }
            r->step[a] = next - r->base;
        }
        stride *= c->dims[a];
    }
    for (int64_t i = 0; !c->splat && i < count; i++) {
        int64_t rest = i, want = r->base;
        for (int a = 0; a < rank; a++) {
            want += rest / strides[a] * r->step[a];
            rest %= strides[a];
        }
        if (ox_geti(c, first + i * every) != want) {
            return false;
        }
    }
    return true;
}

// The same elements in another shape: steps of axes that become one, or are cut into several.
static bool reshaped(const ox_value *from, const ox_value *to, ramp *r) {
    int64_t steps[CLI_MAX_RANK] = {0}, left = 1;
    int b = to->rank - 1;
    for (int a = from->rank - 1; a >= 0; a--) {
        int64_t size = from->dims[a], step = r->step[a];
        while (size > 1) {
            if (left == 1) {
                while (b >= 0 && to->dims[b] == 1) {
                    b--;
                }
                if (b < 0) {
                    return false;
                }
                left = to->dims[b];
                steps[b] = step;
            } else if (steps[b] * (to->dims[b] / left) != step) {
                return false;
            }
            int64_t part = size < left ? size : left;
            if (size % part || left % part) {
                return false;
            }
            size /= part;
            left /= part;
            step *= part;
            b -= left == 1;
        }
    }
    memcpy(r->step, steps, sizeof steps);
    return left == 1;
}

// Along axes that it is repeated along, what is expanded stays the same.
static bool expanded(const ox_value *from, const ox_value *to, ramp *r) {
    int more = to->rank - from->rank;
    for (int a = to->rank - 1; a >= 0; a--) {
        bool there = a >= more && from->dims[a - more] == to->dims[a];
        r->step[a] = there ? r->step[a - more] : 0;
    }
    return more >= 0;
}

static bool ramp_of(ox *o, ox_value *v, int followed, ramp *r) {
    const ox_const *c = ox_known(o, v);
    const ox_stmt *s = v->maker;
    if (c) {
        return known_ramp(c, 0, 1, c->rank, r);
    }
    if (!s || !s->op || followed == MAX_FOLLOWED || arrlen(s->args) != 1 || !ox_shape(o, v) ||
        !ox_shape(o, s->args[0]) || !ramp_of(o, s->args[0], followed + 1, r)) {
        return false;
    }
    if (!strcmp(s->op, "Expand")) {
        return expanded(s->args[0], v, r);
    }
    bool whole = !strcmp(s->op, "Cast") && v->dtype == CLI_I64;
    return (whole || !strcmp(s->op, "Reshape") || !strcmp(s->op, "Unsqueeze") ||
            !strcmp(s->op, "Squeeze") || !strcmp(s->op, "Identity")) &&
           reshaped(s->args[0], v, r);
}

// Number `j` of every row.
static bool number_ramp(ox *o, ox_value *at, int64_t j, ramp *r) {
    const ox_const *c = ox_known(o, at);
    const ox_stmt *s = at->maker;
    int last = at->rank - 1;
    if (c) {
        return known_ramp(c, j, at->dims[last], last, r);
    }
    if (!s || !s->op || strcmp(s->op, "Concat")) {
        return false;
    }
    for (ptrdiff_t i = 0; i < arrlen(s->args); i++) {
        ox_value *part = s->args[i];
        if (!ox_shape(o, part) || part->rank != at->rank) {
            return false;
        }
        if (part->dims[last] == at->dims[last] && arrlen(s->args) > 1) {
            return false;  // another axis
        }
        if (j >= part->dims[last]) {
            j -= part->dims[last];
            continue;
        }
        c = ox_known(o, part);
        if (c) {
            return known_ramp(c, j, part->dims[last], last, r);
        }
        bool is = ramp_of(o, part, 0, r);
        r->base += is ? r->step[last] * j : 0;
        return is;
    }
    return false;
}

// Places of axis `own`, of `size`: the number counts along one axis of the rows, or along none.
static bool take_range(const ox_value *at, const ramp *r, int own, int64_t size, bool *used,
                       ox_range *w) {
    w->axis = -1;
    w->count = 1;
    w->step = 1;
    for (int a = 0; a < at->rank - 1; a++) {
        if (at->dims[a] == 1 || !r->step[a]) {
            continue;
        }
        if (w->axis >= 0 || used[a] || r->step[a] <= -size || r->step[a] >= size) {
            return false;
        }
        used[a] = true;
        w->axis = a;
        w->step = r->step[a];
        w->count = at->dims[a];
    }
    // One place stands along an axis of size 1 in its own place, so that no axis moves.
    w->axis = w->axis < 0 && own < at->rank - 1 && at->dims[own] == 1 ? own : w->axis;
    int64_t last = r->base + (w->count - 1) * w->step;
    bool behind = r->base < 0 && last < 0;
    w->begin = behind ? r->base + size : r->base;
    last = behind ? last + size : last;
    return w->begin >= 0 && w->begin < size && last >= 0 && last < size;
}

bool ox_window(ox *o, ox_node *n, ox_value *at, const ox_value *x, int k, ox_range *w) {
    bool used[CLI_MAX_RANK] = {false};
    ox_need_shape(o, n, at);
    for (int j = 0; j < k; j++) {
        ramp r;
        if (!number_ramp(o, at, j, &r) || !take_range(at, &r, j, x->dims[j], used, &w[j])) {
            return false;
        }
    }
    for (int a = 0; a < at->rank - 1; a++) {
        if (at->dims[a] != 1 && !used[a]) {
            return false;
        }
    }
    return true;
}

bool ox_is_whole(const ox_value *x, int axis, const ox_range *w) {
    return w->begin == 0 && w->step == 1 && w->count == x->dims[axis];
}

// ---- what is read and stored ----

ox_value *ox_window_along(ox *o, ox_node *n, ox_value *x, int64_t axis, const ox_range *w) {
    int64_t end = w->begin + w->count * w->step;
    end = end < 0 ? -OX_MAX_DIM : end;  // in front of the first
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, "starts", (ox_list){1, &w->begin, NULL});
    ox_set_list(o, "ends", (ox_list){1, &end, NULL});
    ox_set_list(o, "axes", (ox_list){1, &axis, NULL});
    ox_set_list(o, "steps", (ox_list){1, &w->step, NULL});
    ox_value *v = ox_end(o, "Slice", ox_fresh(o, ox_base(o, n), ".window"), x->dtype);
    ox_need_shape(o, n, v);
    return v;
}

// x with `to` axes for its first `from` ones: axis a is of[a], or new where that is below 0; those
// that are no longer there have size 1.
static ox_value *with_axes(ox *o, ox_node *n, ox_value *x, int from, int to, const int *of) {
    int64_t dropped[CLI_MAX_RANK], perm[CLI_MAX_RANK], added[CLI_MAX_RANK];
    int drops = 0, adds = 0, all = 0, place[CLI_MAX_RANK];
    bool moves = false, stays[CLI_MAX_RANK] = {false};
    for (int a = 0; a < to; a++) {
        if (of[a] >= 0) {
            stays[of[a]] = true;
        } else {
            added[adds++] = a;
        }
    }
    for (int a = 0; a < from; a++) {
        place[a] = a - drops;
        if (!stays[a]) {
            dropped[drops++] = a;
        }
    }
    for (int a = 0; a < to; a++) {
        if (of[a] >= 0) {
            moves = moves || place[of[a]] != all;
            perm[all++] = place[of[a]];
        }
    }
    if (drops) {
        x = ox_with_list(o, n, "Squeeze", ".one", x, "axes", (ox_list){drops, dropped, NULL});
    }
    for (ox_need_shape(o, n, x); all < x->rank; all++) {
        perm[all] = all;
    }
    if (moves) {
        x = ox_with_list(o, n, "Transpose", ".turned", x, "perm", (ox_list){all, perm, NULL});
    }
    return adds ? ox_with_list(o, n, "Unsqueeze", ".rows", x, "axes", (ox_list){adds, added, NULL})
                : x;
}

ox_value *ox_window_of(ox *o, ox_node *n, ox_value *x, int k, const ox_range *w, int rows) {
    int of[CLI_MAX_RANK];
    for (int a = 0; a < rows; a++) {
        of[a] = -1;
    }
    for (int j = 0; j < k; j++) {
        x = ox_is_whole(x, j, &w[j]) ? x : ox_window_along(o, n, x, j, &w[j]);
        if (w[j].axis >= 0) {
            of[w[j].axis] = j;
        }
    }
    return with_axes(o, n, x, k, rows, of);
}

ox_value *ox_window_updates(ox *o, ox_node *n, ox_value *u, int k, const ox_range *w, int rows) {
    int of[CLI_MAX_RANK];
    for (int j = 0; j < k; j++) {
        of[j] = w[j].axis;
    }
    return with_axes(o, n, u, rows, k, of);
}
