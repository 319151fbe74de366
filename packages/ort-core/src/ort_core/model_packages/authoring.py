"""ModelPackage: makes and changes model packages."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from ort_core.errors import InvalidPackage, NoSuchFile
from ort_core.model_packages.assets import directory_uri
from ort_core.model_packages.committing import write_elsewhere, write_in_place
from ort_core.model_packages.documents import (
    INSTALLED,
    PORTABLE,
    Document,
    check_component,
    check_variant,
    parsed,
    schema_version,
)
from ort_core.model_packages.stored import ComponentState, PackageState, compact, open_package, read_component
from ort_core.options.choices import Choice

_SCOPES = ("manifest", "component", "variant")
_TEXTS = {"name": "package_name", "version": "package_version", "description": "description"}


class ModelPackageWriteMode(Choice):
    """How ``ModelPackage.commit`` writes."""

    PRESERVE = 0
    """Each component where it is stated: in the manifest, or in a file of its own."""
    DENSE = 1
    """All components in the manifest, each variant in a folder of its own name."""


class ModelPackage:
    """A model package to be made or changed; nothing is written before ``commit``. JSON arguments are strings.

    It closes at the end of a ``with`` block. Errors are ``ValueError`` for contents, ``FileNotFoundError`` for what is
    not there.
    """

    def __init__(self) -> None:
        self._state: PackageState | None = PackageState(manifest={})
        self._removed: list[Path] = []

    @staticmethod
    def open(
        package_root: str | os.PathLike,
        allow_external_paths: bool = False,
        follow_symlinks: bool = True,
        strict_unknown_fields: bool = True,
    ) -> ModelPackage:
        """Return the package of a folder.

        Raises:
            OrtError: a document is missing or wrong, or names what is not there or not in the package.
        """
        found = ModelPackage()
        found._state = open_package(
            package_root,
            allow_external_paths=allow_external_paths,
            follow_symlinks=follow_symlinks,
            strict=strict_unknown_fields,
        )
        return found

    def __enter__(self) -> ModelPackage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forget what was not committed."""
        self._state = None

    def _open(self) -> PackageState:
        if self._state is None:
            raise InvalidPackage("Model package is closed.")
        return self._state

    def get_info(self) -> Document:
        """Return metadata, components with their variants, and shared assets."""
        state = self._open()
        major, minor = schema_version(state.manifest) if "schema_version" in state.manifest else (0, 0)
        return {
            "schema_version_major": major,
            "schema_version_minor": minor,
            **{key: state.manifest.get(key) for key in _TEXTS.values()},
            "layout": state.manifest.get("layout", PORTABLE),
            "additional_metadata_json": _metadata(state.manifest),
            "components": [self._component_info(name) for name in state.components],
            "shared_assets": [{"uri": uri, "resolved_path": str(path)} for uri, path in state.assets.items()],
        }

    def _component_info(self, name: str) -> Document:
        document = self._open().component(name).document
        variants = [self._variant_info(name, variant) for variant in document["variants"]]
        return {"name": name, "additional_metadata_json": _metadata(document), "variants": variants}

    def _variant_info(self, component: str, name: str) -> Document:
        state = self._open()
        variant, folder = state.variant(component, name), state.variant_folder(component, name)
        keys = variant.get("executor_info", {})
        return {
            "name": name,
            "variant_directory": None if folder is None else str(folder),
            **{key: variant.get(key) for key in ("ep", "device", "compatibility_string")},
            "additional_metadata_json": _metadata(variant),
            "executor_info": {key: compact(state.executor_info(component, name, key)) for key in keys},
        }

    def get_component_json(self, component_name: str) -> str:
        """Return a component's document."""
        return compact(self._open().component(component_name).document)

    def get_variant_json(self, component_name: str, variant_name: str) -> str:
        """Return a variant's document."""
        return compact(self._open().variant(component_name, variant_name))

    def set_metadata(self, name: str | None = None, version: str | None = None, description: str | None = None) -> None:
        """Set what is given; ``None`` leaves what was."""
        given = {"name": name, "version": version, "description": description}
        self._open().manifest.update({_TEXTS[key]: value for key, value in given.items() if value is not None})

    def set_layout(self, layout: str) -> None:
        """Choose whether the package is ``portable``, or ``installed`` and free to name what lies elsewhere."""
        if layout not in (PORTABLE, INSTALLED):
            raise InvalidPackage("SetLayout: layout must be 'portable' or 'installed'.")
        state = self._open()
        state.manifest["layout"] = layout
        state.rules = replace(state.rules, is_portable=layout == PORTABLE)

    def set_additional_metadata_json(
        self, scope: str, component_name: str | None = None, variant_name: str | None = None, json: str | None = None
    ) -> None:
        """Set the free metadata of the ``manifest``, a ``component`` or a ``variant``; ``None`` takes it away."""
        if scope not in _SCOPES:
            raise InvalidPackage("SetAdditionalMetadataJson: scope must be 'manifest', 'component', or 'variant'.")
        target = self._scoped(scope, component_name, variant_name)
        if json is None:
            target.pop("additional_metadata", None)
        else:
            target["additional_metadata"] = parsed(json, "additional_metadata")

    def _scoped(self, scope: str, component: str | None, variant: str | None) -> Document:
        state = self._open()
        if scope == "manifest":
            if component is not None or variant is not None:
                raise InvalidPackage("SetAdditionalMetadataJson: 'manifest' scope takes no component/variant.")
            return state.manifest
        if component is None:
            raise InvalidPackage("model_package: 'component' must not be null.")
        if scope == "component":
            if variant is not None:
                raise InvalidPackage("SetAdditionalMetadataJson: 'component' scope takes no variant.")
            return state.component(component).document
        if variant is None:
            raise InvalidPackage("model_package: 'variant' must not be null.")
        return state.variant(component, variant)

    def set_component_inline(self, name: str, component_json: str) -> None:
        """Add or replace a component whose document lies in the manifest."""
        state = self._open()
        document = check_component(name, parsed(component_json, f"component '{name}'"), strict=state.is_strict)
        self._put_component(name, ComponentState(document))

    def set_component_external(self, name: str, path: str) -> None:
        """Add or replace a component whose document lies in a folder or file of the package.

        One that is not there yet starts without variants.
        """
        state = self._open()
        if state.rules.root is None:
            raise InvalidPackage(
                "SetComponentExternal requires a package_root (use _Open or _Commit with a dest_root first; or rely on "
                "_Commit(dest_root) to materialize)."
            )
        place = state.rules.resolve(path, state.rules.root, must_exist=False)
        file = place if place.suffix == ".json" else place / "component.json"
        if file.exists():
            component = read_component(name, path, state.rules, strict=state.is_strict)
        else:
            component = ComponentState({"variants": {}}, path, file)
        self._put_component(name, component)

    def _put_component(self, name: str, component: ComponentState) -> None:
        state = self._open()
        before = state.components.get(name)
        state.components[name] = component
        try:
            for variant in component.document["variants"]:
                state.variant_folder(name, variant)
        except Exception:
            if before is None:
                del state.components[name]
            else:
                state.components[name] = before
            raise

    def remove_component(self, name: str) -> None:
        """Take a component away; its folder goes with ``prune``."""
        removed = self._open().components.pop(name, None)
        if removed is not None and removed.file is not None:
            self._removed.append(removed.file.parent)

    def set_variant(self, component_name: str, variant_name: str, variant_json: str) -> None:
        """Add or replace a variant."""
        state = self._open()
        if component_name not in state.components:
            raise NoSuchFile(f"SetVariant: component '{component_name}' not found.")
        about = f"variant '{variant_name}'"
        document = check_variant(variant_name, parsed(variant_json, about), strict=state.is_strict)
        base = state.component(component_name).base(state.rules)
        if "variant_directory" in document:
            state.rules.resolve(document["variant_directory"], base, must_exist=True)
        state.component(component_name).document["variants"][variant_name] = document

    def remove_variant(self, component_name: str, variant_name: str) -> None:
        """Take a variant away; its folder goes with ``prune``."""
        state = self._open()
        variants = state.component(component_name).document["variants"]
        if variant_name in variants:
            folder = state.variant_folder(component_name, variant_name)
            self._removed += [] if folder is None else [folder]
            del variants[variant_name]

    def set_variant_executor_info_inline(
        self, component_name: str, variant_name: str, namespace_key: str, info_json: str
    ) -> None:
        """Set what a variant tells an engine (``ort``: this one): a JSON object."""
        info = parsed(info_json, "executor_info inline value")
        if not isinstance(info, dict):
            raise InvalidPackage("executor_info inline value: expected a JSON object.")
        self._open().variant(component_name, variant_name).setdefault("executor_info", {})[namespace_key] = info

    def set_variant_executor_info_external(
        self, component_name: str, variant_name: str, namespace_key: str, path: str
    ) -> None:
        """Set the file, in a variant's folder, that says what the variant tells an engine."""
        self._open().variant(component_name, variant_name).setdefault("executor_info", {})[namespace_key] = path

    def remove_variant_executor_info(self, component_name: str, variant_name: str, namespace_key: str) -> None:
        """Take away what a variant tells an engine."""
        variant = self._open().variant(component_name, variant_name)
        variant.get("executor_info", {}).pop(namespace_key, None)
        if not variant.get("executor_info", True):
            del variant["executor_info"]

    @staticmethod
    def compute_directory_hash(source_dir: str | os.PathLike) -> str:
        """Return the URI that a folder has as a shared asset."""
        return directory_uri(source_dir)

    def add_shared_asset(
        self, source_dir: str | os.PathLike, expected_uri: str | None = None, copy_in: bool = True
    ) -> str:
        """Add a folder, which is copied at ``commit``, and return its URI."""
        state, uri = self._open(), directory_uri(source_dir)
        if expected_uri is not None and uri != expected_uri:
            raise InvalidPackage(f"AddSharedAsset: hash mismatch: computed {uri}, expected {expected_uri}.")
        if not copy_in and state.rules.is_portable:
            raise InvalidPackage(
                "AddSharedAsset: copy_in=false rejected in portable layout (the path would point outside "
                "<package_root>)."
            )
        state.assets[uri] = Path(source_dir)
        return uri

    def remove_shared_asset(self, uri: str) -> None:
        """Take a shared asset away; its folder goes with ``prune``."""
        state = self._open()
        folder = state.assets.pop(uri, None)
        if folder is not None:
            self._removed.append(folder)

    def resolve_asset_uri(self, uri: str) -> str:
        """Return the folder of a shared asset."""
        return str(self._open().asset(uri))

    def resolve_string_ref(
        self, string_ref: str, base_dir: str | os.PathLike | None = None, must_exist: bool = False
    ) -> str:
        """Return the path that a reference means, of a shared asset or below ``base_dir`` or the package."""
        return str(self._open().resolve(string_ref, base_dir, must_exist=must_exist))

    def commit(
        self,
        dest_root: str | os.PathLike | None = None,
        mode: ModelPackageWriteMode = ModelPackageWriteMode.PRESERVE,
    ) -> None:
        """Write the package in place, or with all that it holds to an empty folder, which is its own from then on.

        Sources of shared assets must be there until then.
        """
        state = self._open()
        if dest_root is not None:
            write_elsewhere(state, Path(dest_root).absolute(), is_dense=mode == ModelPackageWriteMode.DENSE)
            self._removed = []
        elif state.rules.root is None:
            raise InvalidPackage("Commit: package has no package_root. Use dest_root variant.")
        else:
            write_in_place(state, state.rules.root)

    def prune(self) -> None:
        """Delete the folders of what was taken away, where they lie in the package and nothing needs them."""
        state = self._open()
        root, removed, self._removed = state.rules.root, self._removed, []
        if root is None:
            return
        needed = [path for name, each in state.components.items() for path in self._folders(name, each)]
        needed += state.assets.values()
        for folder in (path.absolute() for path in removed):
            is_own = folder != root and folder.is_relative_to(root) and folder.is_dir() and not folder.is_symlink()
            if is_own and not any(path.absolute().is_relative_to(folder) for path in needed):
                shutil.rmtree(folder)

    def _folders(self, name: str, component: ComponentState) -> list[Path]:
        found = [] if component.file is None else [component.file.parent]
        for variant in component.document["variants"]:
            folder = self._open().variant_folder(name, variant)
            found += [] if folder is None else [folder]
        return found


def _metadata(document: Document) -> str | None:
    return compact(document["additional_metadata"]) if "additional_metadata" in document else None
