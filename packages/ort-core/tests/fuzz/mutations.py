"""Mutations: each breaks a model in one way that files get broken, by accident or on purpose.

A mutation takes the model's protobuf and a seeded generator and changes the protobuf in place. Those that break the
bytes themselves are at the end. ``MUTATIONS`` and ``BYTE_MUTATIONS`` list them all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

EXTREMES = (
    0,
    1,
    -1,
    2,
    -2,
    7,
    -100,
    2**31 - 1,
    2**31,
    2**32,
    -(2**31),
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
    -(2**63) + 1,
)
FLOATS = (0.0, -0.0, 1e-45, 1e38, -1e38, float("nan"), float("inf"), float("-inf"), -1.0, 0.5)
TEXTS = ("", "\0", "..", "NOTSET", "linear", "é" * 3, "a" * 300, "%s", "i,j->", "...")
OPERATORS = (
    "Add", "Relu", "Reshape", "Gather", "Concat", "Slice", "Tile", "Expand", "Pad", "Conv", "MatMul", "Transpose",
    "Split", "TopK", "Resize", "Cast", "Loop", "If", "Scan", "Range", "OneHot", "Unsqueeze", "ScatterND", "LSTM",
    "Identity", "SequenceAt", "StringConcat", "ReduceSum", "Attention", "ConstantOfShape", "Nonsense",
)  # fmt: skip
Mutation = Callable[[onnx.ModelProto, random.Random], None]


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the graphs inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
                yield from graphs(inner)


def some_node(model: onnx.ModelProto, rng: random.Random) -> onnx.NodeProto:
    """Return one node of any graph or function."""
    nodes = [node for graph in graphs(model.graph) for node in graph.node]
    nodes += [node for function in model.functions for node in function.node]
    return rng.choice(nodes) if nodes else model.graph.node.add(op_type="Relu", input=["x"], output=["y"])


def some_attribute(model: onnx.ModelProto, rng: random.Random) -> AttributeProto:
    """Return one attribute; one is added where a node has none."""
    node = some_node(model, rng)
    if not node.attribute:
        name = rng.choice(("axis", "axes", "perm", "to", "mode", "kernel_shape", "pads", "body", "value"))
        node.attribute.append(helper.make_attribute(name, rng.choice((1, -1, [0, 1], 0.5, "text"))))
    return rng.choice(node.attribute)


def cycle(model: onnx.ModelProto, rng: random.Random) -> None:
    """Let a node read its own output, or that of a later node."""
    node, other = some_node(model, rng), some_node(model, rng)
    if node.input and other.output:
        node.input[rng.randrange(len(node.input))] = rng.choice(other.output)


def impossible_dimensions(model: onnx.ModelProto, rng: random.Random) -> None:
    """Give a declared value or a tensor a dimension that no memory holds."""
    tensors = [*model.graph.initializer, *(a.t for a in some_node(model, rng).attribute if a.type == 4)]
    infos = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    if tensors and rng.random() < 0.5:
        tensor = rng.choice(tensors)
        tensor.dims[:] = [rng.choice((*tensor.dims, *EXTREMES)) for _ in range(rng.randint(1, 4))]
    elif infos:
        shape = rng.choice(infos).type.tensor_type.shape
        for _ in range(rng.randint(1, 2)):
            dim = rng.choice(shape.dim) if shape.dim and rng.random() < 0.7 else shape.dim.add()
            dim.dim_value = rng.choice(EXTREMES)


def external_data(model: onnx.ModelProto, rng: random.Random) -> None:
    """Move a tensor into a file: missing, outside the folder, too short, or at an impossible place."""
    tensor = rng.choice(model.graph.initializer) if model.graph.initializer else constant_input(model, rng)
    tensor.ClearField("raw_data")
    for field in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data"):
        if rng.random() < 0.9:
            tensor.ClearField(field)
    tensor.data_location = TensorProto.EXTERNAL
    places = (
        "missing.bin",
        "../outside.bin", "/etc/passwd", "link.bin", "folder/../../outside.bin", "", "\0", ".",
        "short.bin", "short.bin", "folder", "linked/outside.bin", "short.bin\0", "C:\\x",
        "~/.ssh/id", "/dev/zero", "short.bin/x",
    )  # fmt: skip
    for key, values in (
        ("location", places),
        ("offset", ("0", "-1", "abc", str(2**63), "1e9", "", "9")),
        ("length", ("0", "-4", str(2**70), "16", "xyz", "")),
    ):
        if rng.random() < (0.95 if key == "location" else 0.5):
            tensor.external_data.add(key=key, value=rng.choice(values))


def constant_input(model: onnx.ModelProto, rng: random.Random) -> TensorProto:
    """Give an input a default, so that there is a tensor to break."""
    if not model.graph.input:
        return model.graph.initializer.add(name="unused", data_type=1, dims=[1], float_data=[1.0])
    info = rng.choice(model.graph.input)
    shape = [dim.dim_value % 5 for dim in info.type.tensor_type.shape.dim]
    kind = info.type.tensor_type.elem_type or 1
    dtype = helper.tensor_dtype_to_np_dtype(kind if kind in range(1, 14) else 1)
    array = np.ones(shape).astype(dtype)
    model.graph.initializer.append(
        numpy_helper.from_array(array.astype(str) if array.dtype.kind == "O" else array, info.name)
    )
    return model.graph.initializer[-1]


def element_type(model: onnx.ModelProto, rng: random.Random) -> None:
    """Declare another element type, known or not."""
    kind = rng.choice((*range(0, 28), 99, -1, 2**31 - 1))
    infos = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    if model.graph.initializer and rng.random() < 0.4:
        rng.choice(model.graph.initializer).data_type = kind
    elif infos:
        info = rng.choice(infos)
        if rng.random() < 0.8:
            info.type.tensor_type.elem_type = kind
        else:
            inner = onnx.TypeProto()
            inner.CopyFrom(info.type)
            rng.choice(
                (info.type.sequence_type.elem_type, info.type.optional_type.elem_type, info.type.map_type.value_type)
            ).CopyFrom(inner)


def operator(model: onnx.ModelProto, rng: random.Random) -> None:
    """Call another operator, one of another domain, or one that nobody knows."""
    node = some_node(model, rng)
    if rng.random() < 0.8:
        node.op_type = rng.choice(OPERATORS)
    else:
        node.domain = rng.choice(
            ("com.microsoft", "ai.onnx.ml", "no.such.domain", "ai.onnx", "ai.onnx.preview.training")
        )


def names(model: onnx.ModelProto, rng: random.Random) -> None:
    """Use a name twice, or drop one that is needed."""
    node = some_node(model, rng)
    every = (
        [name for n in model.graph.node for name in (*n.input, *n.output)] + [i.name for i in model.graph.input] + [""]
    )
    choice = rng.randrange(5)
    if choice == 0 and node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice(every)
    elif choice == 1 and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(every)
    elif choice == 2 and model.graph.input:
        model.graph.input.append(rng.choice(model.graph.input))
    elif choice == 3 and model.graph.output:
        rng.choice(model.graph.output).name = rng.choice(every)
    elif model.graph.initializer:
        model.graph.initializer.append(rng.choice(model.graph.initializer))


def arity(model: onnx.ModelProto, rng: random.Random) -> None:
    """Drop, repeat, swap or omit inputs and outputs of a node."""
    node = some_node(model, rng)
    values = node.input if rng.random() < 0.75 else node.output
    choice = rng.randrange(4)
    if choice == 0 and values:
        del values[rng.randrange(len(values)) :]
    elif choice == 1 and node.input:
        node.input.extend([rng.choice(node.input)] * rng.choice((1, 2, 40)))
    elif choice == 2:
        ordered = list(node.input)
        rng.shuffle(ordered)
        node.input[:] = ordered
    elif values:
        values[rng.randrange(len(values))] = ""


def recursion(model: onnx.ModelProto, rng: random.Random) -> None:
    """Put a node into a function that calls itself, another one that calls it back, or a very deep chain."""
    node = some_node(model, rng)
    depth = rng.choice((1, 2, 3, 130, 400))
    ends = rng.random() < 0.5
    inputs, outputs = [f"i{i}" for i in range(len(node.input))], [f"o{i}" for i in range(len(node.output))]
    imports = list(model.opset_import)
    for index in range(depth):
        target = f"f{(index + 1) % depth}" if not ends or index < depth - 1 else "Identity"
        call = helper.make_node(target, inputs, outputs, domain="" if target == "Identity" else "local")
        function = helper.make_function("local", f"f{index}", inputs, outputs, [call], imports)
        model.functions.append(function)
    node.op_type, node.domain = "f0", "local"
    del node.attribute[:]
    if rng.random() < 0.9:
        model.opset_import.append(helper.make_opsetid("local", 1))


def attribute_kind(model: onnx.ModelProto, rng: random.Random) -> None:
    """Give an attribute a value of another kind, or no kind at all."""
    attribute = some_attribute(model, rng)
    name = attribute.name
    if rng.random() < 0.3:
        attribute.type = rng.choice(range(15))
        return
    tensor = numpy_helper.from_array(np.arange(3))
    graph = helper.make_graph([], "g", [], [])
    values = (1, -1, 0.5, "text", [1, 2], [], [0.5], ["a", "b"], tensor, graph, b"\xff\xfe", [tensor])
    value = rng.choice(values)
    made = AttributeProto(name=name, type=7) if value == [] else helper.make_attribute(name, value)
    attribute.CopyFrom(made)


def attribute_value(model: onnx.ModelProto, rng: random.Random) -> None:
    """Give an attribute an extreme value of its own kind."""
    attribute = some_attribute(model, rng)
    if attribute.type == AttributeProto.INT:
        attribute.i = rng.choice(EXTREMES)
    elif attribute.type == AttributeProto.INTS:
        count = rng.choice((len(attribute.ints), 0, 1, 5))
        attribute.ints[:] = [rng.choice((*attribute.ints, *EXTREMES)) for _ in range(count)]
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice(FLOATS)
    elif attribute.type == AttributeProto.FLOATS:
        attribute.floats[:] = [rng.choice(FLOATS) for _ in range(rng.choice((len(attribute.floats), 0, 3)))]
    elif attribute.type == AttributeProto.STRING:
        attribute.s = rng.choice(TEXTS).encode()
    elif attribute.type == AttributeProto.STRINGS:
        attribute.strings[:] = [rng.choice(TEXTS).encode() for _ in range(rng.choice((len(attribute.strings), 0, 2)))]
    elif attribute.type == AttributeProto.GRAPH:
        graph = attribute.g
        parts = [part for part in (graph.input, graph.output, graph.node, graph.initializer) if part]
        if parts:
            part = rng.choice(parts)
            del part[rng.randrange(len(part))]
    else:
        attribute.ClearField("t")


def attribute_set(model: onnx.ModelProto, rng: random.Random) -> None:
    """Drop, repeat, rename or refer attributes."""
    node = some_node(model, rng)
    choice = rng.randrange(4)
    if not node.attribute:
        some_attribute(model, rng)
    elif choice == 0:
        del node.attribute[rng.randrange(len(node.attribute))]
    elif choice == 1:
        node.attribute.append(rng.choice(node.attribute))
    elif choice == 2:
        rng.choice(node.attribute).name = rng.choice(("axis", "unknown", "", "ctx", "self"))
    else:
        rng.choice(node.attribute).ref_attr_name = "elsewhere"


def opset(model: onnx.ModelProto, rng: random.Random) -> None:
    """Import versions that do not exist, none at all, or contradicting ones."""
    choice = rng.randrange(4)
    if choice == 0:
        del model.opset_import[:]
    elif choice == 1:
        model.opset_import.append(
            helper.make_opsetid(rng.choice(("", "ai.onnx", "x", "ai.onnx.ml")), rng.choice(EXTREMES))
        )
    elif choice == 2 and model.opset_import:
        rng.choice(model.opset_import).version = rng.choice((*EXTREMES, *range(1, 30)))
    else:
        model.ir_version = rng.choice((0, -1, 2, 3, 4, 15, 2**40))


def integer_contents(model: onnx.ModelProto, rng: random.Random) -> None:
    """Put extreme numbers into a constant of integers: shapes, axes, pads, repeats, indices."""
    tensors = [t for t in model.graph.initializer if t.data_type in (6, 7)]
    tensors += [a.t for n in model.graph.node for a in n.attribute if a.type == 4 and a.t.data_type in (6, 7)]
    if not tensors:
        inputs = [i for i in model.graph.input if i.type.tensor_type.elem_type in (6, 7)]
        if not inputs:
            attribute_value(model, rng)
            return
        info = rng.choice(inputs)
        shape = [dim.dim_value % 6 for dim in info.type.tensor_type.shape.dim]
        dtype = np.int64 if info.type.tensor_type.elem_type == 7 else np.int32
        model.graph.initializer.append(numpy_helper.from_array(np.zeros(shape, dtype), info.name))
        tensors = [model.graph.initializer[-1]]
    tensor = rng.choice(tensors)
    if tensor.data_location == TensorProto.EXTERNAL:  # an earlier mutation put it into a file
        return
    try:
        array = np.array(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, AttributeError):  # broken by an earlier mutation
        return
    if not array.size:
        return
    flat, limits = array.reshape(-1), np.iinfo(array.dtype)
    for _ in range(rng.randint(1, 3)):
        flat[rng.randrange(flat.size)] = min(max(rng.choice(EXTREMES), limits.min), limits.max)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def float_contents(model: onnx.ModelProto, rng: random.Random) -> None:
    """Put extreme numbers into a constant of floats, or more or fewer numbers than its shape says."""
    tensors = [t for t in model.graph.initializer if t.data_type == 1]
    tensor = rng.choice(tensors) if tensors else constant_input(model, rng)
    if tensor.raw_data and rng.random() < 0.5:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data))]
    elif tensor.data_type == 1:
        count = int(np.prod([max(d, 0) for d in tensor.dims[:4]], dtype=np.float64)) if tensor.dims else 1
        tensor.ClearField("raw_data")
        tensor.float_data[:] = [rng.choice(FLOATS) for _ in range(min(count, 1000) + rng.choice((0, 0, 0, 1)))]
    else:
        tensor.raw_data = b"\0" * rng.choice((0, 1, 8, 24))


def endless_loop(model: onnx.ModelProto, rng: random.Random) -> None:
    """Put the whole graph into a Loop that never ends, or that is to run very often."""
    inner = onnx.GraphProto()
    inner.CopyFrom(model.graph)
    step = helper.make_tensor_value_info("step", TensorProto.INT64, [])
    go_on = helper.make_tensor_value_info("go_on", TensorProto.BOOL, [])
    body = onnx.GraphProto(name="body")
    body.node.extend([helper.make_node("Identity", ["go_on"], ["again"]), *inner.node])
    body.initializer.extend(inner.initializer)
    body.input.extend([step, go_on])
    body.output.append(helper.make_tensor_value_info("again", TensorProto.BOOL, []))
    body.output.extend(inner.output)
    count = numpy_helper.from_array(np.array(rng.choice((3, 10**6, 2**62, -1))), "count")
    true = numpy_helper.from_array(np.array(True), "true")
    outputs = [info.name + "_stacked" for info in inner.output]
    node = helper.make_node("Loop", [rng.choice(("", "count")), rng.choice(("true", "true", ""))], outputs, body=body)
    graph = helper.make_graph([node], "outer", list(inner.input), [onnx.ValueInfoProto(name=n) for n in outputs])
    graph.initializer.extend([count, true])
    model.graph.CopyFrom(graph)


def nesting(model: onnx.ModelProto, rng: random.Random) -> None:
    """Wrap the outputs in many If nodes, one inside the other, or declare a type of many sequences."""
    if rng.random() < 0.3 and model.graph.input:
        declared = rng.choice(model.graph.input).type
        for _ in range(rng.choice((2, 30, 40))):
            inner = onnx.TypeProto()
            inner.CopyFrom(declared)
            declared.sequence_type.elem_type.CopyFrom(inner)
        return
    if not model.graph.output:
        return
    name = model.graph.output[0].name
    info = onnx.ValueInfoProto(name="deep")
    graph = helper.make_graph([helper.make_node("Identity", [name], ["deep"])], "leaf", [], [info])
    for index in range(rng.choice((1, 5, 20, 28))):
        node = helper.make_node(
            "If", ["truth"], [f"deep{index}"], then_branch=graph, else_branch=graph if index < 6 else leaf()
        )
        graph = helper.make_graph([node], f"level{index}", [], [onnx.ValueInfoProto(name=f"deep{index}")])
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "truth"))
    model.graph.node.extend(graph.node)
    model.graph.output.append(graph.output[0])


def leaf() -> onnx.GraphProto:
    """Return a branch that gives a constant."""
    node = helper.make_node("Constant", [], ["leaf"], value_float=1.0)
    return helper.make_graph([node], "leaf", [], [onnx.ValueInfoProto(name="leaf")])


def missing_parts(model: onnx.ModelProto, rng: random.Random) -> None:
    """Drop a node, an input, an output, an initializer, or the graph."""
    graph = model.graph
    parts = [part for part in (graph.node, graph.input, graph.output, graph.initializer) if part]
    if not parts or rng.random() < 0.05:
        model.ClearField("graph")
        return
    part = rng.choice(parts)
    del part[rng.randrange(len(part))]


def truncated(content: bytes, rng: random.Random) -> bytes:
    """Cut the file off."""
    return content[: rng.randrange(len(content) + 1)]


def flipped(content: bytes, rng: random.Random) -> bytes:
    """Change a few bytes."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def spliced(content: bytes, rng: random.Random) -> bytes:
    """Drop, repeat or insert a run of bytes."""
    start, end = sorted((rng.randrange(len(content) + 1), rng.randrange(len(content) + 1)))
    inserted = rng.choice((b"", content[start:end] * 2, rng.randbytes(rng.randrange(20))))
    return content[:start] + inserted + content[end:]


MUTATIONS: tuple[Mutation, ...] = (
    cycle, impossible_dimensions, external_data, element_type, operator, names, arity, recursion, attribute_kind,
    attribute_value, attribute_value, attribute_set, opset, integer_contents, integer_contents, float_contents,
    endless_loop, nesting, missing_parts,
)  # fmt: skip
BYTE_MUTATIONS = (truncated, flipped, flipped, spliced)


def mutate(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return what was done, and the broken file: one to three mutations, then sometimes one of the bytes."""
    model = onnx.ModelProto.FromString(content)
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        mutation = rng.choice(MUTATIONS)
        mutation(model, rng)
        done.append(mutation.__name__)
    broken = model.SerializeToString()
    if rng.random() < 0.2:
        byte_mutation = rng.choice(BYTE_MUTATIONS)
        broken = byte_mutation(broken, rng)
        done.append(byte_mutation.__name__)
    return "+".join(done), broken
