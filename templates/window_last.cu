//@key name     the kernel's name
//@key params   its parameters
//@key thread   its number
//@key number   unsigned type that counts all threads
//@key threads  threads with work
//@key index    this thread's position: its channels, its strip of columns, and its row
//@key columns  columns a thread
//@key begin    of the sums, where it is not 0
//@key taps     loops over what the windows add up, a row of the image in registers
//@key column   column o: its position, the epilogue, the store
//@key kind     of function: a kernel ...
//@key alone    ... or, empty, what one calls with a thread's number (stitch.cu, siblings.cu)
static $kind $name($params) {
    //@if alone
    const $number id = $thread;
    await_previous(next_early);
    if (id >= $threads) return;
    //@end
    $index;
    float acc[$columns][4] = {};
    //@if begin
#pragma unroll
    for (int o = 0; o < $columns; o++)
#pragma unroll
        for (int l = 0; l < 4; l++) acc[o][l] = $begin;
    //@end
    $taps;
#pragma unroll
    for (int o = 0; o < $columns; o++) {
        $column;
    }
}
