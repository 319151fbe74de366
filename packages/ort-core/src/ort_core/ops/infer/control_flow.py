"""If, Loop, Scan and SequenceMap: bodies are inferred with what goes into them, results are joined."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.ir.dims import Dim, SymbolicDim, maximum
from ort_core.ir.types import SequenceType, Shape, TensorType, ValueType
from ort_core.ir.values import Value
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.merge_types import join_types
from ort_core.ops.symbolic_values import SymbolicValue, map_elements
from ort_core.ops.unknown_dims import UNKNOWN_PREFIX

_MAX_NESTED = 4  # bodies within bodies; deeper ones are inferred once, or rounds within rounds would never end
_MAX_ROUNDS = 4  # each round forgets sizes that change; after that ranks are forgotten, too


@infer_rule("If")
def infer_if(ctx: InferenceContext) -> None:
    """Results have what both branches agree on; a decided condition picks its branch."""
    condition = ctx.value(0)
    decided = None if condition is None or condition.size != 1 else condition.reshape(-1)[0]
    results: list[tuple[list[ValueType | None], list[SymbolicValue | None]]] = []
    for name in ("then_branch", "else_branch"):
        branch = ctx.graph_of(name)
        mark = ctx.notes_mark()
        types = ctx.infer_body(branch, ())
        if decided is not None and bool(decided) != (name == "then_branch"):
            ctx.restore_notes(mark)  # a branch that is never taken may be impossible
        if len(types) != ctx.output_count:
            ctx.refuse(f"'{name}' has {len(types)} outputs, the node has {ctx.output_count}")
        results.append((types, ctx.body_values(branch)))
    if decided is not None:
        types, values = results[0 if decided else 1]
        for index in range(ctx.output_count):
            ctx.set_type(index, types[index])
            ctx.set_value(index, values[index])
        return
    (then_types, then_values), (else_types, else_values) = results
    for index in range(ctx.output_count):
        left, right = then_types[index], else_types[index]
        joined = join_types(left, right)
        if left is not None and right is not None and joined is None:
            ctx.refuse(f"output {index} has type {left} in one branch and {right} in the other")
        ctx.set_type(index, joined)
        ctx.set_value(index, _joined_values(then_values[index], else_values[index]))


def _joined_values(left: SymbolicValue | None, right: SymbolicValue | None) -> SymbolicValue | None:
    if left is None or right is None or left.shape != right.shape:
        return None
    return map_elements(lambda a, b: a if a == b else None, left, right)


@infer_rule("Loop")
def infer_loop(ctx: InferenceContext) -> None:
    """State keeps what every round agrees on; scanned outputs get an axis for the rounds."""
    body = ctx.graph_of("body")
    state = [ctx.type_of(index) for index in range(2, ctx.input_count)]
    if len(body.outputs) < 1 + len(state):
        ctx.refuse(f"the body returns {len(body.outputs)} values for a condition and {len(state)} states")
    counter = body.inputs[0].type if body.inputs else None
    flag = body.inputs[1].type if len(body.inputs) > 1 else None
    if len(body.outputs) != 1 + ctx.output_count:
        ctx.refuse(f"the node has {ctx.output_count} outputs, the body returns {len(body.outputs)} values")
    outputs, state = _stable(ctx, (counter, flag), state, 1)
    for index, value_type in enumerate(state):
        ctx.set_type(index, value_type)
    count = _rounds(ctx)
    for index in range(len(state), ctx.output_count):
        rows = _outside(ctx, outputs[index + 1])
        ctx.set_type(index, _stacked(rows if isinstance(count, int) and count else _of_any_rounds(rows), 0, count))


def _rounds(ctx: InferenceContext) -> Dim:
    """Return how many rounds a Loop runs, ``None`` where its condition may stop it earlier."""
    body, rounds = ctx.graph_of("body"), ctx.scalar(0) if ctx.has_input(0) else None
    if rounds is None or isinstance(rounds, float) or len(body.inputs) < 2:
        return None
    first, passed = not ctx.has_input(1) or _is_true(ctx.value(1)), _source(body.outputs[0])
    (following,) = ctx.body_values(body)[:1]
    goes_on = passed is body.inputs[1] or _is_true(following) or _is_true_constant(passed)
    return maximum(rounds, 0) if first and goes_on else None


def _is_true(value: SymbolicValue | None) -> bool:
    return value is not None and value.size == 1 and value.reshape(-1)[0] == 1


def _is_true_constant(value: Value) -> bool:
    constant = None if value.is_graph_input else value.constant
    return constant is not None and constant.size == 1 and bool(constant.array().reshape(-1)[0])


def _of_any_rounds(value_type: ValueType | None) -> ValueType | None:
    """Return what is known of rows of which there may be none: nothing tells then how long they would be."""
    if not isinstance(value_type, TensorType) or value_type.shape is None:
        return value_type
    return TensorType(value_type.dtype, tuple(d if isinstance(d, int) else None for d in value_type.shape))


def _source(value: Value) -> Value:
    """Return what an Identity copies."""
    producer = value.producer
    if producer is not None and producer.op_type == "Identity" and producer.domain == "":
        return producer.input(0) or value
    return value


@infer_rule("Scan")
def infer_scan_8(ctx: InferenceContext) -> None:
    """Opset 8: a batch axis first, then the sequence axis; input 0 holds lengths."""
    body = ctx.graph_of("body")
    scanned = ctx.int_of("num_scan_inputs")
    states = len(body.inputs) - scanned
    if states < 0 or ctx.input_count != 1 + len(body.inputs):
        ctx.refuse(f"the node has {ctx.input_count} inputs, the body has {len(body.inputs)} and scans {scanned}")
    batch: Dim = None
    steps: Dim = None
    state: list[ValueType | None] = []
    for index in range(1, 1 + states):
        kept, batch = _without_axis(ctx, ctx.type_of(index), 0, batch)
        state.append(kept)
    slices: list[ValueType | None] = []
    for index in range(1 + states, ctx.input_count):
        kept, batch = _without_axis(ctx, ctx.type_of(index), 0, batch)
        kept, steps = _without_axis(ctx, kept, 0, steps)
        slices.append(kept)
    outputs, state = _stable(ctx, (), state, 0, slices)
    for index in range(ctx.output_count):
        if index < states:
            ctx.set_type(index, _stacked(state[index], 0, batch))
        else:
            ctx.set_type(index, _stacked(_stacked(_outside(ctx, outputs[index]), 0, steps), 0, batch))


@infer_rule("Scan", since=9)
def infer_scan(ctx: InferenceContext) -> None:
    """State first, then scanned inputs, each cut along its axis."""
    body = ctx.graph_of("body")
    scanned = ctx.int_of("num_scan_inputs")
    states = len(body.inputs) - scanned
    if states < 0 or scanned < 1 or ctx.input_count != len(body.inputs):
        ctx.refuse(f"the node has {ctx.input_count} inputs, the body has {len(body.inputs)} and scans {scanned}")
    if ctx.output_count > len(body.outputs):
        ctx.refuse(f"the node has {ctx.output_count} outputs, the body returns {len(body.outputs)}")
    axes = ctx.ints_of("scan_input_axes") or (0,) * scanned
    if len(axes) != scanned:
        ctx.refuse(f"scan_input_axes has {len(axes)} entries for {scanned} scanned inputs")
    steps: Dim = None
    slices: list[ValueType | None] = []
    for axis, index in zip(axes, range(states, ctx.input_count), strict=True):
        kept, steps = _without_axis(ctx, ctx.type_of(index), axis, steps)
        slices.append(kept)
    outputs, state = _stable(ctx, (), [ctx.type_of(i) for i in range(states)], 0, slices)
    out_axes = ctx.ints_of("scan_output_axes") or (0,) * max(len(body.outputs) - states, 0)
    for index in range(ctx.output_count):
        if index < states:
            ctx.set_type(index, state[index])
            continue
        if index - states >= len(out_axes):
            ctx.refuse(f"scan_output_axes has {len(out_axes)} entries for {len(body.outputs) - states} outputs")
        ctx.set_type(index, _stacked(_outside(ctx, outputs[index]), out_axes[index - states], steps, ctx))


def _stable(
    ctx: InferenceContext,
    before: Sequence[ValueType | None],
    state: list[ValueType | None],
    skipped: int,
    after: Sequence[ValueType | None] = (),
) -> tuple[list[ValueType | None], list[ValueType | None]]:
    """Infer the body until its state comes out as it went in; return its outputs and the state's types.

    ``before`` and ``after`` are the types of the body's inputs around the state; ``skipped`` outputs come before it.
    """
    body = ctx.graph_of("body")
    mark = ctx.notes_mark()
    deep = ctx.depth > _MAX_NESTED or ctx.is_expensive
    if deep:
        state = [_without_shape(value_type) for value_type in state]
    for turn in range(1 if deep else _MAX_ROUNDS):
        ctx.restore_notes(mark)
        outputs = ctx.infer_body(body, (*before, *state, *after))
        if len(outputs) < skipped + len(state):
            ctx.refuse(f"the body returns {len(outputs)} values for {len(state)} states")
        results = outputs[skipped : skipped + len(state)]
        joined = [_joined_state(ctx, a, b) for a, b in zip(state, results, strict=True)]
        if turn == _MAX_ROUNDS - 2:
            joined = [a if a == b else _without_shape(b) for a, b in zip(state, joined, strict=True)]
        if joined == state:
            break
        state = joined
    return outputs, state


def _joined_state(ctx: InferenceContext, first: ValueType | None, second: ValueType | None) -> ValueType | None:
    if first is None or second is None or first == second:
        return second if first is None else first
    joined = join_types(first, second)
    if joined is None:
        ctx.refuse(f"a state goes into the body as {first} and comes out as {second}")
    return joined


def _without_shape(value_type: ValueType | None) -> ValueType | None:
    return TensorType(value_type.dtype) if isinstance(value_type, TensorType) else value_type


def _without_axis(
    ctx: InferenceContext, value_type: ValueType | None, axis: int, size: Dim
) -> tuple[ValueType | None, Dim]:
    """Return the type of a slice along an axis, and what is known of the axis' size."""
    if not isinstance(value_type, TensorType) or value_type.shape is None:
        return value_type, size
    shape = value_type.shape
    place = ctx.axis(axis, len(shape))
    found = shape[place] if size is None or isinstance(shape[place], int) else size
    return TensorType(value_type.dtype, (*shape[:place], *shape[place + 1 :])), found


