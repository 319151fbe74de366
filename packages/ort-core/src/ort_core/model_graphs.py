"""The door of packages that edit and write models in the form of their files: reads, inner graphs, nodes in order."""

from ort_core.onnx_io.inlining import without_functions as without_functions
from ort_core.onnx_io.proto_graphs import copy_of as copy_of
from ort_core.onnx_io.proto_graphs import drop_idle_nodes as drop_idle_nodes
from ort_core.onnx_io.proto_graphs import free_names as free_names
from ort_core.onnx_io.proto_graphs import graphs_of as graphs_of
from ort_core.onnx_io.proto_graphs import inner_graphs as inner_graphs
from ort_core.onnx_io.proto_graphs import is_sorted as is_sorted
from ort_core.onnx_io.proto_graphs import reads_in_order as reads_in_order
from ort_core.onnx_io.proto_graphs import reads_of as reads_of
from ort_core.onnx_io.proto_graphs import sort_graph as sort_graph
from ort_core.onnx_io.proto_graphs import sorted_nodes as sorted_nodes
from ort_core.onnx_io.write_proto import write_proto as write_proto
