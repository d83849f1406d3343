"""Cases of If, Loop and Scan, which are imported where nothing about them is left to run time."""
import numpy as np
from onnx import TensorProto, helper

from cases import F, I64, Case, case, const, each, ints, model, node, value, weight

BOOL = TensorProto.BOOL


def graph(nodes, inputs=(), outputs="r", inits=()):
    """A body: inputs are (name, type, shape), outputs are names or those."""
    outs = [helper.make_tensor_value_info(o, F, None) if isinstance(o, str) else
            helper.make_tensor_value_info(*o) for o in
            (outputs.split() if isinstance(outputs, str) else outputs)]
    return helper.make_graph(list(nodes), "body", [helper.make_tensor_value_info(*i)
                                                   for i in inputs], outs, list(inits))


@case
def if_of_a_shape():
    """As torch writes Squeeze of an axis that may be 1; both branches read names around them."""
    nodes = [node("Relu", "x", "a"), node("Shape", "a", "s"), node("Gather", "s one", "n"),
             node("Equal", "n one", "is"),
             node("If", "is", "y", then_branch=graph([node("Squeeze", "a one", "r")]),
                  else_branch=graph([node("Mul", "a w", "r")]))]
    return Case(model(nodes, {"x": value("x", [2, "W"])}, "y", [ints("one", 1), weight("w", 3)]),
                args=["--dim", "W=3"], text="y = Mul(a, w)")


@case
def if_of_two_outputs_nested():
    inner = graph([node("Neg", "a", "r")]), graph([node("Exp", "a", "r")])
    then = graph([node("Tanh", "x", "a"), node("If", "no", "p", then_branch=inner[0],
                                               else_branch=inner[1]),
                  node("Add", "p k", "q")], outputs="p q", inits=[weight("k", 3)])
    other = graph([node("Identity", "x", "p"), node("Identity", "x", "q")], outputs="p q")
    return Case(model([node("If", "yes", "y z", then_branch=then, else_branch=other)],
                      {"x": [2, 3]}, "y z",
                      [const("yes", True), const("no", False), weight("a.k", 2)]),
                text=["y = Exp(", "z = Add(y, "])


@case
def if_at_run_time():
    """Both branches are computed: one result each of a value, of an input and of integers."""
    then = graph([node("Relu", "x", "r"), node("Identity", "x", "p"),
                  node("Cast", "x", "k", to=I64)], outputs=["r", "p", ("k", I64, None)])
    other = graph([node("MatMul", "x w", "r"), node("Neg", "x", "p"), node("Neg", "i", "k")],
                  outputs=["r", "p", ("k", I64, None)])
    nodes = [node("Cast", "x", "i", to=I64), node("ReduceSum", "x", "sum", keepdims=1),
             node("Less", "sum zero", "c"), node("Reshape", "c minus", "is"),
             node("If", "is", "a b n", then_branch=then, else_branch=other),
             node("Cast", "n", "m", to=F), node("Add", "b m", "y")]
    made = model(nodes, {"x": [2, 2]}, "a y", [const("zero", np.float32(0)), ints("minus", -1),
                                               weight("w", 2, 2)])
    return Case(made, text="Where(", inputs={"x": np.float32([[1, 2], [-3.5, 4]])})


@case
def if_at_run_time_of_a_scalar():
    branches = [graph([node(op, "s", "r")]) for op in ("Exp", "Neg")]
    nodes = [node("ReduceMax", "x", "s", keepdims=0), node("Greater", "x zero", "c"),
             node("If", "c", "y", then_branch=branches[0], else_branch=branches[1])]
    return Case(model(nodes, {"x": [1]}, "y", [const("zero", np.float32(0))]))


@case
def if_at_run_time_of_shapes():
    branches = [graph([node("Transpose", "x", "r")]), graph([node("Relu", "x", "r")])]
    return Case(model([node("If", "c", "y", then_branch=branches[0], else_branch=branches[1])],
                      {"x": [2, 3], "c": value("c", [], BOOL)}), code=4,
                text="operator 'If' with a condition computed at run time that picks one of two "
                     "shapes or types")


@case
def if_at_run_time_of_a_tensor():
    branch = graph([node("Relu", "x", "r")])
    return Case(model([node("If", "c", "y", then_branch=branch, else_branch=branch)],
                      {"x": [2, 3], "c": value("c", [2], BOOL)}), code=3,
                text="operator 'If' with a condition that is no scalar of type bool")


