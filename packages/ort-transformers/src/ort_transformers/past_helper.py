"""PastKeyValuesHelper: names and orders of the caches of encoder-decoder models.

Files have all caches of self attention first, then those of cross attention; torch's models have them layer by layer.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

Tensor = Any  # torch's, which need not be installed
Layer = tuple[Tensor, Tensor, Tensor, Tensor]  # keys and values of self attention, then of cross attention


class PastKeyValuesHelper:
    """Names and orders of caches."""

    @staticmethod
    def get_past_names(num_layers: int, present: bool = False) -> list[str]:
        """Return the names of inputs, or of outputs if ``present``: all of self attention come first."""
        when = "present" if present else "past"
        return [
            f"{when}_{part}_{kind}_{layer}"
            for kind in ("self", "cross")
            for layer in range(num_layers)
            for part in ("key", "value")
        ]

    @staticmethod
    def group_by_self_or_cross(present_key_values: Any) -> tuple[list[Tensor], list[Tensor]]:
        """Return the tensors of self attention and those of cross attention, from a cache or a tuple of layers."""
        layers = list(_layers_of(present_key_values))
        return [each for layer in layers for each in layer[:2]], [each for layer in layers for each in layer[2:]]

    @staticmethod
    def group_by_self_and_cross(present_key_values: Any, concat: bool = False) -> Any:
        """Return the same, in one list if ``concat``."""
        own, cross = PastKeyValuesHelper.group_by_self_or_cross(present_key_values)
        return own + cross if concat else (own, cross)

    @staticmethod
    def group_by_layer(past: Sequence[Tensor], num_layers: int) -> Any:
        """Return transformers' cache of tensors in a file's order.

        Raises:
            ValueError: there are not four tensors for each layer.
            ModuleNotFoundError: transformers is not installed.
        """
        if len(past) != 4 * num_layers:
            raise ValueError(f"{num_layers} layers have {4 * num_layers} caches, {len(past)} are given")
        cache = importlib.import_module("transformers.cache_utils")
        layers = PastKeyValuesHelper.back_group_by_layer(past)
        own = cache.DynamicCache([layer[:2] for layer in layers])
        return cache.EncoderDecoderCache(own, cache.DynamicCache([layer[2:] for layer in layers]))

    @staticmethod
    def back_group_by_layer(past_key_values: Sequence[Tensor]) -> tuple[Layer, ...]:
        """Return tensors in a file's order layer by layer."""
        half = len(past_key_values) // 2
        own, cross = past_key_values[:half], past_key_values[half:]
        return tuple((own[at], own[at + 1], cross[at], cross[at + 1]) for at in range(0, half, 2))

    @staticmethod
    def get_input_names(past_key_values: Sequence[Any], encoder: bool = True) -> list[str]:
        """Return the names of the outputs of an encoder's flat tensors, or of the inputs of a decoder's layers."""
        layers = len(past_key_values) // 4 if encoder else len(past_key_values)
        return PastKeyValuesHelper.get_past_names(layers, present=encoder)


def _layers_of(cache: Any) -> Iterable[Layer]:
    if hasattr(cache, "self_attention_cache"):
        pairs = zip(cache.self_attention_cache.layers, cache.cross_attention_cache.layers, strict=True)
        return ((own.keys, own.values, cross.keys, cross.values) for own, cross in pairs)
    return (layer if len(layer) == 4 else (layer[0], layer[1], layer[3], layer[4]) for layer in cache)
