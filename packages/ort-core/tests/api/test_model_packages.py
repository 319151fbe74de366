"""Model packages, each read by onnxruntime and here, and what is written here read by both."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import ort_core as ort
from ort_core.dropin import lenient

CPU = "CPUExecutionProvider"
INFO = {"ort": {"model_file": "model.onnx", "session_options": {"session.disable_prepacking": "1"}}}
X = {"x": np.array([-1.5, 2], np.float32)}


def save_model(folder: Path, op_type: str) -> None:
    folder.mkdir(parents=True)
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) {{ y = {op_type}(x) }}'
    onnx.save(parser.parse_model(text), folder / "model.onnx")


def package(root: Path, variants: dict[str, Any], **manifest: object) -> Path:
    """Write a package of one component with two models."""
    for name, op_type in (("one", "Abs"), ("two", "Neg")):
        if not (root / "c" / name).exists():
            save_model(root / "c" / name, op_type)
    component = {"variants": variants}
    (root / "c" / "component.json").write_text(json.dumps(component))
    whole = {"schema_version": "1.0", "components": {"c": "c"}, **manifest}
    (root / "manifest.json").write_text(json.dumps({k: v for k, v in whole.items() if v is not None}))
    return root


def selected(engine: Any, root: Path) -> str:
    options = engine.ModelPackageOptions(engine.SessionOptions())
    found: str = engine.ModelPackageContext(str(root)).select_component("c", options).get_selected_variant_name()
    return found


def test_the_model_of_the_chosen_variant_runs(tmp_path: Path) -> None:
    root = package(tmp_path, {"two": {"ep": CPU, "executor_info": INFO}, "one": {"ep": CPU, "executor_info": INFO}})
    for engine in (onnxruntime, ort):
        context = engine.ModelPackageContext(str(root))
        assert (context.get_component_count(), context.get_component_names()) == (1, ["c"])
        assert (context.get_variant_count("c"), context.get_variant_names("c")) == (2, ["two", "one"])
        assert (context.get_schema_version(), context.get_variant_ep_name("c", "one")) == (1, CPU)
        chosen = context.select_component("c", engine.ModelPackageOptions(engine.SessionOptions()))
        assert Path(chosen.get_selected_variant_folder_path()) == root / "c" / "two"
        session = chosen.create_session()
        np.testing.assert_array_equal(session.run(None, X)[0], -X["x"])
        assert session.get_session_options().get_session_config_entry("session.disable_prepacking") == "1"
        given = engine.SessionOptions()
        given.intra_op_num_threads = 2
        own = chosen.create_session(given).get_session_options()
        assert own.intra_op_num_threads == 2


def test_sessions_of_the_drop_in_are_its_own(tmp_path: Path) -> None:
    root = package(tmp_path, {"one": {"ep": CPU, "executor_info": INFO}})
    context = lenient.ModelPackageContext(root)
    chosen = context.select_component("c", ort.ModelPackageOptions(lenient.SessionOptions()))
    assert isinstance(chosen.create_session(), lenient.InferenceSession)


VARIANTS: dict[str, dict[str, Any]] = {
    "first": {"two": {"ep": CPU}, "one": {"ep": CPU}},
    "another provider": {"two": {"ep": "CUDAExecutionProvider"}, "one": {"ep": CPU}},
    "no provider": {"two": {}, "one": {"ep": CPU}},
    "device": {"two": {"ep": CPU, "device": "gpu"}, "one": {"ep": CPU, "device": "CPU"}},
    "compatibility": {"two": {"ep": CPU, "compatibility_string": "x"}, "one": {"ep": CPU}},
    "none": {"one": {"ep": "CUDAExecutionProvider"}},
    "case": {"one": {"ep": CPU.lower()}},
    "nothing": {},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_variant_is_onnxruntimes(name: str, tmp_path: Path) -> None:
    root = package(tmp_path, VARIANTS[name])
    try:
        expected = selected(onnxruntime, root)
    except RuntimeError:
        with pytest.raises(RuntimeError, match="No suitable model variant"):
            selected(ort, root)
    else:
        assert selected(ort, root) == expected


MANIFESTS: dict[str, dict[str, object]] = {
    "unknown field": {"zz": 1}, "major": {"schema_version": "2.0"}, "minor": {"schema_version": "1.7"},
    "number": {"schema_version": 1}, "version": {"schema_version": "1"}, "no version": {"schema_version": None},
    "no components": {"components": None}, "components": {"components": []}, "component": {"components": {"c": 1}},
    "away": {"components": {"c": "../x"}}, "absolute": {"components": {"c": "/x"}},
    "missing": {"components": {"c": "z"}},
    "file": {"components": {"c": "c/component.json"}}, "layout": {"layout": "x"}, "layout kind": {"layout": 1},
    "name": {"package_name": 1}, "assets": {"shared_assets": []}, "asset": {"shared_assets": {"a": "b"}},
    "variants": {"components": {"c": {"variants": []}}}, "no variants": {"components": {"c": {}}},
    "variant": {"components": {"c": {"variants": {"v": []}}}},
    "variant field": {"components": {"c": {"variants": {"v": {"z": 1}}}}},
    "provider": {"components": {"c": {"variants": {"v": {"ep": 1}}}}},
    "info": {"components": {"c": {"variants": {"v": {"executor_info": []}}}}},
    "info kind": {"components": {"c": {"variants": {"v": {"executor_info": {"ort": 1}}}}}},
    "options": {"components": {"c": {"variants": {"c": {"executor_info": {"ort": {"session_options": {"a": 1}}}}}}}},
    "model": {"components": {"c": {"variants": {"c": {"executor_info": {"ort": {"model_file": "../x"}}}}}}},
}  # fmt: skip


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_are_taken_and_refused_as_in_onnxruntime(name: str, tmp_path: Path) -> None:
    root = package(tmp_path, {"one": {"ep": CPU}}, **MANIFESTS[name])
    outcomes = []
    for engine in (onnxruntime, ort):
        try:
            outcomes.append(engine.ModelPackageContext(str(root)).get_variant_names("c"))
        except RuntimeError:
            outcomes.append(RuntimeError)
    assert outcomes[1] == outcomes[0]


def test_links_out_of_a_package_are_refused(tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    root = package(tmp_path / "p", {"one": {"variant_directory": "link"}})
    try:
        (root / "c" / "link").symlink_to(tmp_path / "away", target_is_directory=True)
    except OSError:
        pytest.skip("this system lets nobody make links")
    if not (root / "c" / "link").is_dir():
        pytest.skip("this system follows no links")  # Wine
    for engine in (onnxruntime, ort):
        with pytest.raises(ValueError, match="escapes package_root"):
            engine.ModelPackage.open(str(root))
        assert engine.ModelPackage.open(str(root), allow_external_paths=True).get_info()["components"]


def assets(folder: Path) -> Path:
    for name in ("b.txt", "B.txt", "sub/z", "sub-x", "sub/e/q"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name * 3)
    (folder / "empty").mkdir()
    return folder


def test_folders_have_onnxruntimes_digest(tmp_path: Path) -> None:
    folder = str(assets(tmp_path / "a"))
    assert ort.ModelPackage.compute_directory_hash(folder) == onnxruntime.ModelPackage.compute_directory_hash(folder)


@pytest.mark.parametrize("mode", ["PRESERVE", "DENSE"])
def test_a_package_made_here_is_read_by_both(mode: str, tmp_path: Path) -> None:
    source = package(tmp_path / "source", {"one": {"ep": CPU}})
    with ort.ModelPackage.open(source) as made:
        made.set_metadata("name", "1.2", "what it is")
        made.set_variant("c", "two", json.dumps({"variant_directory": "two", "ep": "CUDAExecutionProvider"}))
        for variant in ("one", "two"):
            made.set_variant_executor_info_inline("c", variant, "ort", '{"model_file": "model.onnx"}')
        made.set_additional_metadata_json("variant", "c", "two", '{"k": [1]}')
        uri = made.add_shared_asset(assets(tmp_path / "a"))
        made.commit(tmp_path / "made", ort.ModelPackageWriteMode[mode])
    infos = [engine.ModelPackage.open(str(tmp_path / "made")).get_info() for engine in (onnxruntime, ort)]
    for info in infos:
        info["components"].sort(key=lambda each: each["name"])
    assert infos[1]["components"] == infos[0]["components"]
    assert {k: v for k, v in infos[1].items() if k != "components"} == {
        k: v for k, v in infos[0].items() if k != "components"
    }
    for engine in (onnxruntime, ort):
        context = engine.ModelPackageContext(str(tmp_path / "made"))
        options = engine.ModelPackageOptions(engine.SessionOptions())
        [found] = context.select_component("c", options).create_session().run(None, X)
        np.testing.assert_array_equal(found, np.abs(X["x"]))
        found = Path(context.resolve_string_ref(f"{uri}/b.txt", None, True)).read_text()
        assert found == (tmp_path / "a" / "b.txt").read_text()  # B.txt's, where names are one in both cases
        with pytest.raises(RuntimeError, match="not allowed"):
            context.resolve_string_ref("../x")


def test_what_was_taken_away_is_deleted_by_prune_alone(tmp_path: Path) -> None:
    root = package(tmp_path / "p", {"one": {"ep": CPU}, "two": {"ep": CPU}})
    with ort.ModelPackage.open(root) as changed:
        changed.remove_variant("c", "two")
        changed.commit()
        assert (root / "c" / "two").is_dir()
        changed.prune()
    assert sorted(os.listdir(root / "c")) == ["component.json", "one"]
    assert onnxruntime.ModelPackageContext(str(root)).get_variant_names("c") == ["one"]


REFUSED = {
    "set_layout": (("x",), ValueError), "set_component_inline": (("c", "{}"), ValueError),
    "set_variant": (("c", "v", '{"variant_directory": "nope"}'), FileNotFoundError),
    "get_component_json": (("z",), FileNotFoundError), "get_variant_json": (("c", "z"), FileNotFoundError),
    "resolve_asset_uri": (("sha256:00",), FileNotFoundError), "add_shared_asset": (("nowhere",), FileNotFoundError),
    "set_additional_metadata_json": (("manifest", "c", None, "{}"), ValueError),
    "set_variant_executor_info_inline": (("c", "one", "ort", "[1"), ValueError),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_changes_are_refused_as_in_onnxruntime(name: str, tmp_path: Path) -> None:
    root = package(tmp_path, {"one": {"ep": CPU}})
    arguments, kind = REFUSED[name]
    for engine in (onnxruntime, ort):
        with pytest.raises(kind):
            getattr(engine.ModelPackage.open(str(root)), name)(*arguments)


def test_a_closed_package_and_one_without_a_folder_are_refused(tmp_path: Path) -> None:
    for engine in (onnxruntime, ort):
        made = engine.ModelPackage()
        with pytest.raises(RuntimeError, match="no package_root"):
            made.commit()
        made.close()
        with pytest.raises(ValueError, match="closed"):
            made.get_info()
        full = package(tmp_path / engine.__name__, {})
        with pytest.raises(RuntimeError, match="not empty"):
            engine.ModelPackage().commit(str(full))
