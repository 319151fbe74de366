"""``python -m ort_core.cli``: the same as ``ort``."""

from __future__ import annotations

from ort_core.cli.app import main

if __name__ == "__main__":
    main()
