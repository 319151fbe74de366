"""SymbolicShapeInference: shapes with named sizes, written into a model, by onnxruntime.tools' names.

python -m ort_tools.symbolic_shape_infer --input model.onnx --output typed.onnx

The inference is that of ort-core's sessions (``ort_core.model_types``): it knows every operator that they run, and a
model in which something stays unknown, or contradicts itself, is written with what is known.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence

import onnx
from onnx import ModelProto, NodeProto, TypeProto, ValueInfoProto, helper

from ort_core.cli.interrupts import run_program
from ort_core.model_graphs import write_proto
from ort_core.model_types import infer_proto

log = logging.getLogger("ort_tools.symbolic_shape_infer")  # not __name__, which is __main__ of a command line

Size = int | str | None
OLDEST_OPSET = 7
_BOUNDLESS = 2**31 - 1


class SymbolicShapeInference:
    """Inference over one model.

    Args:
        int_max: taken for onnxruntime's programs: the end of a Slice is compared with sizes, not with a number.
        auto_merge: take two named sizes that broadcast against each other for one size.
        guess_output_rank: take results of operators that nobody knows to have the rank of their first input.
        verbose: above 0 what contradicts itself and what is unknown is logged.
        prefix: taken for onnxruntime's programs.
    """

    def __init__(self, int_max: int, auto_merge: bool, guess_output_rank: bool, verbose: int, prefix: str = "") -> None:
        self.int_max_ = int_max
        self.auto_merge_ = auto_merge
        self.guess_output_rank_ = guess_output_rank
        self.verbose_ = verbose
        self.prefix_ = prefix
        self.out_mp_: ModelProto | None = None
        self.run_ = True

    _is_whole = True

    def infer(self, in_mp: ModelProto) -> ModelProto:
        """Return the model with every type that is known. Raises ``OrtError``: it cannot be loaded."""
        typed = infer_proto(in_mp, merges_sizes=self.auto_merge_, guesses_ranks=self.guess_output_rank_)
        if self.verbose_ > 0:
            for problem in typed.problems:
                log.warning("%s", problem)
            for name in typed.unknown_operators:
                log.warning("nothing is known of the operator %s", name)
        self.out_mp_, self._is_whole = typed.model, not typed.unknown_operators
        return typed.model

    # ---- the steps of onnxruntime's class, which programs with a class of their own call one by one

    def _preprocess(self, in_mp: ModelProto) -> None:
        self.out_mp_, self.run_ = in_mp, True

    def _infer_impl(self, start_sympy_data: Mapping[str, object] | None = None) -> bool:
        """Infer; return whether every operator is known. ``start_sympy_data`` is taken for onnxruntime's programs."""
        if self.out_mp_ is None:
            raise ValueError("call _preprocess with a model before _infer_impl")
        self.infer(self.out_mp_)
        self.run_ = False
        return self._is_whole

    def _update_output_from_vi(self) -> None:
        """Do nothing: inference has written the outputs."""

    @staticmethod
    def infer_shapes(
        in_mp: ModelProto,
        int_max: int = _BOUNDLESS,
        auto_merge: bool = False,
        guess_output_rank: bool = False,
        verbose: int = 0,
    ) -> ModelProto | None:
        """Return a model with every type that is known; ``None``, with a warning, where its opset is below 7.

        Args:
            in_mp: the model, which is not changed.
            int_max: as in the class, like those that follow.
            auto_merge: see there.
            guess_output_rank: see there.
            verbose: see there.

        Raises:
            OrtError: the model cannot be loaded.
        """
        opset = get_opset(in_mp)
        if not opset or opset < OLDEST_OPSET:
            log.warning("Only support models of onnx opset 7 and above.")
            return None
        return SymbolicShapeInference(int_max, auto_merge, guess_output_rank, verbose).infer(in_mp)


# ---- what programs take from the module besides


def get_attribute(node: NodeProto, attr_name: str, default_value: object = None) -> object:
    """Return an attribute's value, the default where the node has none."""
    found = next((each for each in node.attribute if each.name == attr_name), None)
    return default_value if found is None else helper.get_attribute_value(found)


def get_dim_from_proto(dim: onnx.TensorShapeProto.Dimension) -> Size:
    """Return a size: a number, a name, or ``None``."""
    kind = dim.WhichOneof("value")
    return None if kind is None else dim.dim_param if kind == "dim_param" else dim.dim_value


def is_sequence(type_proto: TypeProto) -> bool:
    """Return whether a type is that of a sequence. Raises ``AssertionError``: neither a sequence nor a tensor."""
    kind = type_proto.WhichOneof("value")
    if kind not in ("tensor_type", "sequence_type"):
        raise AssertionError(f"a type is {kind}, neither a tensor nor a sequence")
    return kind == "sequence_type"


def _tensor_of(type_proto: TypeProto) -> TypeProto.Tensor:
    return type_proto.sequence_type.elem_type.tensor_type if is_sequence(type_proto) else type_proto.tensor_type


