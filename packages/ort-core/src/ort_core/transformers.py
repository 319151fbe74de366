"""Fusions for the exports of transformers: the package ``ort-transformers``, under the name that programs know."""

from ort_core.sibling_modules import stand_for_sibling

stand_for_sibling(__name__)
