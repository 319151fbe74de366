"""``python -m ort_core.cli``, and ``ort``. It begins here, so that an interrupt of the imports is quiet, too."""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    try:
        from ort_core.cli.app import main as run  # a third of a second, which somebody may not want to wait for
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
