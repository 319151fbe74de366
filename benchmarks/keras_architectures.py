"""Models of Keras, small and seeded, exported by tf2onnx in the form that `export_fusions.py` compares.

    KERAS_BACKEND=tensorflow python benchmarks/keras_architectures.py FOLDER

Needs tensorflow (or tensorflow-cpu), keras 3 and tf2onnx, best in an environment of their own. Keras' own export by the
torch backend goes through torch's exporters, whose styles are those of `exported_architectures.py`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras
import numpy as np
import onnx
from keras import layers, ops

LENGTH, WIDTH, HEADS, SIZE = 7, 32, 4, 8
NAME = "{name}.keras_tensorflow.onnx"


class Positions(layers.Layer):
    """A table that is added to the words."""

    def build(self, shape: tuple[int, ...]) -> None:
        """Make the table."""
        self.table = self.add_weight(shape=(1, shape[1], shape[2]), initializer="random_normal")

    def call(self, x: keras.KerasTensor) -> keras.KerasTensor:
        """Add it."""
        return x + self.table


def _gelu(x: keras.KerasTensor) -> keras.KerasTensor:
    return ops.gelu(x, approximate=True)  # tf2onnx has no Erfc, of which the exact one is made


def encoder(*, causal: bool = False, crossed: bool = False) -> keras.Model:
    """Return two layers of attention, to the words themselves or to others."""
    x = keras.Input((LENGTH, WIDTH), name="x")
    others = keras.Input((LENGTH - 2, WIDTH), name="others")
    y = Positions()(x)
    for _ in range(2):
        attention = layers.MultiHeadAttention(HEADS, SIZE)
        attended = attention(y, others) if crossed else attention(y, y, use_causal_mask=causal)
        y = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([y, attended]))
        inner = layers.Dense(WIDTH)(layers.Dense(2 * WIDTH, activation=_gelu)(y))
        y = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([y, inner]))
    return keras.Model([x, others] if crossed else [x], y)


def grouped() -> keras.Model:
    """Return an attention whose heads share keys."""
    x = keras.Input((LENGTH, WIDTH), name="x")
    attended = layers.GroupQueryAttention(SIZE, HEADS, 2)(x, x)
    return keras.Model(x, layers.LayerNormalization()(layers.Add()([x, attended])))


def gated() -> keras.Model:
    """Return a gated network behind an RMS norm."""
    x = keras.Input((LENGTH, WIDTH), name="x")
    y = layers.RMSNormalization()(x)
    inner = layers.Multiply()([layers.Dense(2 * WIDTH, activation="silu")(y), layers.Dense(2 * WIDTH)(y)])
    return keras.Model(x, layers.Add()([x, layers.Dense(WIDTH)(inner)]))


def main() -> None:
    """Export what there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(1)
    generator = np.random.default_rng(0)
    models = {"encoder": encoder(), "causal": encoder(causal=True), "crossed": encoder(crossed=True),
              "grouped": grouped(), "gated": gated()}  # fmt: skip
    for name, model in models.items():
        for weight in (each for each in model.weights if len(each.shape) == 1):
            drawn = generator.standard_normal(tuple(weight.shape)).astype(np.float32)
            weight.assign(ops.convert_to_numpy(weight) + 0.1 * drawn)
        given = [generator.standard_normal((2, *each.shape[1:])).astype(np.float32) for each in model.inputs]
        expected = ops.convert_to_numpy(model(given if len(given) > 1 else given[0]))
        path = folder / NAME.format(name=f"keras_{name}")
        model.export(str(path), format="onnx", verbose=False)
        names = [each.name for each in onnx.load(path).graph.input]
        np.savez(path.with_suffix(".npz"), expected=expected, **dict(zip(names, given, strict=True)))


if __name__ == "__main__":
    main()
