"""Networks that give pictures or maps: super-resolution, restoration, styles, saliency, medical segmentation."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.drawn import Architecture, Draw
from zoo.vision import pictures


def conv(inner: int, outer: int, kernel: int = 3, stride: int = 1, **more: int) -> nn.Conv2d:
    """Return a convolution that keeps the size."""
    return nn.Conv2d(inner, outer, kernel, stride, padding=more.pop("dilation", 1) * (kernel // 2), **more)


class ChannelAttention(nn.Module):
    """Channels weighted by what two pointwise convolutions make of their means."""

    def __init__(self, width: int, reduction: int = 8) -> None:
        super().__init__()
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width // reduction, 1), nn.ReLU(),
            nn.Conv2d(width // reduction, width, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, picture: Tensor) -> Tensor:
        """Return the weighted channels."""
        return picture * self.weigh(picture)


class Residual(nn.Module):
    """What a body adds to its input, scaled."""

    def __init__(self, *body: nn.Module, scale: float = 1.0) -> None:
        super().__init__()
        self.body, self.scale = nn.Sequential(*body), scale

    def forward(self, picture: Tensor) -> Tensor:
        """Return the sum."""
        found = self.body(picture)
        return picture + (found if self.scale == 1.0 else found * self.scale)


class WideResiduals(nn.Sequential):
    """EDSR: residual blocks without normalization, scaled by 0.1, then a shuffle of pixels."""

    def __init__(self, draw: Draw) -> None:
        width, scale = draw.choice((48, 64, 96)), draw.choice((2, 3))
        blocks = [Residual(conv(width, width), nn.ReLU(), conv(width, width), scale=0.1) for _ in range(5)]
        super().__init__(
            conv(3, width), Residual(*blocks, conv(width, width)), conv(width, width * scale * scale),
            nn.PixelShuffle(scale), conv(width, 3),
        )  # fmt: skip


class WeighedResiduals(nn.Sequential):
    """RCAN: groups of residual blocks whose channels are weighed."""

    def __init__(self, draw: Draw) -> None:
        width = draw.choice((32, 48, 64))

        def block() -> nn.Module:
            return Residual(conv(width, width), nn.ReLU(), conv(width, width), ChannelAttention(width))

        groups = [Residual(*(block() for _ in range(3)), conv(width, width)) for _ in range(2)]
        super().__init__(conv(3, width), Residual(*groups), conv(width, 4 * width), nn.PixelShuffle(2), conv(width, 3))


class DenseResidual(nn.Module):
    """Convolutions that each read all earlier ones (RRDB)."""

    def __init__(self, width: int, grow: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(conv(width + n * grow, width if n == 4 else grow) for n in range(5))

    def forward(self, picture: Tensor) -> Tensor:
        """Return the input and a fifth of what the dense layers found."""
        known = [picture]
        for layer in self.layers[:-1]:
            known.append(functional.leaky_relu(layer(torch.cat(known, 1)), 0.2))
        return picture + 0.2 * self.layers[-1](torch.cat(known, 1))


class DenseSuperResolution(nn.Module):
    """ESRGAN's generator: residuals in residuals of dense blocks, enlarged by nearest pixels."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width, grow = draw.choice((32, 64)), draw.choice((16, 32))
        self.first = conv(3, width)
        self.body = nn.Sequential(
            *(Residual(*(DenseResidual(width, grow) for _ in range(3)), scale=0.2) for _ in range(2)),
            conv(width, width),
        )
        self.up = nn.ModuleList(conv(width, width) for _ in range(2))
        self.last = nn.Sequential(conv(width, width), nn.LeakyReLU(0.2), conv(width, 3))

    def forward(self, picture: Tensor) -> Tensor:
        """Return a picture four times as large in each direction."""
        deep = self.first(picture)
        deep = deep + self.body(deep)
        for layer in self.up:
            deep = functional.leaky_relu(layer(functional.interpolate(deep, scale_factor=2.0, mode="nearest")), 0.2)
        return self.last(deep)


