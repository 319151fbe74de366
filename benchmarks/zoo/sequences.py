"""Hand-written networks of sounds, texts, series, tables and graphs, with sizes that are drawn."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.drawn import Architecture, Draw, Drawn


class WaveNet(nn.Module):
    """Causal convolutions of growing dilation with gates, as WaveNet and temporal networks have them."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width, self.kernel = draw.choice((32, 48, 64)), draw.choice((2, 3))
        self.first = nn.Conv1d(1, width, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, 2 * width, self.kernel, dilation=2**n) for n in range(6))
        self.skips = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(6))
        self.last = nn.Conv1d(width, 64, 1)

    def forward(self, wave: Tensor) -> Tensor:
        """Return scores of each next sample."""
        deep, total = self.first(wave), 0
        for layer, skip in zip(self.layers, self.skips, strict=True):
            padded = functional.pad(deep, ((self.kernel - 1) * layer.dilation[0], 0))
            value, gate = layer(padded).chunk(2, 1)
            out = skip(value.tanh() * gate.sigmoid())
            deep, total = deep + out, total + out
        return self.last(functional.elu(total)).log_softmax(1)


class Conformer(nn.Module):
    """Speech: strided convolutions, relative attention, gated depthwise convolutions, half steps."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.width, self.heads = draw.choice((96, 128, 144)), 4
        width = self.width
        self.front = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU())
        self.enter = nn.Linear(16 * 20, width)
        self.feeds = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
            for _ in range(4)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.place = nn.Linear(width, width, bias=False)
        self.point = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(2))
        kernel = draw.choice((9, 15, 31))
        self.depth = nn.ModuleList(nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width) for _ in range(2))
        self.batch = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(2))

    def attend(self, deep: Tensor, layer: int) -> Tensor:
        """Return attention with scores by distance, shifted as in Transformer-XL."""
        batch, length, _ = deep.shape
        size = self.width // self.heads
        query, key, value = (
            each.view(batch, length, self.heads, size).transpose(1, 2)
            for each in self.qkv[layer](self.norms[layer](deep)).chunk(3, -1)
        )
        steps = torch.arange(length - 1, -length, -1, dtype=torch.float32)
        angles = steps[:, None] * torch.exp(-torch.arange(self.width // 2) * 0.1)[None]
        table = self.place(torch.cat([angles.sin(), angles.cos()], -1))
        places = table.view(1, -1, self.heads, size).permute(0, 2, 3, 1)
        shifted = functional.pad(query @ places, (1, 0))
        shifted = shifted.view(batch, self.heads, 2 * length, length)[:, :, 1:].reshape(
            batch, self.heads, length, 2 * length - 1
        )
        scores = (query @ key.transpose(2, 3) + shifted[..., :length]) / size**0.5
        return (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, self.width)

    def forward(self, spectrum: Tensor) -> Tensor:
        """Return the features of a spectrum (batch, time, 80)."""
        front = self.front(spectrum.unsqueeze(1))
        deep = self.enter(front.transpose(1, 2).flatten(2))
        for layer in range(2):
            deep = deep + 0.5 * self.feeds[2 * layer](deep)
            deep = deep + self.attend(deep, layer)
            inside = functional.glu(self.point[layer](self.norms[2 + layer](deep).transpose(1, 2)), 1)
            deep = deep + functional.silu(self.batch[layer](self.depth[layer](inside))).transpose(1, 2)
            deep = deep + 0.5 * self.feeds[2 * layer + 1](deep)
        return deep


class TextReader(nn.Module):
    """OCR: convolutions that shrink height alone, two recurrent layers both ways, scores of each column."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((48, 64))
        cell = draw.choice((nn.LSTM, nn.GRU))
        layers: list[nn.Module] = []
        for inner, outer, pool in ((1, width, 2), (width, width * 2, 2), (width * 2, width * 2, (2, 1))):
            layers += [nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(), nn.MaxPool2d(pool)]
        self.layers = nn.Sequential(*layers)
        self.recurrent = cell(width * 2 * 4, 96, num_layers=2, bidirectional=True)
        self.head = nn.Linear(192, 97)

    def forward(self, line: Tensor) -> Tensor:
        """Return scores by column of a line of text (batch, 1, 32, width)."""
        deep = self.layers(line)
        columns = deep.flatten(1, 2).permute(2, 0, 1)
        return self.head(self.recurrent(columns)[0]).log_softmax(-1)


