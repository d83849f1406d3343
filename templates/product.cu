//@key name     the kernel's name
//@key params   its parameters
//@key storage  declares the tile: rows, columns, terms a step, how the threads share them
//@key RM       rows a thread
//@key RN       columns a thread
//@key rows     rows that a thread stores
//@key i        row of element e of those
//@key j        its column
//@key V        neighbouring columns that a thread stores at once
//@key bounds   threads and blocks that share an SM at least; blocks of a cluster
//@key number   unsigned type that counts blocks
//@key many     whether there is more than one block
//@key index    the batch's position, first column n0 and first row m0 of the tile, from id
//@key reads    whether that reads memory; multiply waits for the kernel before anyhow
//@key terms    terms of the product
//@key loads    declares the operands' loads
//@key a        the first operand's loads
//@key b        the second operand's
//@key parts    blocks that share the terms of a tile; empty: one
//@key share    terms of each, the last one no more than those
//@key sharing  how they share what they compute, a type
//@key along    whether neighbouring threads load neighbouring terms of the operands
//@key early    which of them the kernel before cannot have written: 0, 1 or 2
//@key second   adds a second product, of loads and terms of its own; empty: there is one
//@key more     of terms that are no products: takes the sums of the other reductions
//@key sums     whether sums along rows of the first operand are wanted
//@key start    declares them
//@key room     declares total and factor in shared memory
//@key lines    rows of a tile
//@key totals   adds the sums up into total[..][line][..]
//@key leave    leaves those of the block's part of a row's terms for the last block
//@key factor   makes what is made of them for each row, factor[..][line]
//@key also     stores a share of the map that the sums are for, from e; empty: nobody else needs it
//@key shared   elements or vectors of a block's share
//@key held     declares what is made of the sums finds in memory; empty: nothing that is worth it
//@key vectors  how often a thread does
//@key at       row i and column j of element e, where that needs them
//@key hold     finds it, as f, for the result at m0 + row i and n0 + column j
//@key together  or how many vectors it finds that for at once, before these are stored
//@key found    declares that then
//@key rowHeld  declares what the factors of a row find in memory; empty: nothing
//@key rowHold  finds it, as f, for row m0 + line
//@key store    the result's position, from m0 + row i and n0 + column j; epilogue; store
static __global__ void $bounds $name($params) {
    $storage;
    //@if many
    const $number id = blockIdx.x;
    //@end
    //@if reads
    await_previous(next_early);
    //@end
    $index;
    $loads;
    //@if sums
    $start;
    //@end
    auto dot = tile.none();
    //@if parts
    const unsigned part = blockIdx.x % $parts, from = part * $share;
    tile.multiply<$along, $early>(from, min(from + $share, $terms), $a, $b, next_early, dot);
    //@else
    tile.multiply<$along, $early>(0u, $terms, $a, $b, next_early, dot);
    //@end
    //@if second
    $second;
    //@end
    //@if parts
    const $sharing shares(parts, arrived, &tile);
    //@end
    //@if held
    // On its way while the sums meet.
    $held;
    found_y held[$vectors];
    //@if parts
#pragma unroll
    for (int s = 0; s < 4 * shares.OWN; s += $V) {
        if (!shares.has(s / 4)) break;
        const unsigned thread = shares.thread(s / 4);
        const int e = 4 * shares.vector(s / 4) + s % 4;
        $at;
        found_y &f = held[s / $V];
        $hold;
    }
    //@else
#pragma unroll
    for (int e = 0; e < $rows * $RN; e += $V) {
        $at;
        found_y &f = held[e / $V];
        $hold;
    }
    //@end
    //@end
    //@if rowHeld
    $rowHeld;
    found_row row;
    if (threadIdx.x < $lines) {
        const unsigned line = threadIdx.x;
        found_row &f = row;
        $rowHold;
    }
    //@end
    float acc[$RM][$RN] = {};
    tile.finish(dot, acc);
    //@if more
    $more;
    //@end
    //@if parts
    leave_part(shares, acc);
    //@end
    //@if sums
    $room;
    $totals;
    __syncthreads();
    //@if parts
    if (threadIdx.x < $lines) {
        const unsigned line = threadIdx.x;
        $leave;
    }
    //@end
    //@end
    //@if parts
    if (!shares.arrive()) return;
    float sum[4 * shares.OWN] = {};
    add_parts(shares, sum);
    //@end
    //@if sums
    if (threadIdx.x < $lines) {
        const unsigned line = threadIdx.x;
        $factor;
    }
    __syncthreads();
    //@end
    //@if parts
    shares.leave(sum);
    //@end
    //@if also
    //@if parts
    for (unsigned e = threadIdx.x + 256u * shares.turn(); e < $shared; e += 256u * shares.TURNS) {
        $also;
    }
    //@else
    for (unsigned e = threadIdx.x; e < $shared; e += 256u) {
        $also;
    }
    //@end
    //@end
    //@if parts
#pragma unroll
    for (int s = 0; s < 4 * shares.OWN; s += $V) {
        if (!shares.has(s / 4)) break;
        const unsigned thread = shares.thread(s / 4);
        const int e = 4 * shares.vector(s / 4) + s % 4;
        const int i = $i, j = $j;
        //@if held
        const found_y &f = held[s / $V];
        //@end
        $store;
    }
    shares.end();
    //@else
    //@if together
    $found;
#pragma unroll
    for (int first = 0; first < $rows * $RN; first += $together * $V) {
        found_y held[$together];
#pragma unroll
        for (int e = first; e < first + $together * $V; e += $V) {
            $at;
            found_y &f = held[(e - first) / $V];
            $hold;
        }
#pragma unroll
        for (int e = first; e < first + $together * $V; e += $V) {
            const int i = $i, j = $j;
            const found_y &f = held[(e - first) / $V];
            $store;
        }
    }
    //@else
#pragma unroll
    for (int e = 0; e < $rows * $RN; e += $V) {
        const int i = $i, j = $j;
        //@if held
        const found_y &f = held[e / $V];
        //@end
        $store;
    }
    //@end
    //@end
}
