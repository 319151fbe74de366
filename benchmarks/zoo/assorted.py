"""Networks over tables, graphs, sets, fields, volumes and films, and detectors, with sizes that are drawn."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.drawn import Architecture, Draw
from zoo.newer import of
from zoo.restoring import conv, double
from zoo.vision import pictures


def dense(*sizes: int) -> nn.Sequential:
    """Return linear layers with activations between them."""
    layers = [each for a, b in pairwise(sizes) for each in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class CrossNetwork(nn.Module):
    """DCN-v2: embeddings crossed with themselves layer by layer, in low rank, beside a deep part."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.names = nn.ModuleList(nn.Embedding(200, 16) for _ in range(8))
        width, rank = 8 * 16 + 13, draw.choice((16, 32))
        self.inner = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in range(3))
        self.outer = nn.ModuleList(nn.Linear(rank, width) for _ in range(3))
        self.deep = dense(width, 256, 128, 64)
        self.last = nn.Linear(width + 64, 1)

    def forward(self, ids: Tensor, numbers: Tensor) -> Tensor:
        """Return click probabilities of rows of 8 ids and 13 numbers."""
        first = torch.cat([*(table(ids[:, n]) for n, table in enumerate(self.names)), numbers], 1)
        crossed = first
        for inner, outer in zip(self.inner, self.outer, strict=True):
            crossed = first * outer(inner(crossed)) + crossed
        return torch.sigmoid(self.last(torch.cat([crossed, self.deep(first)], 1)))


class Interactions(nn.Module):
    """xDeepFM: products of all pairs of fields, compressed by a pointwise convolution, and attention over fields."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.fields, self.width = 10, 16
        self.names = nn.Embedding(500, self.width)
        self.layers = nn.ModuleList()
        before = self.fields
        for maps in (draw.choice((24, 32)), 16):
            self.layers.append(nn.Conv1d(before * self.fields, maps, 1))
            before = maps
        self.attend = nn.MultiheadAttention(self.width, 2, batch_first=True)
        self.last = nn.Linear(self.layers[0].out_channels + 16 + 160, 1)

    def forward(self, ids: Tensor) -> Tensor:
        """Return scores of rows of 10 ids."""
        first = self.names(ids)
        deep, found = first, []
        for layer in self.layers:
            pairs = torch.einsum("bhd,bmd->bhmd", deep, first).flatten(1, 2)
            deep = functional.relu(layer(pairs))
            found.append(deep.sum(2))
        attended = functional.relu(self.attend(first, first, first, need_weights=False)[0] + first)
        return torch.sigmoid(self.last(torch.cat([*found, attended.flatten(1)], 1)))


class InterestNet(nn.Module):
    """DIN: a history weighed by an item, with activations that depend on the batch's distribution (Dice)."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((32, 48))
        self.names = nn.Embedding(1000, width)
        self.weigh = nn.Sequential(
            nn.Linear(4 * width, 80), nn.Sigmoid(), nn.Linear(80, 40), nn.Sigmoid(), nn.Linear(40, 1)
        )
        self.first, self.norm = nn.Linear(2 * width, 80), nn.BatchNorm1d(80, affine=False)
        self.alpha = nn.Parameter(torch.rand(80))
        self.last = nn.Linear(80, 2)

    def forward(self, history: Tensor, lengths: Tensor, item: Tensor) -> Tensor:
        """Return scores of items for users with histories (batch, 50)."""
        known, wanted = self.names(history), self.names(item).unsqueeze(1).expand(-1, history.shape[1], -1)
        scores = self.weigh(torch.cat([wanted, known, wanted - known, wanted * known], -1)).squeeze(-1)
        is_there = torch.arange(history.shape[1]).unsqueeze(0) < lengths.unsqueeze(1)
        scores = torch.where(is_there, scores, torch.full_like(scores, -4e9)) / known.shape[-1] ** 0.5
        interest = (scores.softmax(-1).unsqueeze(1) @ known).squeeze(1)
        deep = self.first(torch.cat([interest, wanted[:, 0]], 1))
        gate = torch.sigmoid(self.norm(deep))
        return self.last(gate * deep + (1 - gate) * self.alpha * deep).softmax(-1)