class Recommender(nn.Module):
    """DLRM: bags of sparse features, a dense tower, products of all pairs."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(draw.choice((500, 3000)), 32) for _ in range(draw.randint(8, 26)))
        self.dense = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU())
        count = len(self.tables) + 1
        rows, columns = torch.tril_indices(count, count, -1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)
        self.top = nn.Sequential(nn.Linear(32 + len(rows), 128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid())

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """Return how likely a click is."""
        low = self.dense(dense)
        parts = torch.stack([low] + [table(sparse[:, n]) for n, table in enumerate(self.tables)], 1)
        pairs = torch.bmm(parts, parts.transpose(1, 2))[:, self.rows, self.columns]
        return self.top(torch.cat([low, pairs], 1))


class FactorMachine(nn.Module):
    """DeepFM with a cross network and the means of a history of unequal lengths."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.fields, size = draw.randint(10, 30), draw.choice((8, 16))
        self.table, self.linear = nn.Embedding(20000, size), nn.Embedding(20000, 1)
        width = (self.fields + 1) * size
        self.deep = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1))
        self.cross = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.last = nn.Linear(width, 1)

    def forward(self, ids: Tensor, history: Tensor, length: Tensor) -> Tensor:
        """Return how likely a click is."""
        seen = (torch.arange(history.shape[1])[None] < length[:, None]).float().unsqueeze(-1)
        mean = (self.table(history) * seen).sum(1) / length[:, None].float().clamp(min=1)
        parts = torch.cat([self.table(ids), mean.unsqueeze(1)], 1)
        second = 0.5 * (parts.sum(1).square() - parts.square().sum(1)).sum(1, keepdim=True)
        flat = parts.flatten(1)
        crossed = flat
        for layer in self.cross:
            crossed = flat * layer(crossed) + crossed
        linear = self.linear(ids).sum(1)
        return (linear + second + self.deep(flat) + self.last(crossed)).sigmoid()


class TwoTowers(nn.Module):
    """Towers of a user and of items, their cosines, and the best items."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((64, 128))
        self.words = nn.Embedding(5000, width)
        self.user = nn.GRU(width, width, batch_first=True)
        self.item = nn.Sequential(nn.Linear(40, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, width))

    def forward(self, clicks: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best items with their scores."""
        user = functional.normalize(self.user(self.words(clicks))[1][-1], dim=-1)
        item = functional.normalize(self.item(items), dim=-1)
        scores, index = (user @ item.T).topk(10)
        return scores, index


class GraphNet(nn.Module):
    """Messages over edges, added up by scatter, normalized by degree, with attention of each edge in one layer."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((32, 64))
        self.first, self.message = nn.Linear(24, width), nn.Linear(2 * width, width)
        self.score, self.last = nn.Linear(2 * width, 1), nn.Linear(width, 7)
        self.reduce = draw.choice(("sum", "amax"))

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Return class scores of each node; edges have shape (2, count)."""
        deep = self.first(nodes).relu()
        source, target = edges[0], edges[1]
        ends = torch.cat([deep.index_select(0, source), deep.index_select(0, target)], -1)
        message = self.message(ends).relu()
        index = target.unsqueeze(-1).expand_as(message)
        zeros = torch.zeros_like(deep)
        added = zeros.scatter_add(0, index, message)
        degree = torch.zeros_like(deep[:, 0]).scatter_add(0, target, torch.ones_like(message[:, 0]))
        deep = deep + added / degree.clamp(min=1).unsqueeze(-1)
        most = torch.full_like(deep, -9.0).scatter_reduce(0, index, message, self.reduce)
        weight = self.score(ends).squeeze(-1).exp()
        total = torch.zeros_like(deep[:, 0]).scatter_add(0, target, weight)
        share = weight / total.index_select(0, target).clamp(min=1e-6)
        mixed = zeros.scatter_add(0, index, share.unsqueeze(-1) * message)
        return self.last(deep + mixed + most)


