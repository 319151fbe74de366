"""Products of matrices."""

from __future__ import annotations

from random_graphs import element_types as et
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value


@family(6)
def matrix_product(g: GraphWriter) -> Value:
    value = g.pick(*et.FLOATS, et.F32, et.F32, et.I32, et.I64, least=1)
    kind = g.random.random()
    if kind < 0.25 and value.rank >= 2:
        order = [*range(value.rank - 2), value.rank - 1, value.rank - 2]
        flipped = g.node("Transpose", [value], perm=order)
        return g.node("MatMul", [value, flipped] if g.chance(0.5) else [flipped, value])
    if kind < 0.45:
        other = g.pick(
            value.dtype,
            least=2,
            where=lambda v: all(a[-1] == b[-2] for a, b in zip(value.shapes, v.shapes, strict=True)),
        )
        return g.node("MatMul", [value, other])
    if value.rank >= 3 and g.chance(0.3):  # a sequence before its batch
        value = g.node("Transpose", [value], perm=[1, 0, *range(2, value.rank)])
    depth, columns = value.size(-1), 1 if g.chance(0.2) else g.some_size()
    shape = g.choice(((depth, columns), (depth, columns), (depth, columns), (depth,), (1, depth, columns)))
    product = g.node("MatMul", [value, g.weights(value.dtype, *shape)])
    return epilogue(g, product, columns) if len(shape) == 2 else product


def epilogue(g: GraphWriter, product: Value, columns: int) -> Value:
    """Add a bias and an activation, now and then."""
    if g.chance(0.6):
        bias = g.weights(product.dtype, *g.choice(((columns,), (1, columns), ())))
        product = g.node("Add", [product, bias] if g.chance(0.6) else [bias, product])
    if product.dtype.is_float and g.chance(0.4):
        names = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "Softplus", *(("Gelu",) if g.opset >= 20 else ()))
        product = g.node(g.choice(names), [product])
    if g.chance(0.2) and product.rank >= 2 and product.size(-1) == 1:
        axes = g.constant([product.rank - 1])
        product = g.node("Squeeze", [product, axes])
    return product


@family(4)
def gemm(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F32, et.F64, et.F16, et.BF16, rank=2)
    transposed, weights_transposed = g.choice((0, 0, 1)), g.choice((0, 1))
    depth, columns = value.size(0 if transposed else 1), g.some_size()
    weights = g.weights(value.dtype, *((columns, depth) if weights_transposed else (depth, columns)))
    shapes: list[tuple[int, ...]] = [(columns,), (columns,), (1, columns), (), (1,), (1, 1)]
    if len({shape[1 if transposed else 0] for shape in value.shapes}) == 1:
        rows = value.shapes[0][1 if transposed else 0]
        shapes += [(rows, columns), (rows, 1)]
    bias = g.weights(value.dtype, *g.choice(shapes)) if g.chance(0.8) else None
    result = g.node(
        "Gemm", [value, weights, bias], transA=transposed, transB=weights_transposed,
        alpha=g.choice((None, 1.0, 0.5, 2.0, 0.0)), beta=g.choice((None, 1.0, 0.5, 0.0)),
    )  # fmt: skip
    return g.node(g.choice(("Relu", "Tanh", "Sigmoid")), [result]) if g.chance(0.4) else result


@family(2)
def layers_of_doubles(g: GraphWriter) -> Value:
    """Layers over features of float64, as scikit-learn's models are exported."""
    value = g.pick(et.F64, rank=2)
    if g.chance(0.5):
        value = g.node("Sub", [value, g.weights(et.F64, value.size(1))])
    for columns in (g.choice((3, 17, 33)), g.choice((1, 4, 16))):
        weights = g.weights(et.F64, value.size(1), columns)
        if g.chance(0.3):
            value = g.node("Gemm", [value, weights, g.weights(et.F64, columns)], alpha=g.choice((None, 0.5)))
        else:
            value = epilogue(g, g.node("MatMul", [value, weights]), columns)
    if g.chance(0.5):
        op_type = g.choice(("Softmax", "LogSoftmax", "Sigmoid", "Tanh"))
        value = g.node(op_type, [value], axis=value.rank - 1 if op_type.endswith("max") else None)
    return g.node("ArgMax", [value], axis=value.rank - 1) if g.chance(0.2) else value


@family()
def densities_of_doubles(g: GraphWriter) -> Value:
    """Logarithms of densities over classes, and what each class has of them, as naive Bayes of scikit-learn has it."""
    value = g.pick(et.F64, rank=2, filled=True)
    distance = g.node("Sub", [value, g.weights(et.F64, value.size(1))])
    width = g.weights(et.F64, value.size(1), g.choice((1, 3, 17)))
    squares = g.node("MatMul", [g.node("Mul", [distance, distance]), g.node("Mul", [width, width])])
    logarithms = g.node("Mul", [squares, g.constant(-0.5, et.F64)])
    if g.chance(0.3):
        return g.node("Exp", [logarithms])
    axes = {"axes": [1]} if g.opset < 18 else {}
    total = g.node("ReduceLogSumExp", [logarithms, *([] if axes else [g.constant([1])])], keepdims=1, **axes)
    share = g.node("Sub", [logarithms, total])
    return g.node("Exp", [share]) if g.chance(0.5) else share


@family()
def einsum(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F64, least=1, most=4)
    letters = "abcd"[: value.rank]
    if g.chance(0.4):
        kept = "".join(g.random.sample(letters, g.random.randint(0, value.rank)))
        return g.node("Einsum", [value], equation=f"{letters}->{kept}")
    weights = g.weights(value.dtype, value.size(-1), g.choice((1, 4, 17)))
    return g.node("Einsum", [value, weights], equation=f"{letters},{letters[-1]}z->{letters[:-1]}z")


@family()
def one_row_product(g: GraphWriter) -> Value:
    """A product of one row and what follows classifiers of batch one."""
    columns = g.choice((1, 3, 10, 17))
    value = g.pick(et.F32, et.F32, et.F64, rank=2, where=lambda v: all(shape[0] == 1 for shape in v.shapes))
    result = g.node("MatMul", [value, g.weights(value.dtype, value.size(1), columns)])
    kind = g.choice(("squeeze", "reshape", "flatten"))
    if kind == "squeeze":
        return g.node("Squeeze", [result, g.constant([0])])
    if kind == "reshape":
        return g.node("Reshape", [result, g.constant([g.choice((columns, -1))])])
    return g.node("Flatten", [result], axis=g.choice((0, 1, 2)))


@family()
def determinant(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F64, least=2, where=lambda v: all(s[-1] == s[-2] <= 5 for s in v.shapes))
    if g.opset < 11:
        raise Refused("a newer operator")
    return g.node("Det", [value])
