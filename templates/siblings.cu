//@key name    the kernel's name
//@key params  its parameters
//@key bound   threads a block
//@key thread  its number
//@key parts   which function it calls
static __global__ void __launch_bounds__($bound) $name($params) {
    unsigned id = $thread;
    await_previous(next_early);
    $parts;
}
