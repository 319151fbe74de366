"""Parts of diffusers' pipelines, small and seeded, exported in the styles of `exported_architectures.py`.

    python benchmarks/diffusion_architectures.py FOLDER [--only NAME ...]

A UNet, both halves of a VAE, the MMDiT of Stable Diffusion 3 and Flux. Needs torch, diffusers and onnxscript; nothing
is downloaded. Files are named as there, so that `export_fusions.py FOLDER` compares them.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import diffusers
import numpy as np
import torch
from diffusers.models.attention_processor import AttnProcessor
from exported_architectures import OPSET, STYLES

BATCH, WORDS, WIDTH = 2, 5, 24


@dataclass(frozen=True)
class Part:
    """A model, what is called of it, and its inputs; ``has_eager``: it has attentions without sdpa, too."""

    build: Callable[[], torch.nn.Module]
    call: Callable[..., torch.Tensor]
    inputs: Callable[[], dict[str, torch.Tensor]]
    has_eager: bool = True


class Called(torch.nn.Module):
    """A part as exporters want it: named inputs by place, one tensor out."""

    def __init__(self, model: torch.nn.Module, part: Part, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.part, self.names = model, part, names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Return the one tensor."""
        return self.part.call(self.model, **dict(zip(self.names, inputs, strict=True)))


def unet() -> torch.nn.Module:
    """Return a denoiser with attention to words on one of its two levels."""
    return diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=WIDTH, attention_head_dim=8, norm_num_groups=8,
    )  # fmt: skip


def vae() -> torch.nn.Module:
    """Return an autoencoder of images."""
    return diffusers.AutoencoderKL(
        sample_size=16, block_out_channels=(16, 32), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, layers_per_block=1, norm_num_groups=8, latent_channels=4,
    )  # fmt: skip


def mmdit() -> torch.nn.Module:
    """Return two blocks of Stable Diffusion 3.5."""
    return diffusers.SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=4,
        joint_attention_dim=WIDTH, caption_projection_dim=32, pooled_projection_dim=16, out_channels=4,
        pos_embed_max_size=8, qk_norm="rms_norm",
    )  # fmt: skip


def flux() -> torch.nn.Module:
    """Return a double and a single block of Flux."""
    return diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=WIDTH, pooled_projection_dim=16, axes_dims_rope=(4, 4, 8),
    )  # fmt: skip


def words() -> dict[str, torch.Tensor]:
    """Return what the denoisers of words have in common."""
    return {"encoder_hidden_states": torch.randn(BATCH, WORDS, WIDTH), "pooled_projections": torch.randn(BATCH, 16)}


def sample(model: torch.nn.Module, **inputs: torch.Tensor) -> torch.Tensor:
    """Return the sample."""
    return model(**inputs).sample


PARTS = {
    "unet": Part(unet, sample, lambda: {
        "sample": torch.randn(BATCH, 4, 8, 8), "timestep": torch.tensor([3, 5]),
        "encoder_hidden_states": torch.randn(BATCH, WORDS, WIDTH),
    }),
    "vae_encoder": Part(
        vae, lambda model, image: model.encode(image).latent_dist.parameters,
        lambda: {"image": torch.randn(BATCH, 3, 16, 16)},
    ),
    "vae_decoder": Part(
        vae, lambda model, latent: model.decode(latent).sample, lambda: {"latent": torch.randn(BATCH, 4, 8, 8)}
    ),
    "mmdit": Part(mmdit, sample, lambda: {
        **words(), "hidden_states": torch.randn(BATCH, 4, 8, 8), "timestep": torch.tensor([3, 5]),
    }, has_eager=False),
    "flux": Part(flux, sample, lambda: {
        **words(), "hidden_states": torch.randn(BATCH, 16, 4), "timestep": torch.tensor([0.3, 0.5]),
        "img_ids": torch.randn(16, 3), "txt_ids": torch.randn(WORDS, 3),
    }, has_eager=False),
}  # fmt: skip


def export(part: Part, attention: str, exporter: str, path: Path) -> None:
    """Write one export beside its feeds and torch's result."""
    torch.manual_seed(1)
    model = part.build().eval()
    for parameter in (each for each in model.parameters() if each.ndim == 1):
        with torch.no_grad():
            parameter.add_(0.1 * torch.randn_like(parameter))
    if attention == "eager":
        model.set_attn_processor(AttnProcessor())
    torch.manual_seed(2)
    inputs = part.inputs()
    names = tuple(inputs)
    called = Called(model, part, names).eval()
    opened = [name for name in names if not name.endswith("_ids")]
    with torch.no_grad():
        expected = called(*inputs.values())
        if exporter == "dynamo":
            sizes = tuple({0: torch.export.Dim.DYNAMIC} if name in opened else {} for name in names)
            more = {"dynamo": True, "verbose": False, "external_data": False, "dynamic_shapes": (sizes,)}
        else:
            more = {"dynamo": False, "dynamic_axes": {name: {0: "batch"} for name in (*opened, "result")}}
        torch.onnx.export(
            called, tuple(inputs.values()), str(path), input_names=list(names), output_names=["result"],
            opset_version=OPSET, **more,
        )  # fmt: skip
    np.savez(
        path.with_suffix(".npz"), expected=expected.numpy(), **{name: each.numpy() for name, each in inputs.items()}
    )


def main() -> None:
    """Export what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=list(PARTS))
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    failed = {}
    for name in asked.only:
        for attention, exporter in STYLES:
            path = asked.folder / f"{name}.{attention}_{exporter}.onnx"
            if attention == "eager" and not PARTS[name].has_eager:
                continue
            try:
                export(PARTS[name], attention, exporter, path)
                print(f"{path.stem}: {path.stat().st_size} bytes", flush=True)
            except Exception as error:  # noqa: BLE001 - an exporter's failure is a row of the table, not ours
                failed[path.stem] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
                print(f"{path.stem}: {failed[path.stem]}", flush=True)
    (asked.folder / "FAILED_PARTS.json").write_text(json.dumps(failed, indent=1) + "\n")


if __name__ == "__main__":
    main()