class FeatureTransformer(nn.Module):
    """FT-Transformer: each column of a table a token."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        columns, width = draw.choice((12, 20)), draw.choice((64, 96))
        self.columns = columns
        self.weight, self.bias = nn.Parameter(torch.randn(columns, width)), nn.Parameter(torch.randn(columns, width))
        self.token = nn.Parameter(torch.randn(1, 1, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, activation="gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, table: Tensor) -> Tensor:
        """Return class scores of rows (batch, 20), of which some columns are read."""
        tokens = table[:, : self.columns, None] * self.weight + self.bias
        tokens = torch.cat([self.token.expand(table.shape[0], -1, -1), tokens], 1)
        return self.last(self.body(tokens)[:, 0])


class GraphAttention(nn.Module):
    """GAT over a dense adjacency, then pooled assignments of nodes to clusters (DiffPool)."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width, heads = draw.choice((16, 32)), 4
        self.heads = heads
        self.first = nn.Linear(12, heads * width, bias=False)
        self.left, self.right = nn.Parameter(torch.randn(heads, width)), nn.Parameter(torch.randn(heads, width))
        self.assign = nn.Linear(heads * width, 8)
        self.last = nn.Linear(heads * width, 5)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Return scores of graphs with nodes (batch, count, 12) and edges (batch, count, count)."""
        batch, count, _ = nodes.shape
        deep = self.first(nodes).view(batch, count, self.heads, -1)
        source, goal = (deep * self.left).sum(-1), (deep * self.right).sum(-1)
        scores = functional.leaky_relu(source.unsqueeze(2) + goal.unsqueeze(1), 0.2)
        scores = scores.masked_fill(edges.unsqueeze(-1) == 0, float("-inf")).softmax(2)
        mixed = functional.elu(torch.einsum("bijh,bjhd->bihd", scores, deep).flatten(2))
        clusters = self.assign(mixed).softmax(-1).transpose(1, 2)
        pooled, linked = clusters @ mixed, clusters @ edges @ clusters.transpose(1, 2)
        return self.last((linked / (linked.sum(-1, keepdim=True) + 1e-6) @ pooled).amax(1))


class InducedSets(nn.Module):
    """A set transformer: attention through a few learned points, pooled by seeds."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((64, 96))
        self.first = nn.Linear(3, width)
        self.points = nn.Parameter(torch.randn(2, 1, 16, width))
        self.seeds = nn.Parameter(torch.randn(1, 4, width))
        self.attends = nn.ModuleList(nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(5))
        self.feeds = nn.ModuleList(dense(width, width, width) for _ in range(5))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.last = nn.Linear(4 * width, 10)

    def mixed(self, n: int, asked: Tensor, known: Tensor) -> Tensor:
        """Return what is asked for, mixed from what is known."""
        deep = asked + self.attends[n](asked, known, known, need_weights=False)[0]
        return self.norms[n](deep + self.feeds[n](deep))

    def forward(self, points: Tensor) -> Tensor:
        """Return class scores of sets (batch, count, 3)."""
        deep = self.first(points)
        for n in (0, 1):
            few = self.mixed(2 * n, self.points[n].expand(deep.shape[0], -1, -1), deep)
            deep = self.mixed(2 * n + 1, deep, few)
        return self.last(self.mixed(4, self.seeds.expand(deep.shape[0], -1, -1), deep).flatten(1))


