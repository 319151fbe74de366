"""The same graph with runs of its nodes as calls of model-local functions, some of them calls within functions.

Which nodes become functions follows from the seed and the nodes that are there, so that a minimized case keeps them.
An attribute of a node inside may become one of the function, given by the call. A function sees nothing but its inputs:
what bodies of its control flow read around them becomes such.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, helper

from random_graphs.writer import reads

DOMAIN = "test.parts"
SHARE = 0.25  # of all graphs
_MOST_NODES = 5
_ROUNDS = 3


def has_functions(seed: int) -> bool:
    """Return whether a seed's graph is given to engines with functions."""
    return random.Random(seed ^ 0x5EED).random() < SHARE


def with_functions(model: ModelProto, seed: int) -> ModelProto:
    """Return an equal model that calls functions; without nodes that may stand in one, the model as it is."""
    chooser = random.Random(seed)
    found = ModelProto()
    found.CopyFrom(model)
    imports = list(model.opset_import)
    for number in range(chooser.randint(1, _ROUNDS)):
        nodes = list(found.graph.node)
        run = _some_run(nodes, chooser)
        if run is None:
            break
        first, last = run
        outside = {output.name for output in found.graph.output}
        for node in (*nodes[:first], *nodes[last:]):
            outside.update(reads(node))
        inside = nodes[first:last]
        made = [name for node in inside for name in node.output if name]
        outputs = [name for name in made if name in outside]
        if not outputs:
            continue
        inputs = sorted({name for node in inside for name in reads(node) if name} - set(made) - _defined_within(inside))
        function, given = _function(f"Part{number}", inputs, outputs, inside, imports, chooser)
        call = helper.make_node(function.name, inputs, outputs, name=f"call{number}", domain=DOMAIN, **given)
        found.functions.append(function)
        del found.graph.node[:]
        found.graph.node.extend([*nodes[:first], call, *nodes[last:]])
    if found.functions:
        found.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return found


def _some_run(nodes: Sequence[NodeProto], chooser: random.Random) -> tuple[int, int] | None:
    """Return where some consecutive nodes begin and end; those with bodies stand outside of half of the functions."""
    with_bodies = chooser.random() < 0.5
    free = [i for i, node in enumerate(nodes) if with_bodies or not any(a.HasField("g") for a in node.attribute)]
    if not free:
        return None
    first = chooser.choice(free)
    last = first + 1
    while last in free and last - first < chooser.randint(1, _MOST_NODES):
        last += 1
    return first, last


def _defined_within(nodes: Iterable[NodeProto]) -> set[str]:
    """Return the names that bodies of nodes, and bodies in them, give to values."""
    found: set[str] = set()
    for body in (attribute.g for node in nodes for attribute in node.attribute if attribute.HasField("g")):
        found.update(each.name for each in (*body.input, *body.initializer))
        found.update(each.values.name for each in body.sparse_initializer)
        found.update(name for node in body.node for name in node.output)
        found |= _defined_within(body.node)
    return found


def _function(
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    nodes: Sequence[NodeProto],
    imports: Sequence[object],
    chooser: random.Random,
) -> tuple[FunctionProto, dict[str, object]]:
    """Return a function of some nodes, and the attributes that its call gives."""
    body, given = [], {}
    for node in nodes:
        copy = NodeProto()
        copy.CopyFrom(node)
        for attribute in copy.attribute:
            if attribute.type in (AttributeProto.INT, AttributeProto.FLOAT) and chooser.random() < 0.3:
                formal = f"a{len(given)}"
                given[formal] = helper.get_attribute_value(attribute)
                kind, own = attribute.type, attribute.name
                attribute.Clear()
                attribute.name, attribute.type, attribute.ref_attr_name = own, kind, formal
        body.append(copy)
    own = [*imports, helper.make_opsetid(DOMAIN, 1)]
    return helper.make_function(DOMAIN, name, list(inputs), list(outputs), body, own, sorted(given)), given
