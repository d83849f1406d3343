//@key name     the kernel's name
//@key params   its parameters
//@key number   type of positions
//@key thread   its number
//@key threads  output elements
//@key index    this thread's position
//@key body     loads, loops, the store
static __global__ void __launch_bounds__(256) $name($params) {
    const $number id = $thread;
    if (id >= $threads) return;
    $index;
    $body;
}
