"""Clouds for the system tests: one for a module, or a fresh one for a test that breaks it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.databases import database_url, new_postgresql, postgresql_server  # noqa: F401
from tests.system.cloud import Cloud


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    """Two nodes of 4 A100-80GB and one with a T4, shared by the tests of a module."""
    made = Cloud(emulate="2x A100-80GB:4,T4:1")
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def new_cloud() -> Iterator[Callable[..., Cloud]]:
    """Makes clouds for this test alone; they start when told to."""
    made: list[Cloud] = []

    def make(**options: Any) -> Cloud:
        made.append(Cloud(**options))
        return made[-1]

    yield make
    for one in made:
        one.close()
