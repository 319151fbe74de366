"""What a decoder's caches hold: float32, half floats, or integers of 8 bits with a scale for each element of a head.

GroupQueryAttention takes caches of another type than its queries; integers as onnxruntime's form of it has them:
``k_quant_type`` and ``v_quant_type`` PER_CHANNEL, scales as inputs. Scales are the greatest values that the model
itself gives, over texts that it writes by seeded draws and over drawn tokens, by 127.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ort_genai.builder.precision_names import CacheType
from ort_genai.configuration import Config
from ort_genai.decoder import CacheNames, Decoder
from ort_genai.errors import InvalidModelFolder
from ort_genai.folder_paths import part_file

if TYPE_CHECKING:
    import onnx

Array = np.ndarray
_TEXTS, _DRAWN, _TOKENS = 6, 2, 96  # texts of the model's own, drawn ones, tokens of each
_SEED = 20
_GREATEST = 127.0
_PASTS, _SCALES = (3, 4), (12, 13)  # inputs of GroupQueryAttention


def write_with_caches(source: Path, folder: Path, kind: CacheType) -> None:
    """Write a folder's copy whose caches are of another type.

    Args:
        source: a folder with ``genai_config.json``, of ``ort genai build`` or of onnxruntime-genai's builder.
        folder: to write; must not be there.
        kind: of the caches.

    Raises:
        InvalidModelFolder: the source cannot be read, or its caches do not go through GroupQueryAttention alone; the
            folder is there.
    """
    if folder.exists():
        raise InvalidModelFolder(f"{str(folder)!r} is there already; name a new folder")
    if not source.is_dir():
        raise InvalidModelFolder(f"{str(source)!r} is not a folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        shutil.copytree(source, temporary, dirs_exist_ok=True)
        store_caches(temporary, kind)
        temporary.chmod(0o755)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def store_caches(folder: Path, kind: CacheType) -> None:
    """Change the type of the caches in a folder's graph; weights stay as they are.

    Raises:
        InvalidModelFolder: the caches do not go through GroupQueryAttention alone.
    """
    import onnx

    config = Config(folder)
    file = part_file(folder, config.decoder, "decoder", "model.onnx")[1]
    decoder = Decoder(config)
    model = onnx.load(file, load_external_data=False)
    nodes = _attentions(model, decoder.caches)
    scales = _scales(decoder) if kind is CacheType.INT8 else None
    types = {
        CacheType.FP32: onnx.TensorProto.FLOAT, CacheType.FP16: onnx.TensorProto.FLOAT16,
        CacheType.BF16: onnx.TensorProto.BFLOAT16, CacheType.INT8: onnx.TensorProto.INT8,
    }  # fmt: skip
    names = {name for each in decoder.caches for name in (each.past, each.present)}
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        if value.name in names:
            value.type.tensor_type.elem_type = types[kind]
    if scales is not None:
        _write_scales(model, nodes, scales)
    del decoder
    file.write_bytes(model.SerializeToString())


def _attentions(model: onnx.ModelProto, caches: Sequence[CacheNames]) -> list[onnx.NodeProto]:
    """Return the nodes that read the caches, one for each layer, in the order of the caches.

    Raises:
        InvalidModelFolder: a cache goes elsewhere, or is of integers already.
    """
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    found = []
    for key, value in zip(caches[::2], caches[1::2], strict=True):
        nodes = readers.get(key.past, [])
        if len(nodes) != 1 or nodes[0].op_type != "GroupQueryAttention" or readers.get(value.past, []) != nodes:
            raise InvalidModelFolder(
                f"caches {key.past!r} and {value.past!r} do not go through one GroupQueryAttention alone, which takes "
                "caches of another type"
            )
        if list(nodes[0].input[3:5]) != [key.past, value.past] or key.dtype == np.int8 or value.dtype == np.int8:
            raise InvalidModelFolder(f"caches {key.past!r} and {value.past!r} cannot be given another type")
        found.append(nodes[0])
    return found


def _scales(decoder: Decoder) -> list[Array]:
    """Return scales (1, heads, 1, size) of each cache, from what the model keeps of texts."""
    greatest = [np.zeros((each.heads, each.size), np.float32) for each in decoder.caches]
    random = np.random.default_rng(_SEED)
    image = None if decoder.table is None else decoder.table.image_token
    kept = [token for token in range(decoder.vocab_size) if token != image]
    count = max(2, min(_TOKENS, decoder.context_length - 1))
    drawn = random.choice(kept, (_TEXTS + _DRAWN, count)).astype(np.int64)
    state = decoder.new_state()
    for _ in range(_TEXTS + _DRAWN):
        state.add_row()
    tokens = drawn[:, 0]
    for place in range(1, count + 1):
        logits = state.step(tokens)
        if image is not None:
            logits[:, image] = -np.inf
        tokens = (logits + random.gumbel(size=logits.shape)).argmax(-1)
        if place < count:
            tokens[_TEXTS:] = drawn[_TEXTS:, place]
    for row in range(_TEXTS + _DRAWN):
        for most, array in zip(greatest, state.export_row(row).arrays, strict=True):
            np.maximum(most, np.abs(array.astype(np.float32)).max(1), out=most)
    for names, each in zip(decoder.caches, greatest, strict=True):
        if not np.isfinite(each).all():
            raise InvalidModelFolder(f"cache {names.past!r} has values that are not finite numbers: it has no scale")
    smallest = np.float32(np.finfo(np.float32).tiny)
    return [np.maximum(each / np.float32(_GREATEST), smallest)[None, :, None] for each in greatest]


def _write_scales(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], scales: Sequence[Array]) -> None:
    from onnx import helper, numpy_helper

    for node, pair in zip(nodes, zip(scales[::2], scales[1::2], strict=True), strict=True):
        node.input.extend([""] * (_SCALES[1] + 1 - len(node.input)))
        for place, past, scale in zip(_SCALES, _PASTS, pair, strict=True):
            name = f"{node.input[past]}.scale"
            model.graph.initializer.append(numpy_helper.from_array(scale, name))
            node.input[place] = name
        for name in ("k_quant_type", "v_quant_type"):
            node.attribute.append(helper.make_attribute(name, "PER_CHANNEL"))
        node.attribute.append(helper.make_attribute("kv_cache_bit_width", 8))
