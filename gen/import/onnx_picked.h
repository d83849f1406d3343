// onnx_picked.h - rows that are picked at run time, shared by the onnx_picked*.c files; `picked` is
// what the others call.
#ifndef CLI_ONNX_PICKED_H
#define CLI_ONNX_PICKED_H

#include "onnx.h"

// What a node's results are.
typedef struct {
    const ox_picked *set;  // of their rows; NULL: they have all of them
    int along;
    unsigned over;
    bool done;   // the outputs are bound already
    bool apart;  // the results have the coordinates as axes
} ox_rows;

typedef void (*ox_converter)(ox *o, ox_node *n);

// Arranges the inputs of a node, so that it can be converted as one without picked rows; says what
// its results are.
typedef struct {
    void (*arrange)(ox *o, ox_node *n, ox_rows *r);
    bool lists;       // it takes numbers of shapes that count picked rows
    const char *ops;  // with a space around each
} ox_arranged;

// ---- onnx_picked.c: lists of places, values with their rows, numbers of rows in shapes ----
CLI_NORETURN void ox_refuse_rows(ox *o, ox_node *n, const ox_picked *set, const char *why);
int64_t ox_extent(const ox_picked *s, unsigned over);  // rows for so many coordinates
unsigned ox_all_of(const ox_picked *s);                // all coordinates
const ox_picked *ox_kept_list(ox *o, ox_picked s);     // the one that equals `s`
// Where `is` is not 0, which is not known.
const ox_picked *ox_places_of(ox *o, ox_node *n, ox_value *is);
// v with `count` sizes `dims` for `take` axes from `axis` on.
ox_value *ox_with_dims(ox *o, ox_node *n, const char *suffix, ox_value *v, int axis, int take,
                       const int64_t *dims, int count);
ox_value *ox_tagged(ox_value *v, const ox_picked *s, int along, unsigned over);  // v is its rows
ox_value *ox_apart(ox *o, ox_node *n, ox_value *v);
ox_value *ox_widened(ox *o, ox_node *n, ox_value *v, unsigned over);
ox_value *ox_narrowed(ox *o, ox_node *n, ox_value *v);
ox_value *ox_mask_of(ox *o, ox_node *n, const ox_picked *s, int rank, int axis);
ox_value *ox_count_of(ox *o, ox_node *n, const ox_picked *s);
ox_value *ox_selected(ox *o, ox_node *n, ox_value *v, double none);
const ox_picked *ox_list_named(ox *o, const char *sym);  // whose places `sym` counts, or NULL
int ox_counts_in(const ox_value *v);
int ox_counts_of(const ox_node *n, int from);  // in inputs from that one on
ox_value *ox_output_of(const ox_node *n, int i);
CLI_NORETURN void ox_refuse_size(ox *o, ox_node *n);
bool ox_compute_sizes(ox *o, ox_node *n, ox_converter convert);
void ox_check_sizes(ox *o, ox_node *n);
void ox_make_counts(ox *o, ox_node *n);

// ---- onnx_picked_keep.c ----
extern const ox_arranged ox_keeping[];                   // ends with NULL ops
int64_t ox_product(const int64_t *v, int from, int to);  // -1: one below 1, or too large
// The results have the rows of input `v`, along an axis of theirs, and of no other list.
void ox_take_rows(ox *o, ox_node *n, ox_rows *r, const ox_value *v, int along);
ox_value *ox_only(ox *o, ox_node *n, ox_rows *r);
void ox_check_rows(ox *o, ox_node *n, const ox_rows *r, bool is);  // refuses what is not
ox_value *ox_numbered(ox *o, ox_node *n, ox_value *x, int64_t first, int64_t count);

#endif  // CLI_ONNX_PICKED_H
