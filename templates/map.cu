//@key name     the kernel's name
//@key params   its parameters
//@key thread   its number
//@key number   unsigned type that counts all threads
//@key threads  threads with work
//@key index    this thread's position
//@key body     loads, the expression, the store
//@key kind     of function: a kernel ...
//@key alone    ... or, empty, what one calls with a thread's number (stitch.cu, siblings.cu)
static $kind $name($params) {
    //@if alone
    const $number id = $thread;
    await_previous(next_early);
    if (id >= $threads) return;
    //@end
    $index;
    $body;
}
