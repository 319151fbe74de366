"""Wrong arguments are refused where onnxruntime refuses them, by a class that its callers catch. All but these."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")  # which the program runs on, too

PROGRAM = Path(__file__).with_name("wrong_calls.py")
TAKEN = {  # what onnxruntime refuses, and this project takes
    "ModelCompiler flags": "an unsigned number there",
    "OrtArenaCfg": "numbers that are not given have their defaults",
    "OrtArenaCfg of numbers": "as above",
    "OrtArenaCfg of numbers a": "an unsigned number there; it has no effect",
    "OrtArenaCfg values": "a number is the first of the numbers",
    "OrtMemoryInfo": "a name is enough",
    "OrtMemoryInfo name": "plugins bring names of their own",
    "backend.supports_device device": "bytes are text",
    "binding.bind_cpu_input arr_on_cpu": "numbers and texts are feeds",
    "copy_tensors": "there needs no library of a device for the host",
    "create_and_register_allocator": "the configuration has a default",
    "create_and_register_allocator_v2": "as above",
    "create_and_register_allocator_v2 provider": "no provider has an allocator to register",
    "options.add_provider options": "values are written as text",
    "options.add_provider_for_devices options": "as above",
    "session.run_async output_names": "the callback hears of unknown outputs",
    "session.run_with_ortvaluevector fetch_devices": "results are on the host",
    "session.run_with_ortvaluevector fetch_names": "no names are all names",
    "session.run_with_ortvaluevector run_options": "None are the defaults",
    "session.set_ep_dynamic_options": "the CPU takes them, and says that they have no effect",
    "session.set_ep_dynamic_options options": "as above",
    "session.set_providers providers": "no providers are the default ones",
    "value.ortvalue_from_numpy numpy_obj": "a number of numpy is an array of one",
    "vector.push_back": "more than one way to say bool",
    "vector.push_back value": "an OrtValue needs no unwrapping",
}
REFUSED = {  # what onnxruntime takes
    "binding.bind_input buffer_ptr": "no memory can be below 0; onnxruntime reads it, and the process ends",
    "binding.bind_output buffer_ptr": "as above",
    "InferenceSession sess_options": "what is false is None there",
    "ModelCompiler external_initializers_file_path": "as above",
    "OrtDevice.make vendor_id": "1.5 is nobody's number",
    "value.ortvalue_from_numpy vendor_id": "as above",
    "value.ortvalue_from_shape_and_type vendor_id": "as above",
    "SparseTensor.sparse_coo_from_numpy coo_indices": "an OrtValue of floats is not an array of int64",
    "SparseTensor.sparse_coo_from_numpy dense_shape": "the indices lie outside",
    "binding.bind_input device_id": "there is one CPU",
    "binding.bind_output device_id": "as above",
    "binding.bind_output name": "a run would fail",
    "binding.bind_ortvalue_output name": "as above",
    "options.add_external_initializers names": "None is not a name",
    "options.add_free_dimension_override_by_denotation size": "no dimension is negative",
    "options.add_free_dimension_override_by_name size": "as above",
    "run options.add_active_adapter adapter": "None is not an adapter",
    "session.set_ep_dynamic_options options": "3 is no text",
}
OTHER = {  # another class
    "OrtMemoryInfo.create_v2 name": "None is of a wrong type",
    "SparseTensor.sparse_coo_from_numpy coo_indices": "of a wrong type",
    "SparseTensor.sparse_csr_from_numpy inner_indices": "of a wrong type",
    "SparseTensor.sparse_csr_from_numpy outer_indices": "of a wrong type",
    "binding.bind_cpu_input name": "bytes are no name", "binding.bind_input name": "as above",
    "binding.bind_ortvalue_input name": "as above",
    "copy_tensors dst": "the numbers of sources and destinations are compared first", "copy_tensors src": "as above",
    "options.add_external_initializers values": "as above",
    "options.add_external_initializers_from_files_in_memory buffers": "as above",
    "options.add_external_initializers_from_files_in_memory lengths": "as above",
    "options.add_external_initializers_from_files_in_memory names": "as above",
    "options.add_free_dimension_override_by_denotation name": "None is of a wrong type",
    "options.add_free_dimension_override_by_name name": "as above",
    "options.add_initializer name": "as above",
    "options.add_provider_for_devices devices": "no devices are of no provider",
    "options.get_session_config_entry key": "None is of a wrong type",
    "session.run output_names": "the names are looked at before their type",
    "session.run_with_ort_values output_names": "as above",
    "session.run_async run_options": "of a wrong type: TypeError",
    "session.run_with_iobinding iobinding": "an OrtValue is none, and is not asked for its session",
    "session.run_with_iobinding run_options": "as above",
    "session.run_with_ortvaluevector feed_names": "the numbers of names and values are compared",
    "value.ortvalue_from_shape_and_type": "too many arguments meet a wrong one first",
    "value.ortvalue_from_shape_and_type element_type": "no number of an element type",
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What every call gives: onnxruntime's, and the drop-in's."""
    folder, found = tmp_path_factory.mktemp("wrong-calls"), []
    for runner in ([], ["-m", "ort_core.dropin"]):
        target = folder / f"{len(found)}.json"
        subprocess.run([sys.executable, *runner, str(PROGRAM), str(target)], check=True, capture_output=True)
        found.append(json.loads(target.read_text(encoding="utf-8")))
    return found


def differing(outcomes, kind):
    """The functions and arguments where a call gives something else: ``taken``, ``refused`` or ``other``."""
    theirs, ours = outcomes
    found = set()
    for name, wanted in theirs.items():
        is_ok = (wanted[0] == "ok", ours[name][0] == "ok")
        alike = is_ok[0] if is_ok[0] == is_ok[1] else None
        is_meant = {"taken": is_ok == (False, True), "refused": is_ok == (True, False), "other": alike is False}
        if is_meant[kind] and wanted[0] not in ours[name]:
            found.add(name.rpartition(" ")[0])
    return found


def test_as_many_calls_are_tried_as_there_are_arguments(outcomes):
    theirs, ours = outcomes
    assert len(theirs) > 3000
    assert theirs.keys() == ours.keys()
    assert sum(each[0] != "ok" for each in theirs.values()) > 2000


@pytest.mark.parametrize(("kind", "table"), [("taken", TAKEN), ("refused", REFUSED), ("other", OTHER)])
def test_calls_differ_from_onnxruntimes_only_where_the_table_says_why(outcomes, kind, table):
    assert differing(outcomes, kind) == table.keys()
