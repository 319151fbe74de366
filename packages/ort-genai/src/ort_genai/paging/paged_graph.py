"""A decoder over caches of blocks, made of one over caches in one piece: of GroupQueryAttention, PagedAttention.

    tokens [batch, n], mask, past [batch, heads, positions, size]        -> logits [batch, n, vocabulary]
    tokens [1, all], ends, past lengths, blocks, caches [blocks, rows, heads, size] -> logits [1, wanted, vocabulary]

All tokens of a step stand in one row. That is right where every other operator treats each token by itself, which is
asked operator by operator; one that may not, a mask with another use, or an attention that PagedAttention does not
have, is a reason to leave the graph as it is. The head multiplies the tokens alone whose logits are wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from ort_genai.graph_wiring import WiredNode
from ort_genai.paging.paged_inputs import ENDS, PAST, TABLE, WANTED
from ort_genai.wanted_rows import find_head

_MS = "com.microsoft"


def _named(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FREE = _named(
    "Abs Add And BiasGelu Cast Ceil Clip Constant Div Elu Equal Erf Exp FastGelu Floor Gelu Greater GreaterOrEqual "
    "HardSigmoid HardSwish Identity LeakyRelu Less LessOrEqual Log Max Min Mish MoE Mul Neg Not Or Pow QMoE QuickGelu "
    "Reciprocal Relu Reshape Round Sigmoid Sign Softplus Softsign Sqrt Squeeze Sub Swish Tanh Unsqueeze Where Xor"
)
_PRODUCTS = _named("DynamicQuantizeMatMul FusedMatMul MatMul MatMulInteger MatMulIntegerToFloat MatMulNBits")
_NORMS = _named(
    "LayerNormalization RMSNormalization SimplifiedLayerNormalization SkipLayerNormalization "
    "SkipSimplifiedLayerNormalization"
)
_LOOKUPS = frozenset({"Gather", "GatherBlockQuantized"})
_LAST_AXIS = frozenset({"Softmax", "LogSoftmax", "Split", "TopK", "Concat"})
_KEPT = ("do_rotary", "kv_num_heads", "local_window_size", "num_heads", "rotary_interleaved", "scale", "softcap",
         "k_quant_type", "v_quant_type")  # fmt: skip
_SHARED_INPUTS = {7: 8, 8: 9, 11: 11, 14: 12, 15: 13, 12: 14, 13: 15}  # of GroupQueryAttention, and where they go


class NotPaged(ValueError):
    """A graph that cannot be run over blocks; its text says why."""


@dataclass(frozen=True, slots=True)
class DecoderNames:
    """What a decoder's graph has: names of inputs and outputs, and of the caches (past, present)."""

    tokens: str
    positions: str | None
    mask: str | None
    logits: str
    caches: tuple[tuple[str, str], ...]


def paged_graph(model: ModelProto, names: DecoderNames) -> ModelProto:
    """Return the model over blocks, made of the one that is given.

    Raises:
        NotPaged: the graph does not fit.
    """
    _PagedGraph(model, names).rewrite()
    return model


