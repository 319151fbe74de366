"""Further hand-written networks: splines, modulated patches, codes, vocoders, transducers, points, bags, boxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.drawn import Architecture, Axes, Draw, Drawn


class SplineLayer(nn.Module):
    """A Kolmogorov-Arnold layer: each edge a spline over a grid, beside a smooth part."""

    def __init__(self, inputs: int, outputs: int, grid: int = 5, order: int = 3) -> None:
        super().__init__()
        self.order = order
        knots = torch.arange(-order, grid + order + 1) * (2.0 / grid) - 1.0
        self.register_buffer("knots", knots.expand(inputs, -1).contiguous())
        self.smooth = nn.Linear(inputs, outputs, bias=False)
        self.spline = nn.Parameter(0.1 * torch.randn(outputs, inputs, grid + order))

    def forward(self, table: Tensor) -> Tensor:
        """Return sums of splines of each column."""
        x, knots = table.unsqueeze(-1), self.knots
        basis = ((x >= knots[:, :-1]) & (x < knots[:, 1:])).to(x.dtype)
        for k in range(1, self.order + 1):
            left = (x - knots[:, : -(k + 1)]) / (knots[:, k:-1] - knots[:, : -(k + 1)])
            right = (knots[:, k + 1 :] - x) / (knots[:, k + 1 :] - knots[:, 1:-k])
            basis = left * basis[..., :-1] + right * basis[..., 1:]
        return self.smooth(functional.silu(table)) + functional.linear(basis.flatten(1), self.spline.flatten(1))


class DiffusionTransformer(nn.Module):
    """Patches of a noisy picture, each block shifted and scaled by the moment and the class."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.width, self.heads = draw.choice((96, 144, 192)), 4
        width = self.width
        self.patch = nn.Conv2d(4, width, 2, 2)
        self.place = nn.Parameter(0.1 * torch.randn(1, 256, width))
        self.moment = nn.Sequential(nn.Linear(64, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(11, width)
        self.modulate = nn.ModuleList(nn.Linear(width, 6 * width) for _ in range(3))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(3))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.feed = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
            for _ in range(3)
        )
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.last = nn.Linear(width, 16)

    def forward(self, noisy: Tensor, moment: Tensor, label: Tensor) -> Tensor:
        """Return the noise of a latent picture (batch, 4, 32, 32)."""
        angles = moment[:, None] * torch.exp(-torch.arange(32) * 0.29)
        known = functional.silu(self.moment(torch.cat([angles.cos(), angles.sin()], -1)) + self.label(label))
        deep = self.patch(noisy).flatten(2).transpose(1, 2) + self.place
        batch, length, width = deep.shape
        for layer in range(3):
            parts = self.modulate[layer](known).unsqueeze(1).chunk(6, -1)
            x = self.norm(deep) * (1 + parts[1]) + parts[0]
            q, k, v = self.qkv[layer](x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
            deep = deep + parts[2] * self.out[layer](mixed)
            deep = deep + parts[5] * self.feed[layer](self.norm(deep) * (1 + parts[4]) + parts[3])
        pixels = self.last(self.norm(deep)).view(batch, 16, 16, 2, 2, 4)
        return torch.einsum("nhwpqc->nchpwq", pixels).reshape(batch, 4, 32, 32)


class CodeBook(nn.Module):
    """A picture codec: an encoder, the nearest code of a book at each place, a decoder of transposed convolutions."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((32, 48))
        self.encode = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, width, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, 24, 1),
        )
        self.codes = nn.Embedding(draw.choice((128, 512)), 24)
        self.decode = nn.Sequential(
            nn.Conv2d(24, width, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(width, width, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, picture: Tensor) -> tuple[Tensor, Tensor]:
        """Return the picture from its codes, and the codes."""
        deep = self.encode(picture).permute(0, 2, 3, 1)
        found = torch.cdist(deep.flatten(0, 2), self.codes.weight).argmin(-1)
        return self.decode(self.codes(found).view(deep.shape).permute(0, 3, 1, 2)), found


class Vocoder(nn.Module):
    """A vocoder of periodic activations, with an inverse spectrum written as a transposed convolution."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((96, 128))
        self.first = nn.Conv1d(80, width, 7, padding=3)
        self.depth = nn.ModuleList(nn.Conv1d(width, width, 7, padding=3, groups=width) for _ in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.wide = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(4))
        self.narrow = nn.ModuleList(nn.Linear(3 * width, width) for _ in range(4))
        self.alpha = nn.Parameter(torch.rand(4, 3 * width) + 0.5)
        self.head = nn.Linear(width, 130)
        self.inverse = nn.ConvTranspose1d(130, 1, 128, 32, padding=48, bias=False)

    def forward(self, spectrum: Tensor) -> Tensor:
        """Return a wave of a spectrum (batch, 80, time)."""
        deep = self.first(spectrum)
        for depth, norm, wide, narrow, alpha in zip(
            self.depth, self.norms, self.wide, self.narrow, self.alpha, strict=True
        ):
            x = wide(norm(depth(deep).transpose(1, 2)))
            x = x + (alpha * x).sin().square() / (alpha + 1e-9)
            deep = deep + narrow(x).transpose(1, 2)
        size, phase = self.head(deep.transpose(1, 2)).chunk(2, -1)
        size = size.exp().clip(max=1e2)
        return self.inverse(torch.cat([size * phase.cos(), size * phase.sin()], -1).transpose(1, 2))


class Joiner(nn.Module):
    """A transducer: an encoder, a predictor of stacked LSTMs, and scores of each pair of their steps."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((128, 160))
        self.encode = nn.LSTM(80, width, 2, batch_first=True, bidirectional=True)
        self.down = nn.Linear(2 * width, width)
        self.words = nn.Embedding(200, width)
        self.predict = nn.GRU(width, width, 2, batch_first=True)
        self.join = nn.Linear(width, 200)

    def forward(self, sound: Tensor, words: Tensor) -> Tensor:
        """Return scores (batch, time, words, 200)."""
        heard, said = self.down(self.encode(sound)[0]), self.predict(self.words(words))[0]
        return self.join((heard.unsqueeze(2) + said.unsqueeze(1)).tanh()).log_softmax(-1)


class Packed(nn.Module):
    """A tagger over sequences of their own lengths: packed, both directions, unpacked, and the last step of each."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((64, 96))
        self.words = nn.Embedding(500, 48)
        self.layers = nn.LSTM(48, width, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, 12)

    def forward(self, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores of each word and of each sequence."""
        packed = nn.utils.rnn.pack_padded_sequence(self.words(words), lengths, True, enforce_sorted=False)
        out, (last, _) = self.layers(packed)
        deep, _ = nn.utils.rnn.pad_packed_sequence(out, True)
        return self.head(deep), self.head(torch.cat([last[-2], last[-1]], -1))


class Neighbors(nn.Module):
    """Points: edges to the nearest in features (dynamic graphs), groups around samples, pooled."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.near = draw.choice((8, 16))
        self.edges = nn.ModuleList(
            nn.Sequential(nn.Conv2d(2 * inputs, 48, 1, bias=False), nn.BatchNorm2d(48), nn.LeakyReLU(0.2))
            for inputs in (3, 48, 48)
        )
        self.head = nn.Linear(144, 20)

    def forward(self, points: Tensor) -> Tensor:
        """Return classes of clouds (batch, 3, n)."""
        found, deep = [], points
        for layer in self.edges:
            square = deep.square().sum(1, keepdim=True)
            apart = 2 * deep.transpose(1, 2) @ deep - square - square.transpose(1, 2)
            near = apart.topk(self.near, -1).indices
            batch, width, count = deep.shape
            spread = near.reshape(batch, 1, -1).expand(-1, width, -1)
            others = deep.gather(2, spread).view(batch, width, count, self.near)
            own = deep.unsqueeze(-1).expand_as(others)
            deep = layer(torch.cat([others - own, own], 1)).amax(-1)
            found.append(deep)
        return self.head(torch.cat(found, 1).amax(-1))


class Bags(nn.Module):
    """A recommender of bags of embeddings with crosses, a tower of experts for two tasks, and ranks of candidates."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((16, 24))
        self.bags = nn.ModuleList(nn.EmbeddingBag(1000, width, mode=mode) for mode in ("sum", "mean", "sum"))
        self.cross = nn.ModuleList(nn.Linear(3 * width + 8, 3 * width + 8) for _ in range(3))
        self.experts = nn.Parameter(0.1 * torch.randn(4, 3 * width + 8, 32))
        self.gates = nn.ModuleList(nn.Linear(3 * width + 8, 4) for _ in range(2))
        self.heads = nn.ModuleList(nn.Linear(32, 1) for _ in range(2))

    def forward(self, ids: Tensor, dense: Tensor) -> Tensor:
        """Return two chances for each row of ids (rows, 3, 10)."""
        start = torch.cat([*(bag(ids[:, n]) for n, bag in enumerate(self.bags)), dense], -1)
        deep = start
        for layer in self.cross:
            deep = start * layer(deep) + deep
        known = torch.einsum("bi,eio->beo", deep, self.experts).relu()
        tasks = [
            head((gate(deep).softmax(-1).unsqueeze(-1) * known).sum(1)).sigmoid()
            for gate, head in zip(self.gates, self.heads, strict=True)
        ]
        return torch.cat(tasks, -1)


class Retention(nn.Module):
    """A decoder whose attention decays with distance, in parallel form, with group norms and gates."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.width, self.heads = 128, draw.choice((2, 4))
        self.parts = nn.ModuleList(nn.Linear(self.width, 4 * self.width, bias=False) for _ in range(3))
        self.out = nn.ModuleList(nn.Linear(self.width, self.width, bias=False) for _ in range(3))
        self.norms = nn.ModuleList(nn.RMSNorm(self.width) for _ in range(3))
        self.groups = nn.ModuleList(nn.GroupNorm(self.heads, self.width) for _ in range(3))
        self.register_buffer("decay", torch.log(1 - 2.0 ** (-5 - torch.arange(float(self.heads)))))

    def forward(self, sequence: Tensor) -> Tensor:
        """Return deep features of a sequence (batch, length, width)."""
        batch, length, width = sequence.shape
        steps = torch.arange(length)
        apart = (steps[:, None] - steps[None]).float()
        mask = torch.where(apart >= 0, torch.exp(apart * self.decay[:, None, None]), torch.zeros(()))
        deep = sequence
        for parts, out, norm, group in zip(self.parts, self.out, self.norms, self.groups, strict=True):
            q, k, v, gate = parts(norm(deep)).chunk(4, -1)
            q, k, v = (each.view(batch, length, self.heads, -1).transpose(1, 2) for each in (q, k, v))
            held = (q @ k.transpose(2, 3) * mask) @ v
            held = held.transpose(1, 2).reshape(batch * length, width)
            deep = deep + out(functional.silu(gate) * group(held).view(batch, length, width))
        return deep


class Detector(nn.Module):
    """Boxes without anchors at two scales, decoded, the best kept and suppressed by a matrix of overlaps."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((32, 48))
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.SiLU(), nn.Conv2d(width, width, 3, 2, 1), nn.SiLU(),
            nn.Conv2d(width, width, 3, 2, 1), nn.SiLU(),
        )  # fmt: skip
        self.next = nn.Sequential(nn.Conv2d(width, width, 3, 2, 1), nn.SiLU())
        self.heads = nn.ModuleList(nn.Conv2d(width, 4 * 8 + 5, 1) for _ in range(2))
        self.register_buffer("bins", torch.arange(8.0))

    def forward(self, picture: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best boxes of one picture, their scores after suppression, and their classes."""
        near = self.stem(picture)
        boxes, scores = [], []
        for deep, head, stride in zip((near, self.next(near)), self.heads, (8, 16), strict=True):
            out = head(deep)
            rows, columns = out.shape[2:]
            y, x = torch.meshgrid(torch.arange(rows) + 0.5, torch.arange(columns) + 0.5, indexing="ij")
            sides = (out[0, :32].view(4, 8, -1).softmax(1) * self.bins[:, None]).sum(1)
            centers = torch.stack([x, y]).view(2, -1)
            boxes.append(torch.cat([centers - sides[:2], centers + sides[2:]]) * stride)
            scores.append(out[0, 32:].flatten(1).sigmoid())
        box, score = torch.cat(boxes, 1).T, torch.cat(scores, 1).T
        best, kind = score.max(-1)
        best, order = best.topk(60)
        box, kind = box[order] + 1e3 * kind[order, None], kind[order]
        low, high = torch.maximum(box[:, None, :2], box[:, :2]), torch.minimum(box[:, None, 2:], box[:, 2:])
        shared = (high - low).clip(min=0).prod(-1)
        area = (box[:, 2:] - box[:, :2]).prod(-1)
        overlap = (shared / (area[:, None] + area - shared)).triu(1)
        decay = ((1 - overlap) / (1 - overlap.amax(0)[:, None])).amin(0)
        return box - 1e3 * kind[:, None], best * decay, kind


class HyperSolver(nn.Module):
    """A neural differential equation in fixed steps, with coupling (a normalizing flow) behind it."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((32, 64))
        self.field = nn.Sequential(
            nn.Linear(9, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 8)
        )
        self.scale = nn.ModuleList(nn.Sequential(nn.Linear(4, width), nn.ELU(), nn.Linear(width, 8)) for _ in range(4))

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the state at the end and the logarithm of its volume."""
        for step in range(4):
            time = torch.full_like(state[:, :1], step / 4)
            k1 = self.field(torch.cat([state, time], -1))
            k2 = self.field(torch.cat([state + k1 / 8, time + 0.125], -1))
            state = state + k2 / 4
        total = torch.zeros_like(state[:, 0])
        for net in self.scale:
            left, right = state[:, :4], state[:, 4:]
            size, shift = net(left).chunk(2, -1)
            size = torch.tanh(size)
            state, total = torch.cat([right * size.exp() + shift, left], -1), total + size.sum(-1)
        return state, total


def of(
    family: str, kind: Callable[[Draw], nn.Module], inputs: Callable[[], Mapping[str, Tensor]], axes: Axes | None = None
) -> Architecture:
    """Return an architecture from its class, a maker of its inputs, and its open axes."""
    return Architecture(family, lambda draw: Drawn(kind(draw), inputs(), axes or {}))


class StaticCache(nn.Module):
    """A decoder's attention with a cache of a fixed length, into which steps are copied at their positions."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.heads, self.width = draw.choice((2, 4)), 64
        self.parts = nn.Linear(self.width, 3 * self.width)

    def forward(self, steps: Tensor, cache: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return deep features of steps (1, count, width) and the cache (1, 2, length, heads, width of a head)."""
        _, count, width = steps.shape
        q, k, v = self.parts(steps).view(1, count, 3, self.heads, -1).unbind(2)
        cache = cache.index_copy(2, places, torch.stack([k, v], 1))
        is_past = torch.arange(cache.shape[2])[None] <= places[:, None]
        mask = torch.where(is_past, 0.0, float("-inf"))
        q, k, v = (each.transpose(1, 2) for each in (q, cache[:, 0], cache[:, 1]))
        return functional.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).reshape(1, count, width), cache


def static_cache(draw: Draw) -> Drawn:
    """Return it with a cache of its heads."""
    module = StaticCache(draw)
    cache = torch.zeros(1, 2, 128, module.heads, module.width // module.heads)
    inputs = {"steps": torch.randn(1, 5, 64), "cache": cache, "places": torch.arange(10, 15)}
    return Drawn(module, inputs, {"steps": (1,), "places": (0,)})


class Splines(nn.Sequential):
    """Two layers of splines."""

    def __init__(self, draw: Draw) -> None:
        super().__init__(SplineLayer(12, draw.choice((24, 32))), nn.Identity())
        self.append(SplineLayer(self[0].smooth.out_features, 5))


NEWER: dict[str, Architecture] = {
    "splines": of("tables", Splines, lambda: {"table": 0.5 * torch.randn(128, 12)}, {"table": (0,)}),
    "diffusion_transformer": of(
        "images", DiffusionTransformer,
        lambda: {
            "noisy": torch.randn(2, 4, 32, 32), "moment": torch.tensor([3.0, 40.0]), "label": torch.tensor([1, 7]),
        },
        {"noisy": (0,), "moment": (0,), "label": (0,)},
    ),
    "code_book": of("images", CodeBook, lambda: {"picture": torch.randn(1, 3, 64, 64)}, {"picture": (0, 2, 3)}),
    "vocoder": of("sound", Vocoder, lambda: {"spectrum": torch.randn(1, 80, 100)}, {"spectrum": (0, 2)}),
    "transducer": of(
        "speech", Joiner, lambda: {"sound": torch.randn(1, 60, 80), "words": torch.randint(0, 200, (1, 12))},
        {"sound": (1,), "words": (1,)},
    ),
    "packed_sequences": of(
        "texts", Packed,
        lambda: {"words": torch.randint(0, 500, (4, 20)), "lengths": torch.tensor([20, 7, 13, 2])},
        {"words": (0, 1), "lengths": (0,)},
    ),
    "neighbors": of("points", Neighbors, lambda: {"points": torch.randn(2, 3, 256)}, {"points": (0,)}),
    "bags": of(
        "recommenders", Bags, lambda: {"ids": torch.randint(0, 1000, (64, 3, 10)), "dense": torch.randn(64, 8)},
        {"ids": (0,), "dense": (0,)},
    ),
    "retention": of(
        "decoders", Retention,
        lambda: {"sequence": torch.randn(1, 64, 128)}, {"sequence": (0, 1)},
    ),
    "matrix_suppression": of("detection", Detector, lambda: {"picture": torch.randn(1, 3, 160, 160)}),
    "static_cache": Architecture("decoders", static_cache),
    "flow": of("tables", HyperSolver, lambda: {"state": torch.randn(256, 8)}, {"state": (0,)}),
}  # fmt: skip
