//@key name     the kernel's name
//@key params   its parameters
//@key block    threads a block
//@key number   unsigned type that counts all threads
//@key threads  threads with work
//@key index    this thread's position
//@key body     loads, the expression, the store
static __global__ void __launch_bounds__($block) $name($params) {
    const $number id = ($number)blockIdx.x * $block + threadIdx.x;
    await_previous();
    if (id >= $threads) return;
    $index;
    $body;
}
