"""Opens a package's model: the variant for the provider that a session asks for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ort_core.environment import Environment, default_environment
from ort_core.errors import Fail, InvalidPackage, InvalidType, OrtError
from ort_core.model_packages.documents import Document, schema_version
from ort_core.model_packages.stored import PackageState, open_package
from ort_core.options import OrtCompiledModelCompatibility, SessionOptions
from ort_core.session import InferenceSession
from ort_core.session_api.process import get_ep_devices, get_model_compatibility_for_ep_devices
from ort_core.session_api.provider_request import Request, provider_request

DEFAULT_PROVIDER = "CPUExecutionProvider"
ENGINE = "ort"  # the key of what a variant tells this engine


class ModelPackageOptions:
    """The provider for which a variant is to be found: the first that session options name.

    Raises:
        InvalidType: ``sess_options`` are no session options.
    """

    def __init__(self, sess_options: SessionOptions) -> None:
        if not isinstance(sess_options, SessionOptions):
            raise InvalidType(f"sess_options is a {type(sess_options).__name__}, expected SessionOptions")
        self._options = sess_options.copy()

    def _request(self, environment: Environment) -> Request:
        return provider_request(None, None, self._options, environment) or [(DEFAULT_PROVIDER, {})]


@dataclass(frozen=True)
class _Selected:
    component: str
    variant: str
    options: SessionOptions
    request: Request


class ModelPackageComponentContext:
    """One variant of a component, chosen by ``ModelPackageContext.select_component``."""

    _session_type: ClassVar[type[InferenceSession]] = InferenceSession

    def __init__(self, package: PackageState, selected: _Selected) -> None:
        self._package = package
        self._selected = selected

    def get_selected_variant_name(self) -> str:
        """Return the variant's name."""
        return self._selected.variant

    def get_selected_variant_folder_path(self) -> str:
        """Return the variant's folder.

        Raises:
            Fail: it has none.
        """
        return str(self._folder())

    def _folder(self) -> Path:
        found = self._package.variant_folder(self._selected.component, self._selected.variant)
        if found is None:
            raise Fail(f"variant '{self._selected.variant}' of '{self._selected.component}' has no folder")
        return found

    def create_session(self, sess_options: SessionOptions | None = None) -> InferenceSession:
        """Return a session of the variant's model.

        Args:
            sess_options: ``None``: those of the selection with the package's; else these, and none of the package's.

        Raises:
            OrtError: the variant names no model, or it cannot be loaded.
        """
        info = self._package.executor_info(self._selected.component, self._selected.variant, ENGINE) or {}
        file = info.get("model_file")
        if file is None:
            raise Fail(
                f'Selected variant \'{self._selected.variant}\' has no executor_info["ort"]["model_file"]. '
                f"Component: {self._selected.component}"
            )
        path = self._package.rules.resolve(file, self._folder(), must_exist=False)
        if sess_options is not None:
            providers = None if sess_options.has_providers() else self._selected.request
            return self._session_type(str(path), sess_options, providers)
        options = self._session_type._options_type()  # of the drop-in, which forgives unknown keys
        options.__setstate__(self._selected.options.__getstate__())
        for key, value in info.get("session_options", {}).items():
            options.add_session_config_entry(key, value)
        [(name, given), *others] = self._selected.request
        return self._session_type(str(path), options, [(name, {**info.get("provider_options", {}), **given}), *others])