class ChannelNorm(nn.Module):
    """Layer normalization over channels of pictures."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, picture: Tensor) -> Tensor:
        """Return normalized pixels."""
        mean = picture.mean(1, keepdim=True)
        spread = (picture - mean).pow(2).mean(1, keepdim=True)
        scaled = (picture - mean) / (spread + 1e-6).sqrt()
        return self.weight.view(1, -1, 1, 1) * scaled + self.bias.view(1, -1, 1, 1)


class GatedBlock(nn.Module):
    """NAFNet's block: products of halves in place of activations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(ChannelNorm(width) for _ in range(2))
        self.wide, self.depth = nn.Conv2d(width, 2 * width, 1), conv(2 * width, 2 * width, 3, groups=2 * width)
        self.weigh = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1))
        self.narrow = nn.Conv2d(width, width, 1)
        self.feed = nn.ModuleList((nn.Conv2d(width, 2 * width, 1), nn.Conv2d(width, width, 1)))
        self.sizes = nn.Parameter(torch.rand(2, 1, width, 1, 1))

    def forward(self, picture: Tensor) -> Tensor:
        """Return refined features."""
        left, right = self.depth(self.wide(self.norms[0](picture))).chunk(2, 1)
        deep = left * right
        picture = picture + self.narrow(deep * self.weigh(deep)) * self.sizes[0]
        left, right = self.feed[0](self.norms[1](picture)).chunk(2, 1)
        return picture + self.feed[1](left * right) * self.sizes[1]


class Restorer(nn.Module):
    """NAFNet: gated blocks on three scales, shuffled pixels between them."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((16, 24, 32))
        self.first, self.last = conv(3, width), conv(width, 3)
        self.down = nn.ModuleList(nn.Conv2d(width << n, width << (n + 1), 2, 2) for n in range(2))
        self.up = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width << (n + 1), width << (n + 2), 1), nn.PixelShuffle(2)) for n in range(2)
        )
        self.levels = nn.ModuleList(GatedBlock(width << n) for n in range(3))
        self.back = nn.ModuleList(GatedBlock(width << n) for n in range(2))

    def forward(self, picture: Tensor) -> Tensor:
        """Return the restored picture."""
        deep, known = self.first(picture), []
        for level, down in zip(self.levels, self.down, strict=False):
            known.append(level(deep))
            deep = down(known[-1])
        deep = self.levels[2](deep)
        for n in (1, 0):
            deep = self.back[n](self.up[n](deep) + known[n])
        return picture + self.last(deep)


class TransposedAttention(nn.Module):
    """Restormer's attention, over channels rather than pixels."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.heat = nn.Parameter(torch.ones(heads, 1, 1))
        self.norms = nn.ModuleList(ChannelNorm(width) for _ in range(2))
        self.qkv = nn.Sequential(nn.Conv2d(width, 3 * width, 1), conv(3 * width, 3 * width, groups=3 * width))
        self.out = nn.Conv2d(width, width, 1)
        self.wide = nn.Sequential(nn.Conv2d(width, 4 * width, 1), conv(4 * width, 4 * width, groups=4 * width))
        self.narrow = nn.Conv2d(2 * width, width, 1)

    def forward(self, picture: Tensor) -> Tensor:
        """Return refined features."""
        batch, width, height, length = picture.shape
        parts = self.qkv(self.norms[0](picture)).view(batch, 3, self.heads, width // self.heads, height * length)
        q, k, v = parts.unbind(1)
        scores = functional.normalize(q, dim=-1) @ functional.normalize(k, dim=-1).transpose(-2, -1) * self.heat
        picture = picture + self.out((scores.softmax(-1) @ v).reshape(batch, width, height, length))
        left, right = self.wide(self.norms[1](picture)).chunk(2, 1)
        return picture + self.narrow(functional.gelu(left) * right)


class ChannelRestorer(nn.Sequential):
    """Restormer on one scale below the picture's."""

    def __init__(self, draw: Draw) -> None:
        width = draw.choice((24, 32, 48))
        super().__init__(
            conv(3, width), nn.PixelUnshuffle(2), nn.Conv2d(4 * width, width, 1),
            *(TransposedAttention(width, draw.choice((1, 2, 4))) for _ in range(3)),
            conv(width, 4 * width), nn.PixelShuffle(2), conv(width, 3),
        )  # fmt: skip


class Cleaner(nn.Sequential):
    """DnCNN: a plain row of normalized convolutions."""

    def __init__(self, draw: Draw) -> None:
        width, channels = draw.choice((48, 64)), 3
        body = [each for _ in range(8) for each in (conv(width, width, bias=False), nn.BatchNorm2d(width), nn.ReLU())]
        super().__init__(Residual(conv(channels, width), nn.ReLU(), *body, conv(width, channels), scale=-1.0))


class StyleTransfer(nn.Sequential):
    """CycleGAN's generator: reflected borders and normalization by instance."""

    def __init__(self, draw: Draw) -> None:
        width = draw.choice((24, 32))

        def norm(channels: int) -> nn.Module:
            return nn.InstanceNorm2d(channels, affine=True)

        def block(channels: int) -> nn.Module:
            return Residual(
                nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3), norm(channels), nn.ReLU(),
                nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3), norm(channels),
            )  # fmt: skip

        super().__init__(
            nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), norm(width), nn.ReLU(),
            conv(width, 2 * width, 3, 2), norm(2 * width), nn.ReLU(),
            conv(2 * width, 4 * width, 3, 2), norm(4 * width), nn.ReLU(), *(block(4 * width) for _ in range(4)),
            nn.ConvTranspose2d(4 * width, 2 * width, 3, 2, 1, 1), norm(2 * width), nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 3, 2, 1, 1), norm(width), nn.ReLU(),
            nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh(),
        )  # fmt: skip


