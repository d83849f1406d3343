//@key name     the kernel's name
//@key params   its parameters
//@key thread   its number
//@key number   unsigned type that counts all threads
//@key threads  threads with work
//@key index    this thread's position: its first column, and which strip of rows it takes
//@key tile     the image under the thread's windows, in registers: x[6][8]
//@key load     fills it
//@key rows     rows a thread
//@key row      row o: its position, the reduction, the epilogue, the store
//@key kind     of function: a kernel ...
//@key alone    ... or, empty, what one calls with a thread's number (stitch.cu, siblings.cu)
static $kind $name($params) {
    //@if alone
    const $number id = $thread;
    await_previous(next_early);
    if (id >= $threads) return;
    //@end
    $index;
    float $tile;
    $load;
    //@if rows
#pragma unroll
    for (int o = 0; o < $rows; o++) {
        $row;
    }
    //@else
    $row;
    //@end
}