class ModelPackageContext:
    """A model package to load models from.

    Raises:
        OrtError: a document is missing or wrong, or names what is not there or not in the package.
    """

    _component_type: ClassVar[type[ModelPackageComponentContext]] = ModelPackageComponentContext

    def __init__(self, package_root: str | os.PathLike) -> None:
        try:
            self._package = open_package(package_root)
            for component, state in self._package.components.items():
                for variant in state.document["variants"]:
                    _check_executor(self._package, component, variant)
        except OrtError as error:
            raise InvalidPackage(f"Failed to open model package at '{package_root}': {error.args[0]}") from error

    def get_schema_version(self) -> int:
        """Return the major number of the package's schema."""
        return schema_version(self._package.manifest)[0]

    def get_component_count(self) -> int:
        """Return how many components there are."""
        return len(self._package.components)

    def get_component_names(self) -> list[str]:
        """Return the components' names."""
        return list(self._package.components)

    def get_variant_count(self, component_name: str) -> int:
        """Return how many variants a component has."""
        return len(self._variants(component_name))

    def get_variant_names(self, component_name: str) -> list[str]:
        """Return the names of a component's variants."""
        return list(self._variants(component_name))

    def get_variant_ep_name(self, component_name: str, variant_name: str) -> str | None:
        """Return the provider that a variant is for, ``None``: it does not say."""
        variants = self._variants(component_name)
        if variant_name not in variants:
            raise InvalidPackage(f"Variant '{variant_name}' not found in component '{component_name}'.")
        provider: str | None = variants[variant_name].get("ep")
        return provider

    def _variants(self, component: str) -> dict[str, Document]:
        if component not in self._package.components:
            known = ", ".join(self._package.components) or "none"
            raise InvalidPackage(f"Component model not found: {component}. The package has {known}.")
        variants: dict[str, Document] = self._package.components[component].document["variants"]
        return variants

    def resolve_string_ref(
        self, string_ref: str, base_dir: str | os.PathLike | None = None, must_exist: bool = False
    ) -> str:
        """Return the path that a reference means, of a shared asset or below ``base_dir`` or the package."""
        try:
            return str(self._package.resolve(string_ref, base_dir, must_exist=must_exist))
        except OrtError as error:
            raise InvalidPackage(f"Failed to resolve '{string_ref}' in model package: {error.args[0]}") from error

    def select_component(self, component_name: str, options: ModelPackageOptions) -> ModelPackageComponentContext:
        """Return the first variant of a component that is for the provider asked for, its device and what it compiles.

        Raises:
            InvalidPackage: there is no such component, or no such variant.
        """
        request = options._request(default_environment())
        provider = request[0][0]
        variants = self._variants(component_name)
        found = next((name for name, each in variants.items() if _fits(each, provider)), None)
        if found is None:
            stated = {name: each.get("ep") for name, each in variants.items()}
            raise InvalidPackage(
                f"No suitable model variant found for the configured execution providers. Asked for: {provider}; "
                f"variants and what they are for: {stated}."
            )
        return self._component_type(self._package, _Selected(component_name, found, options._options, request))


def _check_executor(package: PackageState, component: str, variant: str) -> None:
    """Require what a variant tells this engine.

    Raises:
        OrtError: it is of another kind, or its file is not in the package.
    """
    info = package.executor_info(component, variant, ENGINE) or {}
    about = f"for variant '{variant}' in component '{component}'"
    file, folder = info.get("model_file"), package.variant_folder(component, variant)
    if file is not None and not isinstance(file, str):
        raise InvalidPackage(f"ORT variant configuration: model_file must be a string {about}")
    if file is not None and folder is not None:
        package.rules.resolve(file, folder, must_exist=False)
    for key in ("session_options", "provider_options"):
        entries = info.get(key, {})
        if not isinstance(entries, dict) or not all(isinstance(value, str) for value in entries.values()):
            raise InvalidPackage(f"ORT variant configuration: '{key}' entries must be strings {about}")


def _fits(variant: Document, provider: str) -> bool:
    if variant.get("ep") != provider:
        return False
    devices = [each for each in get_ep_devices() if each.ep_name == provider]
    wanted = variant.get("device")
    if wanted is not None and wanted.lower() not in {each.device.type.name.lower() for each in devices}:
        return False
    text = variant.get("compatibility_string")
    if text is None:
        return True
    return get_model_compatibility_for_ep_devices(devices, text) is not OrtCompiledModelCompatibility.EP_UNSUPPORTED
