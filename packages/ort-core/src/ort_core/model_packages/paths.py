"""Where the paths of a package lead: within its folder, unless it is installed or others are allowed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from ort_core.errors import InvalidPackage, NoSuchFile


@dataclass(frozen=True)
class PathRules:
    """How references of a package are followed.

    Attributes:
        root: the package's folder; ``None`` before a new package is written.
        is_portable: nothing outside of ``root`` may be named.
        follows_links: links may be followed (within ``root``, where it is portable).
    """

    root: Path | None
    is_portable: bool
    follows_links: bool = True

    def resolve(self, reference: str, base: Path | None, *, must_exist: bool) -> Path:
        """Return the path that a reference in a file below ``base`` means.

        Raises:
            InvalidPackage: it leaves the package.
            NoSuchFile: there is nothing, and there must be.
        """
        is_absolute = PurePosixPath(reference).is_absolute() or bool(PureWindowsPath(reference).anchor)
        if self.is_portable and is_absolute:
            raise InvalidPackage(
                f"ResolvePath: absolute or drive-rooted path '{reference}' is not allowed in portable layout."
            )
        if self.is_portable and ".." in PureWindowsPath(reference).parts:  # which knows both kinds of separators
            raise InvalidPackage(f"ResolvePath: '..' segments are not allowed in portable layout: '{reference}'.")
        path = Path(reference) if base is None else base / reference
        if must_exist and not path.exists():
            raise NoSuchFile(f"ResolvePath: '{path}' does not exist.")
        self._require_within(path)
        return path

    def _require_within(self, path: Path) -> None:
        if self.root is None:
            return
        root, real = self.root.resolve(), path.resolve()
        if not self.follows_links and real != root / path.relative_to(self.root):
            raise InvalidPackage(f"ResolvePath: '{path}' is a link, and links are not followed.")
        if self.is_portable and not real.is_relative_to(root):
            raise InvalidPackage(f"ResolvePath: '{real}' escapes package_root '{root}'.")
