"""diffusers' ONNX pipelines on small seeded parts: words to pictures, pictures to pictures, and what a mask hides."""

from __future__ import annotations

PICTURES = {
    "diffusers": """
import os
os.environ["HF_HUB_OFFLINE"] = "1"
import json, pathlib, string, tempfile
import numpy as np
import torch
from PIL import Image
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer
from diffusers import (AutoencoderKL, DDIMScheduler, OnnxRuntimeModel, OnnxStableDiffusionImg2ImgPipeline,
                       OnnxStableDiffusionInpaintPipeline, OnnxStableDiffusionPipeline, PNDMScheduler,
                       UNet2DConditionModel)
torch.manual_seed(0)
folder = pathlib.Path(tempfile.mkdtemp())
WIDTH, LENGTH, SIZE = 32, 16, 64

class Call(torch.nn.Module):
    def __init__(self, model, call):
        super().__init__()
        self.model, self.call = model, call
    def forward(self, *inputs):
        return self.call(self.model, *inputs)

def part(name, model, call, inputs):
    path = folder / name / "model.onnx"
    path.parent.mkdir()
    axes = {key: {0: "batch"} for key in [*inputs, "result"] if key != "timestep"}
    torch.onnx.export(Call(model.eval(), call), tuple(inputs.values()), str(path), input_names=list(inputs),
                      output_names=["result"], dynamic_axes=axes, opset_version=17, dynamo=False)
    return OnnxRuntimeModel.from_pretrained(folder / name, provider_options=None)  # diffusers fails without

def unet(channels):
    return UNet2DConditionModel(
        sample_size=8, in_channels=channels, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=WIDTH, attention_head_dim=8)

def denoiser(name, channels):
    inputs = {"sample": torch.randn(2, channels, 8, 8), "timestep": torch.tensor([3]),
              "encoder_hidden_states": torch.randn(2, LENGTH, WIDTH)}
    return part(name, unet(channels), lambda model, *given: model(*given, return_dict=False)[0], inputs)

letters = [*string.ascii_lowercase, *(each + "</w>" for each in string.ascii_lowercase)]
words = {word: number for number, word in enumerate(["<|startoftext|>", "<|endoftext|>", *letters])}
(folder / "vocab.json").write_text(json.dumps(words))
(folder / "merges.txt").write_text("#version: 0.2\\n")
tokenizer = CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=LENGTH)
text = CLIPTextModel(CLIPTextConfig(
    vocab_size=len(words), hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=LENGTH, bos_token_id=0, eos_token_id=1))
vae = AutoencoderKL(
    sample_size=SIZE, block_out_channels=(8, 8, 16, 16), down_block_types=("DownEncoderBlock2D",) * 4,
    up_block_types=("UpDecoderBlock2D",) * 4, layers_per_block=1, norm_num_groups=4)
parts = {
    "vae_encoder": part("vae_encoder", vae, lambda model, image: model.encode(image).latent_dist.mean,
                        {"sample": torch.randn(2, 3, SIZE, SIZE)}),
    "vae_decoder": part("vae_decoder", vae, lambda model, latents: model.decode(latents, return_dict=False)[0],
                        {"latent_sample": torch.randn(2, 4, 8, 8)}),
    "text_encoder": part("text_encoder", text, lambda model, ids: model(ids, return_dict=False)[0],
                         {"input_ids": torch.ones(2, LENGTH, dtype=torch.int32)}),
    "tokenizer": tokenizer, "safety_checker": None, "feature_extractor": None, "requires_safety_checker": False,
}
usual, masked = denoiser("unet", 4), denoiser("masked_unet", 9)
random = np.random.default_rng(1)
picture = Image.fromarray(random.integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8))
hidden = Image.fromarray(np.repeat(np.arange(SIZE) > 30, SIZE).reshape(SIZE, SIZE).astype(np.uint8) * 255)

def call(kind, unet, scheduler, *given, **named):
    pipeline = kind(unet=unet, scheduler=scheduler, **parts)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline(*given, num_inference_steps=3, output_type="np", generator=np.random.RandomState(2),
                    **named).images

result = {
    "words": call(OnnxStableDiffusionPipeline, usual, DDIMScheduler(), ["a red cat", "two dogs"], height=SIZE,
                  width=SIZE, negative_prompt=["mud", "fog"]),
    "without guidance": call(OnnxStableDiffusionPipeline, usual, PNDMScheduler(skip_prk_steps=True), "a cat",
                             height=SIZE, width=SIZE, guidance_scale=1.0),
    "picture": call(OnnxStableDiffusionImg2ImgPipeline, usual, DDIMScheduler(), "a cat", image=picture, strength=0.7),
    "mask": call(OnnxStableDiffusionInpaintPipeline, masked, DDIMScheduler(), "a cat", image=picture,
                 mask_image=hidden, height=SIZE, width=SIZE),
}
""",
}
