"""Cases of LSTM, GRU and RNN, which are imported step by step."""
import numpy as np

from cases import F, Case, case, const, each, ints, model, node, value, weight


def net(op, steps=5, batch=2, inputs=3, hidden=4, directions=1, bias=True, state=False, cell=False,
        peep=False, lens=None, outs="y h", **attrs):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    inits = [weight("W", directions, gates * hidden, inputs),
             weight("R", directions, gates * hidden, hidden)]
    args = ["x", "W", "R"] + ["_"] * 5
    if bias:
        args[3] = "B"
        inits.append(weight("B", directions, 2 * gates * hidden))
    if lens is not None:
        args[4] = "lens"
        inits.append(const("lens", np.array(lens, np.int32)))
    given = {"x": [steps, batch, inputs]}
    for at, name, there in ((5, "h0", state), (6, "c0", cell)):
        if there:
            args[at] = name
            given[name] = [directions, batch, hidden]
    if peep:
        args[7] = "P"
        inits.append(weight("P", directions, 3 * hidden))
    while args[-1] == "_":
        args.pop()
    made = outs.replace("_", "").split()
    return model([node(op, args, [o if o != "_" else "" for o in outs.split()], hidden_size=hidden,
                       **attrs)], given, made, inits)


WAYS = {"forward": 1, "reverse": 1, "bidirectional": 2}

for way, directions in WAYS.items():
    each("lstm_" + way, lambda w=way, d=directions: Case(
        net("LSTM", directions=d, direction=w, state=True, cell=True, outs="y h c")))
    each("gru_" + way, lambda w=way, d=directions: Case(
        net("GRU", directions=d, direction=w, state=True)))
    each("gru_behind_" + way, lambda w=way, d=directions: Case(
        net("GRU", directions=d, direction=w, linear_before_reset=1, clip=0.4)))
    each("rnn_" + way, lambda w=way, d=directions: Case(
        net("RNN", directions=d, direction=w, activations=["Affine", "ScaledTanh"][:d],
            activation_alpha=[0.5, 0.7][:d], activation_beta=[0.1, 0.9][:d])))


@case
def steps_are_calls_of_a_block():
    """Both directions of two layers are steps of one block; another size has its own."""
    nodes = [node("LSTM", "x W R", "a", direction="bidirectional", hidden_size=4),
             node("Squeeze", "a", "p"), node("ReduceSum", "a axis", "b", keepdims=0),
             node("LSTM", "b V S", "c", hidden_size=4),
             node("ReduceSum", "c axis", "d", keepdims=0),
             node("LSTM", "d U Q", "y", hidden_size=5), node("GRU", "x G H", "z", hidden_size=3)]
    return Case(model(nodes, {"x": [6, "h", 3]}, "y z", [
        weight("W", 2, 16, 3), weight("R", 2, 16, 4), weight("V", 1, 16, 4), weight("S", 1, 16, 4),
        weight("U", 1, 20, 4), weight("Q", 1, 20, 5), weight("G", 1, 9, 3), weight("H", 1, 9, 3),
        ints("axis", 1)]), args=["--dim", "h=2"], dims={"h": 3},
        text=["block lstm_step(h, r, x, c) -> h2, c2 {", "block lstm_step.2(", "block gru_step("],
        not_text="lstm_step.3")


@case
def steps_with_constants_of_their_own():
    """What activations, peepholes and clips take is the same in every step."""
    return Case(net("LSTM", peep=True, clip=0.5, cell=True, state=True, outs="y h c", steps=7,
                    lens=[7, 4], activations=["HardSigmoid", "Affine", "ScaledTanh"],
                    activation_alpha=[0.3, 0.7, 0.9], activation_beta=[0.4, 0.1, 0.8]),
                text=["block lstm_step(", "Where("])


@case
def lstm_peepholes_clip():
    return Case(net("LSTM", directions=2, direction="bidirectional", peep=True, clip=0.5,
                    cell=True, outs="y h c"))


@case
def lstm_coupled():
    return Case(net("LSTM", input_forget=1, cell=True, outs="y h c"))


@case
def lstm_activations():
    return Case(net("LSTM", directions=2, direction="bidirectional", outs="y h c",
                    activations=["HardSigmoid", "Relu", "Softsign", "Sigmoid", "LeakyRelu", "Tanh"],
                    activation_alpha=[0.3, 0.2], activation_beta=[0.4]))


