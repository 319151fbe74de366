"""Recurrences in parallel and in steps, matching of points, chains of labels: networks with sizes that are drawn."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.drawn import Architecture, Draw
from zoo.newer import of


class MatrixMemory(nn.Module):
    """An mLSTM in parallel: weights of all pairs of steps from differences of summed gates, scaled by their maximum."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.heads, self.size = 4, draw.choice((16, 24))
        width = self.heads * self.size
        self.qkv = nn.Linear(64, 3 * width)
        self.gates = nn.Linear(64, 2 * self.heads)
        self.norm = nn.LayerNorm(self.size)
        self.last = nn.Linear(width, 64)

    def forward(self, sequence: Tensor) -> Tensor:
        """Return a sequence (batch, steps, 64)."""
        batch, steps, _ = sequence.shape
        q, k, v = self.qkv(sequence).reshape(batch, steps, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        enter, stay = self.gates(sequence).transpose(1, 2).chunk(2, 1)
        kept = functional.logsigmoid(stay).cumsum(-1)
        logs = kept[..., :, None] - kept[..., None, :] + enter[..., None, :]
        past = torch.ones(steps, steps, dtype=torch.bool).tril()
        logs = logs.masked_fill(~past, float("-inf"))
        top = logs.amax(-1, keepdim=True)
        weights = (q @ k.transpose(-1, -2)) * torch.exp(logs - top) / self.size**0.5
        total = torch.maximum(weights.sum(-1, keepdim=True).abs(), torch.exp(-top))
        read = self.norm((weights / (total + 1e-6)) @ v)
        return self.last(read.transpose(1, 2).flatten(2))


class TimeMix(nn.Module):
    """A block of RWKV: weighed sums that decay, step by step with running maxima, and squared perceptrons."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.steps, width = draw.choice((16, 24)), 64
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.blend = nn.Parameter(torch.rand(5, width))
        self.key, self.value, self.gate, self.last = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.decay, self.bonus = nn.Parameter(-torch.rand(width)), nn.Parameter(torch.rand(width))
        self.wide, self.narrow, self.open = nn.Linear(width, 256), nn.Linear(256, width), nn.Linear(width, width)

    def _mixed(self, x: Tensor, number: int) -> Tensor:
        return torch.lerp(functional.pad(x, (0, 0, 1, 0))[:, :-1], x, self.blend[number])

    def forward(self, sequence: Tensor) -> Tensor:
        """Return a sequence (batch, steps, 64)."""
        sequence = sequence[:, : self.steps]
        x = self.norms[0](sequence)
        keys, values = self.key(self._mixed(x, 0)), self.value(self._mixed(x, 1))
        decay, found = -torch.exp(self.decay), []
        above = below = torch.zeros_like(keys[:, 0])
        top = above - 1e38
        for step in range(self.steps):
            key, value = keys[:, step], values[:, step]
            most = torch.maximum(top, self.bonus + key)
            old, new = torch.exp(top - most), torch.exp(self.bonus + key - most)
            found.append((old * above + new * value) / (old * below + new))
            most = torch.maximum(top + decay, key)
            old, new = torch.exp(top + decay - most), torch.exp(key - most)
            above, below, top = old * above + new * value, old * below + new, most
        mixed = sequence + self.last(torch.sigmoid(self.gate(self._mixed(x, 2))) * torch.stack(found, 1))
        x = self.norms[1](mixed)
        squared = torch.relu(self.wide(self._mixed(x, 3))) ** 2
        return mixed + torch.sigmoid(self.open(self._mixed(x, 4))) * self.narrow(squared)


class GatedRecurrence(nn.Module):
    """A recurrence of gated units as sums of logarithms, behind a causal convolution of each channel."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((48, 80))
        self.first = nn.Linear(48, 2 * width)
        self.near = nn.Conv1d(width, width, 4, groups=width, padding=3)
        self.gates = nn.Linear(width, 2 * width)
        self.rate = nn.Parameter(torch.rand(width))
        self.last = nn.Linear(width, 48)

    def forward(self, sequence: Tensor) -> Tensor:
        """Return a sequence (batch, steps, 48)."""
        x, gate = self.first(sequence).chunk(2, -1)
        x = self.near(x.transpose(1, 2))[..., : sequence.shape[1]].transpose(1, 2)
        forget, enter = torch.sigmoid(self.gates(x)).chunk(2, -1)
        logs = -0.5 * functional.softplus(self.rate) * forget
        added = torch.sqrt(1 - torch.exp(2 * logs) + 1e-6) * enter * x
        total = logs.cumsum(1)
        return self.last(torch.exp(total) * (torch.exp(-total) * added).cumsum(1) * functional.gelu(gate))


class PointMatcher(nn.Module):
    """LightGlue: points of two pictures attend to each other; who is whose best, both ways, is a match."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((32, 64))
        self.first = nn.Linear(34, width)
        self.inner = nn.MultiheadAttention(width, 4, batch_first=True)
        self.outer = nn.Linear(width, 2 * width)
        self.feed = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.last, self.worth = nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores of all pairs, of each left point its match or -1, and how good that is."""
        a, b = (x + self.inner(x, x, x, need_weights=False)[0] for x in map(self.first, (left, right)))
        (a_key, a_value), (b_key, b_value) = (self.outer(x).chunk(2, -1) for x in (a, b))
        alike = a_key @ b_key.transpose(1, 2) * a.shape[-1] ** -0.5
        seen_by_a, seen_by_b = alike.softmax(-1) @ b_value, alike.transpose(1, 2).softmax(-1) @ a_value
        a, b = a + self.feed(torch.cat([a, seen_by_a], -1)), b + self.feed(torch.cat([b, seen_by_b], -1))
        scores = self.last(a) @ self.last(b).transpose(1, 2)
        worth = functional.logsigmoid(self.worth(a)) + functional.logsigmoid(self.worth(b)).transpose(1, 2)
        scores = scores.log_softmax(2) + scores.log_softmax(1) + worth
        best, back = scores.max(2), scores.max(1).indices
        is_mutual = torch.arange(left.shape[1])[None] == back.gather(1, best.indices)
        return scores, torch.where(is_mutual, best.indices, -1), torch.where(is_mutual, best.values.exp(), 0.0)


class LabelChain(nn.Module):
    """A conditional random field: the best chain of labels, followed back, and the sum over all chains."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.labels = draw.choice((6, 9))
        self.first = nn.GRU(24, 16, batch_first=True, bidirectional=True)
        self.emit = nn.Linear(32, self.labels)
        self.move, self.start = nn.Parameter(torch.randn(self.labels, self.labels)), nn.Parameter(torch.randn(1))

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """Return labels of sequences of 12 words, and the logarithm of the sum."""
        scores = self.emit(self.first(words)[0])
        best = every = self.start + scores[:, 0]
        origins = []
        for step in range(1, 12):
            best, origin = (best[:, :, None] + self.move).max(1)
            best, every = best + scores[:, step], torch.logsumexp(every[:, :, None] + self.move, 1) + scores[:, step]
            origins.append(origin)
        chain = [best.argmax(-1, keepdim=True)]
        for origin in reversed(origins):
            chain.append(origin.gather(1, chain[-1]))
        return torch.cat(chain[::-1], 1), torch.logsumexp(every, 1)


RECURRENCES: dict[str, Architecture] = {
    "matrix_memory": of(
        "decoders", MatrixMemory, lambda: {"sequence": torch.randn(1, 96, 64)}, {"sequence": (0, 1)}
    ),
    "time_mix": of("decoders", TimeMix, lambda: {"sequence": torch.randn(1, 24, 64)}, {"sequence": (0,)}),
    "gated_recurrence": of(
        "decoders", GatedRecurrence, lambda: {"sequence": torch.randn(1, 64, 48)}, {"sequence": (0, 1)}
    ),
    "point_matcher": of(
        "pictures", PointMatcher, lambda: {"left": torch.randn(1, 60, 34), "right": torch.randn(1, 75, 34)},
        {"left": (1,), "right": (1,)},
    ),
    "label_chain": of("texts", LabelChain, lambda: {"words": torch.randn(2, 12, 24)}, {"words": (0,)}),
}  # fmt: skip
