"""A stub server for tests of the SDK."""

from collections.abc import Iterator

import pytest

from tests.client.stub import Stub, serving


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serving(Stub()) as running:
        yield running
