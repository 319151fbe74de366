"""Ports: how the inputs and outputs of a claim stand to those of the OpenVINO model that it became.

OpenVINO drops inputs that nothing reads, and merges an output with the input that it hands on; a bound buffer of such
an output is not written. So what is handed on is copied by this provider, and OpenVINO gets the rest.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Ports:
    """Places of a claim, by position.

    Attributes:
        inputs: which input of the claim each input of the model is.
        outputs: which output of the claim each output of the model is.
        passed: pairs of an output of the claim and the input of the claim that it hands on.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    passed: tuple[tuple[int, int], ...] = ()

    def sealed_with(self, content: bytes) -> bytes:
        """Return a stored model with the ports before it."""
        return json.dumps(asdict(self)).encode() + b"\n" + content

    @classmethod
    def opened(cls, content: bytes) -> tuple[Ports, bytes]:
        """Return what ``sealed_with`` put together.

        Raises:
            ValueError: the bytes do not begin with ports.
        """
        text, _, rest = content.partition(b"\n")
        try:
            found = json.loads(text)
            pairs = tuple((output, source) for output, source in found["passed"])
            return cls(tuple(found["inputs"]), tuple(found["outputs"]), pairs), rest
        except (KeyError, TypeError) as error:
            raise ValueError(f"the stored ports are not as they must be: {error}") from error
