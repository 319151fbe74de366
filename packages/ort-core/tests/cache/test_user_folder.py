"""The cache lies where platformdirs says, also where it is not asked."""

from __future__ import annotations

import os
import sys

import platformdirs
import pytest

from ort_core.cache.store import ArtefactCache, cache_directory


@pytest.mark.skipif(sys.platform == "win32", reason="HOME and XDG_CACHE_HOME are not asked there")
@pytest.mark.parametrize("home", [None, "", "  ", "/somewhere/else"])
def test_folder_is_that_of_platformdirs(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORT_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", home)
    monkeypatch.setenv("HOME", "/of/the/test")
    assert cache_directory() == platformdirs.user_cache_dir("ort-core")
    assert ArtefactCache().folder == cache_directory()


def test_variable_goes_first_and_may_name_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/of/the/test")
    monkeypatch.setenv("USERPROFILE", "/of/the/test")
    monkeypatch.setenv("ORT_CACHE_DIR", "~/models")
    assert cache_directory() == os.path.abspath("/of/the/test/models")
