"""Networks over sound, series and text: separators, speakers, synthesizers, forecasters, recurrences."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.drawn import Architecture, Draw
from zoo.newer import of


class Separator(nn.Module):
    """Conv-TasNet: masks over a learned basis, from dilated separable convolutions with global normalization."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        basis, width, hidden = draw.choice((96, 128)), draw.choice((48, 64)), 128
        self.encode, self.decode = nn.Conv1d(1, basis, 16, 8), nn.ConvTranspose1d(basis, 1, 16, 8)
        self.first = nn.Sequential(nn.GroupNorm(1, basis), nn.Conv1d(basis, width, 1))
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(width, hidden, 1), nn.PReLU(), nn.GroupNorm(1, hidden),
                nn.Conv1d(hidden, hidden, 3, padding=2**n, dilation=2**n, groups=hidden), nn.PReLU(),
                nn.GroupNorm(1, hidden), nn.Conv1d(hidden, width, 1),
            )
            for n in range(5)
        )  # fmt: skip
        self.mask = nn.Sequential(nn.PReLU(), nn.Conv1d(width, 2 * basis, 1), nn.Sigmoid())

    def forward(self, wave: Tensor) -> Tensor:
        """Return the waves (batch, 2, time) of two speakers."""
        code = self.encode(wave)
        deep = self.first(code)
        for layer in self.layers:
            deep = deep + layer(deep)
        masks = self.mask(deep).view(deep.shape[0], 2, -1, deep.shape[2])
        return self.decode((masks * code.unsqueeze(1)).flatten(0, 1)).view(deep.shape[0], 2, -1)


class DualPath(nn.Module):
    """A separator that runs recurrences within chunks and across them."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.chunk, width = draw.choice((20, 25)), draw.choice((32, 48))
        self.encode, self.decode = nn.Conv1d(1, width, 8, 4), nn.ConvTranspose1d(width, 1, 8, 4)
        self.inside = nn.ModuleList(nn.LSTM(width, width // 2, batch_first=True, bidirectional=True) for _ in range(2))
        self.across = nn.ModuleList(nn.LSTM(width, width // 2, batch_first=True, bidirectional=True) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))

    def forward(self, wave: Tensor) -> Tensor:
        """Return the enhanced wave."""
        code = functional.relu(self.encode(wave))
        batch, width, length = code.shape
        deep = code.transpose(1, 2).reshape(batch, length // self.chunk, self.chunk, width)
        for n in range(2):
            rows = deep.flatten(0, 1)
            deep = deep + self.norms[2 * n](self.inside[n](rows)[0]).view(deep.shape)
            rows = deep.transpose(1, 2).flatten(0, 1)
            found = self.norms[2 * n + 1](self.across[n](rows)[0])
            deep = deep + found.view(batch, self.chunk, -1, width).transpose(1, 2)
        mask = torch.sigmoid(deep.reshape(batch, length, width).transpose(1, 2))
        return self.decode(code * mask)


class WaveUnet(nn.Module):
    """Demucs: strided convolutions with gates, a recurrence, transposed convolutions with skips."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((16, 24, 32))
        sizes = [1, width, 2 * width, 4 * width]
        pairs = list(pairwise(sizes))
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv1d(a, b, 8, 4, 2), nn.ReLU(), nn.Conv1d(b, 2 * b, 1), nn.GLU(1)) for a, b in pairs
        )
        self.middle = nn.LSTM(sizes[-1], sizes[-1], 1, batch_first=True)
        self.up = nn.ModuleList(
            nn.Sequential(nn.Conv1d(b, 2 * b, 3, padding=1), nn.GLU(1), nn.ConvTranspose1d(b, a, 8, 4, 2))
            for a, b in reversed(pairs)
        )

    def forward(self, wave: Tensor) -> Tensor:
        """Return the enhanced wave."""
        known, deep = [], wave
        for layer in self.down:
            deep = layer(deep)
            known.append(deep)
        deep = self.middle(deep.transpose(1, 2))[0].transpose(1, 2)
        for n, layer in enumerate(self.up):
            deep = layer(deep + known.pop())
            deep = functional.relu(deep) if n < 2 else deep
        return deep


