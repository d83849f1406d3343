//@key members   products of all grouped calls
//@key problems  and their matrices, a batch counting as many
// Products that one call makes: rows `first`, .. of grouped_sizes, matrices `problem`, .. of them.
typedef struct group_size {
    const char *name;
    int first, count, problem;
} group_size;

// What the library is told of the products: as long as the handle lives, since recorded graphs may
// come back to it. at: addresses of operands and results, also at the end of the constants.
typedef struct group_arrays {
    cublasOperation_t ta[$members], tb[$members];
    int m[$members], n[$members], k[$members], lda[$members], ldb[$members], ldc[$members];
    int batch[$members];
    float alpha[$members], beta[$members];
    const void *at[3][$problems];
    int apart;  // the library does not make such calls
} group_arrays;
