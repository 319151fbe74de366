"""Annotations as they are written, by the means that each Python documents.

Since Python 3.14 annotations are worked out when somebody asks for them (PEP 649, PEP 749): a class has no entry
``__annotations__`` in its namespace, and asking for values fails where a name is imported for type checkers only.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any


def own_annotations(annotated: object) -> dict[str, Any]:  # Any: texts, or whatever was written
    """Return the annotations of a class without those of its bases, or of a function, by name.

    Values are what was written: texts under ``from __future__ import annotations``, else objects. Where a name cannot
    be found, Python 3.14 and later give an ``annotationlib.ForwardRef`` for it; older ones have raised before.
    """
    if sys.version_info >= (3, 14):
        import annotationlib  # inspect has imported it

        return annotationlib.get_annotations(annotated, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(annotated)  # type: ignore[arg-type]  # callables, classes and modules