class ModulatedConv(nn.Module):
    """StyleGAN's convolution, its weights scaled by a style and normalized for each picture."""

    def __init__(self, inner: int, outer: int, style: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outer, inner, 3, 3) / (3 * inner**0.5))
        self.style = nn.Linear(style, inner)
        self.bias = nn.Parameter(torch.zeros(outer))

    def forward(self, picture: Tensor, style: Tensor) -> Tensor:
        """Return the styled picture."""
        batch, inner, height, width = picture.shape
        weights = self.weight * (self.style(style) + 1).view(batch, 1, inner, 1, 1)
        weights = weights * (weights.pow(2).sum((2, 3, 4), keepdim=True) + 1e-8).rsqrt()
        found = functional.conv2d(
            picture.reshape(1, batch * inner, height, width), weights.flatten(0, 1), padding=1, groups=batch
        )
        return functional.leaky_relu(found.view(batch, -1, height, width) + self.bias.view(1, -1, 1, 1), 0.2)


class StyledGenerator(nn.Module):
    """StyleGAN2's synthesis of small pictures."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        style, widths = 64, (128, 96, draw.choice((48, 64)), 32)
        self.map = nn.Sequential(*(each for _ in range(4) for each in (nn.Linear(style, style), nn.LeakyReLU(0.2))))
        self.start = nn.Parameter(torch.randn(1, widths[0], 4, 4))
        self.layers = nn.ModuleList(ModulatedConv(a, b, style) for a, b in pairwise(widths))
        self.last = nn.Conv2d(widths[-1], 3, 1)

    def forward(self, picture: Tensor) -> Tensor:
        """Return a generated picture; the noise is the input's mean colors, tiled."""
        style = self.map(functional.normalize(picture.flatten(1)[:, :64], dim=1))
        deep = self.start.expand(style.shape[0], -1, -1, -1)
        for layer in self.layers:
            up = functional.interpolate(deep, scale_factor=2.0, mode="bilinear", align_corners=False)
            deep = layer(up, style)
        return self.last(deep)


def double(inner: int, outer: int) -> nn.Module:
    """Return two normalized convolutions."""
    return nn.Sequential(
        conv(inner, outer), nn.BatchNorm2d(outer), nn.ReLU(), conv(outer, outer), nn.BatchNorm2d(outer), nn.ReLU()
    )


class GatedUnet(nn.Module):
    """Attention U-Net: skips are gated by what lies below them."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((16, 24))
        sizes = [width << n for n in range(4)]
        self.down = nn.ModuleList(double(a, b) for a, b in zip([3, *sizes], sizes, strict=False))
        self.up = nn.ModuleList(conv(2 * size, size) for size in sizes[:-1])
        self.gate = nn.ModuleList(
            nn.ModuleList((nn.Conv2d(size, size // 2, 1), nn.Conv2d(size, size // 2, 1), nn.Conv2d(size // 2, 1, 1)))
            for size in sizes[:-1]
        )
        self.merge = nn.ModuleList(double(2 * size, size) for size in sizes[:-1])
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, picture: Tensor) -> Tensor:
        """Return the logits of each pixel."""
        known = []
        deep = picture
        for n, layer in enumerate(self.down):
            deep = layer(functional.max_pool2d(deep, 2) if n else deep)
            known.append(deep)
        for n in (2, 1, 0):
            up = self.up[n](functional.interpolate(deep, scale_factor=2.0, mode="bilinear", align_corners=True))
            left, right, score = self.gate[n]
            skip = known[n] * torch.sigmoid(score(functional.relu(left(up) + right(known[n]))))
            deep = self.merge[n](torch.cat([skip, up], 1))
        return self.last(deep)


class NestedUnet(nn.Module):
    """U-Net++: each node of a grid of scales reads all earlier ones of its row."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width, depth = draw.choice((16, 24)), 4
        sizes = [width << n for n in range(depth)]
        self.depth = depth
        self.nodes = nn.ModuleDict({
            f"{i}_{j}": double((sizes[i] * j + sizes[i + 1]) if j else (sizes[i - 1] if i else 3), sizes[i])
            for j in range(depth) for i in range(depth - j)
        })  # fmt: skip
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, picture: Tensor) -> Tensor:
        """Return the logits of each pixel."""
        grid: dict[tuple[int, int], Tensor] = {}
        for i in range(self.depth):
            above = functional.max_pool2d(grid[i - 1, 0], 2) if i else picture
            grid[i, 0] = self.nodes[f"{i}_0"](above)
            for j in range(1, i + 1):
                row = i - j
                below = functional.interpolate(grid[row + 1, j - 1], scale_factor=2.0, mode="bilinear")
                grid[row, j] = self.nodes[f"{row}_{j}"](torch.cat([*(grid[row, k] for k in range(j)), below], 1))
        return self.last(grid[0, self.depth - 1])