@case
def lstm_last_state_only():
    return Case(net("LSTM", bias=False, lens=[5, 5], outs="_ h"),
                text=["h.t4.h, h.t4.c = lstm_step(h.t3.h, h.R"])


@case
def gru_of_one_step():
    return Case(net("GRU", steps=1, state=True, linear_before_reset=1))


@case
def gru_long():
    return Case(net("GRU", steps=130, batch=1, hidden=2), text="split=[64,64,2]", tolerance=1e-4)


@case
def rnn_batch_size():
    x = value("x", ["T", "N", 3])
    m = net("RNN", outs="y")
    m.graph.input[0].CopyFrom(x)
    return Case(m, args=["--dim", "T=4", "--dim", "N=2"], dims={"N": 3})


@case
def lstm_zero_state_of_the_batch():
    """torch makes the states of zeros whose shape it takes from the input."""
    m = net("LSTM", bias=False, state=True, cell=True, outs="y h c")
    del m.graph.input[1:]
    m.graph.input[0].CopyFrom(value("x", [5, "N", 3]))
    m.graph.initializer.extend([ints("one", 1), ints("four", 4), ints("at", 1), ints("shape0", 0)])
    zeros = [node("Shape", "x", "s"), node("Gather", "s at", "n"),
             node("Concat", "one n four", "shape", axis=0),
             node("ConstantOfShape", "shape", "h0"), node("ConstantOfShape", "shape", "c0")]
    for i, made in enumerate(zeros):
        m.graph.node.insert(i, made)
    return Case(m, args=["--dim", "N=2"], dims={"N": 3}, not_text="MatMul(h0")


@case
def torch_like_stack():
    """Two layers as torch exports them: transposed to the sequence first, squeezed, stacked."""
    hidden = 4
    inits, nodes = [ints("dir", 1)], [node("Transpose", "x", "v0", perm=[1, 0, 2])]
    for i in range(2):
        inits += [weight(f"W{i}", 1, 4 * hidden, 3 if i == 0 else hidden),
                  weight(f"R{i}", 1, 4 * hidden, hidden), weight(f"B{i}", 1, 8 * hidden)]
        nodes += [node("LSTM", f"v{i} W{i} R{i} B{i}", f"y{i} h{i} c{i}", hidden_size=hidden),
                  node("Squeeze", f"y{i} dir", f"v{i + 1}")]
    nodes += [node("Transpose", "v2", "y", perm=[1, 0, 2])]
    return Case(model(nodes, {"x": [2, 6, 3]}, "y h1", inits))


@case
def lstm_too_long():
    return Case(net("LSTM", steps=1100), code=4,
                text="operator 'LSTM' over 1100 steps: steps are written out, 1024 at most")


def at_run_time(m, lens):
    """Lengths are an input."""
    given = next(i for i in m.graph.initializer if i.name == "lens")
    m.graph.initializer.remove(given)
    m.graph.input.append(value(given.name, [len(lens)], given.data_type))
    return Case(m, inputs={"lens": np.array(lens, np.int32)})


# Sequences end before the others do: their states stay, what is given behind their ends is 0.
for way, directions in WAYS.items():
    for op in ("LSTM", "GRU", "RNN"):
        def lengths(w=way, d=directions, op=op, **more):
            return net(op, batch=3, directions=d, direction=w, lens=[2, 5, 1],
                       outs="y h c" if op == "LSTM" else "y h", **more)
        each(f"{op.lower()}_lengths_{way}", lambda make=lengths: Case(
            make(state=True, linear_before_reset=1) if op == "GRU" else make(state=True)))
        each(f"{op.lower()}_lengths_given_{way}",
             lambda make=lengths: at_run_time(make(), [2, 5, 1]))


@case
def gru_of_whole_lengths():
    return Case(net("GRU", lens=[5, 5]), not_text="Where")


@case
def gru_of_lengths_beyond():
    return Case(net("GRU", lens=[5, 6]), code=3,
                text="a sequence of length 6 in an input of 5 steps")


@case
def gru_of_lengths_for_others():
    return Case(net("GRU", lens=[5, 4, 3]), code=3, text="sequence_lens whose shape does not fit")


@case
def rnn_of_unknown_activation():
    return Case(net("RNN", activations=["Swirl"]), code=4, text="an unknown activation")


@case
def rnn_of_wrong_shapes():
    m = net("RNN")
    m.graph.initializer[1].CopyFrom(weight("R", 1, 5, 4))
    return Case(m, code=3, text="recurrent weight whose shape does not fit")
