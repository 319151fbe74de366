"""A package that was read: its documents, and where everything in them lies."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from ort_core.errors import InvalidPackage, NoSuchFile
from ort_core.model_packages.assets import is_asset_uri
from ort_core.model_packages.documents import (
    INSTALLED,
    PORTABLE,
    SCHEMA_VERSION,
    Document,
    check_component,
    check_manifest,
    read_document,
)
from ort_core.model_packages.paths import PathRules

COMPONENT_FILE = "component.json"
MANIFEST_FILE = "manifest.json"


@dataclass
class ComponentState:
    """One component, to be read and changed.

    Attributes:
        document: its fields.
        reference: where the manifest says that it lies; ``None``: in the manifest itself.
        file: where that is.
    """

    document: Document
    reference: str | None = None
    file: Path | None = None

    def base(self, rules: PathRules) -> Path | None:
        """Return the folder that its references start from."""
        return rules.root if self.file is None else self.file.parent


@dataclass
class PackageState:
    """A package, to be read and changed.

    Attributes:
        manifest: its fields; of ``components`` and ``shared_assets`` those below are the ones that count.
        components: by name.
        assets: folders by URI.
        rules: how its references are followed.
        is_strict: unknown fields are errors.
    """

    manifest: Document = field(default_factory=lambda: {"schema_version": SCHEMA_VERSION})
    components: dict[str, ComponentState] = field(default_factory=dict)
    assets: dict[str, Path] = field(default_factory=dict)
    rules: PathRules = field(default_factory=lambda: PathRules(None, is_portable=True))
    is_strict: bool = True

    def component(self, name: str) -> ComponentState:
        """Return a component.

        Raises:
            NoSuchFile: there is none of that name.
        """
        if name not in self.components:
            raise NoSuchFile(f"component '{name}' not found.")
        return self.components[name]

    def variant(self, component: str, name: str) -> Document:
        """Return a variant's document.

        Raises:
            NoSuchFile: there is none of that name.
        """
        variants: dict[str, Document] = self.component(component).document["variants"]
        if name not in variants:
            raise NoSuchFile(f"variant '{name}' not found in component '{component}'.")
        return variants[name]

    def variant_folder(self, component: str, name: str) -> Path | None:
        """Return a variant's folder: the stated one, or one of its name where there is one.

        Raises:
            OrtError: the stated one is not there, or not in the package.
        """
        base = self.component(component).base(self.rules)
        stated = self.variant(component, name).get("variant_directory")
        if stated is not None:
            return self.rules.resolve(stated, base, must_exist=True)
        default = None if base is None else base / name
        return default if default is not None and default.is_dir() else None

    def executor_info(self, component: str, name: str, key: str) -> Document | None:
        """Return what a variant tells an engine, inline or in a file; ``None``: nothing.

        Raises:
            OrtError: the file cannot be read.
        """
        info = self.variant(component, name).get("executor_info", {}).get(key)
        if not isinstance(info, str):
            return info if isinstance(info, dict) else None
        folder = self.variant_folder(component, name)
        if folder is None:
            raise InvalidPackage(
                f"variant '{name}': executor_info['{key}'] points at an external file but the variant has no resolved "
                "variant_directory to anchor it."
            )
        return read_document(self.rules.resolve(info, folder, must_exist=True))

    def asset(self, uri: str) -> Path:
        """Return a shared asset's folder.

        Raises:
            NoSuchFile: the package has none of that URI.
        """
        if uri not in self.assets:
            raise NoSuchFile(f"Asset URI not declared in this package: '{uri}'.")
        return self.assets[uri]

    def resolve(self, reference: str, base: str | os.PathLike | None, *, must_exist: bool) -> Path:
        """Return the path that a reference means: one of a shared asset, or one below ``base`` or the package.

        Raises:
            OrtError: it leaves the package, or there is nothing and there must be.
        """
        uri, _, rest = reference.partition("/")
        if is_asset_uri(uri):
            within = replace(self.rules, root=None)
            return within.resolve(rest, self.asset(uri).absolute(), must_exist=must_exist)
        start = self.rules.root if base is None else Path(base).absolute()
        return self.rules.resolve(reference, start, must_exist=must_exist)


def open_package(
    root: str | os.PathLike, *, allow_external_paths: bool = False, follow_symlinks: bool = True, strict: bool = True
) -> PackageState:
    """Read a package and require that all that it names is there.

    Raises:
        OrtError: a document is missing or wrong, or names what is not there or not in the package.
    """
    folder = Path(root).absolute()
    if not folder.is_dir():
        raise NoSuchFile(f"package_root '{root}' is not a directory.")
    manifest = read_document(folder / MANIFEST_FILE)
    check_manifest(manifest, strict=strict)
    is_portable = manifest.get("layout", PORTABLE) != INSTALLED and not allow_external_paths
    rules = PathRules(folder, is_portable, follow_symlinks)
    found = PackageState(manifest, rules=rules, is_strict=strict)
    for name, stated in manifest["components"].items():
        found.components[name] = read_component(name, stated, rules, strict=strict)
    for uri, place in manifest.get("shared_assets", {}).items():
        found.assets[uri] = rules.resolve(place, folder, must_exist=False)
    for uri in sorted(path.name for path in (folder / "shared_assets").glob("sha256-*")):
        found.assets.setdefault(uri.replace("-", ":", 1), folder / "shared_assets" / uri)
    for name, component in found.components.items():
        for variant, document in component.document["variants"].items():
            found.variant_folder(name, variant)
            for key in document.get("executor_info", {}):
                found.executor_info(name, variant, key)
    return found


def read_component(name: str, stated: object, rules: PathRules, *, strict: bool) -> ComponentState:
    """Return a component that the manifest states: a path, or the document itself.

    Raises:
        OrtError: it cannot be read.
    """
    if not isinstance(stated, str):
        return ComponentState(check_component(name, stated, strict=strict))
    path = rules.resolve(stated, rules.root, must_exist=True)
    file = path / COMPONENT_FILE if path.is_dir() else path
    return ComponentState(check_component(name, read_document(file), strict=strict), stated, file)


def compact(document: object) -> str:
    """Return JSON without spaces, as onnxruntime shows it."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)