def loop(body, rounds=3, inits=(), outs="y ys", states="x", begin="_", inputs=None):
    given = [] if rounds is None else [const("n", rounds, np.int64)]
    return model([node("Loop", f"{'n' if given else '_'} {begin} {states}", outs, body=body)],
                 inputs or {"x": [2, 4]}, outs, given + list(inits))


def body(nodes, outputs="on_out s_out y_out", inits=()):
    outs = [(o, BOOL if o.startswith("on") else F, [] if o.startswith("on") else None)
            for o in outputs.split()]
    return graph(nodes, [("i", I64, []), ("on", BOOL, []), ("s", F, [2, 4])], outs, inits)


ON = node("Identity", "on", "on_out")


def sequence(name):
    return helper.make_tensor_sequence_value_info(name, F, None)


def branch(op, inputs):
    return helper.make_graph([node(op, inputs, "r")], "body", [], [sequence("r")])


@case
def loop_of_a_recurrence():
    step = body([ON, node("MatMul", "s w", "p"), node("Tanh", "p", "s_out"),
                 node("Mul", "s_out k", "y_out")], inits=[weight("k", 4)])
    return Case(loop(step, inits=[weight("w", 4, 4)]), text=["ys = Identity(", "MatMul(x, w)"])


@case
def loop_that_counts():
    """The round's number picks a slice; the condition ends it before the count does."""
    step = body([node("Less", "i two", "on_out"), node("Gather", "w i", "row"),
                 node("Add", "s row", "s_out"), node("Identity", "s", "y_out")])
    return Case(loop(step, rounds=9, inits=[weight("w", 9, 4), const("two", np.int64(2))]),
                text="y.rounds = Concat(y.one, ")


@case
def loop_without_a_count():
    step = body([node("Less", "i two", "on_out"), node("Exp", "s", "s_out")], "on_out s_out")
    return Case(loop(step, rounds=None, outs="y", begin="yes",
                     inits=[const("two", np.int64(2)), const("yes", True)]))


@case
def loop_of_no_rounds():
    step = body([ON, node("Exp", "s", "s_out")], "on_out s_out")
    return Case(loop(step, rounds=0, outs="y"), text="y = Identity(x)")


@case
def loop_with_a_branch():
    choice = node("If", "first", "s_out",
                  then_branch=graph([node("Relu", "s", "r")]),
                  else_branch=graph([node("Sub", "s w", "r")]))
    step = body([ON, node("Equal", "i zero", "first"), choice], "on_out s_out")
    return Case(loop(step, outs="y", inits=[const("zero", np.int64(0)), weight("w", 4)]))


@case
def loop_of_a_sequence():
    """As torch writes tensor_split: every round puts a slice into a sequence, which an If reads."""
    g = helper.make_graph(
        [ON, node("Gather", "cuts i", "from", axis=0), node("Add", "i one", "next"),
         node("Gather", "cuts next", "to", axis=0), node("Slice", "x from to zero", "part"),
         node("SequenceInsert", "seq part", "seq_out")], "body",
        [helper.make_tensor_value_info("i", I64, [1]),
         helper.make_tensor_value_info("on", BOOL, []), sequence("seq")],
        [helper.make_tensor_value_info("on_out", BOOL, []), sequence("seq_out")])
    nodes = [node("SequenceEmpty", "", "none"), node("Loop", "n yes none", "parts", body=g),
             node("If", "yes", "all", then_branch=branch("SequenceInsert", "parts x"),
                  else_branch=branch("Identity", "parts")),
             node("ConcatFromSequence", "all", "y", axis=0),
             node("SequenceAt", "parts one", "z")]
    return Case(model(nodes, {"x": [5, 2]}, "y z", [
        ints("n", 2), ints("cuts", 0, 2, 5), ints("one", 1), ints("zero", 0),
        const("yes", True)], opset=17))


@case
def loop_that_stacks_sequences():
    g = helper.make_graph([ON, node("Exp", "s", "s_out"), node("SequenceConstruct", "s", "q")],
                          "body", [helper.make_tensor_value_info(*i) for i in (
                              ("i", I64, []), ("on", BOOL, []), ("s", F, [2, 4]))],
                          [helper.make_tensor_value_info("on_out", BOOL, []),
                           helper.make_tensor_value_info("s_out", F, None), sequence("q")])
    return Case(loop(g), code=4, text="operator 'Loop' that stacks sequences")


