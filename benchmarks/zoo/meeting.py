"""Networks in which scales, lengths and shifted positions meet that follow from the same sizes by other formulas."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.drawn import Architecture, Draw, widths
from zoo.newer import of
from zoo.restoring import conv


def normalized(inner: int, outer: int, kernel: int = 3, stride: int = 1, **more: int) -> nn.Sequential:
    """Return a convolution with its normalization and activation."""
    return nn.Sequential(conv(inner, outer, kernel, stride, **more), nn.BatchNorm2d(outer), nn.ReLU())


class TextDetector(nn.Module):
    """DBNet: four scales enlarged step by step, joined at the finest, a map of text and one of thresholds."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width, depths = widths(draw, 16, 32, 64), (16, 24, 40, 64)
        self.halves = nn.ModuleList([normalized(a, b, 3, 2) for a, b in zip((3, *depths), depths, strict=False)])
        self.sides = nn.ModuleList([nn.Conv2d(depth, width, 1) for depth in depths])
        self.parts = nn.ModuleList([conv(width, width // 4) for _ in depths])
        self.text, self.threshold = self._map(width), self._map(width)

    @staticmethod
    def _map(width: int) -> nn.Module:
        quarter = width // 4
        return nn.Sequential(
            normalized(width, quarter), nn.ConvTranspose2d(quarter, quarter, 2, 2), nn.BatchNorm2d(quarter), nn.ReLU(),
            nn.ConvTranspose2d(quarter, 1, 2, 2), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, picture: Tensor) -> Tensor:
        """Return the text, the thresholds, and where the one is above the other."""
        scales = []
        for half in self.halves:
            picture = half(picture)
            scales.append(picture)
        scales = [side(scale) for side, scale in zip(self.sides, scales, strict=True)]
        for place in (2, 1, 0):
            scales[place] = scales[place] + functional.interpolate(scales[place + 1], scale_factor=2, mode="nearest")
        finest = scales[0].shape[2:]
        parts = [functional.interpolate(part(each), size=finest) for part, each in zip(self.parts, scales, strict=True)]
        joined = torch.cat(parts, 1)
        text, threshold = self.text(joined), self.threshold(joined)
        return torch.cat([text, threshold, torch.reciprocal(1 + torch.exp(-50 * (text - threshold)))], 1)


class WeightedPyramid(nn.Module):
    """EfficientDet's pyramid: scales meet upwards and downwards, each with a weight; separable heads."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = widths(draw, 24, 32, 64)
        self.halves = nn.ModuleList([normalized(3, width, 3, 4), *(normalized(width, width, 3, 2) for _ in range(2))])
        self.weights = nn.ParameterList([nn.Parameter(torch.rand(count)) for count in (2, 2, 3, 2)])
        self.mixers = nn.ModuleList([self._separable(width, width) for _ in range(4)])
        self.boxes, self.classes = self._separable(width, 36), self._separable(width, 63)

    @staticmethod
    def _separable(inner: int, outer: int) -> nn.Module:
        return nn.Sequential(conv(inner, inner, groups=inner), nn.Conv2d(inner, outer, 1))

    def _meet(self, number: int, *scales: Tensor) -> Tensor:
        weights = functional.relu(self.weights[number])
        weights = weights / (weights.sum() + 1e-4)
        return self.mixers[number](
            functional.silu(sum(weight * each for weight, each in zip(weights, scales, strict=True)))
        )

    def forward(self, picture: Tensor) -> tuple[Tensor, Tensor]:
        """Return boxes and classes of three scales."""
        scales = []
        for half in self.halves:
            picture = half(picture)
            scales.append(picture)
        fine, middle, coarse = scales
        between = self._meet(0, middle, functional.interpolate(coarse, scale_factor=2.0))
        fine = self._meet(1, fine, functional.interpolate(between, scale_factor=2.0))
        middle = self._meet(2, middle, between, functional.max_pool2d(fine, 3, 2, 1))
        coarse = self._meet(3, coarse, functional.max_pool2d(middle, 3, 2, 1))
        found = (fine, middle, coarse)
        boxes, classes = ([head(each).flatten(2) for each in found] for head in (self.boxes, self.classes))
        return torch.cat(boxes, 2), torch.cat(classes, 2).sigmoid()


class ShiftedPositions(nn.Module):
    """Transformer-XL's positions behind convolutions without a border: scores of distances, shifted row by row."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.heads, self.width = draw.choice((2, 4)), 64
        self.shorten = nn.Sequential(nn.Conv2d(1, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 32, 3, 2), nn.ReLU())
        self.enter = nn.Linear(32 * 19, self.width)
        self.split, self.leave = nn.Linear(self.width, 3 * self.width), nn.Linear(self.width, self.width)
        self.place = nn.Linear(self.width, self.width, bias=False)
        self.biases = nn.Parameter(0.1 * torch.randn(2, self.heads, 1, self.width // self.heads))
        self.norm = nn.LayerNorm(self.width)

    def forward(self, sound: Tensor) -> Tensor:
        """Return features of a spectrum, a fourth as many as it has frames."""
        found = self.shorten(sound.unsqueeze(1))
        batch, _, length, _ = found.shape
        found = self.enter(found.transpose(1, 2).reshape(batch, length, 32 * 19))
        depth = self.width // self.heads
        steps = torch.arange(length - 1, -length, -1, dtype=torch.float32).unsqueeze(1)
        waves = torch.exp(torch.arange(0, self.width, 2) * (-math.log(1e4) / self.width))
        places = self.place(torch.cat([torch.sin(steps * waves), torch.cos(steps * waves)], 1))
        places = places.view(1, 2 * length - 1, self.heads, depth).transpose(1, 2)
        query, key, value = (
            self.split(self.norm(found)).view(batch, length, 3, self.heads, depth).permute(2, 0, 3, 1, 4)
        )
        content = (query + self.biases[0]) @ key.transpose(-2, -1)
        distance = functional.pad((query + self.biases[1]) @ places.transpose(-2, -1), (1, 0))
        distance = distance.view(batch, self.heads, 2 * length, length)[:, :, 1:]
        distance = distance.reshape(batch, self.heads, length, 2 * length - 1)[..., :length]
        mixed = ((content + distance) / depth**0.5).softmax(-1) @ value
        return found + self.leave(mixed.transpose(1, 2).reshape(batch, length, self.width))


SPACE = {"picture": (0, 2, 3)}
MEETING: dict[str, Architecture] = {
    "text_detector": of("OCR", TextDetector, lambda: {"picture": torch.randn(1, 3, 160, 224)}, SPACE),
    "weighted_pyramid": of("detection", WeightedPyramid, lambda: {"picture": torch.randn(1, 3, 128, 160)}, SPACE),
    "shifted_positions": of("speech", ShiftedPositions, lambda: {"sound": torch.randn(1, 100, 80)}, {"sound": (0, 1)}),
}
