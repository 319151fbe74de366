"""The table of reference kernels: it says what the modules have, and a lookup imports only the module that it needs."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import textwrap
from types import ModuleType

import pytest

from ort_core.ir.rejection import Rejection
from ort_core.kernels import reference
from ort_core.kernels.kernel import MARK, KernelSpec, kernel
from ort_core.kernels.reference_registry import FAMILIES, PACKAGE, operators_of, reference_kernels
from ort_core.kernels.registry import KernelRegistry


def _module(name: str, *op_types: str) -> ModuleType:
    module = ModuleType(name)
    for op_type in op_types:

        def identity(x: object) -> object:
            return x

        identity.__module__ = name
        setattr(module, op_type.lower(), kernel(op_type)(identity))
    sys.modules[name] = module
    return module


@pytest.mark.parametrize("family", FAMILIES)
def test_table_names_exactly_the_operators_that_a_module_has_kernels_for(family: str) -> None:
    found = KernelRegistry.of([importlib.import_module(f"{PACKAGE}.{family}")])
    assert sorted(operators_of(family)) == [(domain, op_type) for domain, op_type, _ in found.operators()]


def test_every_module_with_kernels_is_a_family() -> None:
    for info in pkgutil.walk_packages(reference.__path__, f"{PACKAGE}."):
        module = importlib.import_module(info.name)
        own = [f for f in vars(module).values() if getattr(f, "__module__", "") == module.__name__ and hasattr(f, MARK)]
        assert not own or info.name.removeprefix(f"{PACKAGE}.") in FAMILIES, (
            f"{info.name} has kernels and is missing from the table"
        )


def test_a_lookup_imports_the_module_of_that_operator_and_no_other() -> None:
    script = """
        import sys
        from ort_core.kernels.reference_registry import FAMILIES, PACKAGE, reference_kernels
        kernels = reference_kernels()
        assert kernels.find("", "Relu", 21).function.__name__
        print(sorted(f for f in FAMILIES if f"{PACKAGE}.{f}" in sys.modules))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['elementwise.activations']"


def test_operators_lists_all_of_them_however_few_were_asked_for() -> None:
    listed = {(domain, op_type) for domain, op_type, _ in reference_kernels().extended().operators()}
    assert listed == {key for family in FAMILIES for key in operators_of(family)}


def test_a_kernel_added_to_an_extended_registry_is_in_no_other() -> None:
    first, second = reference_kernels().extended(), reference_kernels().extended()
    spec = KernelSpec("Relu", "", 99, None, lambda x: x)
    first.add(spec)
    assert first.find("", "Relu", 99) is spec
    assert second.find("", "Relu", 99) is not spec


def test_a_second_kernel_for_an_operator_not_yet_imported_is_an_error() -> None:
    registry = reference_kernels().extended()
    version = reference_kernels().find("", "Relu", 21)
    assert isinstance(version, KernelSpec)
    with pytest.raises(ValueError, match=r"two kernels for ai\.onnx::Relu"):
        registry.add(KernelSpec("Relu", "", version.since_version, None, lambda x: x))


@pytest.mark.parametrize("promised", [("First",), ("First", "Second", "Third")])
def test_a_table_that_does_not_say_what_the_module_has_is_an_error(promised: tuple[str, ...]) -> None:
    name = "kernels_of_a_test"
    _module(name, "First", "Second")
    try:
        registry = KernelRegistry({("", op_type): name for op_type in promised})
        with pytest.raises(ValueError, match=r"do not agree on :(Second|Third)"):
            registry.find("", "First", 1)
    finally:
        del sys.modules[name]


def test_an_operator_that_nobody_has_is_refused_with_its_name() -> None:
    found = reference_kernels().find("some.domain", "Nothing", 1)
    assert isinstance(found, Rejection)
    assert "some.domain::Nothing" in found.reason
