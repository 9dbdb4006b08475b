"""A command line that talks to a stub."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cumulo import Cumulo
from tests.client.stub import Stub, serving


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serving(Stub()) as running:
        yield running


@pytest.fixture
def cumulo(stub: Stub, tmp_path: Path) -> Cumulo:
    return Cumulo(tmp_path, {"CUMULO_SERVER": stub.url})
