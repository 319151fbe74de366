"""onnxruntime's module names for unchanged programs: ``python -m ort_core.dropin program.py`` or ``-m module``.

``install()`` does the same inside a running program, before its first ``import onnxruntime``.
"""

from ort_core.dropin.finder import install

__all__ = ["install"]
