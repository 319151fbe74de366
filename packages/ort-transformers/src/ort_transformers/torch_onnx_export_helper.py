"""torch_onnx_export(): torch's export by TorchScript, with the arguments of all of its versions."""

from __future__ import annotations

import importlib
import inspect
import warnings
from typing import Any


def torch_onnx_export(
    model: Any,  # torch's, as all that follows
    args: Any,
    f: Any,
    export_params: bool = True,
    verbose: bool = False,
    training: Any = None,
    input_names: Any = None,
    output_names: Any = None,
    operator_export_type: Any = None,
    opset_version: int | None = None,
    _retain_param_name: Any = None,
    do_constant_folding: bool = True,
    example_outputs: Any = None,
    strip_doc_string: Any = None,
    dynamic_axes: Any = None,
    keep_initializers_as_inputs: Any = None,
    custom_opsets: Any = None,
    enable_onnx_checker: Any = None,
    use_external_data_format: Any = None,
    export_modules_as_functions: Any = False,
) -> None:
    """Export a model; arguments that the installed torch does not have any more are left out.

    Raises:
        ModuleNotFoundError: torch is not installed.
    """
    given = {name: value for name, value in locals().items() if name not in ("model", "args", "f")}
    torch = importlib.import_module("torch")
    known = inspect.signature(torch.onnx.export).parameters
    chosen = {name: value for name, value in given.items() if name in known and value is not None}
    if "dynamo" in known:
        chosen["dynamo"] = False
    if not chosen.get("export_modules_as_functions"):
        chosen.pop("export_modules_as_functions", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript, which is asked for here
        torch.onnx.export(model, args, f, **chosen)
