//@key name        the kernel's name
//@key params      its parameters
//@key bound       threads a block
//@key type        of what stays in shared memory
//@key room        elements of the slices of a block
//@key part        where this thread's slice begins
//@key number      which one it is
//@key threads     threads a slice
//@key first       the function that computes the slice ...
//@key firstids    ... how many threads of it have work there ...
//@key firstargs   ... and its arguments
//@key second      the same for what is computed from the slice
//@key secondids
//@key secondargs
//@key also        vectors of a slice that is stored too; empty: it is not
//@key vector      their type
static __global__ void __launch_bounds__($bound) $name($params) {
    __shared__ __align__(16) $type slices[$room];
    $type *const own = $part;
    const unsigned slice = $number;
    await_previous(next_early);
    for (unsigned k = threadIdx.x; k < $firstids; k += $threads)
        $first($firstargs, slice * $firstids + k);
    __syncthreads();
    //@if also
    for (unsigned k = threadIdx.x; k < $also; k += $threads)
        reinterpret_cast<$vector *>(also)[slice * $also + k] =
            reinterpret_cast<const $vector *>(own)[k];
    //@end
    for (unsigned k = threadIdx.x; k < $secondids; k += $threads)
        $second($secondargs, slice * $secondids + k);
}
