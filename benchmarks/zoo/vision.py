"""Hand-written networks of images, volumes and points, with sizes that are drawn."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.drawn import Architecture, Draw, Drawn, image


def block(inner: int, outer: int, kernel: int = 3, *, stride: int = 1, dilation: int = 1, groups: int = 1) -> nn.Module:
    """Return a convolution of the same size, its normalization, and an activation."""
    return nn.Sequential(
        nn.Conv2d(inner, outer, kernel, stride, dilation * (kernel // 2), dilation, groups, bias=False),
        nn.BatchNorm2d(outer), nn.ReLU(),
    )  # fmt: skip


class DilatedPyramid(nn.Module):
    """Segmentation in the way of DeepLab: dilated branches, an image's mean, and a result of the input's size."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((48, 64, 96))
        self.stem = nn.Sequential(block(3, 32, stride=2), block(32, width, stride=2), block(width, width, stride=2))
        rates = draw.sample((1, 2, 3, 6, 9, 12), 3)
        self.branches = nn.ModuleList(block(width, width, dilation=rate) for rate in rates)
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1), nn.ReLU())
        self.head = nn.Sequential(block(width * 4, width, 1), nn.Conv2d(width, 21, 1))
        self.mode = draw.choice(("bilinear", "bicubic"))

    def forward(self, picture: Tensor) -> Tensor:
        """Return the class scores of each pixel."""
        deep = self.stem(picture)
        mean = functional.interpolate(self.pooled(deep), size=deep.shape[-2:], mode="nearest")
        scores = self.head(torch.cat([branch(deep) for branch in self.branches] + [mean], 1))
        return functional.interpolate(scores, size=picture.shape[-2:], mode=self.mode, align_corners=False)


class FeaturePyramid(nn.Module):
    """A detector's pyramid with nearest upsampling, heads of two kinds, boxes decoded and the best kept."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((32, 48, 64))
        self.stages = nn.ModuleList(
            [nn.Sequential(block(3, width, stride=2), block(width, width, stride=2))]
            + [block(width, width, stride=2) for _ in range(2)]
        )
        self.lateral = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(3))
        self.smooth = nn.ModuleList(block(width, width) for _ in range(3))
        self.scores, self.boxes = nn.Conv2d(width, 20, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.kept = draw.choice((50, 100))

    def forward(self, picture: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best boxes and their scores."""
        levels = []
        for stage in self.stages:
            picture = stage(picture)
            levels.append(picture)
        deep = self.lateral[-1](levels[-1])
        maps = [deep]
        for place in (1, 0):
            lateral = self.lateral[place](levels[place])
            deep = lateral + functional.interpolate(deep, size=lateral.shape[-2:], mode="nearest")
            maps.append(deep)
        maps = [smooth(each) for smooth, each in zip(self.smooth, maps, strict=True)]
        scores = torch.cat([self.scores(each).flatten(2) for each in maps], 2).sigmoid()
        boxes = torch.cat([self.boxes(each).flatten(2) for each in maps], 2).transpose(1, 2)
        best, index = scores.max(1)
        kept, order = best.topk(self.kept, 1)
        center, size = boxes[..., :2], boxes[..., 2:].exp()
        corners = torch.cat([center - size / 2, center + size / 2], -1)
        chosen = torch.gather(corners, 1, order.unsqueeze(-1).expand(-1, -1, 4))
        return chosen, kept + torch.gather(index, 1, order).float()


