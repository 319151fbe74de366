"""Tools of models' files: the package ``ort-tools``, under the name that onnxruntime's programs know."""

from ort_core.sibling_modules import stand_for_sibling

stand_for_sibling(__name__)
