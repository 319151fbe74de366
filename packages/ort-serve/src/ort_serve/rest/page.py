"""The page at ``/``, read from the package once."""

from __future__ import annotations

from importlib.resources import files

PAGE = files("ort_serve.page").joinpath("index.html").read_text(encoding="utf-8")
