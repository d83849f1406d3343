// Reductions with few results and many terms, as means over a whole image or over rows of a million
// elements: one block for each result would leave most of the machine idle. So several blocks share
// the terms of a result, or of a group of neighbouring ones; each writes its partial result to
// memory, and the last to arrive combines all of them in the order of the parts (as tail.c for
// products; templates/reduce_block.cu and reduce_column.cu).

enum {
    EIN__SHARE_PARTS = 256,  // at most: one for every thread of the block that adds them up
    // What the last block takes for the parts once they are there: two barriers, a reduction over
    // its warps, the store. Assumed.
    EIN__SHARE_JOIN_PS = 400000,
    EIN__SHARE_ARRIVAL_PS = 2000,  // between two blocks that count themselves in one place; assumed
    EIN__SHARE_STREAMS = 2,        // blocks of an SM that keep the memory busy; assumed
    EIN__SHARE_RESIDENT = 4,    // blocks of 256 threads an SM that streaming wants at most; assumed
    EIN__LOOP_TURN_PS = 10000,  // a turn of a loop whose loads hit a cache, some in flight; assumed
    EIN__COLUMN_AHEAD = 8,      // loads that a thread of a column has on their way
    EIN__MEMORY_PS = 600000     // from such a load's issue until it is there from memory; assumed
};

// Lanes of a warp that share the terms of a result, and warps of a block that has so many of these.
static int64_t ein__warp_lanes(int64_t terms) { return terms >= 32 ? 32 : terms >= 16 ? 16 : 8; }

static int ein__sharing_warps(int64_t outputs) { return outputs >= 4096 ? 4 : 1; }

// Threads that work on a reduction: those that share the terms of one result, and how many blocks
// there are while a result, or a group of them, has one; how long a turn of their loops takes.
typedef struct ein__crowd {
    int64_t lanes, groups, turn_ps;
} ein__crowd;

// How many blocks share the terms of a group's results, and how long a thread's loop takes then,
// the last block's work included; `bytes` bound what parts can gain. Fewer parts win ties.
static int ein__share_parts(const ein__gpu *g, const ein__crowd *c, int64_t terms, int64_t bytes,
                            int64_t *ps) {
    int64_t turns = (terms + c->lanes - 1) / c->lanes;
    int64_t streamed = ein__muldiv(bytes, 1000 * 1000, g->bandwidth);
    int64_t tail = EIN__TAIL_PS + EIN__SHARE_JOIN_PS;
    int parts = 1;
    int64_t whole = *ps = ein__times(turns, c->turn_ps);
    for (int n = 2; n <= EIN__SHARE_PARTS; n *= 2) {
        int64_t blocks = ein__times(c->groups, n), most = g->sms * EIN__SHARE_RESIDENT;
        // Memory takes no less from a part of the machine.
        if (blocks > most || (*ps <= streamed && blocks > g->sms * EIN__SHARE_STREAMS)) break;
        int64_t with = ein__times((turns + n - 1) / n, c->turn_ps) + tail;
        with += n * EIN__SHARE_ARRIVAL_PS;
        if (with >= *ps || !ein__tail_gains(with, whole)) continue;
        *ps = with;
        parts = n;
    }
    return parts;
}
