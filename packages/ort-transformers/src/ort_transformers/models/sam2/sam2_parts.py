"""The parts of a SAM2 by one set of methods, for the authors' model and for that of transformers.

Points are pixels of the resized image. A label is 1 for foreground, 0 for background, 2 and 3 for the corners of a box,
and -1 for a point that does not count. Each row of points (a "label" in onnxruntime's names) gets its own masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

Tensor = Any  # torch's, as models and modules
_IGNORED = -1  # the label of a point that does not count


class Sam2Parts(Protocol):
    """What the exported modules need of a SAM2."""

    image_size: int
    mask_size: int

    def encode(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return features of a batch of images: two of high resolution, and the embeddings."""

    def embed_points(self, points: Tensor, labels: Tensor) -> Tensor:
        """Return embeddings ``[L, P + 1, C]`` of points; the last one is of padding."""

    def embed_masks(self, masks: Tensor) -> Tensor:
        """Return embeddings ``[L, C, H, W]`` of masks."""

    def embed_no_mask(self) -> Tensor:
        """Return the embedding ``[1, C, 1, 1]`` that stands for no mask."""

    def image_positions(self) -> Tensor:
        """Return embeddings ``[1, C, H, W]`` of the places in an image."""

    def decode(self, features: tuple[Tensor, Tensor, Tensor], prompts: tuple[Tensor, Tensor, Tensor]) -> Any:
        """Return logits ``[L, M + 1, 4 H, 4 W]`` of all masks, the single one first, and their scores ``[L, M + 1]``.

        ``features`` are those of one image, ``prompts`` are positions, embeddings of points, and embeddings of masks.
        """

    def choose(self, logits: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the single mask where it is stable, the best of the others where it is not."""


class _AuthorsParts:
    """The parts of ``sam2.modeling.sam2_base.SAM2Base``."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.prompts, self.masks = model.sam_prompt_encoder, model.sam_mask_decoder
        self.image_size = int(model.image_size)
        self.mask_size = int(self.prompts.mask_input_size[0])

    def encode(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        fine, middle, coarse = self.model.image_encoder(image)["backbone_fpn"][-3:]
        no_memory = self.model.no_mem_embed.reshape(1, -1, 1, 1)
        return self.masks.conv_s0(fine), self.masks.conv_s1(middle), coarse + no_memory

    def embed_points(self, points: Tensor, labels: Tensor) -> Tensor:
        points, labels = padded(points, labels)
        places = self.prompts.pe_layer._pe_encoding(points / self.image_size)
        kinds = torch.cat([each.weight for each in self.prompts.point_embeddings])
        return embedded(places, labels, kinds, self.prompts.not_a_point_embed.weight)

    def embed_masks(self, masks: Tensor) -> Tensor:
        return self.prompts.mask_downscaling(masks)

    def embed_no_mask(self) -> Tensor:
        return self.prompts.no_mask_embed.weight.reshape(1, -1, 1, 1)

    def image_positions(self) -> Tensor:
        return self.prompts.get_dense_pe()

    def decode(self, features: tuple[Tensor, Tensor, Tensor], prompts: tuple[Tensor, Tensor, Tensor]) -> Any:
        fine, middle, image = features
        positions, points, masks = prompts
        logits, scores, _, _ = self.masks.predict_masks(
            image_embeddings=image.expand(points.shape[0], -1, -1, -1), image_pe=positions,
            sparse_prompt_embeddings=points, dense_prompt_embeddings=masks, repeat_image=False,
            high_res_features=[fine, middle],
        )  # fmt: skip
        return logits, scores

    def choose(self, logits: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        return self.masks._dynamic_multimask_via_stability(logits, scores)


class _TransformersParts:
    """The parts of ``transformers.Sam2Model``."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.prompts, self.masks = model.prompt_encoder, model.mask_decoder
        self.image_size = int(self.prompts.input_image_size)
        self.mask_size = int(self.prompts.mask_input_size[0])

    def encode(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        fine, middle, coarse = self.model.get_image_embeddings(image)
        return fine, middle, coarse

    def embed_points(self, points: Tensor, labels: Tensor) -> Tensor:
        points, labels = padded(points, labels)
        places = self.prompts.shared_embedding(points / self.image_size)
        return embedded(places, labels, self.prompts.point_embed.weight, self.prompts.not_a_point_embed.weight)

    def embed_masks(self, masks: Tensor) -> Tensor:
        return self.prompts.mask_embed(masks)

    def embed_no_mask(self) -> Tensor:
        return self.prompts.no_mask_embed.weight.reshape(1, -1, 1, 1)

    def image_positions(self) -> Tensor:
        return self.model.get_image_wide_positional_embeddings()

    def decode(self, features: tuple[Tensor, Tensor, Tensor], prompts: tuple[Tensor, Tensor, Tensor]) -> Any:
        positions, points, masks = prompts
        fine, middle, image, positions = (
            each.expand(points.shape[0], -1, -1, -1) for each in (*features, positions)
        )  # each row of points as an image of its own: rows have masks of their own
        with every_mask(self.masks):
            found = self.masks(
                image_embeddings=image, image_positional_embeddings=positions,
                sparse_prompt_embeddings=points.unsqueeze(1), dense_prompt_embeddings=masks, multimask_output=False,
                high_resolution_features=[fine, middle],
            )  # fmt: skip
        return found[0].squeeze(1), found[1].squeeze(1)

    def choose(self, logits: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        chosen, score = self.masks._dynamic_multimask_via_stability(logits.unsqueeze(1), scores.unsqueeze(1))
        return chosen.squeeze(1), score.squeeze(1)


def parts_of(model: Any) -> Sam2Parts:
    """Return the parts of a model.

    Raises:
        TypeError: it is neither the authors' model nor that of transformers.
    """
    if hasattr(model, "sam_mask_decoder"):
        return _AuthorsParts(model)
    if hasattr(model, "shared_image_embedding") and hasattr(model, "prompt_encoder"):
        return _TransformersParts(model)
    raise TypeError(
        f"{type(model).__name__} is no SAM2: pass sam2.modeling.sam2_base.SAM2Base or transformers.Sam2Model"
    )


def padded(points: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the centers of the pixels with one more point that does not count, as there is no box beside points."""
    rows = points.shape[0]
    more = torch.zeros((rows, 1, 2), dtype=points.dtype, device=points.device)
    ignored = torch.full((rows, 1), _IGNORED, dtype=labels.dtype, device=labels.device)
    return torch.cat([points + 0.5, more], 1), torch.cat([labels, ignored], 1)


def embedded(places: Tensor, labels: Tensor, kinds: Tensor, ignored: Tensor) -> Tensor:
    """Return the embeddings of places, each with that of its label, or what stands for a point that does not count."""
    each = labels.unsqueeze(-1)
    found = torch.where(each == _IGNORED, ignored, places)
    for kind in range(kinds.shape[0]):
        found = found + kinds[kind] * (each == kind)
    return found


@contextmanager
def every_mask(decoder: Any) -> Iterator[None]:
    """Let a decoder of transformers return all masks, where it would choose one by its stability."""
    before = decoder.dynamic_multimask_via_stability
    decoder.dynamic_multimask_via_stability = True
    decoder._dynamic_multimask_via_stability = lambda logits, scores: (logits, scores)
    try:
        yield
    finally:
        decoder.dynamic_multimask_via_stability = before
        del decoder._dynamic_multimask_via_stability
