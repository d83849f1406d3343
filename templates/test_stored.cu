// A value that the program stores, with what the reference has for it: where it is (in output
// `output`, or in the arena), its type, sizes and strides; which entries before it were used to
// make it: `sources` numbers of error_sources from `first` on.
struct stored_value {
    const char *name;
    int value, output, type, reference_type, rank;
    size_t offset;  // bytes
    long long size[10], stride[10];
    int first, sources;
};
