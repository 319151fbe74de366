"""Sounds and images of odd rates, lengths, sizes and kinds are heard and seen, or refused in a sentence."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from genai_media_models import picture, sound, write_whisper_checkpoint
from genai_mutants import broken_bytes, mutants
from PIL import Image
from test_mutants import tried
from test_whisper import wav

import ort_genai as og
from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import Precision
from ort_genai.errors import InvalidGeneration
from ort_genai.media.audios import Sound
from ort_genai.media.image_tiles import TileRecipe, _whole_tiles
from ort_genai.media.log_mel import LogMel

KINDS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("odd_whisper")
    build(write_whisper_checkpoint(root / "source"), root / "built", BuildOptions(Precision.FP32))
    return root / "built"


@pytest.mark.parametrize("samples", [0, 1, 7, 159, 160, 161, 399])
@pytest.mark.parametrize("rate", [1000, 8000, 11025, 16000, 44101, 48000, 192000])
def test_sounds_of_any_length_and_rate_become_frames(samples, rate):
    if samples and rate != 16000:
        pytest.importorskip("scipy")
    found = og.Audios.open_bytes(wav(np.full(samples, 0.25), rate)).sounds[0].at_rate(16000)
    assert abs(len(found) - samples * 16000 / rate) <= 1
    features = LogMel().features(found)
    assert features.shape == (80, 3000)
    assert np.isfinite(features).all()


@pytest.mark.parametrize("rate", [1, 999, 1048577, 2**32 - 1, 2**31 - 1])
def test_rates_that_no_sound_has_are_refused(rate):
    """The filter between two rates is as long as they are large: one that a file claimed took 700 GB."""
    with pytest.raises(InvalidGeneration, match=f"sound of {rate} Hz"):
        Sound(np.zeros(16, np.float32), rate).at_rate(16000)


@pytest.mark.parametrize("seconds", [0.0, 1 / 16000, 30.0, 30.0001, 61.3])
def test_sound_of_any_length_is_written_down(folder, seconds):
    audios = og.Audios.open_bytes(wav(sound(1, max(seconds, 1))[: round(seconds * 16000)]))
    for has_times in (False, True):
        (found,) = og.Transcriber(og.Model(folder)).transcribe(audios, language="en", has_times=has_times)
        assert isinstance(found.text, str)


def test_what_generation_config_states_is_followed_or_refused(tmp_path):
    build(write_whisper_checkpoint(tmp_path / "source", 50), tmp_path / "folder", BuildOptions(Precision.FP32))
    config = og.Config(tmp_path / "folder")
    config.overlay('{"search": {"max_length": 12}}')
    model, file = og.Model(config), tmp_path / "folder" / "generation_config.json"
    whole = json.loads(file.read_text(encoding="utf-8"))
    audios = og.Audios.open_bytes(wav(sound(1, 0.5)))
    named = [name for name in whole if "token" in name or "to_id" in name or "index" in name]
    values = (10**12, -1, 287)
    cases = [(f"{name} = {value}", {**whole, name: value}) for name in named for value in values]
    cases += [
        ("languages", {**whole, "lang_to_id": {"<|en|>": 10**9}}),
        ("tasks", {**whole, "task_to_id": {"transcribe": -1}}),
        *mutants(whole, 30, 3),
    ]
    found = 0
    for place, (told, stated) in enumerate(cases):
        file.write_text(json.dumps(stated), encoding="utf-8")
        how = {"language": ("en", "")[place % 2], "has_times": place // 2 % 2 == 1}
        found += tried(lambda how=how: og.Transcriber(model).transcribe(audios, **how), f"{told}, {how}")
    assert 0 < found < len(cases)


@pytest.mark.parametrize("kind", KINDS)
def test_broken_bytes_of_images_are_refused_in_a_sentence(kind):
    buffer = io.BytesIO()
    Image.fromarray(picture(1, 40, 50)).save(buffer, kind)
    found = 0
    for place, data in enumerate(broken_bytes(buffer.getvalue(), 120, 8, 300)):
        found += tried(lambda data=data: og.Images.open_bytes(data), f"{kind}: {place}")
    assert found > 0


def test_kinds_of_images_that_start_programs_or_that_no_model_is_asked_about_are_refused():
    """Pillow hands EPS to Ghostscript: whoever sends an image to a server would choose what it runs."""
    for kind in ("EPS", "PDF", "ICO", "TGA", "PCX"):
        buffer = io.BytesIO()
        Image.fromarray(picture(1, 40, 50)).save(buffer, kind)
        with pytest.raises(InvalidGeneration, match="cannot be read as an image"):
            og.Images.open_bytes(buffer.getvalue())


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "I", "F"])
def test_images_of_any_mode_are_three_channels_or_refused(mode):
    made = Image.fromarray(picture(1, 5, 7))
    made = made.convert("L") if mode in ("I;16", "F", "I", "LA") else made
    made = made.convert(mode)
    buffer = io.BytesIO()
    made.save(buffer, "TIFF")
    assert og.Images.open_bytes(buffer.getvalue()).pixels[0].shape == (5, 7, 3)


def test_tiles_of_images_of_any_shape_are_at_least_one():
    """49 * (1 / 49) is less than 1: an image one pixel wide had no column of tiles, and could not be resized."""
    for side in (1, 7, 14, 49, 364, 384, 512):
        for height in {*range(1, 64), side, 49, 98, 103, 107, 161, 187, 196, 4096, 7 * side}:
            for width in (1, 2, 3, 5):
                for shape in ((height, width), (width, height)):
                    found = _whole_tiles(*shape, side)
                    assert min(found) >= side, (shape, side)
                    assert not any(each % side for each in found)


@pytest.mark.parametrize("shape", [(1, 1), (49, 1), (1, 49), (3, 500), (500, 3)])
def test_odd_images_are_seen(shape):
    config = {"size": {"longest_edge": 98}, "max_image_size": {"longest_edge": 49}}
    found = TileRecipe.of(config).seen(picture(2, *shape))
    assert found.pixels.shape[1:] == (3, 49, 49)
    assert np.isfinite(found.pixels).all()
