#!/bin/sh
# verify --candidate must refuse what is wrong: faults are planted in a copy of the sources, and the
# faulty program must say of its own candidates that they compute something else, with exit code 1.
. "$(dirname "$0")/lib.sh"

cat > "$work/conv.ein" << 'END'
ein 1
model conv
input x: f32[1,3,6,7]
weight k: f32[4,3,3,3] = randn(std=0.1)
output y
y = Conv(x, k; pads=1)
END
cat > "$work/shared.ein" << 'END'
ein 1
model shared
input x: f32[9,8]
weight a: f32[8,5] = randn(std=0.1)
weight b: f32[8,7] = randn(std=0.1)
output y, z
p = MatMul(x, a)
q = MatMul(x, b)
y = Tanh(p)
z = Relu(q)
END
cat > "$work/chain.ein" << 'END'
ein 1
model chain
input x: f32[20,9]
weight a: f32[9,12] = randn(std=0.1)
weight b: f32[12,6] = randn(std=0.1)
output y
p[i,j] = sum(r) 3 * x[i,r] * a[r,j]
y[i,j] = sum(r) p[i,r] * b[r,j]
END

objects=$(ls build/cli/*.o build/import/*.o)

# verdicts PROGRAM MODEL RULE: exit codes of verify over the candidates that have the rule, or over
# the merges that are made by it, one a line with the message.
verdicts() {
    "$1" explain "$2" --all --json > "$work/list.json"
    python3 - "$work/list.json" "$3" > "$work/ids" << 'END'
import json, sys
found = json.load(open(sys.argv[1]))
for value in found["values"]:
    for c in value["candidates"]:
        if any(sys.argv[2] in s["rules"] for s in c["steps"]):
            print(value["value"], c["id"])
for m in found["merges"]:
    if sys.argv[2] in m["rule"]:
        print(m["members"][-1], m["id"])
END
    while read -r value id; do
        "$1" verify "$2" "$value" --candidate "$id" > "$work/said" 2>&1 < /dev/null
        echo "$? $id: $(cat "$work/said")"
    done < "$work/ids"
}

# faulty NAME FILE SED: builds the program with the fault planted in FILE, $work/faulty.
faulty() {
    plant "$1" "$2" "$3" || return
    check "$1: the faulty program builds" clang -std=c11 -O0 -w -I"$work/gen" -Ibuild -c \
        "$work/gen/einnet.c" -o "$work/einnet.o"
    check "$1: and links" gcc -o "$work/faulty" "$work/einnet.o" $objects build/onnx/onnx.pb-c.o \
        -lprotobuf-c -lm
}

# fault NAME MODEL RULE FILE SED: what has the rule is proved, and refused once the fault is in.
fault() {
    verdicts build/einnet "$work/$2.ein" "$3" > "$work/sound"
    if [ -s "$work/sound" ] && ! grep -v '^0 ' "$work/sound" > "$found"; then
        pass
    else
        fail "$1: proved as it stands" "$work/sound"
    fi
    faulty "$1" "$4" "$5" || return
    verdicts "$work/faulty" "$work/$2.ein" "$3" > "$work/verdicts"
    if grep -q '^1 \([0-9]*\): .*candidate \1 computes something else' "$work/verdicts"; then
        pass
    else
        fail "$1 is refused" "$work/verdicts"
    fi
}

fault 'a window one place too far' conv 'summation splitting' derive/derive.c \
    's/z->d\[at\]\.lo + rest);/z->d[at].lo + rest + 1);/'
fault 'a member one place too far' shared 'shared input' derive/merge.c \
    's/\(at\[m\] = ein__ix_addc(ctx, flat, f->at\[i\]\));/\1 + 1);/'
fault 'weights of one member at the place of another' shared 'shared input' derive/merge_joint.c \
    's/ein__ix rest = ein__ix_addc(ctx, j, -f->at\[i\]);/ein__ix rest = j;/'
fault 'a constant lost in re-association' chain 're-association' derive/merge_chain.c \
    's/t->alpha \*= alpha;//'

# Whole plans: all models of tests/unseen; factors of operands that become those of their product,
# where that rounds nothing, and of products, several in a row, that become their weights'; a tensor
# and what it was made of, both read, and far behind them what the model and the plan share.
cat > "$work/factors.ein" << 'END'
ein 1
model factors
input x: f32[9,8]
input z: f32[7,8]
output y, w
a[i,r] = 0.1 * x[i,r]
b[j,r] = 0.3 * z[j,r]
y[i,j] = sum(r) a[i,r] * b[j,r]
c[i,r] = 0.5 * x[i,r]
w[i,j] = sum(r) c[i,r] * b[j,r]
END
cat > "$work/scales.ein" << 'END'
ein 1
model scales
input x: f32[3,7]
weight a: f32[7,12] = randn()
weight b: f32[7,5] = randn()
weight c: f32[5] = randn()
output y, z
p = MatMul(x, a)
y[i,j] = 0.7 * (p[i,j] / 12) * 0.1
q[i,j] = sum(k) x[i,k] * x[i,k] * b[k,j]
z[i,j] = -(q[i,j] / 3 - c[j]) / 7
END
cat > "$work/turned.ein" << 'END'
ein 1
model turned
input q: f32[2,7,24]
input k: f32[2,11,10]
weight wq: f32[24,24] = randn(std=0.2)
weight wk: f32[10,24] = randn(std=0.3)
weight bk: f32[24] = randn(std=0.3)
weight wo: f32[24,24] = randn(std=0.2)
weight g: f32[24] = ones()
weight bias: f32[6,1,11] = randn()
output y
qt = Transpose(q; perm=[1,0,2])
kt = Transpose(k; perm=[1,0,2])
q0 = MatMul(qt, wq)
k0 = MatMul(kt, wk)
k1 = Add(k0, bk)
q2 = Reshape(q0; shape=[7,6,8])
q3 = Transpose(q2; perm=[1,0,2])
k2 = Reshape(k1; shape=[11,6,8])
k3 = Transpose(k2; perm=[1,2,0])
v3 = Transpose(k2; perm=[1,0,2])
s = MatMul(q3, k3)
sb = Add(s, bias)
a = Softmax(sb; axis=-1)
o = MatMul(a, v3)
o1 = Transpose(o; perm=[1,0,2])
o2 = Reshape(o1; shape=[14,24])
l = Gemm(o2, wo; transB=1)
l1 = Reshape(l; shape=[7,2,24])
l2 = Transpose(l1; perm=[1,0,2])
x = Add(q, l2)
y = LayerNormalization(x, g, g)
END
cat > "$work/deep.ein" << 'END'
ein 1
model deep
dim R = 14
small R = 2
input x: f32[1,24,8,8]
output y
block next(x) -> y {
weight k: f32[24,1,3,3] = randn(std=0.3)
weight g: f32[24] = uniform(lo=0.5, hi=1.5)
weight b: f32[24] = randn(std=0.1)
weight u: f32[24,48] = randn(std=0.2)
weight v: f32[48,24] = randn(std=0.1)
weight s: f32[24] = uniform(lo=0.5, hi=1)
c = Conv(x, k; pads=1, group=24)
t = Transpose(c; perm=[0,2,3,1])
n = LayerNormalization(t, g, b; axis=-1)
h = MatMul(n, u)
a = Gelu(h)
m = MatMul(a, v)
p = Mul(m, s)
q = Transpose(p; perm=[0,3,1,2])
y = Add(x, q)
}
a = Relu(x)
repeat i in 0:R {
a = next(a)
}
y = Relu(a)
END
for model in "$work/factors.ein" "$work/scales.ein" "$work/turned.ein" tests/unseen/*.ein; do
    check "$(basename "$model") is proved" build/einnet verify --small "$model"
done
# Blocks behind each other whose results the plan has in another order: one after the other.
check 'deep.ein is proved in a moment' within 10 build/einnet verify "$work/deep.ein"
# Tensors that no value of the plan has, since what reads them computes them from parts; and an
# output that the plan has as the model has it.
check 'csrnet_backend is proved in a moment' within 20 build/einnet verify \
    models/csrnet_backend.ein
check 'preactivation in TF32' build/einnet verify --math tf32 tests/unseen/preactivation.ein

# plan_fault NAME MODEL FILE SED: the plan of the faulty program is refused.
plan_fault() {
    faulty "$1" "$3" "$4" || return
    "$work/faulty" verify --small "$work/$2.ein" > "$work/said" 2>&1
    [ $? = 1 ] && grep -q "'y': the plan computes something else" "$work/said" && pass ||
        fail "$1 is refused" "$work/said"
}

plan_fault 'factors that round' factors prepare/fold.c 's/bool exact = fma(.*;/bool exact = true;/'
plan_fault 'a product in the wrong order' deep prepare/turn.c \
    's/subst(ctx, e->ix\[k\], own/subst(ctx, e->ix[k == 1 || k == 2 ? 3 - k : k], own/'
finish