def get_shape_from_type_proto(type_proto: TypeProto) -> list[Size] | None:
    """Return the shape of a tensor, ``None`` where none is stated. Raises ``AssertionError``: a sequence."""
    if is_sequence(type_proto):
        raise AssertionError("a sequence has no shape")
    if not type_proto.tensor_type.HasField("shape"):
        return None
    return [get_dim_from_proto(dim) for dim in type_proto.tensor_type.shape.dim]


def get_elem_type_from_type_proto(type_proto: TypeProto) -> int:
    """Return the element type of a tensor, or of a sequence's tensors."""
    return int(_tensor_of(type_proto).elem_type)


def get_shape_from_value_info(vi: ValueInfoProto) -> list[Size] | None:
    """Return the shape that is stated of a value; a sequence's is that of its tensors."""
    kind = vi.type.WhichOneof("value")
    if kind is None:
        return None
    if is_sequence(vi.type):
        inner = vi.type.sequence_type.elem_type
        return get_shape_from_type_proto(inner) if inner.WhichOneof("value") == "tensor_type" else None
    return get_shape_from_type_proto(vi.type)


def make_named_value_info(name: str) -> ValueInfoProto:
    """Return a statement about a value that says its name alone."""
    return ValueInfoProto(name=name)


def get_shape_from_sympy_shape(sympy_shape: Sequence[object]) -> list[Size]:
    """Return sizes as numbers, names and texts of expressions."""
    return [each if isinstance(each, str) else _number_or_text(each) for each in sympy_shape]


def _number_or_text(size: object) -> Size:
    if size is None:
        return None
    return int(size) if is_literal(size) else str(size)  # type: ignore[call-overload]  # a number of sympy's, too


def is_literal(dim: object) -> bool:
    """Return whether a size is a number."""
    return type(dim).__name__ in ("int", "int64", "int32", "Integer") or bool(getattr(dim, "is_number", False))


def handle_negative_axis(axis: int, rank: int) -> int:
    """Return an axis counted from the front. Raises ``AssertionError``: it is none of the rank's."""
    if not -rank <= axis < rank:
        raise AssertionError(f"axis {axis} is none of {rank}")
    return axis % rank


def get_opset(mp: ModelProto, domain: str | Sequence[str] | None = None) -> int | None:
    """Return the version of an operator set that a model imports: that of a domain, or of the first of several."""
    wanted = ["", "onnx", "ai.onnx"] if domain is None else [domain] if isinstance(domain, str) else list(domain)
    return next((int(each.version) for each in mp.opset_import if each.domain in wanted), None)


def as_scalar(x: object) -> object:
    """Return the one element of a list or an array; numbers are returned as they are."""
    if isinstance(x, list):
        if len(x) != 1:
            raise AssertionError(f"{len(x)} elements where one is meant")
        return x[0]
    return x.item() if hasattr(x, "item") else x


def as_list(x: object, keep_none: bool) -> list | None:
    """Return a list of an array's elements, of a list as it is, or of one element."""
    if isinstance(x, list):
        return x
    if hasattr(x, "tolist"):
        found = x.tolist()
        return found if isinstance(found, list) else [found]
    return None if keep_none and x is None else [x]


def sympy_reduce_product(x: Sequence[object] | object) -> object:
    """Return the product of sizes, numbers or sympy's expressions."""
    total: object = 1
    for each in x if isinstance(x, (list, tuple)) else [x]:
        total = total * each  # type: ignore[operator]  # numbers, or what multiplies as they do
    return total


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse onnxruntime's command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--input", required=True, help="the model")
    parser.add_argument("--output", help="the file to write")
    parser.add_argument("--auto_merge", action="store_true", help="sizes that broadcast against each other are one")
    parser.add_argument("--int_max", type=int, default=_BOUNDLESS, help="has no effect here")
    parser.add_argument(
        "--guess_output_rank", action="store_true", help="unknown operators keep the rank of their first input"
    )
    parser.add_argument("--verbose", type=int, default=0, help="above 0: log what is unknown")
    parser.add_argument("--save_as_external_data", action="store_true", help="write weights into other files")
    parser.add_argument("--all_tensors_to_one_file", action="store_true", help="… into one other file")
    parser.add_argument("--external_data_location", default="./", help="the name of that file")
    parser.add_argument("--external_data_size_threshold", type=int, default=1024, help="of weights, in bytes")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Infer the shapes of the model that the command line names."""
    args = parse_arguments(arguments)
    logging.basicConfig(format="%(message)s", level=logging.INFO)  # a program for a terminal
    log.info("Doing symbolic shape inference...")
    model = SymbolicShapeInference.infer_shapes(
        onnx.load(args.input), args.int_max, args.auto_merge, args.guess_output_rank, args.verbose
    )
    if model is None or not args.output:
        return
    write_proto(
        model, args.output, has_external_data=args.save_as_external_data, is_one_file=args.all_tensors_to_one_file,
        location=None if args.external_data_location == "./" else args.external_data_location,
        size_threshold=args.external_data_size_threshold,
    )  # fmt: skip
    log.info("Done!")


if __name__ == "__main__":
    run_program(main)
