"""The operators of ai.onnx.ml: trees, linear models, encoders, maps."""

from __future__ import annotations

from ort_core.ir.constants import Constant
from ort_core.ir.dims import Dim, product
from ort_core.ir.types import DataType, MapType, SequenceType, Shape, TensorType
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext

ML = "ai.onnx.ml"


@infer_rule("Binarizer", "Imputer", "CategoryMapper", domain=ML)
def infer_same_shape(ctx: InferenceContext) -> None:
    """Element by element; CategoryMapper swaps strings and integers."""
    dtype = ctx.dtype(0)
    if ctx.node.op_type == "CategoryMapper" and dtype is not None:
        dtype = DataType.INT64 if dtype is DataType.STRING else DataType.STRING
    ctx.set_output(0, dtype, ctx.shape(0))


@infer_rule("Scaler", "Normalizer", domain=ML)
def infer_to_float(ctx: InferenceContext) -> None:
    """Element by element, as float32."""
    ctx.set_output(0, DataType.FLOAT, ctx.shape(0))


@infer_rule("LabelEncoder", domain=ML)
def infer_label_encoder_1(ctx: InferenceContext) -> None:
    """Strings to integers or back."""
    dtype = ctx.dtype(0)
    if dtype is not None:
        ctx.set_output(0, DataType.INT64 if dtype is DataType.STRING else DataType.STRING, ctx.shape(0))


@infer_rule("LabelEncoder", domain=ML, since=2)
def infer_label_encoder(ctx: InferenceContext) -> None:
    """The attribute that holds the values tells the element type."""
    tensor = ctx.attribute("values_tensor")
    dtype: DataType | None = tensor.dtype if isinstance(tensor, Constant) else None
    for name, candidate in (
        ("values_strings", DataType.STRING), ("values_int64s", DataType.INT64), ("values_floats", DataType.FLOAT),
    ):  # fmt: skip
        if dtype is None and ctx.items_of(name):
            dtype = candidate
    ctx.set_output(0, dtype, ctx.shape(0))


@infer_rule("ArrayFeatureExtractor", domain=ML)
def infer_array_feature_extractor(ctx: InferenceContext) -> None:
    """The last axis keeps the picked columns; a vector becomes one row."""
    shape, picked = ctx.shape_min_rank(0, 1), ctx.shape(1)
    count = None if picked is None else product(picked)
    if shape is not None:
        ctx.set_output(0, ctx.dtype(0), (1, count) if len(shape) == 1 else (*shape[:-1], count))


@infer_rule("OneHotEncoder", domain=ML)
def infer_one_hot_encoder(ctx: InferenceContext) -> None:
    """A new last axis with one entry per category."""
    categories = ctx.items_of("cats_int64s") or ctx.items_of("cats_strings") or ()
    shape = ctx.shape(0)
    ctx.set_output(0, DataType.FLOAT, None if shape is None else (*shape, len(categories)))


@infer_rule("FeatureVectorizer", domain=ML)
def infer_feature_vectorizer(ctx: InferenceContext) -> None:
    """Rows of all inputs side by side."""
    sizes = ctx.ints_of("inputdimensions") or ()
    shape = ctx.shape(0)
    rows: Dim = None if shape is None else (shape[0] if len(shape) > 1 else 1)
    ctx.set_output(0, DataType.FLOAT, (rows, sum(sizes) if sizes else None))


@infer_rule("CastMap", domain=ML)
def infer_cast_map(ctx: InferenceContext) -> None:
    """One row; sparse maps have ``max_map`` columns."""
    names = {"TO_FLOAT": DataType.FLOAT, "TO_INT64": DataType.INT64, "TO_STRING": DataType.STRING}
    sparse = ctx.string_of("map_form", "DENSE") == "SPARSE"
    columns = ctx.int_of("max_map", 1) if sparse else None
    ctx.set_output(0, names.get(ctx.string_of("cast_to", "TO_FLOAT")), (1, columns))


