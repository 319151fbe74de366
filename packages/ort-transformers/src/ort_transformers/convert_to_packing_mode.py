"""PackingMode: a fused encoder that computes the tokens that count, and leaves padding out between its attentions.

    MatMul, Add, MultiHeadAttention(mask), SkipLayerNormalization, ...
        ->  RemovePadding, MatMul, Add, PackedMultiHeadAttention, SkipLayerNormalization, ..., RestorePadding

RemovePadding puts the first tokens of all sentences one behind the other; what computes each token by itself goes on as
it is, and whatever else reads such a value gets it restored, with zeros for padding. The mask of all attentions must be
lengths, or come from an input of ones and zeros: that it hides the end of each sentence alone is shown by evaluation.
onnxruntime has these operators for CUDA; ort-core runs them anywhere.

python -m ort_transformers.convert_to_packing_mode --input fused.onnx --output packed.onnx
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

import ort_core
from ort_core.cli.interrupts import run_program
from ort_core.errors import OrtError
from ort_transformers.constants import AttentionInputIDs, MultiHeadAttentionInputIDs, Operators
from ort_transformers.onnx_model import OnnxModel

log = logging.getLogger("ort_transformers.convert_to_packing_mode")  # not __name__: __main__ of a command line

MICROSOFT = "com.microsoft"
_BATCH, _LENGTH = 3, 6  # of the masks that are tried
_AXES_INPUT_OPSET = 13  # since then ReduceSum takes its axes as an input
_LOWEST_KEPT = -1e3  # what is added to scores of keys that are hidden is -1e4 or lower in models, of others 0
_TOKENWISE = frozenset(
    {
        "Add", "BiasGelu", "Cast", "Div", "Erf", "FastGelu", "Gelu", "LayerNormalization", "MatMul", "Mul", "QuickGelu",
        "Relu", "Sigmoid", "SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
        "Sqrt", "Sub", "Tanh",
    }
)  # fmt: skip
_KEPT_ATTRIBUTES = {
    Operators.ATTENTION: ("num_heads", "qkv_hidden_sizes", "scale"),
    Operators.MULTI_HEAD_ATTENTION: ("num_heads", "mask_filter_value", "scale"),
}


class _Refusal(Exception):
    """Why a model cannot be packed."""


class PackingMode:
    """A model to pack.

    Args:
        model: changed by ``convert``.
    """

    def __init__(self, model: OnnxModel) -> None:
        self.model = model
        self.kinds: tuple[str, ...] = tuple(_KEPT_ATTRIBUTES)

    def convert(self, use_symbolic_shape_infer: bool = True) -> None:
        """Pack the model; where it cannot be, log why and leave it as it is.

        Args:
            use_symbolic_shape_infer: taken for onnxruntime's programs: types inside are left to who loads the model.
        """
        self.model.topological_sort()
        try:
            attentions = self._attentions()
            counts = self._lengths(attentions)
            tokens = self._tokens(attentions[0])
            packed = self._packed_values(tokens, attentions)
        except _Refusal as refusal:
            log.error("the model stays as it is: %s", refusal)
            return
        self._rewrite(attentions, self._count_tokens(counts), tokens, packed)
        self.model.clean_shape_infer()
        self.model.prune_graph(allow_remove_graph_inputs=False)
        self.model.topological_sort()
        self.model.import_domain(MICROSOFT)
        log.info("%d attentions compute tokens that count alone", len(attentions))

    # ------------------------------------------------------------------ what must hold
    def _attentions(self) -> list[NodeProto]:
        found = {name: self.model.get_nodes_by_op_type(name) for name in self.kinds}
        if len(found) > 1 and all(found.values()):
            raise _Refusal("it has both Attention and MultiHeadAttention")
        for name, nodes in found.items():
            for node in nodes:
                allowed = (*_KEPT_ATTRIBUTES[name], "mask_filter_value", "unidirectional")
                other = [each.name for each in node.attribute if each.name not in allowed]
                if other or self.model.get_node_attribute(node, "unidirectional"):
                    raise _Refusal(f"{name} {node.name!r} is causal or has {other}, which no packed one has")
                if any(node.output[1:]) or any(node.input[_first_past(name) :]):
                    raise _Refusal(f"{name} {node.name!r} has a cache")
            if nodes:
                return nodes
        raise _Refusal(f"it has no {' and no '.join(self.kinds)}: fuse it first")

    def _lengths(self, attentions: Sequence[NodeProto]) -> str:
        """Return the value of how many tokens of each sentence count, or the input of ones and zeros for it."""
        kind = attentions[0].op_type
        is_plain = kind == Operators.ATTENTION
        place = AttentionInputIDs.MASK_INDEX if is_plain else MultiHeadAttentionInputIDs.KEY_PADDING_MASK
        bias = AttentionInputIDs.ATTENTION_BIAS if is_plain else MultiHeadAttentionInputIDs.ATTENTION_BIAS
        masks = {(_input(node, place), _input(node, bias)) for node in attentions}
        if len(masks) != 1:
            raise _Refusal("its attentions have several masks")
        ((lengths, added),) = masks
        if lengths and not added:
            shape = self.model.get_shape(lengths)
            if shape is None or len(shape) != 1:
                raise _Refusal(f"the mask {lengths!r} is not known to be lengths")
            return lengths
        if lengths or not added:
            raise _Refusal("its attentions have no mask that tells padding, or another one beside it")
        return self._mask_input(added)

    def _mask_input(self, added: str) -> str:
        """Return the input of ones and zeros of which the mask that is added is made.

        Raises:
            _Refusal: evaluation shows that there is none.
        """
        model = onnx.ModelProto()
        model.CopyFrom(self.model.model)
        del model.graph.output[:]
        model.graph.output.append(onnx.ValueInfoProto(name=added))
        part = OnnxModel(model)
        part.prune_graph()
        inputs = part.get_graph_inputs_excluding_initializers()
        masks = [each.name for each in inputs if "mask" in each.name.lower() and len(_sizes(each)) == 2]
        if len(masks) != 1:
            raise _Refusal(
                f"which of inputs {[each.name for each in inputs]} is the mask behind {added!r} is not clear"
            )
        counts = np.arange(_LENGTH) < np.array([[_LENGTH], [1], [_LENGTH // 2]])
        feeds = {
            each.name: (counts if each.name in masks else np.zeros(_sizes(each))).astype(
                helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type)
            )
            for each in inputs
        }
        try:
            session = ort_core.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            found = np.asarray(session.run(None, feeds)[0])
            rows = np.broadcast_to(found, (_BATCH, found.shape[1], _LENGTH, _LENGTH))
        except (OrtError, ValueError, IndexError) as error:
            raise _Refusal(f"the mask {added!r} cannot be evaluated: {error}") from error
        keys = np.broadcast_to(counts[:, None, None, :], rows.shape)
        if np.any(rows[keys] != 0) or np.any(rows[~keys] > _LOWEST_KEPT):
            raise _Refusal(f"the mask {added!r} does more than to hide the padding that {masks[0]!r} tells")
        return masks[0]

    def _count_tokens(self, mask: str) -> str:
        """Return how many tokens of each sentence count, where that is an input of ones and zeros, else the value."""
        declared = self.model.find_graph_input(mask)
        if declared is None or len(declared.type.tensor_type.shape.dim) == 1:
            return mask
        name, count = self.model.create_node_name("ReduceSum", "count_tokens"), f"{mask}_count"
        cast = helper.make_node("Cast", [mask], [f"{mask}_numbers"], to=TensorProto.INT32, name=f"{name}_cast")
        total = helper.make_node("ReduceSum", [f"{mask}_numbers"], [count], keepdims=0, name=name)
        if self.model.get_opset_version() < _AXES_INPUT_OPSET:
            total.attribute.append(helper.make_attribute("axes", [1]))
        else:
            axes = numpy_helper.from_array(np.array([1], np.int64), f"{mask}_token_axis")
            self.model.add_initializer(axes)
            total.input.append(axes.name)
        self.model.add_nodes([cast, total])
        return count

    def _tokens(self, attention: NodeProto) -> str:
        """Return the value of all tokens that the first attention is projected from."""
        if attention.op_type == Operators.ATTENTION:
            return str(attention.input[AttentionInputIDs.INPUT])
        makers = self.model.output_name_to_node()
        node = makers.get(attention.input[0])
        if node is not None and node.op_type == "Add":
            node = next((makers[name] for name in node.input if name in makers), None)
        if node is None or node.op_type != "MatMul" or self.model.get_initializer(node.input[1]) is None:
            raise _Refusal(f"the query of {attention.name!r} is no product with a constant matrix")
        return str(node.input[0])

    def _packed_values(self, tokens: str, attentions: Sequence[NodeProto]) -> set[str]:
        """Return the values that can be computed token by token, from the tokens on.

        Raises:
            _Refusal: what an attention reads is not among them.
        """
        packed = {tokens}
        constants = {each.name for each in self.model.graph().initializer}
        for node in self.model.graph().node:
            if node in attentions:
                read = node.input[: 1 if node.op_type == Operators.ATTENTION else 3]
                if not all(name in packed for name in read):
                    raise _Refusal(f"attention {node.name!r} reads what other tokens take part in")
                packed.add(node.output[0])
            elif node.op_type in _TOKENWISE and self._is_tokenwise(node, packed, constants):
                packed.update(name for name in node.output[:1])
        return packed

    def _is_tokenwise(self, node: NodeProto, packed: set[str], constants: set[str]) -> bool:
        if node.output[0] in packed or not any(name in packed for name in node.input):
            return False
        others = [name for name in node.input if name and name not in packed]
        if not all(name in constants for name in others) or any(node.output[1:3]):
            return False
        ranks = [len(shape) for shape in map(self.model.get_shape, others) if shape is not None]
        most = 2 if node.op_type == "MatMul" else 1
        tensors = [len(tensor.dims) for tensor in map(self.model.get_initializer, others) if tensor is not None]
        if max([*ranks, *tensors], default=0) > most or (node.op_type == "MatMul" and node.input[0] not in packed):
            return False
        return self.model.get_node_attribute(node, "axis") in (None, -1, 2)

    # ------------------------------------------------------------------ the change
    def _rewrite(self, attentions: Sequence[NodeProto], counts: str, tokens: str, packed: set[str]) -> None:
        offset, begins, most = (f"{tokens}_{part}" for part in ("token_offset", "cumulated_seq_len", "max_seq_len"))
        inside = [node for node in self.model.graph().node if node.output and node.output[0] in packed]
        inside = [node for node in inside if node.output[0] != tokens]
        names = {name: f"{name}_packed" for name in packed}
        outputs = set(self.model.get_graphs_output_names())
        readers = self.model.input_name_to_nodes()
        outside = [
            name for name in packed
            if name != tokens and (name in outputs or any(node not in inside for node in readers.get(name, [])))
        ]  # fmt: skip
        for node in inside:
            for place, name in enumerate(node.input):
                node.input[place] = names.get(name, name)
            node.output[0] = names[node.output[0]]
            if self.model.get_node_attribute(node, "axis") == 2:
                next(each for each in node.attribute if each.name == "axis").i = -1
        made = [
            helper.make_node(
                Operators.REMOVEPADDING, [tokens, counts], [names[tokens], offset, begins, most], "remove_padding",
                domain=MICROSOFT,
            )
        ]  # fmt: skip
        made += [
            helper.make_node(
                Operators.RESTOREPADDING, [names[name], offset], [name], f"restore_padding_{place}", domain=MICROSOFT
            )
            for place, name in enumerate(outside)
        ]
        made += [_packed_form(node, offset, begins) for node in attentions]
        self.model.remove_nodes(attentions)
        self.model.add_nodes(made)


class PackingAttentionBase(PackingMode):
    """A model of whose attentions one operator is packed.

    Args:
        model: changed by ``convert``.
        attention_op_type: ``"Attention"`` or ``"MultiHeadAttention"``.

    Raises:
        ValueError: there is no packed form of that operator.
    """

    def __init__(self, model: OnnxModel, attention_op_type: str) -> None:
        super().__init__(model)
        if attention_op_type not in _KEPT_ATTRIBUTES:
            raise ValueError(f"{attention_op_type!r} has no packed form; {' and '.join(_KEPT_ATTRIBUTES)} have one")
        self.attention_op_type = attention_op_type
        self.kinds = (attention_op_type,)


class PackingAttention(PackingAttentionBase):
    """A model whose Attention operators are packed."""

    def __init__(self, model: OnnxModel) -> None:
        super().__init__(model, Operators.ATTENTION)


class PackingMultiHeadAttention(PackingAttentionBase):
    """A model whose MultiHeadAttention operators are packed."""

    def __init__(self, model: OnnxModel) -> None:
        super().__init__(model, Operators.MULTI_HEAD_ATTENTION)


def _sizes(declared: onnx.ValueInfoProto) -> list[int]:
    """Return the sizes of an input, open ones those of the masks that are tried."""
    tried = (_BATCH, *(_LENGTH for _ in declared.type.tensor_type.shape.dim))
    return [size.dim_value or tried[axis] for axis, size in enumerate(declared.type.tensor_type.shape.dim)]


def _input(node: NodeProto, place: int) -> str:
    return str(node.input[place]) if place < len(node.input) else ""


def _first_past(kind: str) -> int:
    return (
        AttentionInputIDs.PAST_SEQUENCE_LENGTH if kind == Operators.ATTENTION else MultiHeadAttentionInputIDs.PAST_KEY
    )


def _packed_form(node: NodeProto, offset: str, begins: str) -> NodeProto:
    """Return the operator over packed tokens; its bias was the mask, which lengths stand for now."""
    is_plain = node.op_type == Operators.ATTENTION
    own = [_input(node, place) for place in range(3 if is_plain else 4)]
    name = Operators.PACKEDATTENTION if is_plain else Operators.PACKED_MULTI_HEAD_ATTENTION
    made = helper.make_node(
        name, [*own, offset, begins], list(node.output[:1]), f"{node.name}_packed", domain=MICROSOFT
    )
    made.attribute.extend(each for each in node.attribute if each.name in _KEPT_ATTRIBUTES[node.op_type])
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Pack the model that a command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input", required=True, type=str, help="a fused model")
    parser.add_argument("--output", required=True, type=str, help="the file to write")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--use_external_data_format", action="store_true", help="write large weights beside the file")
    asked = parser.parse_args(argv)
    logging.basicConfig(format="%(message)s", level=logging.DEBUG if asked.verbose else logging.INFO)
    model = OnnxModel(onnx.load(asked.input))
    PackingMode(model).convert()
    model.save_model_to_file(asked.output, asked.use_external_data_format)


if __name__ == "__main__":
    run_program(main)