class _PagedGraph:
    """A graph while it is rewritten."""

    def __init__(self, model: ModelProto, names: DecoderNames) -> None:
        self._graph: GraphProto = model.graph
        self._nodes: list[NodeProto] = list(model.graph.node)
        self._model, self._names = model, names
        self._makers = {name: node for node in self._nodes for name in node.output if name}
        self._fixed = {each.name for each in self._graph.initializer}

    def rewrite(self) -> None:
        """Rewrite the graph, or say why not."""
        if self._model.functions:
            raise NotPaged("it has functions of its own")
        for node in self._nodes:
            if any(each.type in (each.GRAPH, each.GRAPHS) for each in node.attribute):
                raise NotPaged(f"{node.op_type} has a body")
        attentions = {id(node) for node in self._attentions()}
        self._nodes = [
            each for node in self._nodes for each in (self._paged(node) if id(node) in attentions else [node])
        ]
        self._gather_before_head()
        self._keep_needed()
        self._check_tokens_apart()
        self._state_borders()

    def _attentions(self) -> list[NodeProto]:
        """Return the attention of each layer, if all are GroupQueryAttention with caches of their own."""
        found = [node for node in self._nodes if node.op_type == "GroupQueryAttention"]
        pairs = [(past, present) for past, present in self._names.caches]
        own = [(node.input[3 + which], node.output[1 + which]) for node in found for which in range(2)
               if len(node.input) > 4 and len(node.output) > 2]  # fmt: skip
        if not pairs or sorted(own) != sorted(pairs):
            raise NotPaged("its caches are not those of a GroupQueryAttention for each layer")
        readers = [name for node in self._nodes for name in node.input]
        presents = {present for _, present in pairs}
        if any(readers.count(past) != 1 for past, _ in pairs) or presents.intersection(readers):
            raise NotPaged("something else reads its caches")
        return found

    def _paged(self, node: NodeProto) -> list[NodeProto]:
        """Return a PagedAttention for a GroupQueryAttention, and what takes their first axis from packed tokens."""
        said = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        self._check_attention(node, said)
        name = node.output[0]
        given = list(node.input[:3])
        squeezed = [self._without_batch(each, f"{name}/{place}") for place, each in enumerate(given) if each]
        inputs = [f"{name}/{place}/Squeeze" if each else "" for place, each in enumerate(given)]
        inputs += [*node.input[3:5], ENDS, PAST, TABLE, *[""] * 8]
        for place, to in _SHARED_INPUTS.items():
            if place < len(node.input):
                inputs[to] = node.input[place]
        while not inputs[-1]:
            inputs.pop()
        attributes = {key: said[key] for key in _KEPT if key in said}
        epsilon = said.get("q_norm_epsilon", said.get("qk_norm_epsilon"))
        if len(node.input) > 14 and node.input[14]:
            attributes["qk_norm_epsilon"] = 1e-6 if epsilon is None else epsilon
        rows = f"{name}/rows"
        made = helper.make_node(
            "PagedAttention", inputs, [rows, *node.output[1:3]], name=node.name, domain=_MS, **attributes
        )
        back = helper.make_node("Unsqueeze", [rows, self._axis(0)], [name], name=f"{name}/Unsqueeze")
        return [*squeezed, made, back]

    def _check_attention(self, node: NodeProto, said: Mapping[str, object]) -> None:
        for place, what in ((10, "a bias"), (16, "packed queries")):
            if place < len(node.input) and node.input[place]:
                raise NotPaged(f"an attention has {what}")
        if len(node.output) > 3 and node.output[3]:
            raise NotPaged("an attention gives its scores")
        plain = {"causal": (1,), "smooth_softmax": (-1, 0), "sliding_window_cache": (0,), "qk_output": (0,),
                 "kv_cache_bit_width": (0, 8)}  # fmt: skip
        for key, values in plain.items():
            if said.get(key, values[0]) not in values:
                raise NotPaged(f"an attention has {key} = {said[key]}")
        if said.get("q_norm_epsilon") != said.get("k_norm_epsilon"):
            raise NotPaged("an attention normalizes queries and keys differently")

    def _axis(self, axis: int) -> str:
        name = f"paged/axis_{axis}"
        if name not in self._fixed:
            self._graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [1], [axis]))
            self._fixed.add(name)
        return name

    def _without_batch(self, value: str, name: str) -> NodeProto:
        return helper.make_node("Squeeze", [value, self._axis(0)], [f"{name}/Squeeze"], name=f"{name}/Squeeze")

    def _gather_before_head(self) -> None:
        """Leave the tokens alone whose logits are wanted: before the product that gives logits, or behind it."""
        logits, place = self._names.logits, len(self._nodes)
        sizes = {each.name: tuple(each.dims) for each in self._graph.initializer}
        head = find_head([_wired(each) for each in self._nodes], sizes, logits)
        if head is not None:
            place = head.place
            source, output = self._nodes[place].input[0], f"{logits}/wanted"
            self._nodes[place].input[0] = output
        else:
            source, output = f"{logits}/all", logits
            maker = self._makers[logits]
            maker.output[list(maker.output).index(logits)] = source
        made = helper.make_node("Gather", [source, WANTED], [output], name=f"{logits}/Gather", axis=1)
        self._nodes.insert(place, made)

    def _keep_needed(self) -> None:
        """Leave out what only the mask was counted for."""
        presents = [present for _, present in self._names.caches]
        needed, nodes = {self._names.logits, *presents}, []
        for node in reversed(self._nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                nodes.append(node)
        if self._names.mask in needed:
            raise NotPaged("its mask is read for more than lengths")
        self._nodes = nodes[::-1]
        del self._graph.node[:]
        self._graph.node.extend(self._nodes)
        kept = [each for each in self._graph.input if each.name in needed]
        del self._graph.input[:]
        self._graph.input.extend(kept)
        kept_outputs = [each for each in self._graph.output if each.name in (self._names.logits, *presents)]
        del self._graph.output[:]
        self._graph.output.extend(kept_outputs)
        del self._graph.value_info[:]

    def _check_tokens_apart(self) -> None:
        """Require that no operator but the attention mixes tokens.

        Raises:
            NotPaged: one may.
        """
        varying, sizes = {self._names.tokens, self._names.positions}, set[str]()
        for node in self._nodes:
            read = [place for place, name in enumerate(node.input) if name in varying]
            if not read:
                if sizes.intersection(node.input):
                    sizes.update(node.output)
                continue
            if node.op_type == "Shape":
                sizes.update(node.output)
                continue
            reason = self._mixing(node, read)
            if reason is not None:
                raise NotPaged(reason)
            varying.update(name for name in node.output if name)

    def _mixing(self, node: NodeProto, read: Sequence[int]) -> str | None:
        """Return why an operator may mix tokens, ``None`` where it does not."""
        kind = node.op_type
        said = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        is_own = WANTED in node.input
        if kind in _FREE or kind == "PagedAttention" or is_own:
            return None
        if kind in _PRODUCTS:
            if said.get("transA") or said.get("transBatchA"):
                return "tokens are the columns of a product"
            return None if read == [0] else "tokens are multiplied with tokens outside of an attention"
        if kind in _LOOKUPS:
            is_table = read == [1] and said.get("axis", said.get("gather_axis", 0)) == 0
            return None if is_table else f"{kind} takes parts of what tokens have"
        if kind == "RotaryEmbedding" and node.domain == _MS:
            return None if not said.get("is_packed_batching") else "RotaryEmbedding has batches of its own"
        if kind in _NORMS:
            return None if said.get("axis", -1) in (-1, 2) else f"{kind} goes over more than the last axis"
        if kind in _LAST_AXIS:
            default = -1 if kind in ("Softmax", "LogSoftmax", "TopK") else 0
            return None if said.get("axis", default) in (-1, 2) else f"{kind} goes over another axis than the last"
        return f"it has {kind}, which may mix tokens"

    def _state_borders(self) -> None:
        """State what the graph takes and gives now."""
        for each in self._graph.input:
            if each.name in (self._names.tokens, self._names.positions):
                _set_sizes(each, 1, "tokens")
        pasts = {past for past, _ in self._names.caches}
        presents = {present for _, present in self._names.caches}
        for each in (*self._graph.input, *self._graph.output):
            if each.name in pasts or each.name in presents:
                _, heads, _, size = each.type.tensor_type.shape.dim
                sizes = ["blocks", "rows", heads.dim_value or heads.dim_param, size.dim_value or size.dim_param]
                _set_sizes(each, *sizes)
            elif each.name == self._names.logits:
                _set_sizes(each, 1, "wanted")
        for name, kind, sizes in (
            (ENDS, TensorProto.INT32, ["ends"]), (PAST, TensorProto.INT32, ["sequences"]),
            (TABLE, TensorProto.INT32, ["sequences", "width"]), (WANTED, TensorProto.INT64, ["wanted"]),
        ):  # fmt: skip
            self._graph.input.append(helper.make_tensor_value_info(name, kind, sizes))
        if _MS not in {each.domain for each in self._model.opset_import}:
            self._model.opset_import.append(helper.make_opsetid(_MS, 1))


def _set_sizes(value: ValueInfoProto, *sizes: int | str) -> None:
    """State the first sizes of a value; the others stay."""
    for dim, size in zip(value.type.tensor_type.shape.dim, sizes, strict=False):
        if isinstance(size, int):
            dim.dim_value = size
        elif size:
            dim.dim_param = size


def _wired(node: NodeProto) -> WiredNode:
    numbers = {each.name: each.i for each in node.attribute if each.type == AttributeProto.INT}
    return WiredNode(node.op_type, tuple(node.input), tuple(node.output), False, numbers)