def until_a_value(outputs="on_out s_out", nodes=()):
    """What adds up to less than k goes on."""
    return body([node("Add", "s third", "s_out"), node("ReduceSum", "s_out", "m", keepdims=0),
                 node("Less", "m k", "on_out"), *nodes], outputs)


@case
def loop_until_a_value():
    """All rounds are computed; what comes after the last that counts changes nothing."""
    inits = [const("k", np.float32(6)), const("third", np.float32(0.3))]
    nodes = [node("ReduceSum", "x", "all", keepdims=0), node("Less", "all k", "begins")]
    made = loop(until_a_value(), rounds=5, outs="y", inits=inits, begin="begins")
    nodes.append(made.graph.node.pop())
    made.graph.node.extend(nodes)
    return Case(made, text="Where(", inputs={"x": np.float32([[0, 1, 0, 0], [0, 0, 0, 0]])})


@case
def loop_until_a_value_at_once():
    """The condition does not hold before the first round."""
    case = loop_until_a_value()
    case.inputs = {"x": np.float32([[9, 1, 0, 0], [0, 0, 0, 0]])}
    return case


@case
def loop_until_a_value_without_a_count():
    inits = [const("k", np.float32(6)), const("third", np.float32(0.3))]
    return Case(loop(until_a_value(), rounds=np.iinfo(np.int64).max, outs="y", inits=inits), code=4,
                text="operator 'Loop' with a condition computed at run time and no number of "
                     "rounds that could be written out")


def loop_of_a_counter(how, x, last=3):
    """As torch scripts `while x.sum() < 6 and i < 3`: no count, and a counter that is known as
    long as rounds count. `and` is an And, or an If that has another False in a branch, as breaks
    do."""
    less = node("Less", "at_out last", "few")
    nodes = [node("Exp", "s", "e"), node("Mul", "e third", "s_out"),
             node("Add", "at one", "at_out"), node("ReduceSum", "s_out", "all", keepdims=0),
             node("Less", "all k", "small")]
    scalar = ("r", BOOL, [])
    no = graph([node("Identity", "no", "r")], outputs=[scalar])
    if how == "and":
        nodes += [less, node("And", "small few", "on_out")]
    elif how == "if":
        nodes += [node("If", "small", "on_out", then_branch=graph(
            [node("Less", "at_out last", "r")], outputs=[scalar]), else_branch=no)]
    else:
        nodes += [node("Greater", "all k", "large"), less, node(
            "If", "large", "go", then_branch=no,
            else_branch=graph([node("Identity", "yes", "r")], outputs=[scalar])),
            node("And", "few go", "on_out")]
    g = helper.make_graph(nodes, "body", [helper.make_tensor_value_info(*i) for i in (
        ("i", I64, []), ("on", BOOL, []), ("s", F, [2, 4]), ("at", I64, []))],
        [helper.make_tensor_value_info(*v) for v in (
            ("on_out", BOOL, []), ("s_out", F, None), ("at_out", I64, []))])
    made = loop(g, rounds=np.iinfo(np.int64).max, outs="y last_at", states="x zero", inits=[
        const("k", np.float32(6)), const("third", np.float32(0.3)), const("no", False),
        const("yes", True), *(const(v, np.int64(k)) for v, k in (
            ("zero", 0), ("one", 1), ("last", last)))])
    made.graph.output[1].type.tensor_type.elem_type = I64
    return Case(made, text="Where(", not_text="y.3/", inputs={"x": np.full((2, 4), x, np.float32)})


for how in ("and", "if", "break"):
    for x in (0, 1.5, 9):
        each(f"loop_of_a_counter_{how}_{x}", lambda h=how, v=x: loop_of_a_counter(h, v))


@case
def branches_are_both_computed():
    made = if_at_run_time()
    made.said = ("note: what a condition computed at run time leaves out is computed, too, and not "
                 'taken: node of output "a"')
    return made


@case
def and_or_that_are_decided():
    """One side is known: so is what comes of it, or it is the other side."""
    nodes = [node("Less", "x half", "l"), node("And", "l no", "a"), node("Or", "yes l", "b"),
             node("And", "yes l", "c"), node("Or", "l no", "d"), node("Where", "a x half", "p"),
             node("Where", "b x half", "q"), node("Where", "c x half", "r"),
             node("Where", "d half x", "s"), node("Sum", "p q r s", "y")]
    return Case(model(nodes, {"x": [2, 3]}, "y", [const("half", np.float32([0.5])),
                                                  const("no", False), const("yes", [True])]),
                not_text=["And(", "Or("])


