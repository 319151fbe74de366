"""Makes the modules beside the tests importable, and writes the corpus once for a test session."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory):
    """Return the file of small models that the mutants are made from."""
    from corpus import write_corpus

    path = tmp_path_factory.mktemp("corpus") / "corpus.pickle"
    write_corpus(path)
    return path