class SpeakerNet(nn.Module):
    """ECAPA-TDNN: Res2Net blocks of dilated convolutions, weighed channels, attentive statistics."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width, self.scale = draw.choice((128, 256)), 8
        part = width // self.scale
        self.first = self.unit(80, width, 5, 1)
        self.inner = nn.ModuleList(self.unit(width, width, 1, 1) for _ in range(3))
        self.outer = nn.ModuleList(self.unit(width, width, 1, 1) for _ in range(3))
        self.parts = nn.ModuleList(
            nn.ModuleList(self.unit(part, part, 3, n + 2) for _ in range(self.scale - 1)) for n in range(3)
        )
        self.weigh = nn.ModuleList(
            nn.Sequential(nn.Conv1d(width, 32, 1), nn.ReLU(), nn.Conv1d(32, width, 1), nn.Sigmoid()) for _ in range(3)
        )
        self.join = nn.Conv1d(3 * width, 384, 1)
        self.attend = nn.Sequential(nn.Conv1d(3 * 384, 64, 1), nn.Tanh(), nn.Conv1d(64, 384, 1))
        self.last = nn.Sequential(nn.BatchNorm1d(768), nn.Linear(768, 96))

    @staticmethod
    def unit(inner: int, outer: int, kernel: int, dilation: int) -> nn.Module:
        """Return a normalized convolution."""
        made = nn.Conv1d(inner, outer, kernel, padding=dilation * (kernel // 2), dilation=dilation)
        return nn.Sequential(made, nn.ReLU(), nn.BatchNorm1d(outer))

    def forward(self, sound: Tensor) -> Tensor:
        """Return the speaker's vector of a spectrum (batch, 80, time)."""
        deep = self.first(sound)
        found = []
        for n in range(3):
            known = deep
            pieces = list(self.inner[n](deep).chunk(self.scale, 1))
            for k, layer in enumerate(self.parts[n]):
                pieces[k + 1] = layer(pieces[k + 1] + (pieces[k] if k else 0))
            deep = self.outer[n](torch.cat(pieces, 1))
            deep = known + deep * self.weigh[n](deep.mean(2, keepdim=True))
            found.append(deep)
        deep = functional.relu(self.join(torch.cat(found, 1)))
        mean, spread = deep.mean(2, keepdim=True), deep.var(2, keepdim=True, unbiased=False).clamp(min=1e-4).sqrt()
        weights = self.attend(torch.cat([deep, mean.expand_as(deep), spread.expand_as(deep)], 1)).softmax(2)
        mean = (deep * weights).sum(2)
        spread = ((deep.pow(2) * weights).sum(2) - mean.pow(2)).clamp(min=1e-4).sqrt()
        return self.last(torch.cat([mean, spread], 1))