@case
def loop_until_a_value_stacked():
    inits = [const("k", np.float32(6)), const("third", np.float32(0.3))]
    step = until_a_value("on_out s_out y_out", [node("Neg", "s", "y_out")])
    return Case(loop(step, inits=inits), code=4, text="an output of as many rows as rounds")


@case
def loop_with_a_count_at_run_time():
    step = body([ON, node("Exp", "s", "s_out")], "on_out s_out")
    made = loop(step, rounds=None, outs="y", inputs={"x": [2, 4], "n": value("n", [], I64)})
    made.graph.node[0].input[0] = "n"
    return Case(made, code=4, text="operator 'Loop' with a number of rounds computed at run time")


@case
def loop_while_a_counter_is_small():
    """As torch scripts `while i < 3`: the most rounds there are, and a state that is known."""
    g = helper.make_graph(
        [node("Mul", "s w", "s_out"), node("Add", "at one", "at_out"),
         node("Less", "at_out three", "on_out")], "body",
        [helper.make_tensor_value_info(*i) for i in (
            ("i", I64, []), ("on", BOOL, []), ("s", F, [2, 4]), ("at", I64, []))],
        [helper.make_tensor_value_info("on_out", BOOL, []),
         helper.make_tensor_value_info("s_out", F, None),
         helper.make_tensor_value_info("at_out", I64, [])])
    numbers = {"zero": 0, "one": 1, "three": 3}
    made = loop(g, rounds=np.iinfo(np.int64).max, outs="y last", states="x zero", inits=[
        weight("w", 4), *(const(n, np.int64(k)) for n, k in numbers.items())])
    made.graph.output[1].type.tensor_type.elem_type = I64
    return Case(made, text="y = Identity(\"y.2/s_out\")", not_text="y.3/")


@case
def loop_too_long():
    step = body([ON, node("Exp", "s", "s_out")], "on_out s_out")
    return Case(loop(step, rounds=100000, outs="y"), code=4,
                text="operator 'Loop' of 100000 rounds: they are written out, 1024 at most")


@case
def loop_without_end():
    step = body([ON, node("Exp", "s", "s_out")], "on_out s_out")
    return Case(loop(step, rounds=None, outs="y"), code=4, text="of 1025 rounds")


@case
def loop_with_a_lost_value():
    step = body([ON, node("Unique", "s", "s_out")], "on_out s_out")
    return Case(loop(step, outs="y"), code=4, text="unsupported operator 'Unique'")


@case
def scan_both_ways():
    step = graph([node("Add", "s x0", "t"), node("Mul", "t x1", "s_out"),
                  node("Neg", "t", "y_out")],
                 [("s", F, [3]), ("x0", F, [3]), ("x1", F, [3])], "s_out y_out")
    return Case(model([node("Scan", "h a b", "y ys", body=step, num_scan_inputs=2,
                            scan_input_axes=[0, 1], scan_input_directions=[0, 1],
                            scan_output_axes=[1], scan_output_directions=[1])],
                      {"h": [3], "a": [4, 3], "b": [3, 4]}, "y ys"))


@case
def loop_graph_that_does_not_fit():
    step = graph([node("Exp", "s", "r")], [("s", F, [2, 4])])
    return Case(loop(step, outs="y"), code=3, text="whose graph does not fit")


@case
def graphs_deep():
    inner = graph([node("Relu", "x", "r")])
    for _ in range(12):
        inner = graph([node("If", "yes", "r", then_branch=inner, else_branch=inner)])
    return Case(model([node("If", "yes", "y", then_branch=inner, else_branch=inner)],
                      {"x": [2]}, "y", [const("yes", True)]), text="y = Relu(x)")


@case
def loops_of_loops():
    """A thousand times a thousand rounds that do nothing."""
    inner = graph([], [("j", I64, []), ("c", BOOL, []), ("t", F, [2, 4])],
                  [("c", BOOL, []), ("t", F, [2, 4])])
    for name in "uvw":
        inner = graph([node("Loop", f"n _ {name}", name + "_out", body=inner)],
                      [("i" + name, I64, []), ("on" + name, BOOL, []), (name, F, [2, 4])],
                      [("on" + name, BOOL, []), (name + "_out", F, [2, 4])])
    return Case(loop(inner, rounds=1000, outs="y"), code=3, text="the model has more than")
