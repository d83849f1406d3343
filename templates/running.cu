//@key name     the kernel's name
//@key params   its parameters
//@key number   unsigned type that counts everything
//@key blocks   blocks: lines of the result
//@key block    this block's number
//@key index    the line's position, from id
//@key before   statements that need no place
//@key int      type of places
//@key place    a thread's first place of a turn
//@key count    places of a line
//@key each     places of a thread in a turn
//@key turn     ... and of all threads
//@key last     the thread's last place in this turn, where its places begin in the last turn
//@key T        what is added up in
//@key sums     declares the sums of the thread's places alone: loads, sums of those up to each
//@key total    the last of these
//@key add      adds what is before the thread's places to each of them
//@key after    statements of the epilogue
//@key store    the store
static __global__ void __launch_bounds__(256) $name($params) {  // $blocks blocks
    __shared__ $T part[8];
    //@if index
    const $number id = $block;
    //@end
    await_previous(next_early);
    //@if index
    $index;
    //@end
    $before;
    const unsigned lane = threadIdx.x % 32u, warp = threadIdx.x / 32u;
    $T carry = 0;
    for ($int at = 0; at < $count; at += $turn) {
        // Behind the end of the line a thread repeats what is last.
        const $int first = at + ($int)threadIdx.x * $each;
        const $int $place = min(first, $last);
        $sums;
        $T through = $total;
#pragma unroll
        for (unsigned d = 1u; d < 32u; d *= 2u) {
            const $T other = __shfl_up_sync(0xffffffffu, through, d);
            if (lane >= d) through += other;
        }
        if (lane == 31u) part[warp] = through;
        __syncthreads();
        $T before = __shfl_up_sync(0xffffffffu, through, 1u);
        if (lane == 0u) before = 0;
#pragma unroll
        for (unsigned w = 0u; w < 8u; w++) {
            if (w == warp) before += carry;
            carry += part[w];
        }
        __syncthreads();
        $add;
        if (first < $count) {
            $after;
            $store;
        }
    }
}