class Synthesizer(nn.Module):
    """FastSpeech's blocks: attention and convolutions over phonemes, their lengths, then mel frames."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width, self.heads = draw.choice((128, 192)), 2
        self.names = nn.Embedding(80, width)
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(4))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.wide = nn.ModuleList(nn.Conv1d(width, 4 * width, 9, padding=4) for _ in range(4))
        self.narrow = nn.ModuleList(nn.Conv1d(4 * width, width, 1) for _ in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(8))
        self.length = nn.Sequential(nn.Conv1d(width, 64, 3, padding=1), nn.ReLU(), nn.Conv1d(64, 1, 3, padding=1))
        self.mel = nn.Linear(width, 80)

    def block(self, n: int, deep: Tensor) -> Tensor:
        """Return what one block makes of a sequence."""
        batch, length, width = deep.shape
        q, k, v = self.qkv[n](deep).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        deep = self.norms[2 * n](deep + self.out[n](mixed))
        fed = self.narrow[n](functional.relu(self.wide[n](deep.transpose(1, 2)))).transpose(1, 2)
        return self.norms[2 * n + 1](deep + fed)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """Return mel frames, three for each phoneme, and the logarithms of lengths."""
        deep = self.names(words)
        for n in (0, 1):
            deep = self.block(n, deep)
        lengths = self.length(deep.transpose(1, 2)).squeeze(1)
        deep = deep.repeat_interleave(3, dim=1)
        for n in (2, 3):
            deep = self.block(n, deep)
        return self.mel(deep), lengths


class CouplingFlow(nn.Module):
    """VITS's flow: gated dilated convolutions shift one half of the channels by the other."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.half, width = 48, draw.choice((96, 128))
        self.pre = nn.ModuleList(nn.Conv1d(self.half, width, 1) for _ in range(3))
        self.gates = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(width, 2 * width, 5, padding=2) for _ in range(3)) for _ in range(3)
        )
        self.skips = nn.ModuleList(nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(3)) for _ in range(3))
        self.post = nn.ModuleList(nn.Conv1d(width, self.half, 1) for _ in range(3))

    def forward(self, latent: Tensor, mask: Tensor) -> Tensor:
        """Return the flowed latent (batch, 96, time)."""
        for pre, gates, skips, post in zip(self.pre, self.gates, self.skips, self.post, strict=True):
            left, right = latent.split(self.half, 1)
            deep = pre(left) * mask
            total = torch.zeros_like(deep)
            for gate, skip in zip(gates, skips, strict=True):
                a, b = gate(deep).chunk(2, 1)
                rest, more = skip(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
                deep, total = (deep + rest) * mask, total + more
            latent = torch.flip(torch.cat([left, (right + post(total * mask)) * mask], 1), [1])
        return latent


class CausalTower(nn.Module):
    """TCN: causal dilated convolutions, cut at the end, in residual pairs."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((48, 64, 96))
        self.layers = nn.ModuleList()
        for n in range(5):
            inner = 12 if n == 0 else width
            self.layers.append(nn.ModuleList((
                nn.Conv1d(inner, width, 3, padding=2 << n, dilation=1 << n),
                nn.Conv1d(width, width, 3, padding=2 << n, dilation=1 << n),
                nn.Conv1d(inner, width, 1),
            )))  # fmt: skip
        self.last = nn.Linear(width, 4)

    def forward(self, series: Tensor) -> Tensor:
        """Return the values after each moment of a series (batch, 12, time)."""
        deep = series
        for n, (one, two, skip) in enumerate(self.layers):
            cut = 2 << n
            found = functional.relu(one(deep)[..., :-cut])
            found = functional.relu(two(found)[..., :-cut])
            deep = functional.relu(found + skip(deep))
        return self.last(deep.transpose(1, 2))


class BasisForecaster(nn.Module):
    """N-BEATS: stacks subtract what they explain and add up what they forecast."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        past, self.ahead, width = 96, draw.choice((12, 24)), draw.choice((128, 256))
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(past, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width),
                nn.ReLU(), nn.Linear(width, 16),
            )
            for _ in range(6)
        )  # fmt: skip
        times = torch.arange(past + self.ahead) / past
        self.register_buffer(
            "basis", torch.stack([f(times * k * 6.28) for k in range(4) for f in (torch.sin, torch.cos)])
        )

    def forward(self, series: Tensor) -> Tensor:
        """Return the forecast of series (batch, 96)."""
        total = torch.zeros_like(series[:, : self.ahead])
        past = series.shape[1]
        for block in self.blocks:
            back, ahead = block(series).chunk(2, 1)
            series = series - back @ self.basis[:, :past]
            total = total + ahead @ self.basis[:, past:]
        return total


