// The root: the public part, then every module bottom-up. This order is the architecture; einnet.h
// is this file with its local includes pasted in.
#include "ein.h"

#ifdef EINNET_IMPLEMENTATION
#if defined(__cplusplus) || !defined(__STDC_VERSION__) || __STDC_VERSION__ < 201112L
#error "the implementation of einnet.h is C11: compile the file with EINNET_IMPLEMENTATION as C"
#endif
#ifndef EIN_NO_STB_DS_IMPLEMENTATION
#define STB_DS_IMPLEMENTATION
#endif
#include "ein_int.h"
#include "base.c"
// text -> graph
#include "lex.c"
#include "syntax.c"
#include "parse.c"
#include "format.c"
#include "ops_base.c"
#include "ops_math.c"
#include "ops_conv.c"
#include "ops_shape.c"
#include "ops.c"
#include "resolve.c"
#include "env.c"
#include "bind.c"
#include "graph.c"
#include "graph_json.c"
// graph -> expressions
#include "index.c"
#include "expr.c"
#include "print.c"
#include "eval.c"
#include "evalp.c"
#include "lower.c"
// expressions -> plan
#include "match.c"
#include "fold.c"
#include "prepare.c"
#include "cost.c"
#include "estimate.c"
#include "select.c"
#include "derive.c"
#include "rule_split.c"
#include "rule_match.c"
#include "rule_taps.c"
#include "rule_groups.c"
#include "rule_digits.c"
#include "rule_point.c"
#include "rules.c"
#include "extract.c"
#include "search.c"
#include "merge.c"
#include "merge_find.c"
#include "layout.c"
#include "relayout.c"
#include "plan.c"
// plan -> text
#include "tmpl.c"
#include "emit_index.c"
#include "emit_expr.c"
#include "emit_map.c"
#include "emit_reduce.c"
#include "emit_row.c"
#include "emit_band.c"
#include "emit_relay.c"
#include "emit_kernel.c"
#include "emit.c"
#include "emit_test.c"
#include "explain_merge.c"
#include "explain.c"
#include "api.c"
#endif