class Attentive(nn.Module):
    """A table of numbers by attention over its columns, as FT-Transformer, with sparse gates by sorting (sparsemax)."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        columns, width = draw.randint(12, 40), 64
        self.weight, self.bias = nn.Parameter(torch.randn(columns, width)), nn.Parameter(torch.randn(columns, width))
        layer = nn.TransformerEncoderLayer(width, 4, 128, batch_first=True, norm_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.gate, self.head = nn.Linear(columns, columns), nn.Linear(width, 3)
        self.columns = columns

    def forward(self, table: Tensor) -> Tensor:
        """Return class scores of each row."""
        drawn = self.gate(table)
        ordered = drawn.sort(-1, descending=True).values
        sums = ordered.cumsum(-1) - 1
        ranks = torch.arange(1, self.columns + 1, dtype=table.dtype)
        held = (ordered * ranks > sums).sum(-1, keepdim=True)
        edge = sums.gather(-1, held - 1) / held
        kept = (drawn - edge).clamp(min=0)
        deep = (table * kept).unsqueeze(-1) * self.weight + self.bias
        return self.head(self.layers(deep).mean(1))


class RootMeanSquare(nn.Module):
    """A normalization by the root of the mean square, written out: one exporter does not know torch's own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, value: Tensor) -> Tensor:
        """Return rows of mean square one, scaled."""
        return value * (value.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * self.scale


class Decoder(nn.Module):
    """One step of a decoder with caches: rotary places, grouped heads, gated feeds, experts by their scores."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.heads, self.groups, self.size = 8, draw.choice((1, 2, 4)), draw.choice((32, 48, 64))
        width, self.experts = self.heads * self.size, draw.choice((0, 4))
        self.words = nn.Embedding(1000, width)
        self.qkv = nn.Linear(width, (self.heads + 2 * self.groups) * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norms = nn.ModuleList(RootMeanSquare(width) for _ in range(2))
        count = max(1, self.experts)
        self.up = nn.Parameter(torch.randn(count, width, 512) * 0.05)
        self.down = nn.Parameter(torch.randn(count, 512, width) * 0.05)
        self.route = nn.Linear(width, count)
        self.head = nn.Linear(width, 1000, bias=False)

    def turned(self, value: Tensor, angles: Tensor) -> Tensor:
        """Return heads turned by their places."""
        left, right = value.chunk(2, -1)
        return value * angles.cos() + torch.cat([-right, left], -1) * angles.sin()

    def forward(self, ids: Tensor, past_key: Tensor, past_value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores of the next word and the longer caches."""
        deep = self.words(ids)
        batch, length, width = deep.shape
        past = past_key.shape[2]
        split = [self.heads * self.size, self.groups * self.size, self.groups * self.size]
        query, key, value = (
            each.view(batch, length, -1, self.size).transpose(1, 2)
            for each in self.qkv(self.norms[0](deep)).split(split, -1)
        )
        places = torch.arange(length).float() + past
        angles = places[:, None] * torch.exp(-torch.arange(self.size // 2) * 0.2)[None]
        angles = torch.cat([angles, angles], -1)
        key = torch.cat([past_key, self.turned(key, angles)], 2)
        value = torch.cat([past_value, value], 2)
        query = self.turned(query, angles)
        shared = [each.repeat_interleave(self.heads // self.groups, 1) for each in (key, value)]
        mask = torch.arange(past + length)[None] <= (torch.arange(length) + past)[:, None]
        seen = functional.scaled_dot_product_attention(query, *shared, attn_mask=mask)
        deep = deep + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        inner = self.norms[1](deep)
        shares, chosen = self.route(inner).softmax(-1).topk(min(2, max(1, self.experts)), -1)
        wide = functional.silu(torch.einsum("btw,ewh->bteh", inner, self.up))
        each = torch.einsum("bteh,ehw->btew", wide, self.down)
        picked = torch.gather(each, 2, chosen.unsqueeze(-1).expand(-1, -1, -1, width))
        deep = deep + (picked * shares.unsqueeze(-1)).sum(2)
        return self.head(deep[:, -1:]), key, value


class Translator(nn.Module):
    """An encoder and a decoder of torch's own layers, with a padding mask and a causal one."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width = draw.choice((64, 96))
        self.words = nn.Embedding(500, width)
        self.whole = nn.Transformer(width, 4, 2, 2, 4 * width, batch_first=True, norm_first=draw.random() < 0.5)
        self.head = nn.Linear(width, 500)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return scores of each word of the target."""
        length = target.shape[1]
        causal = torch.full((length, length), float("-inf")).triu(1)
        padded = source == 0
        out = self.whole(
            self.words(source), self.words(target), tgt_mask=causal,
            src_key_padding_mask=torch.zeros_like(padded, dtype=torch.float32).masked_fill(padded, float("-inf")),
        )  # fmt: skip
        return self.head(out)


class Tagger(nn.Module):
    """Words and characters through recurrent layers, and the best path by Viterbi steps (a loop where scripted)."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width, self.tags = draw.choice((64, 100)), draw.choice((9, 17))
        self.words, self.letters = nn.Embedding(3000, width), nn.Embedding(80, 16)
        self.spell = nn.Conv1d(16, 32, 3, padding=1)
        self.layers = nn.LSTM(width + 32, width, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * width, self.tags)
        self.move = nn.Parameter(torch.randn(self.tags, self.tags))

    def forward(self, words: Tensor, letters: Tensor) -> Tensor:
        """Return the score of the best path to each last tag."""
        batch, length, count = letters.shape
        spelled = self.spell(self.letters(letters).view(batch * length, count, -1).transpose(1, 2)).max(2).values
        deep = torch.cat([self.words(words), spelled.view(batch, length, -1)], -1)
        scores = self.head(self.layers(deep)[0])
        return viterbi(scores, self.move)


@torch.jit.script
def viterbi(scores: Tensor, move: Tensor) -> Tensor:
    """Return the best score of a path to each last tag; a Loop where exported by TorchScript."""
    best = scores[:, 0]
    for step in range(1, scores.size(1)):
        best = (best.unsqueeze(2) + move.unsqueeze(0)).max(dim=1)[0] + scores[:, step]
    return best


class StateSpace(nn.Module):
    """A selective scan in parallel form, by sums of logarithms, with causal depthwise convolutions."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.width, self.states = draw.choice((64, 96)), draw.choice((4, 8))
        self.enter = nn.Linear(self.width, 4 * self.width)
        self.local = nn.Conv1d(2 * self.width, 2 * self.width, 4, padding=3, groups=2 * self.width)
        self.pick = nn.Linear(2 * self.width, 2 * self.states + 1)
        self.decay = nn.Parameter(torch.rand(self.states))
        self.leave = nn.Linear(2 * self.width, self.width)

    def forward(self, sequence: Tensor) -> Tensor:
        """Return the sequence (batch, time, width) after one layer."""
        value, gate = self.enter(sequence).chunk(2, -1)
        length = sequence.shape[1]
        value = functional.silu(self.local(value.transpose(1, 2))[..., :length].transpose(1, 2))
        enter, leave, step = self.pick(value).split([self.states, self.states, 1], -1)
        step = functional.softplus(step) * 0.1
        sums = (step * -self.decay).cumsum(1)
        shares = (sums[:, :, None] - sums[:, None]).clamp(max=0).exp()
        causal = torch.ones(length, length).tril()
        mixing = torch.einsum("bis,bjs,bijs->bij", leave, enter * step, shares) * causal
        return self.leave((mixing @ value) * functional.silu(gate))


class Codec(nn.Module):
    """A neural codec of sound: strided convolutions, the nearest entries of several books, transposed ones back."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        width, self.strides = draw.choice((16, 24)), draw.choice(((2, 4, 5), (4, 4, 2)))
        down: list[nn.Module] = [nn.Conv1d(1, width, 7, padding=3)]
        up: list[nn.Module] = []
        for stride in self.strides:
            down += [nn.ELU(), nn.Conv1d(width, width * 2, 2 * stride, stride, (stride + 1) // 2)]
            width *= 2
        for stride in reversed(self.strides):
            up += [nn.ELU(), nn.ConvTranspose1d(width, width // 2, 2 * stride, stride, (stride + 1) // 2, stride % 2)]
            width //= 2
        self.down, self.up = nn.Sequential(*down), nn.Sequential(*up, nn.ELU(), nn.Conv1d(width, 1, 7, padding=3))
        self.books = nn.Parameter(torch.randn(3, 128, width * 8) * 0.1)

    def forward(self, wave: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sound again, and its codes."""
        rest = self.down(wave).transpose(1, 2)
        total, codes = torch.zeros_like(rest), []
        for number in range(3):
            book = self.books[number]
            distance = rest.square().sum(-1, keepdim=True) - 2 * rest @ book.T + book.square().sum(-1)
            code = distance.argmin(-1)
            found = functional.embedding(code, book)
            total, rest = total + found, rest - found
            codes.append(code)
        return self.up(total.transpose(1, 2)).tanh(), torch.stack(codes, 1)


class Forecaster(nn.Module):
    """A series cut into patches, its trend by moving means, seasons by products with cosines (N-BEATS, DLinear)."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.patch, self.window = draw.choice((8, 16)), draw.choice((13, 25))
        self.enter = nn.Linear(self.patch, 64)
        self.mix = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
        self.trend, self.season = nn.Linear(256, 48), nn.LazyLinear(48)

    def forward(self, series: Tensor) -> Tensor:
        """Return 48 steps ahead of series (batch, channels, 256)."""
        mean, deviation = series.mean(-1, keepdim=True), series.std(-1, keepdim=True) + 1e-3
        scaled = (series - mean) / deviation
        half = self.window // 2
        trend = functional.avg_pool1d(functional.pad(scaled, (half, half), mode="replicate"), self.window, 1)
        pieces = (scaled - trend).unfold(-1, self.patch, self.patch // 2)
        deep = self.enter(pieces)
        deep = deep + self.mix(deep)
        return (self.trend(trend) + self.season(deep.flatten(2))) * deviation + mean


def ids(*shape: int, below: int = 500) -> Tensor:
    """Return random ids, none of them zero."""
    return torch.randint(1, below, shape)


def caches(draw: Draw) -> Drawn:
    """Return a decoder behind a past of some length."""
    module = Decoder(draw)
    past = torch.randn(1, module.groups, draw.choice((31, 128)), module.size)
    axes = {"ids": (0, 1), "past_key": (0, 2), "past_value": (0, 2)}
    inputs = {"ids": ids(1, draw.choice((1, 16))), "past_key": past, "past_value": torch.randn_like(past)}
    return Drawn(module, inputs, axes)


def forecaster(draw: Draw) -> Drawn:
    """Return a forecaster whose lazy layer has its size."""
    module, series = Forecaster(draw), torch.randn(4, 7, 256)
    module(series)
    return Drawn(module, {"series": series})


def recommender(draw: Draw) -> Drawn:
    """Return a recommender beside a batch."""
    module = Recommender(draw)
    inputs = {"dense": torch.randn(128, 13), "sparse": ids(128, len(module.tables))}
    return Drawn(module, inputs, {"dense": (0,), "sparse": (0,)})


def factor_machine(draw: Draw) -> Drawn:
    """Return a factorization machine beside a batch."""
    module = FactorMachine(draw)
    inputs = {
        "ids": ids(256, module.fields, below=20000), "history": ids(256, 20, below=20000),
        "length": torch.randint(0, 20, (256,)),
    }  # fmt: skip
    return Drawn(module, inputs, dict.fromkeys(inputs, (0,)))


def graph(draw: Draw) -> Drawn:
    """Return a graph of 400 nodes and 3,000 edges."""
    return Drawn(
        GraphNet(draw), {"nodes": torch.randn(400, 24), "edges": torch.randint(0, 400, (2, 3000))},
        {"nodes": (0,), "edges": (1,)},
    )  # fmt: skip


SEQUENCES: dict[str, Architecture] = {
    "wavenet": Architecture(
        "sound", lambda draw: Drawn(WaveNet(draw), {"wave": torch.randn(1, 1, 4000)}, {"wave": (0, 2)})
    ),
    "conformer": Architecture(
        "speech", lambda draw: Drawn(Conformer(draw), {"spectrum": torch.randn(1, 400, 80)}, {"spectrum": (0, 1)})
    ),
    "text_reader": Architecture(
        "OCR", lambda draw: Drawn(TextReader(draw), {"line": torch.randn(1, 1, 32, 160)}, {"line": (0, 3)})
    ),
    "dlrm": Architecture("recommenders", recommender),
    "deepfm": Architecture("recommenders", factor_machine),
    "two_towers": Architecture(
        "recommenders",
        lambda draw: Drawn(TwoTowers(draw), {"clicks": ids(8, 30), "items": torch.randn(500, 40)}, {"items": (0,)}),
    ),
    "graph_net": Architecture("graphs", graph),
    "table_attention": Architecture("tables", lambda draw: attentive(draw)),
    "decoder_step": Architecture("decoders", caches),
    "translator": Architecture(
        "texts",
        lambda draw: Drawn(
            Translator(draw), {"source": ids(2, 24), "target": ids(2, 18)}, {"source": (0, 1), "target": (0, 1)}
        ),
    ),
    "tagger": Architecture(
        "texts",
        lambda draw: Drawn(
            Tagger(draw), {"words": ids(1, 30), "letters": ids(1, 30, 12, below=80)},
            {"words": (0, 1), "letters": (0, 1)},
        ),
        ("torchscript",),
    ),
    "state_space": Architecture(
        "texts", lambda draw: scanned(draw)
    ),
    "codec": Architecture("sound", lambda draw: Drawn(Codec(draw), {"wave": torch.randn(1, 1, 4000)})),
    "forecaster": Architecture("series", forecaster),
}  # fmt: skip


def scanned(draw: Draw) -> Drawn:
    """Return a state space layer beside a sequence of 64 steps."""
    module = StateSpace(draw)
    return Drawn(module, {"sequence": torch.randn(1, 64, module.width)}, {"sequence": (0, 1)})


def attentive(draw: Draw) -> Drawn:
    """Return a table of 64 rows."""
    module = Attentive(draw)
    return Drawn(module, {"table": torch.randn(64, module.columns)}, {"table": (0,)})
