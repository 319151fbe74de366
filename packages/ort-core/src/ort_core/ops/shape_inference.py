"""infer_types(): the type of every value of a model, by one walk in graph order with one rule per operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ort_core.errors import InvalidGraph, OrtError
from ort_core.frozen import frozen
from ort_core.ir.attributes import Attribute
from ort_core.ir.constants import Constant
from ort_core.ir.dims import DimTooLarge, KnownDim, SymbolicDim
from ort_core.ir.graph import Graph
from ort_core.ir.model import Function, Model
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.traversal import graphs_of
from ort_core.ir.types import DataType, Shape, TensorType, ValueType
from ort_core.ir.values import Value
from ort_core.ops.attribute_rules import attribute_problem
from ort_core.ops.declared_types import declaration_problem, joined_types, without_unnamed_sizes
from ort_core.ops.earlier_inference import EarlierInference
from ort_core.ops.expression_budget import ExpressionBudgetState
from ort_core.ops.infer_rule import InferenceRules
from ort_core.ops.inference_context import InferenceContext, InferenceRefusal
from ort_core.ops.inference_report import InferenceNote, InferenceReport, NoteKind
from ort_core.ops.merge_types import shapes_agree, substitute_type, without_sizes
from ort_core.ops.reader_ranks import learned_ranks
from ort_core.ops.registry import SchemaRegistry
from ort_core.ops.schema import OpSchema
from ort_core.ops.signature import Signature, node_text
from ort_core.ops.symbolic_values import MAX_ELEMENTS, SymbolicValue, as_elements
from ort_core.ops.unknown_dims import name_unknown
from ort_core.ops.value_range import MAX_SIZE

InputShape = Sequence[int | str | SymbolicDim | None]
MAX_STEPS = 20_000  # nodes, those of functions counted per call and those of bodies per round …
MAX_STEPS_PER_NODE = 100  # … and this many more for each that the file has; real functions make 20 of one
MAX_DEPTH = 100  # bodies and functions within each other; the loader allows 64 graphs
_FIXED_INPUTS_BEFORE_IR = 4  # before IR version 4 initializers had to be inputs and could not be overridden


def infer_types(
    model: Model,
    schemas: SchemaRegistry,
    rules: InferenceRules,
    *,
    input_shapes: Mapping[str, InputShape] | None = None,
    strict: bool = False,
    trusts_sizes: bool = True,
    after: InferenceReport | None = None,
) -> InferenceReport:
    """Set ``Value.type`` on every value of a model that something is known of.

    Declared and inferred types are merged, the more specific statement about each size wins. Sizes that nobody
    named become anonymous symbols (see ``unknown_dims``), so that equal ones stay equal. Values of model-local
    functions keep their types: a function means another thing at every call.

    Args:
        model: the model; only the types of its values change, so it may be frozen.
        schemas: where operators are looked up.
        rules: what operators do to shapes.
        input_shapes: shapes of graph inputs that are known beyond what the model declares, by input name; a
            string names a size.
        strict: raise at the first contradiction or impossible node.
        trusts_sizes: whether sizes that values other than the graph's inputs have already are facts. What a file
            declares are claims, which a run may not keep: then only element types and, where nothing else tells it,
            ranks are taken over.
        after: what an earlier run over this model, by the same schemas and rules, found. Nodes that have not changed
            since are not inferred again.

    Raises:
        InvalidGraph: strict is set and there is a note of another kind than GAP; or an input shape contradicts the
            declared one, or names no input.
    """
    engine = Inference(model, schemas, rules, trusts_sizes=trusts_sizes, after=after)
    engine.bind_inputs(input_shapes or {})
    outermost = Scope({}, model.opset_imports, "", 0)
    engine.infer_graph(model.graph, outermost)
    if engine.learn_ranks():
        engine.infer_graph(model.graph, outermost)
    report = engine.finish()
    if strict:
        report.raise_first()
    return report


@frozen
class Scope:
    """Where nodes are read: attributes and opsets of the enclosing function call, a prefix for anonymous sizes."""

    attributes: Mapping[str, Attribute]
    opset_imports: Mapping[str, int]
    prefix: str
    depth: int


class Inference:
    """One run over one model: the types, contents and constants found so far. Rules see it through their context."""

    def __init__(
        self, model: Model, schemas: SchemaRegistry, rules: InferenceRules, *, trusts_sizes: bool = True,
        after: InferenceReport | None = None,
    ) -> None:  # fmt: skip
        self._model = model
        self._trusts_sizes = trusts_sizes
        self._fed = frozenset(model.graph.inputs)  # what is fed is checked against what is declared
        self._schemas = schemas
        self._rules = rules
        self._types: dict[Value, ValueType] = {}
        self._values: dict[Value, SymbolicValue | None] = {}
        self._constants: dict[Value, Constant] = {}
        self._overridable: set[Value] = set()
        self._signatures: dict[tuple[str, str, int], Signature | None] = {}
        self._notes: list[InferenceNote] = []
        self._learned: dict[Value, TensorType] = {}
        self._sizes: dict[str, KnownDim] = {}
        self._given: set[str] = set()  # the sizes of what graphs take
        self._shown = frozenset(model.graph.outputs)
        bodies = (model.graph, *(function.graph for function in model.functions.values()))
        written = sum(len(graph) for body in bodies for graph in graphs_of(body))
        self._max_steps = MAX_STEPS + MAX_STEPS_PER_NODE * written
        self._steps = 0
        self._budget = ExpressionBudgetState()
        self._temporary: set[Value] = set()  # values of function bodies, whose types are not kept
        self._earlier = after.earlier if after is not None and trusts_sizes else None
        self._unchanged: set[Value] = set()
        self._noted = EarlierInference()

    # ---- what the caller says

    def bind_inputs(self, input_shapes: Mapping[str, InputShape]) -> None:
        """Take over the caller's shapes; sizes that the model names get the caller's values everywhere."""
        inputs = {value.name: value for value in self._model.graph.inputs}
        for name, given in input_shapes.items():
            if name not in inputs:
                raise InvalidGraph(f"input_shapes names {name!r}, but the inputs are {sorted(inputs)}")
            value = inputs[name]
            shape: Shape = tuple(SymbolicDim.named(d) if isinstance(d, str) else d for d in given)
            declared = value.type
            if not isinstance(declared, TensorType):
                continue
            if not shapes_agree(shape, declared.shape):
                raise InvalidGraph(
                    f"input_shapes gives {name!r} the shape {given}, but the model declares {declared.shape}"
                )
            for size, dim in zip(shape, declared.shape or (), strict=False):
                if size is not None and isinstance(dim, SymbolicDim) and dim.name is not None and size != dim:
                    self._sizes.setdefault(dim.name, size)
            self._types[value] = TensorType(declared.dtype, shape)

    # ---- graphs

    def infer_graph(self, graph: Graph, scope: Scope) -> None:
        """Infer a graph whose inputs may have entries in ``_types`` already."""
        if scope.depth > MAX_DEPTH:
            raise InvalidGraph(f"graphs and functions are nested more than {MAX_DEPTH} deep at {graph.name!r}")
        fixed_inputs = self._model.ir_version < _FIXED_INPUTS_BEFORE_IR
        for value in graph.inputs:
            if value.constant is not None and not fixed_inputs:
                self._overridable.add(value)
            self._settle(value, self._types.get(value), scope, None)
            self._given.update(_symbols(self._types.get(value)))
        for value in graph.initializers:
            if value not in self._overridable and value.constant is not None:
                self._types[value] = TensorType(value.constant.dtype, value.constant.shape)
        if self._earlier is not None and not scope.depth:
            self._unchanged = self._earlier.unchanged_inputs(graph, self._types)
        for node in graph.nodes:
            self._infer_node(node, scope)

    def infer_nested(self, graph: Graph, types: Sequence[ValueType | None], scope: Scope) -> list[ValueType | None]:
        """Infer the body of a control-flow node for given input types; return the types of its outputs."""
        for value, value_type in zip(graph.inputs, types, strict=True):
            self._types.pop(value, None)
            if value_type is not None:
                self._types[value] = value_type
            self._values[value] = None
        self.infer_graph(graph, Scope(scope.attributes, scope.opset_imports, scope.prefix, scope.depth + 1))
        return [self.type_of(value) for value in graph.outputs]

    def _infer_call(self, node: Node, body: Graph, scope: Scope) -> list[ValueType | None]:
        """Infer a function body with its inputs bound to what the call passes."""
        for index, formal in enumerate(body.inputs):
            self._bind(formal, node.input(index))
        self.infer_graph(body, scope)
        return [self.type_of(value) for value in body.outputs]

    def _bind(self, formal: Value, actual: Value | None) -> None:
        self._types.pop(formal, None)
        self._constants.pop(formal, None)
        self._values[formal] = None
        self._temporary.add(formal)
        if actual is None:
            return
        value_type = self._types.get(actual)
        if value_type is not None:
            self._types[formal] = value_type
        constant = self.constant_of(actual)
        if constant is not None:
            self._constants[formal] = constant
            del self._values[formal]
        elif actual in self._values:
            self._values[formal] = self._values[actual]

    def learn_ranks(self) -> bool:
        """Take over the ranks that only readers tell; return whether there are any (see ``reader_ranks``)."""
        if self._notes:
            return False  # a model in error is told so once
        if self._ranks_are_known():
            return False  # the common case, told in a fraction of the time
        for graph in graphs_of(self._model.graph):
            for value, rank in learned_ranks(graph, self._rank_of, self.constant_of).items():
                known = self.type_of(value)
                if isinstance(known, TensorType):
                    self._learned[value] = TensorType(known.dtype, name_unknown((None,) * rank, value.name))
        return bool(self._learned)

    def _ranks_are_known(self) -> bool:
        """Return whether all values that are fed or made, in bodies too, have a rank."""
        for graph in graphs_of(self._model.graph):
            made = [value for node in graph.nodes for value in node.outputs if value is not None]
            for value in (*graph.inputs, *made):
                known = self._types.get(value) or value.type
                if type(known) is not TensorType or known.shape is None:
                    return False
        return True

    def _rank_of(self, value: Value) -> int | None:
        known = self.type_of(value)
        return len(known.shape) if isinstance(known, TensorType) and known.shape is not None else None

    # ---- nodes

    def _infer_node(self, node: Node, scope: Scope) -> None:
        self._steps += 1
        self._budget.add_node()
        if self._steps > self._max_steps:
            raise InvalidGraph(f"the model's functions and bodies expand to more than {self._max_steps} nodes")
        opset = node.opset or scope.opset_imports.get(node.domain, 0) or self._default_opset(node.domain)
        if self._earlier is not None and not scope.depth and self._earlier.still_holds(node, opset, self._unchanged):
            self._earlier.copy(node, self._types, self._values, self._constants, self._unchanged)
            self._earlier.keep(node, self._noted)
            return
        types = [None if value is None else self._types.get(value) for value in node.inputs]
        function = self._model.functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            self._infer_function(node, function, scope)
            return
        signature = self._signature(node.domain, node.op_type, opset)
        if signature is None:
            self._infer_unknown(node, scope)
            return
        before = len(self._notes)
        found = self._check(node, opset, signature, types)
        is_sound = len(self._notes) == before
        problem = attribute_problem(node, signature.schema.since_version) if is_sound else None
        if problem is not None:
            self._refuse(node, problem)
            is_sound = False
        context = InferenceContext(self, scope, node, opset, signature.schema, types, found)
        rule = self._rules.find(node.domain, node.op_type, opset)
        try:
            if not is_sound:
                pass  # rules rely on the kinds of attributes and types that the schema promises
            elif rule is not None:
                rule(context)
            elif node.body is not None:
                self._call_into(context, node.body, self._inner(scope, node, {}, scope.opset_imports))
            else:
                self._infer_schema_body(context, signature.schema, scope)
        except InferenceRefusal as refusal:
            self._refuse(node, str(refusal))
        except DimTooLarge:
            pass  # what the rule has said so far holds, the rest stays unknown
        self._keep(context, scope)
        if not scope.depth and rule is not None and not node.has_graphs and len(self._notes) == before:
            self._noted.note(node, opset, context.found)
        if self._earlier is not None and not scope.depth:
            self._earlier.compare(node, self._types, self._values, self._constants, self._unchanged)

    def _check(
        self, node: Node, opset: int, signature: Signature, types: list[ValueType | None]
    ) -> list[ValueType | None]:
        facts = signature.facts_of(node, types)
        known = None if facts is None else signature.sound.get(facts)
        if known is not None:
            return list(known)
        before = len(self._notes)
        for problem in (signature.retirement(node, opset), signature.count_problem(node)):
            if problem is not None:
                self._note(NoteKind.TYPE, problem, node)
        for message in signature.presence_problems(node):
            self._note(NoteKind.TYPE, message, node)
        for message in signature.type_problems(node, types):
            self._note(NoteKind.TYPE, message, node)
        found = signature.output_types(types, len(node.outputs))
        if facts is not None and len(self._notes) == before:
            signature.sound[facts] = tuple(found)
        return found

    def _infer_function(self, node: Node, function: Function, scope: Scope) -> None:
        attributes = dict(function.attribute_defaults)
        for name, attribute in node.attributes.items():
            actual = attribute if attribute.reference is None else scope.attributes.get(attribute.reference)
            if actual is not None:
                attributes[name] = actual
        imports = {**scope.opset_imports, **function.opset_imports}
        types = [None if value is None else self._types.get(value) for value in node.inputs]
        for what, given, known in (
            ("input", node.inputs, function.graph.inputs), ("output", node.outputs, function.graph.outputs),
        ):  # fmt: skip
            if len(given) > len(known):
                reason = f"has {what} size {len(given)}, function {function.domain}::{function.name} has {len(known)}"
                self._note(NoteKind.TYPE, f"{node_text(node)} , Error Node({node.name}) {reason}", node)
        context = InferenceContext(self, scope, node, 0, None, types, [None] * len(node.outputs))
        self._call_into(context, function.graph, self._inner(scope, node, attributes, imports))
        self._keep(context, scope)

    def _infer_schema_body(self, context: InferenceContext, schema: OpSchema, scope: Scope) -> None:
        node = context.node
        if schema.build_body is None:
            return
        types = [context.type_of(index) for index in range(context.input_count)]
        function = schema.build_body(node, types, context.opset, scope.opset_imports)
        if isinstance(function, Rejection):
            return
        attributes = {name: a.default for name, a in schema.attributes.items() if a.default is not None}
        attributes |= function.attribute_defaults
        attributes |= {n: a for n, a in node.attributes.items() if a.reference is None}
        imports = {**scope.opset_imports, **function.opset_imports}
        self._call_into(context, function.graph, self._inner(scope, node, attributes, imports))

    def _infer_unknown(self, node: Node, scope: Scope) -> None:
        if node.body is not None:
            types = [None if value is None else self._types.get(value) for value in node.inputs]
            context = InferenceContext(self, scope, node, 0, None, types, [None] * len(node.outputs))
            self._call_into(context, node.body, self._inner(scope, node, {}, scope.opset_imports))
            self._keep(context, scope)
            return
        opset = node.opset or scope.opset_imports.get(node.domain)
        reason = f"No Op registered for {node.op_type} with domain_version of {opset}"
        if opset is None:
            reason = f"No opset import for domain '{node.domain}'"
        self._note(NoteKind.GAP, f"{node_text(node)} , Error {reason}", node)
        for value in node.present_outputs():
            self._settle(value, None, scope, node)

    def _inner(
        self, scope: Scope, node: Node, attributes: Mapping[str, Attribute], imports: Mapping[str, int]
    ) -> Scope:
        first = next(node.present_outputs(), None)
        call = node.name or (first.name if first is not None else node.op_type)
        return Scope(attributes, imports, f"{scope.prefix}{call}/", scope.depth + 1)

    def _call_into(self, context: InferenceContext, body: Graph, scope: Scope) -> None:
        outputs = self._infer_call(context.node, body, scope)
        for graph in graphs_of(body):
            self._temporary.update((*graph.inputs, *graph.initializers))
            for node in graph:
                self._temporary.update(node.present_outputs())
        for index, (value, value_type) in enumerate(zip(body.outputs, outputs, strict=True)):
            context.set_type(index, value_type)
            constant = self.constant_of(value)
            if constant is not None:
                context.set_constant(index, constant)
            else:
                context.set_value(index, self._values.get(value))

    def _keep(self, context: InferenceContext, scope: Scope) -> None:
        node = context.node
        for index, value in enumerate(node.outputs):
            if value is None:
                continue
            found = self._budget.affordable(self._sane(context.found[index], node))
            self._settle(value, found, scope, node)
            constant = context.found_constants.get(index)
            if constant is not None:
                self._constants[value] = constant
                self._values.pop(value, None)
            else:
                self._constants.pop(value, None)
                self._values[value] = self._budget.affordable_elements(context.found_values.get(index), found)

    def _refuse(self, node: Node, reason: str) -> None:
        self._note(NoteKind.REFUSAL, f"Node ({node.name}) Op ({node.op_type}) {reason}", node)

    def _sane(self, found: ValueType | None, node: Node) -> ValueType | None:
        """Refuse sizes that no tensor can have; they come from impossible attributes and constants."""
        if not isinstance(found, TensorType) or found.shape is None:
            return found
        for dim in found.shape:
            if isinstance(dim, int) and not 0 <= dim <= MAX_SIZE:
                break
        else:
            return found
        self._refuse(node, str(InferenceRefusal(f"the output shape {found.shape} is impossible")))
        return TensorType(found.dtype)

    # ---- types

    def _settle(self, value: Value, found: ValueType | None, scope: Scope, node: Node | None) -> None:
        """Merge what was found with what was declared, note contradictions, and name unknown sizes."""
        if value.type is not None:
            found = self._joined(value, value.type, found, node)
        if found is None:
            self._types.pop(value, None)
            return
        if isinstance(found, TensorType) and found.shape is None:
            found = self._learned.get(value, found)
        if isinstance(found, TensorType) and found.shape is not None and None in found.shape:
            found = TensorType(found.dtype, name_unknown(found.shape, scope.prefix + value.name))
        self._types[value] = found

    def _joined(self, value: Value, declared: ValueType, found: ValueType | None, node: Node | None) -> ValueType:
        declared = without_unnamed_sizes(declared)
        if self._sizes:
            declared = substitute_type(declared, self._sizes)
        trusted = declared if self._trusts_sizes or value in self._fed else without_sizes(declared)
        if found is None:
            return trusted
        problem = declaration_problem(value, declared, found, node)
        if problem is not None:
            self._note(*problem, node)
        is_shown = node is not None and value in self._shown  # by the name that the model's author gave
        return joined_types(declared, trusted, found, () if is_shown else self._given)

    # ---- what contexts ask

    @property
    def is_expensive(self) -> bool:
        """Whether bodies should be inferred once from now on, even if that says less."""
        return 2 * self._steps > self._max_steps

    def type_of(self, value: Value) -> ValueType | None:
        """Return the type found for a value, else the declared one."""
        found = self._types.get(value)
        return value.type if found is None else found

    def constant_of(self, value: Value | None) -> Constant | None:
        """Return the constant of a value that no caller can change."""
        if value is None:
            return None
        if value.constant is not None:
            return None if value in self._overridable else value.constant
        return self._constants.get(value)

    def value_of(self, value: Value | None, node: Node) -> SymbolicValue | None:
        """Return what is known of the elements of a value."""
        if value is None:
            return None
        if value in self._values:
            return self._values[value]
        constant = self.constant_of(value)
        if constant is None or constant.size > MAX_ELEMENTS or constant.dtype is DataType.STRING:
            return None
        array = self.read(constant, node)
        found = None if array is None else as_elements(array)
        self._values[value] = found
        return found

    def read(self, constant: Constant, node: Node) -> np.ndarray | None:
        """Return the contents of a constant; unreadable ones become a note."""
        try:
            return constant.array()
        except OrtError as error:
            self._note(NoteKind.GAP, f"{node.describe()} reads a constant that cannot be loaded: {error}", node)
            return None

    def note_count(self) -> int:
        """Return how many notes there are."""
        return len(self._notes)

    def drop_notes(self, count: int) -> None:
        """Forget all notes but the first ``count``."""
        del self._notes[count:]

    # ---- lookups

    def _signature(self, domain: str, op_type: str, opset: int) -> Signature | None:
        key = (domain, op_type, opset)
        if key not in self._signatures:
            schema = self._schemas.find(domain, op_type, opset)
            self._signatures[key] = Signature(schema) if isinstance(schema, OpSchema) else None
        return self._signatures[key]

    def _default_opset(self, domain: str) -> int:
        # onnxruntime lets a model leave out its own domains' imports; the first version is meant then.
        return self._model.opset_imports.get(domain, 1)

    def _note(self, kind: NoteKind, message: str, node: Node | None) -> None:
        self._notes.append(InferenceNote(kind, message, node))

    def finish(self) -> InferenceReport:
        """Write the types to the values and return the report."""
        before: dict[Value, ValueType | None] = {}
        for value, value_type in self._types.items():
            if value in self._temporary:
                continue
            known = value.type
            if known is not value_type and (known is None or known != value_type):  # to compare types takes a call
                before[value] = known
                value.type = value_type
        if not self._trusts_sizes:
            self._forget_claims_of_functions()
        values = {v: e for v, e in self._values.items() if e is not None and v not in self._temporary}
        self._noted.finish(self._model.graph, self._types, self._values, self._constants)
        earlier = None if self._sizes else self._noted
        return InferenceReport(tuple(self._notes), values, before, dict(self._sizes), earlier)

    def _forget_claims_of_functions(self) -> None:
        """Take the sizes off the values of functions: they would be those of the values of a call made inline."""
        for function in self._model.functions.values():
            for graph in _graphs_around(function.graph):
                for value in (*graph.inputs, *(output for node in graph for output in node.present_outputs())):
                    value.type = None if value.type is None else without_sizes(value.type)


def _graphs_around(graph: Graph) -> Iterator[Graph]:
    """Yield a graph and the bodies of its control flow; a decoder of com.microsoft's must state its sizes."""
    yield graph
    for node in graph:
        if node.has_graphs and node.domain == "":
            for nested in node.subgraphs():
                yield from _graphs_around(nested)


def _symbols(value_type: ValueType | None) -> Iterator[str]:
    for dim in (value_type.shape or ()) if isinstance(value_type, TensorType) else ():
        if isinstance(dim, SymbolicDim):
            yield from dim.symbols()