class RadianceField(nn.Module):
    """NeRF: places written by sines of many frequencies, densities along rays added up to colors."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.octaves, width = draw.choice((6, 8)), draw.choice((64, 128))
        depth = 3 + 6 * self.octaves
        self.body = dense(depth, width, width, width)
        self.skip = dense(width + depth, width, width)
        self.density, self.color = nn.Linear(width, 1), nn.Sequential(dense(width + 3, 64, 3), nn.Sigmoid())

    def forward(self, points: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
        """Return colors and depths of rays, from points (rays, samples, 3) and directions (rays, 3)."""
        scales = 2.0 ** torch.arange(self.octaves)
        angles = (points.unsqueeze(-1) * scales).flatten(-2)
        written = torch.cat([points, angles.sin(), angles.cos()], -1)
        deep = self.skip(torch.cat([functional.relu(self.body(written)), written], -1))
        density = functional.softplus(self.density(deep)).squeeze(-1)
        seen = direction.unsqueeze(1).expand(-1, points.shape[1], -1)
        color = self.color(torch.cat([deep, seen], -1))
        opacity = 1 - torch.exp(-density * 0.1)
        passed = torch.cat([torch.zeros_like(opacity[:, :1]), torch.log(1 - opacity + 1e-10)], 1)
        clear = torch.exp(torch.cumsum(passed, 1)[:, :-1])
        weights = opacity * clear
        return (weights.unsqueeze(-1) * color).sum(1), (weights * torch.arange(points.shape[1])).sum(1)


class SlowFast(nn.Module):
    """Two paths through a film at different rates, with lateral convolutions."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        slow, fast = draw.choice((32, 48)), 8
        self.slow = nn.ModuleList((
            nn.Conv3d(3, slow, (1, 7, 7), (1, 2, 2), (0, 3, 3)),
            nn.Conv3d(slow + 2 * fast, slow, (1, 3, 3), 1, (0, 1, 1)),
            nn.Conv3d(slow, 2 * slow, (3, 3, 3), (1, 2, 2), 1),
        ))  # fmt: skip
        self.fast = nn.ModuleList((
            nn.Conv3d(3, fast, (5, 7, 7), (1, 2, 2), (2, 3, 3)), nn.Conv3d(fast, fast, 3, 1, 1),
            nn.Conv3d(fast, 2 * fast, 3, (1, 2, 2), 1),
        ))  # fmt: skip
        self.lateral = nn.Conv3d(fast, 2 * fast, (5, 1, 1), (4, 1, 1), (2, 0, 0))
        self.last = nn.Linear(2 * slow + 2 * fast, 20)

    def forward(self, film: Tensor) -> Tensor:
        """Return class scores of a film (batch, 3, 16, 64, 64)."""
        fast = functional.relu(self.fast[0](film))
        slow = functional.relu(self.slow[0](film[:, :, ::4]))
        slow = functional.relu(self.slow[1](torch.cat([slow, self.lateral(fast)], 1)))
        fast = functional.relu(self.fast[1](fast))
        slow, fast = functional.relu(self.slow[2](slow)), functional.relu(self.fast[2](fast))
        return self.last(torch.cat([slow.mean((2, 3, 4)), fast.mean((2, 3, 4))], 1))


class ShiftedFrames(nn.Module):
    """TSM and X3D's block: channels shifted in time, depthwise volumes, weighed channels."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((24, 32))
        self.first = nn.Conv2d(3, width, 3, 2, 1)
        self.one = nn.Conv2d(width, width, 3, 1, 1)
        self.wide, self.narrow = nn.Conv3d(width, 2 * width, 1), nn.Conv3d(2 * width, width, 1)
        self.depth = nn.Conv3d(2 * width, 2 * width, 3, 1, 1, groups=2 * width)
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool3d(1), nn.Conv3d(2 * width, 8, 1), nn.ReLU(), nn.Conv3d(8, 2 * width, 1)
        )
        self.last = nn.Linear(width, 12)

    def forward(self, film: Tensor) -> Tensor:
        """Return class scores of a film (batch, 8, 3, 48, 48)."""
        batch, frames = film.shape[:2]
        deep = functional.relu(self.first(film.flatten(0, 1)))
        part = deep.shape[1] // 4
        deep = deep.view(batch, frames, *deep.shape[1:])
        later = functional.pad(deep[:, :-1, :part], (0, 0, 0, 0, 0, 0, 1, 0))
        sooner = functional.pad(deep[:, 1:, part : 2 * part], (0, 0, 0, 0, 0, 0, 0, 1))
        deep = torch.cat([later, sooner, deep[:, :, 2 * part :]], 2).flatten(0, 1)
        deep = functional.relu(self.one(deep)).view(batch, frames, -1, 24, 24).transpose(1, 2)
        inner = self.depth(functional.relu(self.wide(deep)))
        deep = deep + self.narrow(functional.silu(inner * torch.sigmoid(self.weigh(inner))))
        return self.last(deep.mean((2, 3, 4)))


class Skeletons(nn.Module):
    """ST-GCN: convolutions over time and products with adjacency matrices over the joints of a skeleton."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((32, 64))
        self.links = nn.Parameter(torch.rand(3, 18, 18))
        sizes = (3, width, width, 2 * width)
        self.space = nn.ModuleList(nn.Conv2d(a, 3 * b, 1) for a, b in pairwise(sizes))
        self.time = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, (9, 1), (1, 1), (4, 0)), nn.BatchNorm2d(b))
            for b in sizes[1:]
        )
        self.last = nn.Linear(2 * width, 30)

    def forward(self, joints: Tensor) -> Tensor:
        """Return class scores of motions (batch, 3, 60, 18)."""
        deep = joints
        for space, time in zip(self.space, self.time, strict=True):
            parts = space(deep)
            parts = parts.view(parts.shape[0], 3, -1, *parts.shape[2:])
            deep = functional.relu(time(torch.einsum("nkctv,kvw->nctw", parts, self.links)))
        return self.last(deep.mean((2, 3)))