class SuperResolution(nn.Module):
    """Residual blocks, channel attention and depth to space, as EDSR and RCAN have them."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width, self.factor = draw.choice((32, 48)), draw.choice((2, 3))
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.PReLU(width), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(4)
        )
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, 8, 1), nn.ReLU(), nn.Conv2d(8, width, 1), nn.Sigmoid()
        )
        self.tail = nn.Sequential(nn.Conv2d(width, 3 * self.factor**2, 3, padding=1), nn.PixelShuffle(self.factor))

    def forward(self, picture: Tensor) -> Tensor:
        """Return the larger picture."""
        deep = self.head(picture)
        for each in self.body:
            out = each(deep)
            deep = deep + out * self.gate(out)
        coarse = functional.interpolate(picture, scale_factor=self.factor, mode="bicubic", align_corners=False)
        return (self.tail(deep) + coarse).clamp(0, 1)


class Generator(nn.Module):
    """Transposed convolutions from noise to a picture, with normalization over instances."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((32, 48))
        kernel = draw.choice((3, 4, 5))
        self.first = nn.Linear(64, width * 4 * 36)
        layers: list[nn.Module] = []
        for inner, outer in ((width * 4, width * 2), (width * 2, width), (width, width // 2)):
            layers += [
                nn.ConvTranspose2d(inner, outer, kernel, 2, kernel // 2, kernel % 2),
                nn.InstanceNorm2d(outer, affine=True), nn.LeakyReLU(0.2),
            ]  # fmt: skip
        self.layers = nn.Sequential(*layers, nn.Conv2d(width // 2, 3, 5, padding=2), nn.Tanh())

    def forward(self, noise: Tensor) -> Tensor:
        """Return a picture."""
        first = self.first(noise)
        return self.layers(first.view(first.shape[0], -1, 6, 6))


class SplitShuffle(nn.Module):
    """Grouped convolutions of drawn groups between channel shuffles and splits, as ShuffleNet and ResNeXt."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.groups = draw.choice((3, 4, 6))
        width = 24 * self.groups
        self.stem = block(3, width, stride=4)
        self.units = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width // 2, width // 2, 1, groups=1),
                nn.Conv2d(width // 2, width // 2, draw.choice((3, 5)), padding="same", groups=self.groups),
                nn.BatchNorm2d(width // 2), nn.Hardswish(),
            )
            for _ in range(5)
        )  # fmt: skip
        self.head = nn.Linear(width, 100)

    def forward(self, picture: Tensor) -> Tensor:
        """Return class scores."""
        deep = self.stem(picture)
        for unit in self.units:
            left, right = deep.chunk(2, 1)
            deep = torch.cat([left, unit(right)], 1)
            batch, channels, height, width = deep.shape
            deep = deep.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(deep.shape)
        return self.head(deep.mean((2, 3)))


class VideoNet(nn.Module):
    """Convolutions of volumes, split into space and time, as R(2+1)D."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((16, 24, 32))
        layers: list[nn.Module] = [nn.Conv3d(3, width, (3, 7, 7), (1, 2, 2), (1, 3, 3)), nn.ReLU()]
        for stride in (1, 2):
            layers += [
                nn.Conv3d(width, width * 2, (1, 3, 3), (1, stride, stride), (0, 1, 1)), nn.BatchNorm3d(width * 2),
                nn.ReLU(), nn.Conv3d(width * 2, width, (3, 1, 1), (stride, 1, 1), (1, 0, 0)), nn.GELU(),
            ]  # fmt: skip
        self.layers = nn.Sequential(*layers, nn.MaxPool3d((1, 2, 2)), nn.AdaptiveAvgPool3d(1), nn.Flatten())

    def forward(self, clip: Tensor) -> Tensor:
        """Return the features of a clip."""
        return self.layers(clip)


class VolumeUnet(nn.Module):
    """Segmentation of volumes: strided and transposed convolutions, trilinear upsampling."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((8, 12, 16))
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv3d(inner, outer, 3, stride, 1), nn.InstanceNorm3d(outer, affine=True), nn.LeakyReLU())
            for inner, outer, stride in ((1, width, 1), (width, width * 2, 2), (width * 2, width * 4, 2))
        )
        self.up = nn.ConvTranspose3d(width * 4, width * 2, 2, 2)
        self.last = nn.Conv3d(width * 5, 4, 1)

    def forward(self, volume: Tensor) -> Tensor:
        """Return class scores of each voxel."""
        first = self.down[0](volume)
        second = self.down[1](first)
        joined = torch.cat([self.up(self.down[2](second)), second], 1)
        large = functional.interpolate(joined, size=first.shape[-3:], mode="trilinear", align_corners=True)
        return self.last(torch.cat([large, first], 1)).softmax(1)


class PointNet(nn.Module):
    """Points sampled, their neighbors found by distance, gathered, and pooled."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.neighbors, width = draw.choice((8, 16)), draw.choice((32, 64))
        self.first = nn.Sequential(nn.Conv2d(6, width, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(width, width * 2, 1), nn.BatchNorm2d(width * 2), nn.ReLU())
        self.head = nn.Conv1d(width * 4, 13, 1)

    def forward(self, points: Tensor) -> Tensor:
        """Return class scores of each point, of points (batch, 3, count)."""
        inner = points.transpose(1, 2) @ points
        square = (points**2).sum(1, keepdim=True)
        near = (2 * inner - square - square.transpose(1, 2)).topk(self.neighbors, -1).indices
        count = points.shape[2]
        chosen = torch.gather(points.unsqueeze(2).expand(-1, -1, count, -1), 3, near.unsqueeze(1).expand(-1, 3, -1, -1))
        pairs = torch.cat([chosen - points.unsqueeze(3), points.unsqueeze(3).expand_as(chosen)], 1)
        deep = self.second(self.first(pairs)).max(3).values
        whole = deep.max(2, keepdim=True).values.expand_as(deep)
        return self.head(torch.cat([deep, whole], 1))


class Warping(nn.Module):
    """Optical flow: a cost volume by shifts, a field of motion, and a picture sampled by it."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((16, 32))
        self.features = nn.Sequential(block(3, width, stride=2), block(width, width))
        self.reach = draw.choice((2, 3))
        self.flow = nn.Sequential(block((2 * self.reach + 1) ** 2, 32), nn.Conv2d(32, 2, 3, padding=1), nn.Tanh())
        self.padding = draw.choice(("zeros", "border"))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the right picture as seen from the left one."""
        one, other = self.features(left), self.features(right)
        height, width = one.shape[-2:]
        padded = functional.pad(other, [self.reach] * 4)
        span = range(2 * self.reach + 1)
        costs = [(one * padded[:, :, y : y + height, x : x + width]).mean(1) for y in span for x in span]
        flow = functional.interpolate(
            self.flow(torch.stack(costs, 1)), size=right.shape[-2:], mode="bilinear", align_corners=True
        )
        rows = torch.linspace(-1, 1, right.shape[-2]).view(1, -1, 1)
        columns = torch.linspace(-1, 1, right.shape[-1]).view(1, 1, -1)
        grid = torch.stack([columns + 0.2 * flow[:, 0], rows + 0.2 * flow[:, 1]], -1)
        return functional.grid_sample(right, grid, padding_mode=self.padding, align_corners=True)


class Denoiser(nn.Module):
    """A block of a diffusion model: time embedding, group normalization, attention over pixels, up and down."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((64, 96))
        self.heads, self.width = draw.choice((2, 4)), width
        self.time = nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width * 2))
        self.first, self.last = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width * 2, 4, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(draw.choice((4, 8)), width) for _ in range(3))
        self.down = nn.Conv2d(width, width, 3, 2, 1)
        self.qkv, self.out = nn.Conv2d(width, width * 3, 1), nn.Conv2d(width, width, 1)

    def forward(self, noisy: Tensor, moment: Tensor) -> Tensor:
        """Return the noise of a picture at a moment."""
        frequencies = torch.exp(-torch.arange(16) * 0.5)
        angles = moment[:, None] * frequencies[None]
        scale, shift = self.time(torch.cat([angles.sin(), angles.cos()], -1))[:, :, None, None].chunk(2, 1)
        first = self.first(noisy)
        deep = self.down(functional.silu(self.norms[0](first) * (1 + scale) + shift))
        batch, _, height, width = deep.shape
        query, key, value = (
            each.reshape(batch, self.heads, self.width // self.heads, height * width).transpose(2, 3)
            for each in self.qkv(self.norms[1](deep)).chunk(3, 1)
        )
        seen = functional.scaled_dot_product_attention(query, key, value).transpose(2, 3)
        deep = deep + self.out(seen.reshape(batch, self.width, height, width))
        large = functional.interpolate(deep, scale_factor=2.0, mode="nearest")
        return self.last(torch.cat([functional.silu(self.norms[2](large)), first], 1))


class Routed(nn.Module):
    """Convolutions whose weights are mixed by the picture, and attention over channels in one dimension (ECA)."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.width = draw.choice((24, 32))
        self.stem = block(3, self.width, stride=2)
        self.weights = nn.Parameter(torch.randn(4, self.width, self.width, 3, 3) * 0.1)
        self.route = nn.Linear(self.width, 4)
        self.channels = nn.Conv1d(1, 1, 5, padding=2)

    def forward(self, picture: Tensor) -> Tensor:
        """Return deep features of one picture."""
        deep = self.stem(picture)
        share = self.route(deep.mean((2, 3))).softmax(-1)
        kernel = torch.einsum("be,eoikl->boikl", share, self.weights)[0]
        deep = functional.conv2d(deep, kernel, padding=1)
        gate = self.channels(deep.mean((2, 3)).unsqueeze(1)).sigmoid()
        return deep * gate.transpose(1, 2).unsqueeze(-1)


def pictures(kind: type[nn.Module], size: int, *, is_open: bool = True, channels: int = 3) -> Architecture:
    """Return the architecture of a network that takes pictures of some size."""

    def make(draw: Draw) -> Drawn:
        axes = {"picture": (0, 2, 3)} if is_open and draw.random() < 0.5 else {}
        return Drawn(kind(draw), {"picture": image(draw, size, channels)}, axes)

    return Architecture("images", make)


VISION: dict[str, Architecture] = {
    "dilated_pyramid": pictures(DilatedPyramid, 256),
    "feature_pyramid": pictures(FeaturePyramid, 256),
    "super_resolution": pictures(SuperResolution, 64),
    "generator": Architecture(
        "images", lambda draw: Drawn(Generator(draw), {"noise": torch.randn(1, 64)}, {"noise": (0,)})
    ),
    "split_shuffle": pictures(SplitShuffle, 224),
    "routed_weights": pictures(Routed, 96, is_open=False),
    "video": Architecture(
        "video", lambda draw: Drawn(VideoNet(draw), {"clip": torch.randn(1, 3, 8, 64, 64)}, {"clip": (0,)})
    ),
    "volume_unet": Architecture(
        "volumes", lambda draw: Drawn(VolumeUnet(draw), {"volume": torch.randn(1, 1, 24, 32, 32)})
    ),
    "point_net": Architecture(
        "points", lambda draw: Drawn(PointNet(draw), {"points": torch.randn(1, 3, 512)}, {"points": (0, 2)})
    ),
    "optical_flow": Architecture(
        "images",
        lambda draw: Drawn(Warping(draw), {"left": torch.randn(1, 3, 96, 128), "right": torch.randn(1, 3, 96, 128)}),
    ),
    "denoiser": Architecture(
        "diffusion",
        lambda draw: Drawn(
            Denoiser(draw), {"noisy": torch.randn(2, 4, 32, 32), "moment": torch.tensor([3.0, 40.0])},
            {"noisy": (0,), "moment": (0,)},
        ),
    ),
}  # fmt: skip
