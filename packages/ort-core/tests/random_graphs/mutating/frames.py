"""Mutations of what stands around the nodes: opset, sizes that are open or others, and bodies of control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import GraphProto, TensorProto, helper

from random_graphs.mutating.draft import Draft, NotHere


def move_opset(draft: Draft) -> str:
    """Read the same nodes by another operator set, where they mean something in it."""
    before = draft.opset
    draft.opset = draft.some(
        [each for each in (9, 11, 12, 13, 14, 17, 18, 19, 20, 21, 22, 23, 24, 25) if each != before]
    )
    return f"opset {draft.opset}"


def open_sizes(draft: Draft) -> str:
    """Leave sizes of inputs open."""
    for info in draft.graph.input:
        if not info.type.HasField("tensor_type"):
            continue
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if draft.chance(0.6):
                dim.Clear()
                dim.dim_param = f"{info.name}_{axis}"
    _open_outputs(draft.graph)
    return "open sizes"


def close_sizes(draft: Draft) -> str:
    """Declare the sizes that are fed."""
    for info in draft.graph.input:
        array = draft.feeds.get(info.name)
        if array is not None and info.type.HasField("tensor_type"):
            number = info.type.tensor_type.elem_type
            info.CopyFrom(helper.make_tensor_value_info(info.name, number, list(np.shape(array))))
    _open_outputs(draft.graph)
    return "closed sizes"


def resize_input(draft: Draft) -> str:
    """Give an axis of an input another size: one, none, or more; and all axes of inputs and constants of that size."""
    can = [
        info
        for info in draft.graph.input
        if np.ndim(draft.feeds.get(info.name, 0)) and info.type.HasField("tensor_type")
    ]
    info = draft.some(can)
    array = np.asarray(draft.feeds[info.name])
    axis = draft.random.randrange(array.ndim)
    before, size = array.shape[axis], draft.some((1, 1, 0, 2, 3, 5, 9))
    if size == before or (size and not before):
        raise NotHere
    everywhere = draft.chance(0.4)
    for each in draft.graph.input if everywhere else [info]:
        fed = draft.feeds.get(each.name)
        if not isinstance(fed, np.ndarray) or not each.type.HasField("tensor_type"):
            continue
        axes = [i for i, s in enumerate(fed.shape) if s == before] if everywhere else [axis]
        for place in axes:
            fed = np.take(fed, np.arange(size) % max(before, 1), axis=place)
            dims = each.type.tensor_type.shape.dim
            if len(dims) > place and dims[place].HasField("dim_value"):
                dims[place].dim_value = size
        draft.feeds[each.name] = fed
    _open_outputs(draft.graph)
    return f"{info.name} of {size} along {axis}{' everywhere' if everywhere else ''}"


def _open_outputs(graph: GraphProto) -> None:
    del graph.value_info[:]
    for info in graph.output:
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")


def into_branch(draft: Draft) -> str:
    """Put all nodes into both branches of an If, which a feed chooses from."""
    _check_plain(draft)
    bodies = []
    for number in range(2):
        body = GraphProto(name=f"branch{number}")
        body.node.extend(draft.graph.node)
        names = {name: f"{name}_in{number}" for node in draft.graph.node for name in node.output if name}
        for node in body.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
        for info in draft.graph.output:
            body.output.append(info)
            body.output[-1].name = names[info.name]
        bodies.append(body)
    draft.graph.input.append(helper.make_tensor_value_info("asked", TensorProto.BOOL, []))
    draft.feeds["asked"] = np.array(draft.chance(0.5))
    node = helper.make_node("If", ["asked"], draft.outputs(), then_branch=bodies[0], else_branch=bodies[1])
    del draft.graph.node[:]
    draft.graph.node.append(node)
    return "in branches"


def into_loop(draft: Draft) -> str:
    """Put all nodes into a Loop of two turns that stacks the outputs."""
    _check_plain(draft)
    names = {name: f"{name}_turn" for node in draft.graph.node for name in node.output if name}
    body = GraphProto(name="turns")
    body.input.append(helper.make_tensor_value_info("turn", TensorProto.INT64, []))
    body.input.append(helper.make_tensor_value_info("going", TensorProto.BOOL, []))
    body.node.append(helper.make_node("Identity", ["going"], ["go_on"]))
    body.node.extend(draft.graph.node)
    for node in list(body.node)[1:]:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    body.output.append(helper.make_tensor_value_info("go_on", TensorProto.BOOL, []))
    for info in draft.graph.output:
        body.output.append(info)
        body.output[-1].name = names[info.name]
    count = draft.constant(np.array(2, np.int64))
    node = helper.make_node("Loop", [count, ""], draft.outputs(), body=body)
    del draft.graph.node[:]
    draft.graph.node.append(node)
    _open_outputs(draft.graph)
    return "in a loop"


def _check_plain(draft: Draft) -> None:
    made = {name for node in draft.graph.node for name in node.output}
    has_bodies = any(attribute.HasField("g") for node in draft.graph.node for attribute in node.attribute)
    if has_bodies or not set(draft.outputs()) <= made or draft.opset < 11:
        raise NotHere


FRAMES: Sequence[tuple[int, Callable[[Draft], str]]] = (
    (2, move_opset), (2, open_sizes), (1, close_sizes), (4, resize_input),
)  # fmt: skip
AROUND: Sequence[tuple[int, Callable[[Draft], str]]] = ((1, into_branch), (1, into_loop))
