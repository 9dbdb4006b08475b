"""One server for the tests of a module; what runs is ended after each test."""

import pytest

from tests.server.box import Box


@pytest.fixture(scope="module")
def shared_box(tmp_path_factory):
    box = Box(tmp_path_factory.mktemp("box"))
    yield box
    box.close()


@pytest.fixture
def box(shared_box):
    yield shared_box
    shared_box.finish_all()