def _stacked(
    value_type: ValueType | None, axis: int, size: Dim, ctx: InferenceContext | None = None
) -> ValueType | None:
    """Return the type of values of one type put together along a new axis."""
    if not isinstance(value_type, TensorType) or value_type.shape is None:
        return value_type
    rank = len(value_type.shape) + 1
    if ctx is not None:
        axis = ctx.axis(axis, rank)
    return TensorType(value_type.dtype, (*value_type.shape[:axis], size, *value_type.shape[axis:]))


def _outside(ctx: InferenceContext, value_type: ValueType | None) -> ValueType | None:
    """Return a type as it holds outside of the body: sizes that only the body knows may differ by round."""
    if not isinstance(value_type, TensorType) or value_type.shape is None:
        return value_type
    known = _visible_sizes(ctx)
    hidden = (isinstance(d, SymbolicDim) and not _is_visible(d, known) for d in value_type.shape)
    shape: Shape = tuple(None if h else d for h, d in zip(hidden, value_type.shape, strict=True))
    return TensorType(value_type.dtype, shape)


def _is_visible(dim: SymbolicDim, known: set[str]) -> bool:
    return all(not name.startswith(UNKNOWN_PREFIX) or name in known for name in dim.symbols())


def _visible_sizes(ctx: InferenceContext) -> set[str]:
    known: set[str] = set()
    for index in range(ctx.input_count):
        for dim in ctx.shape(index) or ():
            if isinstance(dim, SymbolicDim):
                known |= dim.symbols()
    return known


@infer_rule("SequenceMap")
def infer_sequence_map(ctx: InferenceContext) -> None:
    """The body maps elements of the sequences (and whole tensors) to elements of the result sequences."""
    body = ctx.graph_of("body")
    types: list[ValueType | None] = []
    for index in range(ctx.input_count):
        found = ctx.type_of(index)
        types.append(found.element if isinstance(found, SequenceType) else found)
    for index, value_type in enumerate(ctx.infer_body(body, types)):
        if value_type is not None:
            outside = _outside(ctx, value_type)
            ctx.set_type(index, SequenceType(value_type if outside is None else outside))
