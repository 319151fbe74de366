"""A model whose large tensors stay in their files until somebody looks at it, or it is saved."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto

from ort_core.model_graphs import graphs_of
from ort_quantization.models.model_files import is_external, read_tensor, write_model
from ort_quantization.onnx_model import ONNXModel


class StreamedModel(ONNXModel):
    """An ``ONNXModel`` that reads external data when ``model`` is asked for; saving it reads in pieces only.

    Args:
        model: with references to files, or none.
        folder: where these lie.
    """

    def __init__(self, model: ModelProto, folder: str = "") -> None:
        self._streamed, self._is_whole = model, False
        super().__init__(model, folder)

    @property
    def streamed(self) -> ModelProto:
        """The model with its references to files."""
        return self._streamed

    @property
    def model(self) -> ModelProto:
        """The model, whole in memory when it is asked for first; from then on it is as its user leaves it.

        ``onnx.save`` with external data leaves references to the new file in it, which lies where it wants.
        """
        if not self._is_whole:
            for graph in graphs_of(self._streamed.graph):
                for tensor in graph.initializer:
                    if is_external(tensor):
                        tensor.CopyFrom(read_tensor(tensor, self.folder))
            self._is_whole = True
        return self._streamed

    @model.setter
    def model(self, model: ModelProto) -> None:
        self._streamed, self._is_whole = model, False

    def save_model_to_file(self, output_path: str | Path, use_external_data_format: bool = False) -> None:
        """Write the model; large tensors into ``NAME.data`` beside it where that is asked for."""
        write_model(self._streamed, self.folder, output_path, use_external_data_format)
        self.folder, self._is_whole = str(Path(output_path).parent), False  # its references lead there now