class VolumeSegmenter(nn.Module):
    """V-Net: residual volumes, strided and transposed convolutions, normalization by groups."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((8, 16))
        self.first = self.block(1, width)
        self.down, self.middle = nn.Conv3d(width, 2 * width, 2, 2), self.block(2 * width, 2 * width)
        self.up, self.join = nn.ConvTranspose3d(2 * width, width, 2, 2), self.block(2 * width, width)
        self.last = nn.Conv3d(width, 2, 1)

    @staticmethod
    def block(inner: int, outer: int) -> nn.Module:
        """Return a normalized convolution."""
        return nn.Sequential(nn.Conv3d(inner, outer, 3, 1, 1), nn.GroupNorm(4, outer), nn.PReLU(outer))

    def forward(self, volume: Tensor) -> Tensor:
        """Return class probabilities of voxels (batch, 1, 24, 32, 32)."""
        first = self.first(volume)
        deep = functional.elu(self.down(first))
        deep = deep + self.middle(deep)
        return self.last(self.join(torch.cat([functional.elu(self.up(deep)), first], 1))).softmax(1)


class GridDetector(nn.Module):
    """YOLO's way: partial stages, pools of several sizes, three grids, boxes decoded in the graph."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        w, self.classes = draw.choice((16, 24)), 8
        self.stem = nn.Sequential(conv(3, w, 3, 2), nn.SiLU(), conv(w, 2 * w, 3, 2), nn.SiLU())
        self.stages = nn.ModuleList((self.stage(2 * w, 2 * w), self.stage(2 * w, 4 * w), self.stage(4 * w, 8 * w)))
        self.pool = nn.Conv2d(8 * w, 4 * w, 1)
        self.join = nn.Conv2d(16 * w, 8 * w, 1)
        self.up = nn.ModuleList((nn.Conv2d(12 * w, 4 * w, 1), nn.Conv2d(6 * w, 2 * w, 1)))
        self.heads = nn.ModuleList(nn.Conv2d(n * w, 3 * (5 + self.classes), 1) for n in (2, 4, 8))
        self.register_buffer("anchors", torch.rand(3, 3, 2) * 60 + 4)

    @staticmethod
    def stage(inner: int, outer: int) -> nn.Module:
        """Return a strided convolution and a residual one."""
        return nn.Sequential(conv(inner, outer, 3, 2), nn.BatchNorm2d(outer), nn.SiLU(), conv(outer, outer), nn.SiLU())

    def forward(self, picture: Tensor) -> tuple[Tensor, Tensor]:
        """Return boxes and class scores of all places of three grids."""
        deep, known = self.stem(picture), []
        for stage in self.stages:
            deep = stage(deep)
            known.append(deep)
        deep = self.pool(deep)
        deep = functional.silu(
            self.join(torch.cat([deep, *(functional.max_pool2d(deep, k, 1, k // 2) for k in (5, 9, 13))], 1))
        )
        grids = [deep]
        for layer, skip in zip(self.up, (known[1], known[0]), strict=True):
            deep = functional.silu(layer(torch.cat([functional.interpolate(deep, scale_factor=2.0), skip], 1)))
            grids.insert(0, deep)
        boxes, scores = [], []
        for n, (head, grid) in enumerate(zip(self.heads, grids, strict=True)):
            found = head(grid)
            batch, _, height, width = found.shape
            found = found.view(batch, 3, 5 + self.classes, height, width).permute(0, 1, 3, 4, 2).sigmoid()
            rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
            places = torch.stack([columns, rows], -1)
            center = (found[..., :2] * 2 - 0.5 + places) * (8 << n)
            size = (found[..., 2:4] * 2) ** 2 * self.anchors[n].view(1, 3, 1, 1, 2)
            boxes.append(torch.cat([center - size / 2, center + size / 2], -1).flatten(1, 3))
            scores.append((found[..., 4:5] * found[..., 5:]).flatten(1, 3))
        return torch.cat(boxes, 1), torch.cat(scores, 1)


class CenterDetector(nn.Module):
    """CenterNet: peaks of heat maps kept by a pool of maxima, the best of them with sizes and offsets."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width, self.classes = draw.choice((24, 32)), draw.choice((3, 20))
        self.down = nn.ModuleList((double(3, width), double(width, 2 * width), double(2 * width, 4 * width)))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(a, b, 4, 2, 1) for a, b in ((4 * width, 2 * width), (2 * width, width))
        )
        self.heat, self.size, self.shift = (nn.Conv2d(width, n, 3, 1, 1) for n in (self.classes, 2, 2))

    def forward(self, picture: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores, boxes and classes of the 40 best peaks."""
        deep = picture
        for layer in self.down:
            deep = layer(functional.max_pool2d(deep, 2))
        for layer in self.up:
            deep = functional.relu(layer(deep))
        heat = torch.sigmoid(self.heat(deep))
        heat = heat * (heat == functional.max_pool2d(heat, 3, 1, 1)).float()
        height, width = heat.shape[2:]
        scores, found = heat.flatten(1).topk(40)
        place = found % (height * width)
        both = torch.cat([self.size(deep), self.shift(deep)], 1).flatten(2).transpose(1, 2)
        picked = both.gather(1, place.unsqueeze(-1).expand(-1, -1, 4))
        center = torch.stack([place % width, place // width], -1) + picked[..., 2:]
        return (
            scores,
            torch.cat([center - picked[..., :2] / 2, center + picked[..., :2] / 2], -1),
            found // (height * width),
        )


class Capsules(nn.Module):
    """A capsule network: votes routed by agreement in three rounds."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 64, 9)
        self.capsules = nn.Conv2d(64, 8 * draw.choice((8, 12)), 9, 2)
        self.votes = nn.Parameter(0.05 * torch.randn(10, self.capsules.out_channels // 8 * 36, 8, 16))

    @staticmethod
    def squashed(value: Tensor) -> Tensor:
        """Return vectors of length below one."""
        length = value.pow(2).sum(-1, keepdim=True)
        return value * length / ((1 + length) * (length + 1e-8).sqrt())

    def forward(self, picture: Tensor) -> Tensor:
        """Return lengths of ten classes' capsules."""
        deep = self.capsules(functional.relu(self.first(picture)))
        capsules = self.squashed(deep.view(deep.shape[0], 8, -1).transpose(1, 2))
        votes = torch.einsum("bid,kido->bkio", capsules, self.votes)
        logits = torch.zeros_like(votes[..., 0])
        for n in range(3):
            found = self.squashed((logits.softmax(1).unsqueeze(-1) * votes).sum(2, keepdim=True))
            if n < 2:
                logits = logits + (votes * found).sum(-1)
        return found.squeeze(2).norm(dim=-1)


class GamePlayer(nn.Module):
    """AlphaZero's tower over a board: residual blocks, a policy and a value."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((64, 96, 128))
        self.first = nn.Sequential(conv(17, width, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.ModuleList(double(width, width)[:-1] for _ in range(4))
        self.policy = nn.Sequential(
            nn.Conv2d(width, 2, 1), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(722, 362)
        )
        self.value = nn.Sequential(
            nn.Conv2d(width, 1, 1), nn.BatchNorm2d(1), nn.ReLU(), nn.Flatten(), dense(361, 64, 1), nn.Tanh()
        )

    def forward(self, board: Tensor) -> tuple[Tensor, Tensor]:
        """Return the policy's logits and the value of boards (batch, 17, 19, 19)."""
        deep = self.first(board)
        for block in self.blocks:
            deep = functional.relu(deep + block(deep))
        return self.policy(deep), self.value(deep)


class SlotAttention(nn.Module):
    """Slots compete for the features of a picture in three rounds of a gated recurrence."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width, self.count = draw.choice((48, 64)), 6
        self.body = nn.Sequential(
            conv(3, width, 5), nn.ReLU(), conv(width, width, 5, 2), nn.ReLU(), conv(width, width, 5), nn.ReLU()
        )
        self.slots = nn.Parameter(torch.randn(1, self.count, width))
        self.k, self.v, self.q = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.update, self.feed = nn.GRUCell(width, width), dense(width, 128, width)

    def forward(self, picture: Tensor) -> Tensor:
        """Return the slots of a picture."""
        deep = self.norms[0](self.body(picture).flatten(2).transpose(1, 2))
        keys, known = self.k(deep), self.v(deep)
        slots = self.slots.expand(deep.shape[0], -1, -1)
        width = slots.shape[-1]
        for _ in range(3):
            scores = (keys @ self.q(self.norms[1](slots)).transpose(1, 2) * width**-0.5).softmax(-1) + 1e-8
            updates = (scores / scores.sum(1, keepdim=True)).transpose(1, 2) @ known
            slots = self.update(updates.reshape(-1, width), slots.reshape(-1, width)).view(updates.shape)
            slots = slots + self.feed(self.norms[2](slots))
        return slots


ASSORTED: dict[str, Architecture] = {
    "cross_network": of(
        "recommenders", CrossNetwork, lambda: {"ids": torch.randint(0, 200, (64, 8)), "numbers": torch.randn(64, 13)},
        {"ids": (0,), "numbers": (0,)},
    ),
    "interactions": of("recommenders", Interactions, lambda: {"ids": torch.randint(0, 500, (32, 10))}, {"ids": (0,)}),
    "interest_net": of(
        "recommenders", InterestNet,
        lambda: {
            "history": torch.randint(0, 1000, (16, 50)), "lengths": torch.randint(1, 50, (16,)),
            "item": torch.randint(0, 1000, (16,)),
        },
        {"history": (0,), "lengths": (0,), "item": (0,)},
    ),
    "feature_transformer": of("tables", FeatureTransformer, lambda: {"table": torch.randn(32, 20)}, {"table": (0,)}),
    "graph_attention": of(
        "graphs", GraphAttention,
        lambda: {
            "nodes": torch.randn(2, 40, 12),
            "edges": ((torch.rand(2, 40, 40) > 0.8) | torch.eye(40).bool()).float(),
        },
        {"nodes": (0, 1), "edges": (0, 1, 2)},
    ),
    "induced_sets": of("points", InducedSets, lambda: {"points": torch.randn(2, 200, 3)}, {"points": (0, 1)}),
    "radiance_field": of(
        "fields", RadianceField, lambda: {"points": torch.randn(64, 32, 3), "direction": torch.randn(64, 3)},
        {"points": (0,), "direction": (0,)},
    ),
    "slow_fast": of("video", SlowFast, lambda: {"film": torch.randn(1, 3, 16, 64, 64)}, {"film": (0,)}),
    "shifted_frames": of("video", ShiftedFrames, lambda: {"film": torch.randn(1, 8, 3, 48, 48)}),
    "skeletons": of("video", Skeletons, lambda: {"joints": torch.randn(2, 3, 60, 18)}, {"joints": (0,)}),
    "volume_segmenter": of("volumes", VolumeSegmenter, lambda: {"volume": torch.randn(1, 1, 24, 32, 32)}),
    "grid_detector": pictures(GridDetector, 160),
    "center_detector": pictures(CenterDetector, 128),
    "capsules": of("images", Capsules, lambda: {"picture": torch.randn(2, 1, 28, 28)}),
    "game_player": of("games", GamePlayer, lambda: {"board": torch.randn(2, 17, 19, 19)}, {"board": (0,)}),
    "slot_attention": of("images", SlotAttention, lambda: {"picture": torch.randn(1, 3, 48, 48)}, {"picture": (0,)}),
}  # fmt: skip
