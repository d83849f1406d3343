"""Cases of Attention as an operator, and of slices and operands without elements."""
import numpy as np
from onnx import TensorProto

from cases import I64, Case, case, const, each, ints, model, node, value


def attention(q, k, v, mask=None, past=None, outputs="y", batch=False, **attrs):
    inputs = {"q": q, "k": k, "v": v}
    if mask is not None:
        inputs["mask"] = value("mask", *mask)
    if past:
        inputs["pk"], inputs["pv"] = past
    names = "q k v" + (" mask" if mask else " _" if past else "") + (" pk pv" if past else "")
    return model([node("Attention", names, outputs, **attrs)], inputs, outputs, opset=23)


F, B = TensorProto.FLOAT, TensorProto.BOOL
PLAIN = ([2, 3, 5, 4], [2, 3, 6, 4], [2, 3, 6, 7])
each("attention_plain", lambda: Case(attention(*PLAIN), tolerance=1e-4))
each("attention_scale", lambda: Case(attention(*PLAIN, scale=0.3), tolerance=1e-4))
each("attention_softcap", lambda: Case(attention(*PLAIN, softcap=2.0), tolerance=1e-4))
each("attention_added", lambda: Case(attention(*PLAIN, mask=(["a", 1, 5, 6], F)), tolerance=1e-4,
                                     args=["--dim", "a=2"]))
each("attention_bools", lambda: Case(
    attention(*PLAIN, mask=([5, 6], B)), tolerance=1e-4,
    inputs={"mask": np.tri(5, 6, 1, dtype=bool)}))
each("attention_causal", lambda: Case(attention(*PLAIN, is_causal=1), tolerance=1e-4,
                                      text="select(idx(i1) <= idx(i0), 0, log(0))"))
each("attention_shared_heads", lambda: Case(
    attention([2, 6, 5, 4], [2, 2, 5, 4], [2, 2, 5, 4], is_causal=1), tolerance=1e-4))
each("attention_flat", lambda: Case(
    attention(value("q", ["N", 5, 12]), value("k", ["N", 7, 6]), value("v", ["N", 7, 4]),
              q_num_heads=4, kv_num_heads=2), tolerance=1e-4, dims={"N": 3}))
each("attention_past", lambda: Case(
    attention([1, 4, 1, 8], [1, 2, 1, 8], [1, 2, 1, 8], past=([1, 2, 9, 8], [1, 2, 9, 8]),
              outputs="y presentk presentv"), tolerance=1e-4, text="presentk = "))
each("attention_causal_past", lambda: Case(
    attention([1, 2, 3, 8], [1, 2, 3, 8], [1, 2, 3, 8], past=([1, 2, 4, 8], [1, 2, 4, 8]),
              outputs="y pk2 pv2", is_causal=1), tolerance=1e-4, text="<= idx(i0) + 4"))
each("attention_blind", lambda: Case(
    attention(*PLAIN, mask=([5, 6], B)), tolerance=1e-4,
    inputs={"mask": np.tri(5, 6, -1, dtype=bool)}))
each("attention_wrong_heads", lambda: Case(
    attention([1, 5, 12], [1, 5, 12], [1, 5, 12], q_num_heads=5, kv_num_heads=5), code=3,
    text="without a usable number of heads"))
each("attention_heads_apart", lambda: Case(
    attention([1, 4, 3, 8], [1, 3, 3, 8], [1, 3, 3, 8]), code=3,
    text="whose numbers of heads do not fit"))
each("attention_capped_mask", lambda: Case(
    attention(*PLAIN, mask=([2, 1, 5, 6], F), softcap=2.0, is_causal=1), tolerance=1e-4))
each("attention_capped_bools", lambda: Case(
    attention([1, 4, 5, 4], [1, 2, 5, 4], [1, 2, 5, 4], mask=([5, 5], B), softcap=0.5),
    tolerance=1e-4, inputs={"mask": np.tri(5, 5, -1, dtype=bool)}))
for mode in range(4):
    each("attention_scores_%d" % mode, lambda mode=mode: Case(
        attention(*PLAIN, mask=([5, 6], F), softcap=2.0, qk_matmul_output_mode=mode,
                  outputs="y pk pv scores"), tolerance=1e-4, text="scores = "))
each("attention_no_mode", lambda: Case(attention(*PLAIN, qk_matmul_output_mode=4), code=3,
                                       text="qk_matmul_output_mode 4"))


def rotary(x, ids=True, size=8, rows=2, **attrs):
    """cos and sin of 6 positions, or of those of each row."""
    table = [6, size // 2] if ids else [rows, 5, size // 2]
    inputs = {"x": x, "c": value("c", table), "s": value("s", table)}
    if ids:
        inputs["at"] = value("at", [2, 5], I64)
    return model([node("RotaryEmbedding", "x c s" + (" at" if ids else ""), **attrs)], inputs,
                 opset=23)


AT = {"at": np.int64([[0, 1, 2, 3, 4], [5, 4, 0, 0, 1]])}
each("rotary", lambda: Case(rotary([2, 3, 5, 8]), inputs=AT, text="Gather("))
each("rotary_cache", lambda: Case(rotary([2, 3, 5, 8], ids=False)))
each("rotary_part", lambda: Case(rotary([2, 3, 5, 8], size=6, rotary_embedding_dim=6), inputs=AT))
each("rotary_pairs", lambda: Case(rotary([2, 3, 5, 8], interleaved=1), inputs=AT))
each("rotary_flat", lambda: Case(
    rotary(value("x", ["N", 5, 24]), False, 4, "N", num_heads=3, rotary_embedding_dim=4,
           interleaved=1), dims={"N": 2}))
each("rotary_no_heads", lambda: Case(rotary([2, 5, 24]), code=3,
                                     text="without a usable number of heads"))
each("rotary_odd", lambda: Case(rotary([2, 3, 5, 8], size=6, rotary_embedding_dim=5), code=3,
                                text="cannot turn 5 of 8 numbers"))


@case
def roll_by_nothing():
    """torch.roll with a shift of 0: the part that comes to the front has no elements."""
    nodes = [node("Slice", "x a zero ax", "front"), node("Slice", "x zero a2 ax", "rest"),
             node("Concat", "rest front", "c", axis=1), node("Relu", "c", "y")]
    return Case(model(nodes, {"x": [2, 6, 3]}, "y",
                      [ints("a", 0), ints("zero", 0), ints("a2", 2 ** 63 - 1), ints("ax", 1)]),
                not_text="Concat")


each("concat_of_nothing", lambda: Case(
    model([node("Concat", "a b", "y", axis=0)], {"x": [2]}, "y",
          [const("a", np.zeros((0, 2), np.float32)), const("b", np.zeros((0, 2), np.float32))]),
    code=4, compare=False))
