//@key name      the kernel's name
//@key params    its parameters
//@key number    unsigned type that counts everything
//@key threads   of a block
//@key warps     of a block
//@key groups    rows of the result, each as many times as its columns fill warps
//@key group     number of the warp among them, or of the block
//@key guard     whether warps may have none
//@key row       number of the row
//@key lanes     of this lane's vector in the row
//@key columns   vectors of a row of the result
//@key index     their position, from id, the row's number, and column
//@key before    statements that need no term
//@key init      declares acc, or one for each of a vector's elements
//@key first     first term of this warp
//@key end       behind its last one
//@key ahead     terms that a lane asks about in a turn
//@key list      room for those found
//@key least     as many are added at once
//@key asks      declarations of term k's question
//@key is        whether the term is one of the row's
//@key terms     one of them: the position, loads, acc
//@key after     statements of the epilogue
//@key store     the store
//@key shared    whether the warps of a block share the terms of a row
//@key T         what is added up in
//@key each      elements of a vector
//@key put       stores acc in part[warp][lane]
//@key join      acc combined with part[w][lane]
static __global__ void __launch_bounds__($threads) $name($params) {
    __shared__ $number found[$warps][$list];
    const unsigned lane = threadIdx.x % 32u, warp = threadIdx.x / 32u;
    //@if shared
    __shared__ $T part[$warps][32][$each];
    //@end
    const $number group = $group, id = $row, lanes = $lanes;
    const $number column = min(lanes, $columns - 1u);  // all load, some do not store
    const $number first = $first, end = $end;
    await_previous(next_early);
    //@if guard
    if (group >= $groups) return;
    //@end
    $index;
    $before;
    $init;
    unsigned n = 0u;
    for ($number at = first;; at += 32u * $ahead) {
        if (at < end) {
            unsigned mine = 0u;  // bit j: term at + 32 j + lane is one of the row's
#pragma unroll
            for (unsigned j = 0u; j < $ahead; j++) {
                const $number k = min(at + 32u * j + lane, end - 1u);
                $asks;
                if ($is) mine |= 1u << j;
            }
            // Behind the end lanes have asked about the last one again.
            if (end - at < 32u * $ahead)
                mine &= (1u << ((unsigned)(end - at) + 31u - lane) / 32u) - 1u;
            if (__any_sync(0xffffffffu, mine != 0u)) {
#pragma unroll
                for (unsigned j = 0u; j < $ahead; j++) {
                    const bool is = mine >> j & 1u;
                    const unsigned all = __ballot_sync(0xffffffffu, is);
                    if (is)
                        found[warp][n + __popc(all & ((1u << lane) - 1u))] = at + 32u * j + lane;
                    n += __popc(all);
                }
            }
            if (n < $least && end - at > 32u * $ahead) continue;
        }
        __syncwarp();
#pragma unroll 4
        for (unsigned m = 0u; m < n; m++) {
            $terms;
        }
        if (at >= end || end - at <= 32u * $ahead) break;
        __syncwarp();
        n = 0u;
    }
    //@if shared
    $put;
    __syncthreads();
    if (warp > 0u) return;
#pragma unroll
    for (unsigned w = 1u; w < $warps; w++) {
        $join;
    }
    //@end
    if (lanes < $columns) {
        $after;
        $store;
    }
}
