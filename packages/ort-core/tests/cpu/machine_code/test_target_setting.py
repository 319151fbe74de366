"""ORT_CPU_TARGET: code for lesser machines on this one, kept apart from this machine's own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ort_core.cpu.codegen.machine_code.host_key import host_key
from ort_core.cpu.codegen.machine_code.target_setting import LEVELS, TargetSetting, target_setting
from ort_core.errors import InvalidArgument

HOST = {name: name != "avx512bf16" for name in (*LEVELS["x86-64-v4"], "avx512vnni", "avx512bf16", "amx-tile")}


def setting(text: str, monkeypatch: pytest.MonkeyPatch) -> TargetSetting | None:
    monkeypatch.setenv("ORT_CPU_TARGET", text)
    return target_setting()


def features(text: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    found = setting(text, monkeypatch)
    assert found is not None
    return {name for name, on in found.features(HOST).items() if on}


def test_a_level_has_its_features_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for level, names in LEVELS.items():
        assert features(level, monkeypatch) == names


def test_features_are_added_to_a_level_and_taken_from_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert features("x86-64-v4, +avx512vnni", monkeypatch) == LEVELS["x86-64-v4"] | {"avx512vnni"}
    assert features("-avx512vnni,-amx-tile", monkeypatch) == LEVELS["x86-64-v4"]
    assert setting("", monkeypatch) is None


@pytest.mark.parametrize("text", ["x86-64-v5", "avx2", "x86-64-v3,avx512f", "x86-64-v3,+avx512bf16", "-avx1024"])
def test_what_is_no_target_of_this_machine_is_refused_with_what_there_is(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidArgument, match=r"x86-64-v|It has: .*avx2"):
        features(text, monkeypatch)


def test_code_in_the_cache_is_told_apart_by_target_and_guarding(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    for target, guarding in (("", "off"), ("x86-64-v2", "off"), ("x86-64-v3", "off"), ("", "end"), ("", "begin")):
        monkeypatch.setenv("ORT_CPU_TARGET", target)
        monkeypatch.setenv("ORT_GUARDED_MEMORY", guarding)
        keys.append(host_key())
    assert len(set(keys)) == len(keys)


def test_a_process_compiles_for_the_target_that_it_began_with() -> None:
    pytest.importorskip("llvmlite")
    jit = "ort_core.cpu.codegen.machine_code.jit"
    code = f"from {jit} import host_target as t; print(t().triple, t().vector_nbytes, t().has('avx'))"
    environment = {**os.environ, "ORT_CPU_TARGET": "x86-64-v2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    if "this machine or LLVM does not know" in done.stderr:
        pytest.skip("the machine has no x86-64-v2")
    assert done.stdout.split()[1:] == ["16", "False"], done.stderr
