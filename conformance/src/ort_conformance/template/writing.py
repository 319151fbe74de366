"""write_package(): the template's files under a vendor's names. The template itself is a package named ``template``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

SUFFIX = ".txt"  # of template files: they are text to this package, and Python only where they are written


class Form(StrEnum):
    """How the new provider runs nodes."""

    COMPILING = "compiling"
    """It claims subgraphs and compiles each to one program."""
    KERNELS = "kernels"
    """It runs node by node, a function per operator."""


@dataclass(frozen=True, slots=True)
class PackageNames:
    """The three names of a provider package."""

    distribution: str
    module: str
    provider: str

    @classmethod
    def of(cls, vendor: str) -> PackageNames:
        """Derive the names from a vendor's short name.

        Raises:
            ValueError: the name cannot be part of a Python module's name.

        Example:
            >>> PackageNames.of("acme-npu").provider
            'AcmeNpuExecutionProvider'
            >>> PackageNames.of("ort-ep-acme").distribution
            'ort-ep-acme'
        """
        words = [word for word in re.split(r"[-_ ]+", vendor.strip().lower()) if word]
        words = words[2:] if words[:2] == ["ort", "ep"] else words  # the name of the package does as well
        if not words or not all(re.fullmatch(r"[a-z][a-z0-9]*", word) for word in words):
            raise ValueError(f"{vendor!r} is not a name for a package: letters, digits and dashes, such as acme-npu")
        title = "".join(word.capitalize() for word in words)
        return cls(f"ort-ep-{'-'.join(words)}", f"ort_ep_{'_'.join(words)}", f"{title}ExecutionProvider")

    def replacements(self) -> Mapping[str, str]:
        """Return what stands for the template's own names."""
        own = PackageNames.of("template")
        vendor = self.distribution.removeprefix("ort-ep-")
        title = self.provider.removesuffix("ExecutionProvider")
        return {
            own.distribution: self.distribution,
            own.module: self.module,
            "template =": f"{vendor} =",
            "Template": title,
        }


def package_files(names: PackageNames, form: Form) -> dict[str, str]:
    """Return the text of every file of the package by its path, with slashes, inside the package's folder."""
    root = resources.files("ort_conformance.template").joinpath("files")
    texts: dict[str, str] = {}
    for part in ("shared", form.value):
        texts.update(_texts(root.joinpath(part), ""))
    changed = names.replacements()
    return {_replaced(path, changed): _replaced(text, changed) for path, text in sorted(texts.items())}


def write_package(names: PackageNames, form: Form, target: Path) -> list[Path]:
    """Write a package into a folder that does not exist, and return the files."""
    written = []
    for name, text in package_files(names, form).items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        written.append(path)
    return written


def _texts(folder: Traversable, prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            found.update(_texts(entry, f"{prefix}{entry.name}/"))
        elif entry.name.endswith(SUFFIX):
            found[prefix + entry.name.removesuffix(SUFFIX)] = entry.read_text(encoding="utf-8")
    return found


def _replaced(text: str, changed: Mapping[str, str]) -> str:
    for old, new in changed.items():
        text = text.replace(old, new)
    return text
