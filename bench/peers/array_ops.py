"""Array libraries with numpy's interface: jax.numpy here, numpy itself in the tests."""

import numpy as np

COMPARE = {"==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater",
           ">=": "greater_equal"}
BINARY = {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "pow": "power",
          "max": "maximum", "min": "minimum"}
UNARY = {"tanh": "tanh", "exp": "exp", "log": "log", "sqrt": "sqrt", "abs": "abs",
         "neg": "negative", "floor": "floor", "ceil": "ceil", "square": "square"}


class ArrayOps:
    """What numpy and jax.numpy share; `xp` is one of them."""

    xp = np

    def input(self, a, tensor):
        return a

    def output(self, a, tensor):
        return a

    def reshape(self, a, shape):
        return self.xp.reshape(a, tuple(shape))

    def permute(self, a, axes):
        return self.xp.transpose(a, tuple(axes))

    def slice(self, a, cuts):
        return a[tuple(slice(None) if c is None else slice(*c) for c in cuts)]

    def pad(self, a, pads, value):
        return self.xp.pad(a, list(pads), constant_values=value)

    def expand(self, a, shape):
        return self.xp.broadcast_to(a, tuple(shape))

    def concat(self, parts, axis):
        return self.xp.concatenate(parts, axis)

    def stack(self, parts, axis):
        return self.xp.stack(parts, axis)

    def diagonals(self, a, many, rows, wide, count):
        """[many, rows, count] of [many, rows, wide]: (i, t) is (i, i + t), which stands at column t
        of rows of wide + 1."""
        flat = self.pad(self.reshape(a, [many, rows * wide]), [(0, 0), (0, rows)], 0.0)
        return self.reshape(flat, [many, rows, wide + 1])[:, :, :count]

    def take(self, flat, positions):
        return flat[positions]

    def unary(self, name, a):
        if name == "relu":
            return self.xp.maximum(a, 0.0)
        if name == "sigmoid":
            return 1.0 / (1.0 + self.xp.exp(-a))
        if name == "rsqrt":
            return 1.0 / self.xp.sqrt(a)
        return getattr(self.xp, UNARY[name])(a)

    def binary(self, name, a, b):
        return getattr(self.xp, BINARY[name])(a, b)

    def compare(self, op, a, b):
        return getattr(self.xp, COMPARE[op])(a, b)

    def where(self, mask, a, b):
        return self.xp.where(mask, a, b)

    def reduce(self, kind, a, axes, keep):
        return getattr(self.xp, kind)(a, axis=tuple(axes), keepdims=keep)

    def place(self, kind, a, axis, keep, last):
        """The first place, or in what is turned around, so that `last` comes first, the last."""
        at = getattr(self.xp, kind)(a if last is None else self.xp.flip(a, axis), axis=axis)
        at = at if last is None else last - at
        return self.xp.expand_dims(at, axis) if keep else at

    def clip(self, a, low, high):
        return self.xp.clip(a, low, high)

    def prelu(self, a, slope, shape):
        return self.xp.where(a < 0, a * slope, a)

    def einsum(self, text, arrays):
        return self.xp.einsum(text, *arrays)

    def matmul(self, a, b):
        return self.xp.matmul(a, b)

    def linear(self, x, weight, bias):
        return self.xp.matmul(x, self.xp.transpose(weight)) + bias

    def softmax(self, a, axis):
        e = self.xp.exp(a - self.xp.max(a, axis=axis, keepdims=True))
        return e / self.xp.sum(e, axis=axis, keepdims=True)

    def layer_norm(self, x, scale, bias, shape, epsilon):
        axes = tuple(range(-len(shape), 0))
        centred = x - self.xp.mean(x, axis=axes, keepdims=True)
        variance = self.xp.mean(centred * centred, axis=axes, keepdims=True)
        y = centred / self.xp.sqrt(variance + epsilon) * scale
        return y if bias is None else y + bias

    def attention(self, q, k, v, scale, batch):
        scores = self.matmul(q, self.xp.swapaxes(k, -1, -2)) * scale
        return self.matmul(self.softmax(scores, len(np.shape(q)) - 1), v)

    def resize(self, mode, x, sizes, out):
        """Two taps an axis; positions and parts are constants."""
        for axis in (2, 3):
            n, m = sizes[axis], out[axis]
            if n == m:
                continue
            t = np.arange(m, dtype=np.float64)
            if mode == "nearest":
                x = self.xp.take(x, np.floor(t * n / m).astype(np.int64), axis=axis)
                continue
            at = t * (n - 1) / max(m - 1, 1) if mode == "corners" else (t + 0.5) * n / m - 0.5
            at = np.clip(at, 0, n - 1)
            low = np.floor(at).astype(np.int64)
            shape = [1] * 4
            shape[axis] = m
            part = self.const((at - low).reshape(shape))
            above = np.minimum(low + 1, n - 1)
            x = self.xp.take(x, low, axis=axis) * (1 - part) + \
                self.xp.take(x, above, axis=axis) * part
        return x


def transposed_pads(kernel, pads, extra, dilations):
    """Pads of the convolution that a transposed one is, once its input is spread by its strides."""
    spans = [d * (k - 1) for k, d in zip(kernel, dilations)]
    return [(s - p, s - p + e) for s, p, e in zip(spans, pads, extra)]

