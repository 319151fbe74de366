"""Writes a package: into its own folder, or with everything that it holds into an empty one."""

from __future__ import annotations

import copy
import shutil
from dataclasses import replace
from pathlib import Path, PurePath

from ort_core.errors import InvalidPackage
from ort_core.model_packages.assets import folder_of
from ort_core.model_packages.documents import INSTALLED, PORTABLE, SCHEMA_VERSION, Document, write_document
from ort_core.model_packages.stored import COMPONENT_FILE, MANIFEST_FILE, ComponentState, PackageState

_LAST = ("package_name", "package_version", "description", "additional_metadata")


def write_in_place(package: PackageState, root: Path) -> None:
    """Write the documents, and copy assets that lie elsewhere."""
    _write_assets(package, root)
    for component in package.components.values():
        if component.file is not None:
            component.file.parent.mkdir(parents=True, exist_ok=True)
            write_document(component.file, component.document)
    write_document(root / MANIFEST_FILE, _manifest(package, is_dense=False))


def write_elsewhere(package: PackageState, root: Path, *, is_dense: bool) -> None:
    """Write documents, variants' folders and assets into an empty folder, which is the package's from then on.

    Args:
        package: changed where it lies elsewhere from then on.
        root: made where it does not exist.
        is_dense: all components in the manifest, each variant in ``component/variant``.

    Raises:
        InvalidPackage: the folder is not empty, or (``is_dense``) what a variant tells an engine lies in a file.
    """
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise InvalidPackage(f"Commit dest_root '{root}' is not empty.")
    if is_dense:
        _require_inline(package)
    components = {
        name: _copied(package, name, component, root, is_dense=is_dense)
        for name, component in package.components.items()
    }
    root.mkdir(parents=True, exist_ok=True)
    package.components = components
    package.rules = replace(package.rules, root=root.absolute())
    write_in_place(package, root)


def _require_inline(package: PackageState) -> None:
    for name, component in package.components.items():
        for variant, document in component.document["variants"].items():
            for key, info in document.get("executor_info", {}).items():
                if isinstance(info, str):
                    raise InvalidPackage(
                        f"WRITE_DENSE: component '{name}' variant '{variant}' has external executor_info '{key}' "
                        "(string path). Convert to inline via SetVariantExecutorInfoInline before dense commit."
                    )


def _copied(
    package: PackageState, name: str, component: ComponentState, root: Path, *, is_dense: bool
) -> ComponentState:
    """Return a component whose variants' folders were copied below ``root``."""
    document: Document = copy.deepcopy(component.document)
    reference = None if is_dense else component.reference
    file = None if reference is None else _component_file(root, reference)
    base = root if file is None else file.parent
    for variant, fields in document["variants"].items():
        folder = package.variant_folder(name, variant)
        if folder is None:
            continue
        stated = fields.get("variant_directory", variant)
        if is_dense:
            stated = fields["variant_directory"] = f"{name}/{variant}"
        if not PurePath(stated).is_absolute():
            shutil.copytree(folder, base / stated, dirs_exist_ok=True)
    return ComponentState(document, reference, file)


def _component_file(root: Path, reference: str) -> Path:
    path = root / reference
    return path if path.suffix == ".json" else path / COMPONENT_FILE


def _write_assets(package: PackageState, root: Path) -> None:
    for uri, source in package.assets.items():
        place = root / "shared_assets" / folder_of(uri)
        if package.rules.is_portable and source.absolute() != place.absolute():
            if not place.exists():
                shutil.copytree(source, place)
            package.assets[uri] = place.absolute()


def _manifest(package: PackageState, *, is_dense: bool) -> Document:
    """Return the manifest's document, and keep it as the package's own."""
    before = package.manifest
    before.setdefault("schema_version", SCHEMA_VERSION)
    found: Document = {"schema_version": before["schema_version"]}
    found["layout"] = before.get("layout", PORTABLE)
    found["components"] = {
        name: component.document if component.reference is None or is_dense else component.reference
        for name, component in package.components.items()
    }
    found |= {key: before[key] for key in _LAST if key in before}
    found |= {key: value for key, value in before.items() if key not in (*found, "shared_assets")}
    if found["layout"] == INSTALLED:  # a portable package has them below shared_assets
        found["shared_assets"] = {uri: str(path.absolute()) for uri, path in package.assets.items()}
    package.manifest = found
    return found
