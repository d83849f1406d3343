//@key name       the kernel's name
//@key params     its parameters
//@key thread     its number
//@key number     unsigned type that counts all threads
//@key threads    tiles
//@key index      this tile's position
//@key tile       the tile in registers: d[6][6]
//@key load       fills the tile
//@key transform  one axis after the other, in place
//@key store      the epilogue and the store of every element
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
    $transform;
    $store;
}
