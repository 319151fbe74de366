"""Export: a whole model as one package, through a session that places every node on the evaluating provider."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from dataclasses import dataclass, fields, replace
from pathlib import Path

import ort_core as ort
from ort_ep_coreml import _sdk
from ort_ep_coreml.options import CoreMlEvaluationOptions

PROVIDER = "CoreMLEvaluationExecutionProvider"


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The names of a written package's inputs, outputs and states."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[str, ...]


def export_model(model: Path, options: CoreMlEvaluationOptions) -> ExportReport:
    """Write a model's package to ``options.PackagePath``, replacing what is there.

    Raises:
        OrtError: coremltools is absent, or a node cannot be lowered: the first is named with the reason.
    """
    target = Path(options.PackagePath)
    target.parent.mkdir(parents=True, exist_ok=True)
    settings = ort.SessionOptions()
    settings.strict_placement = True
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".ort-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of placement: strict placement makes it an error
        draft = Path(folder) / target.name
        given = replace(options, PackagePath=str(draft))
        named = {each.name: getattr(given, each.name) for each in fields(given)}
        with ort.InferenceSession(str(model), settings, providers=[(PROVIDER, named)], enable_fallback=False):
            pass
        if not draft.exists():
            raise ort.OrtError(f"{model.name} holds nothing to compute at run time, so there is no program to write")
        try:
            features = _sdk.features_of(draft)
        except _sdk.SdkError as error:
            raise ort.OrtError(f"the package was written and cannot be read back: {error}") from error
        if target.exists():
            shutil.rmtree(target)
        draft.replace(target)
    return ExportReport(features.inputs, features.outputs, features.states)
