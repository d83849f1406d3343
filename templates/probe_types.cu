//@key operands  the most that a kernel has, its result among them
//@key list      the table of kernels
enum { OPERANDS = $operands };

// A kernel of ours: what its row is found by, the end of its name, operands. Integers are zeros:
// they may be places in other operands.
struct kernel_case {
    const char *name, *text;
    void (*launch)(char *const *, cudaStream_t);
    int count;
    struct {
        size_t bytes;
        int real;
    } operand[OPERANDS];
};
$list;