class PooledForecaster(nn.Module):
    """N-HiTS: each stack reads means over longer spans and interpolates what it forecasts."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((64, 128))
        self.spans, self.ahead, past = (8, 4, 1), 24, 96
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(past // s, width), nn.ReLU(), nn.Linear(width, past + max(2, self.ahead // s)))
            for s in self.spans
        )

    def forward(self, series: Tensor) -> Tensor:
        """Return the forecast of series (batch, 96)."""
        total = torch.zeros_like(series[:, : self.ahead])
        for span, block in zip(self.spans, self.blocks, strict=True):
            pooled = functional.max_pool1d(series.unsqueeze(1), span, span, ceil_mode=True).squeeze(1)
            found = block(pooled)
            series = series - found[:, :96]
            knots = found[:, 96:].unsqueeze(1)
            total = total + functional.interpolate(knots, size=self.ahead, mode="linear").squeeze(1)
        return total


class Decomposed(nn.Module):
    """Autoformer's split into trend and seasons, a mixer over time and channels, reversible normalization."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        past, ahead, width = 96, 24, draw.choice((32, 64))
        self.trend, self.season = nn.Linear(past, ahead), nn.Linear(past, ahead)
        self.time = nn.ModuleList(nn.Sequential(nn.Linear(past, past), nn.ReLU()) for _ in range(2))
        self.channel = nn.ModuleList(
            nn.Sequential(nn.Linear(7, width), nn.GELU(), nn.Linear(width, 7)) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(past) for _ in range(2))

    def forward(self, series: Tensor) -> Tensor:
        """Return the forecast of series (batch, 96, 7)."""
        mean, spread = series.mean(1, keepdim=True), torch.sqrt(series.var(1, keepdim=True, unbiased=False) + 1e-5)
        deep = (series - mean) / spread
        padded = torch.cat([deep[:, :1].repeat(1, 12, 1), deep, deep[:, -1:].repeat(1, 12, 1)], 1)
        trend = functional.avg_pool1d(padded.transpose(1, 2), 25, 1).transpose(1, 2)
        season = deep - trend
        for time, channel, norm in zip(self.time, self.channel, self.norms, strict=True):
            season = season + time(norm(season).transpose(1, 2)).transpose(1, 2)
            season = season + channel(season)
        found = self.trend(trend.transpose(1, 2)) + self.season(season.transpose(1, 2))
        return found.transpose(1, 2) * spread + mean


class Convolved(nn.Module):
    """LSTNet: a convolution over all series, a recurrence, one of skipped steps, and an autoregression."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width, self.skip = draw.choice((48, 64)), 12
        self.conv = nn.Conv2d(1, width, (6, 8))
        self.line = nn.GRU(width, width)
        self.jump = nn.GRU(width, 8)
        self.last = nn.Linear(width + 8 * self.skip, 8)
        self.auto = nn.Linear(24, 1)

    def forward(self, series: Tensor) -> Tensor:
        """Return the next values of series (batch, 101, 8)."""
        code = functional.relu(self.conv(series.unsqueeze(1))).squeeze(3)
        batch, width, _ = code.shape
        line = self.line(code.permute(2, 0, 1))[1].squeeze(0)
        rows = code[:, :, -96:].view(batch, width, 8, self.skip).permute(2, 0, 3, 1).reshape(8, -1, width)
        jump = self.jump(rows)[1].view(batch, -1)
        return self.last(torch.cat([line, jump], 1)) + self.auto(series[:, -24:].transpose(1, 2)).squeeze(2)


class LinearAttention(nn.Module):
    """Attention by kernel features and cumulative sums, then a gated mix of the token before (RWKV's channel mix)."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width, self.heads = draw.choice((96, 128)), 4
        self.names = nn.Embedding(300, width)
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.mix = nn.Parameter(torch.rand(2, 2, width))
        self.key = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.value = nn.ModuleList(nn.Linear(3 * width, width, bias=False) for _ in range(2))
        self.gate = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))

    def forward(self, words: Tensor) -> Tensor:
        """Return the states of words (batch, length)."""
        deep = self.names(words)
        batch, length, width = deep.shape
        for n in range(2):
            parts = self.qkv[n](self.norms[2 * n](deep)).view(batch, length, 3, self.heads, -1)
            q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
            q, k = functional.elu(q) + 1, functional.elu(k) + 1
            state = torch.cumsum(k.unsqueeze(-1) * v.unsqueeze(-2), 2)
            weight = (q * torch.cumsum(k, 2)).sum(-1, keepdim=True)
            mixed = (q.unsqueeze(-2) @ state).squeeze(-2) / weight
            deep = deep + self.out[n](mixed.transpose(1, 2).reshape(batch, length, width))
            x = self.norms[2 * n + 1](deep)
            before = functional.pad(x, (0, 0, 1, -1))
            key = torch.square(torch.relu(self.key[n](x + (before - x) * self.mix[n, 0])))
            deep = deep + torch.sigmoid(self.gate[n](x + (before - x) * self.mix[n, 1])) * self.value[n](key)
        return deep


