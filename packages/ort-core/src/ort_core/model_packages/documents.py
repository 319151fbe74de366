"""The JSON documents of a package: which fields they have, and of which kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ort_core.errors import InvalidPackage, NoSuchFile
from ort_core.model_packages.assets import is_asset_uri
from ort_core.whole_files import replace_file

Document = dict[str, Any]  # JSON
MAJOR = 1  # of the schema
SCHEMA_VERSION = "1.0"
PORTABLE, INSTALLED = "portable", "installed"
_MANIFEST = {"schema_version", "layout", "components", "package_name", "package_version", "description",
             "additional_metadata", "shared_assets"}  # fmt: skip
_COMPONENT = {"component_name", "variants", "additional_metadata"}
_VARIANT = {"variant_directory", "ep", "device", "compatibility_string", "executor_info", "additional_metadata"}
_VARIANT_TEXTS = ("variant_directory", "ep", "device", "compatibility_string")


def parsed(text: str | bytes, about: str) -> Any:
    """Return what a JSON text says.

    Raises:
        InvalidPackage: it is not JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidPackage(f"{about}: JSON parse error. {error}") from error


def read_document(path: Path) -> Document:
    """Return the JSON object of a file.

    Raises:
        InvalidPackage: it holds no JSON object.
        NoSuchFile: it cannot be opened.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NoSuchFile(f"Cannot open file: '{path}': {error.strerror}") from error
    try:
        found = json.loads(content)
    except ValueError as error:
        raise InvalidPackage(f"Failed to parse JSON at '{path}': {error}") from error
    if not isinstance(found, dict):
        raise InvalidPackage(f"'{path}' holds no JSON object")
    return found


def write_document(path: Path, document: Mapping[str, object]) -> None:
    """Write a JSON object, readable."""
    replace_file(path, f"{json.dumps(document, indent=2, ensure_ascii=False)}\n".encode())


def schema_version(manifest: Document) -> tuple[int, int]:
    """Return major and minor number.

    Raises:
        InvalidPackage: there is none, or one of another kind.
    """
    stated = manifest.get("schema_version")
    if stated is None:
        raise InvalidPackage("manifest: missing required 'schema_version'.")
    is_text = isinstance(stated, str) or (isinstance(stated, int) and not isinstance(stated, bool))
    text = str(stated) if "." in str(stated) else f"{stated}.0"  # a major number alone will do, as in onnxruntime
    parts = text.split(".") if is_text else []
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise InvalidPackage("manifest: 'schema_version' must be a \"<major>.<minor>\" string.")
    return int(parts[0]), int(parts[1])


def check_manifest(manifest: Document, *, strict: bool) -> None:
    """Require a manifest's fields.

    Raises:
        InvalidPackage: one is missing, of another kind, or (``strict``) unknown.
    """
    major, _ = schema_version(manifest)
    if major != MAJOR:
        raise InvalidPackage(
            f"manifest: schema_version major {major} is not supported (this build supports major {MAJOR})."
        )
    _check_known("manifest", manifest, _MANIFEST, strict=strict)
    _check_texts("manifest", manifest, ("layout", "package_name", "package_version", "description"))
    if manifest.get("layout", PORTABLE) not in (PORTABLE, INSTALLED):
        raise InvalidPackage("manifest: 'layout' must be 'portable' or 'installed'.")
    if "components" not in manifest:
        raise InvalidPackage("manifest: missing required 'components' object.")
    if not isinstance(manifest["components"], dict):
        raise InvalidPackage("manifest: 'components' must be an object.")
    assets = manifest.get("shared_assets", {})
    if not isinstance(assets, dict):
        raise InvalidPackage("manifest: shared_assets must be an object.")
    for uri, place in assets.items():
        if not is_asset_uri(uri):
            raise InvalidPackage(f"manifest: shared_assets key '{uri}' is not a valid sha256:<hex> URI.")
        if not isinstance(place, str):
            raise InvalidPackage(f"manifest: shared_assets['{uri}'] must be a string.")


def check_component(name: str, component: object, *, strict: bool) -> Document:
    """Return a component's document.

    Raises:
        InvalidPackage: a field of it or of its variants is missing, of another kind, or (``strict``) unknown.
    """
    if not isinstance(component, dict):
        raise InvalidPackage(f"component '{name}': value must be a string (path) or object (inline).")
    _check_known(f"component '{name}'", component, _COMPONENT, strict=strict)
    _check_texts(f"component '{name}'", component, ("component_name",))
    if "variants" not in component:
        raise InvalidPackage(f"component '{name}': missing required 'variants' object.")
    if not isinstance(component["variants"], dict):
        raise InvalidPackage(f"component '{name}': 'variants' must be an object.")
    for variant, document in component["variants"].items():
        check_variant(variant, document, strict=strict)
    return component


def check_variant(name: str, variant: object, *, strict: bool) -> Document:
    """Return a variant's document.

    Raises:
        InvalidPackage: a field is of another kind, or (``strict``) unknown.
    """
    about = f"variant '{name}'"
    if not isinstance(variant, dict):
        raise InvalidPackage(f"{about}: expected a JSON object.")
    _check_known(about, variant, _VARIANT, strict=strict)
    _check_texts(about, variant, _VARIANT_TEXTS)
    executors = variant.get("executor_info", {})
    if not isinstance(executors, dict):
        raise InvalidPackage(f"{about}: executor_info must be an object.")
    for key, value in executors.items():
        if not isinstance(value, (str, dict)):
            raise InvalidPackage(f"{about}: executor_info['{key}'] must be a string (path) or object (inline).")
    return variant


def _check_known(about: str, document: Document, known: set[str], *, strict: bool) -> None:
    unknown = next((field for field in document if field not in known), None)
    if strict and unknown is not None:
        raise InvalidPackage(f"{about}: unknown field '{unknown}'.")


def _check_texts(about: str, document: Document, fields: tuple[str, ...]) -> None:
    for field in fields:
        if field in document and not isinstance(document[field], str):
            raise InvalidPackage(f"{about}: '{field}' must be a string.")
