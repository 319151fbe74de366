"""Language models: the package ``ort-genai``, under the name that programs know."""

from ort_core.sibling_modules import stand_for_sibling

stand_for_sibling(__name__)
