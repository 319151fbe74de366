"""The newest version of each operator set that is known here; a model that asks for a newer one is refused.

What a newer version changes in an operator cannot be known: computing an older meaning would give silent nonsense.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ort_core.errors import Fail

log = logging.getLogger(__name__)

NEWEST = {
    "": 28, "ai.onnx.ml": 5, "ai.onnx.training": 1, "ai.onnx.preview": 1, "ai.onnx.preview.training": 1,
    "com.microsoft": 1, "com.microsoft.nchwc": 1,
}  # fmt: skip


def check_opsets(imports: Mapping[str, int], *, released_only: bool = True) -> None:
    """Refuse a model that imports a newer version than is known of one of ONNX's domains, or of com.microsoft.

    Args:
        imports: the versions by domain; domains of others have no limit.
        released_only: if not, a version that is too new is a warning, and operators mean what they meant before it.

    Raises:
        Fail: as onnxruntime says it.
    """
    for domain, version in imports.items():
        newest = NEWEST.get(domain)
        if newest is None or version <= newest:
            continue
        shown = domain or "ai.onnx"
        text = (
            "ONNX Runtime only *guarantees* support for models stamped with official released onnx opset versions. "
            f"Opset {version} is under development and support for this is limited. The operator schemas and or other "
            "functionality may change before next ONNX release and in this case ONNX Runtime will not guarantee "
            f"backward compatibility. Current official support for domain {shown} is till opset {newest}."
        )
        if released_only:
            raise Fail(
                f"{text} Install a newer ort-core, convert the model, or set session.allow_released_opsets_only to 0."
            )
        log.warning("%s", text)