class Saliency(nn.Module):
    """U2-Net's residual U-block with dilated convolutions, twice, and side outputs joined."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((16, 24, 32))
        self.first = self.block(3, width)
        self.down = nn.ModuleList(self.block(width, width) for _ in range(4))
        self.deep = nn.ModuleList(self.block(width, width, 2**n) for n in (1, 2))
        self.up = nn.ModuleList(self.block(2 * width, width) for _ in range(4))
        self.side = nn.ModuleList(nn.Conv2d(width, 1, 3, padding=1) for _ in range(4))
        self.join = nn.Conv2d(4, 1, 1)

    @staticmethod
    def block(inner: int, outer: int, dilation: int = 1) -> nn.Module:
        """Return a normalized convolution."""
        made = nn.Conv2d(inner, outer, 3, padding=dilation, dilation=dilation)
        return nn.Sequential(made, nn.BatchNorm2d(outer), nn.ReLU())

    def forward(self, picture: Tensor) -> Tensor:
        """Return the saliency of each pixel."""
        first = self.first(picture)
        known, deep = [], first
        for layer in self.down:
            deep = layer(deep)
            known.append(deep)
            deep = functional.max_pool2d(deep, 2, 2, ceil_mode=True)
        deep = self.deep[1](self.deep[0](deep))
        maps = []
        for layer, side, skip in zip(self.up, self.side, reversed(known), strict=True):
            deep = functional.interpolate(deep, size=skip.shape[2:], mode="bilinear", align_corners=False)
            deep = layer(torch.cat([deep, skip], 1))
            maps.append(functional.interpolate(side(deep), size=picture.shape[2:], mode="bilinear"))
        return torch.sigmoid(self.join(torch.cat(maps, 1)))


class PyramidPooling(nn.Module):
    """PSPNet's head over a small body: means over grids of several sizes."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((64, 96))
        self.body = nn.Sequential(
            conv(3, 32, 3, 2), nn.ReLU(), double(32, 48), nn.MaxPool2d(2), double(48, width), nn.MaxPool2d(2)
        )
        self.pools = nn.ModuleList(
            nn.Sequential(nn.AvgPool2d(16 // n), nn.Conv2d(width, width // 4, 1), nn.ReLU()) for n in (1, 2, 4, 8)
        )
        self.last = nn.Sequential(double(2 * width, width), nn.Conv2d(width, 19, 1))

    def forward(self, picture: Tensor) -> Tensor:
        """Return the class scores of each pixel."""
        deep = self.body(picture)
        size = deep.shape[2:]
        maps = [functional.interpolate(pool(deep), size=size, mode="bilinear") for pool in self.pools]
        scores = self.last(torch.cat([deep, *maps], 1))
        return functional.interpolate(scores, scale_factor=8.0, mode="bilinear")


RESTORING: dict[str, Architecture] = {
    "wide_residuals": pictures(WideResiduals, 64),
    "weighed_residuals": pictures(WeighedResiduals, 64),
    "dense_super_resolution": pictures(DenseSuperResolution, 48),
    "restorer": pictures(Restorer, 96),
    "channel_restorer": pictures(ChannelRestorer, 96),
    "cleaner": pictures(Cleaner, 96),
    "style_transfer": pictures(StyleTransfer, 96, is_open=False),
    "styled_generator": pictures(StyledGenerator, 16, is_open=False),
    "gated_unet": pictures(GatedUnet, 128),
    "nested_unet": pictures(NestedUnet, 96),
    "saliency": pictures(Saliency, 120),
    "pyramid_pooling": pictures(PyramidPooling, 128, is_open=False),
}