@infer_rule("DictVectorizer", domain=ML)
def infer_dict_vectorizer(ctx: InferenceContext) -> None:
    """One row with a column per word."""
    words = ctx.items_of("string_vocabulary") or ctx.items_of("int64_vocabulary") or ()
    found = ctx.type_of(0)
    if isinstance(found, MapType) and isinstance(found.value, TensorType):
        ctx.set_output(0, found.value.dtype, (1, len(words)))


@infer_rule("ZipMap", domain=ML)
def infer_zip_map(ctx: InferenceContext) -> None:
    """A sequence of maps from class to score."""
    key = DataType.STRING if ctx.items_of("classlabels_strings") else DataType.INT64
    ctx.set_type(0, SequenceType(MapType(key, TensorType(DataType.FLOAT, ()))))


def _rows(ctx: InferenceContext) -> Dim:
    shape = ctx.shape(0)
    if shape is None or not shape:
        return None
    return shape[0] if len(shape) > 1 else 1


def _set_labels(ctx: InferenceContext, text_attribute: str) -> None:
    dtype = DataType.STRING if ctx.items_of(text_attribute) else DataType.INT64
    ctx.set_output(0, dtype, (_rows(ctx),))


@infer_rule("LinearClassifier", "SVMClassifier", domain=ML)
def infer_linear_classifier(ctx: InferenceContext) -> None:
    """A label and the scores of all classes per row."""
    text = "classlabels_strings"
    whole = "classlabels_ints"
    labels = ctx.items_of(text) or ctx.items_of(whole) or ()
    _set_labels(ctx, text)
    scores: Dim = len(labels) or None
    if ctx.node.op_type == "LinearClassifier":
        scores = _linear_scores(ctx, len(labels))
    elif not ctx.items_of("vectors_per_class"):
        scores = None  # one per class, of which there may be a single one
    elif not ctx.items_of("prob_a"):
        scores = _pair_scores(len(labels))
    ctx.set_output(1, DataType.FLOAT, (_rows(ctx), scores))


def _pair_scores(labels: int) -> Dim:
    """Return how many decisions there are: one per pair of classes; the only pair of two has both its sides."""
    return 2 if labels == 2 else labels * (labels - 1) // 2 or None


def _linear_scores(ctx: InferenceContext, labels: int) -> Dim:
    intercepts = len(ctx.items_of("intercepts") or ())
    if intercepts == 1:
        return 2 if labels == 2 else 1
    return intercepts or labels or None


@infer_rule("LinearRegressor", "SVMRegressor", domain=ML)
def infer_linear_regressor(ctx: InferenceContext) -> None:
    """One number per row and target."""
    targets = ctx.int_of("targets", 1) if ctx.node.op_type == "LinearRegressor" else 1
    ctx.set_output(0, DataType.FLOAT, (_rows(ctx), targets))


@infer_rule("TreeEnsembleClassifier", domain=ML)
def infer_tree_ensemble_classifier(ctx: InferenceContext) -> None:
    """A label and the scores of all classes per row."""
    labels = ctx.items_of("classlabels_strings") or ctx.items_of("classlabels_int64s") or ()
    _set_labels(ctx, "classlabels_strings")
    ctx.set_output(1, DataType.FLOAT, (_rows(ctx), len(labels) if len(labels) > 1 else None))


@infer_rule("TreeEnsembleRegressor", domain=ML)
def infer_tree_ensemble_regressor(ctx: InferenceContext) -> None:
    """One number per row and target."""
    ctx.set_output(0, DataType.FLOAT, (_rows(ctx), ctx.optional_int_of("n_targets")))


@infer_rule("TreeEnsemble", domain=ML)
def infer_tree_ensemble(ctx: InferenceContext) -> None:
    """One number per row and target, in the type of the input."""
    shape: Shape | None = ctx.shape(0)
    rows = None if shape is None else shape[0] if shape else None
    ctx.set_output(0, ctx.dtype(0), (rows, ctx.optional_int_of("n_targets")))
