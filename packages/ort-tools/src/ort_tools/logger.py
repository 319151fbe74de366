"""get_logger(): a logger of a name for programs of the terminal; onnxruntime.tools.logger's function."""

from __future__ import annotations

import logging


def get_logger(name: str, level: int = logging.DEBUG) -> logging.Logger:
    """Return a logger, with a handler of the terminal where there is none."""
    logging.basicConfig(format="%(asctime)s %(name)s [%(levelname)s] - %(message)s")
    logger = logging.getLogger(name)
    logger.setLevel(level)
    return logger
