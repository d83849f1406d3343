//@key operands  the most that a kernel has, its result among them
//@key list      the table of kernels
enum { OPERANDS = $operands };

// A kernel of ours: what its row is found by, the end of its name, the shared memory that it has to
// ask for, operands. Integers are zeros: they may be places in other operands.
struct kernel_case {
    const char *name, *text;
    void (*launch)(char *const *, cudaStream_t);
    const void *kernel;
    int shared;
    int count;
    struct {
        size_t bytes;
        int real;
    } operand[OPERANDS];
};
$list;