class MinimalRecurrence(nn.Module):
    """minGRU in its parallel form: a scan in logarithms by cumulative sums and LogCumSumExp's parts."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((64, 96))
        self.first = nn.Linear(16, width)
        self.layers = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(2))
        self.last = nn.Linear(width, 5)

    def forward(self, series: Tensor) -> Tensor:
        """Return the scores of each step of a series (batch, time, 16)."""
        deep = self.first(series)
        for layer in self.layers:
            gate, value = layer(deep).chunk(2, -1)
            keep = torch.cumsum(-functional.softplus(gate), 1)
            update = -functional.softplus(-gate) + torch.where(
                value >= 0, torch.log(value.relu() + 0.5), -functional.softplus(-value)
            )
            rest = update - keep
            top = rest.amax(1, keepdim=True)
            deep = deep + torch.exp(keep + top) * torch.cumsum(torch.exp(rest - top), 1)
        return self.last(deep)


class Beats(nn.Module):
    """A classifier of heart beats: strided residual 1-D convolutions, weighed channels, a recurrence at the end."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((32, 48))
        self.first = nn.Sequential(
            nn.Conv1d(12, width, 15, 2, 7), nn.BatchNorm1d(width), nn.ReLU(), nn.MaxPool1d(3, 2, 1)
        )
        sizes = [width, width, 2 * width, 4 * width]
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(a, b, 7, 2, 3, bias=False), nn.BatchNorm1d(b), nn.ReLU(),
                nn.Conv1d(b, b, 7, 1, 3, bias=False),
                nn.BatchNorm1d(b),
            )
            for a, b in pairwise(sizes)
        )  # fmt: skip
        self.skips = nn.ModuleList(nn.Conv1d(a, b, 1, 2) for a, b in pairwise(sizes))
        self.line = nn.GRU(sizes[-1], 48, batch_first=True, bidirectional=True)
        self.last = nn.Linear(96, 9)

    def forward(self, sound: Tensor) -> Tensor:
        """Return the class scores of a recording (batch, 12, time)."""
        deep = self.first(sound)
        for block, skip in zip(self.blocks, self.skips, strict=True):
            deep = functional.relu(block(deep) + skip(deep))
        return self.last(self.line(deep.transpose(1, 2))[0].amax(1))


WORDS = {"words": (0, 1)}
SIGNALS: dict[str, Architecture] = {
    "separator": of("sound", Separator, lambda: {"wave": torch.randn(1, 1, 8000)}, {"wave": (0, 2)}),
    "dual_path": of("sound", DualPath, lambda: {"wave": torch.randn(1, 1, 4004)}, {}),
    "wave_unet": of("sound", WaveUnet, lambda: {"wave": torch.randn(1, 1, 6400)}, {"wave": (0,)}),
    "speaker_net": of("speech", SpeakerNet, lambda: {"sound": torch.randn(1, 80, 200)}, {"sound": (0, 2)}),
    "synthesizer": of("speech", Synthesizer, lambda: {"words": torch.randint(0, 80, (1, 40))}, WORDS),
    "coupling_flow": of(
        "speech", CouplingFlow, lambda: {"latent": torch.randn(1, 96, 120), "mask": torch.ones(1, 1, 120)},
        {"latent": (0, 2), "mask": (0, 2)},
    ),
    "causal_tower": of("series", CausalTower, lambda: {"series": torch.randn(2, 12, 256)}, {"series": (0,)}),
    "basis_forecaster": of("series", BasisForecaster, lambda: {"series": torch.randn(32, 96)}, {"series": (0,)}),
    "pooled_forecaster": of("series", PooledForecaster, lambda: {"series": torch.randn(32, 96)}, {"series": (0,)}),
    "decomposed": of("series", Decomposed, lambda: {"series": torch.randn(8, 96, 7)}, {"series": (0,)}),
    "convolved": of("series", Convolved, lambda: {"series": torch.randn(4, 101, 8)}, {"series": (0,)}),
    "linear_attention": of("decoders", LinearAttention, lambda: {"words": torch.randint(0, 300, (1, 48))}, WORDS),
    "minimal_recurrence": of(
        "series", MinimalRecurrence, lambda: {"series": torch.randn(2, 100, 16)}, {"series": (0, 1)}
    ),
    "beats": of("series", Beats, lambda: {"sound": torch.randn(1, 12, 2000)}, {"sound": (0, 2)}),
}  # fmt: skip
