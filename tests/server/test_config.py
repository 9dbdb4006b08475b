"""The config file as the server reads it: absent, empty, wrong, and what rules come of it."""

import pytest

from cumulo.control.rules import ProjectRules, Quota, Rules
from cumulo.domain.errors import CumuloError
from cumulo.server import config


def test_without_one_all_is_as_in_every_cloud(tmp_path):
    assert config.read(tmp_path) == Rules()
    (tmp_path / "config.yaml").write_text("# nothing yet\n")
    assert config.read(tmp_path) == Rules()


def test_what_it_says_holds(tmp_path):
    (tmp_path / "config.yaml").write_text(
        "placement: {preemption: false, change_sharing_mode: false}\n"
        "usage_half_life: 12h\n"
        "projects:\n  vision: {weight: 3, quota: {T4: 2}, guaranteed: {T4: 1}}\n"
    )
    rules = config.read(tmp_path)
    assert (rules.policy.preemption, rules.policy.backfill, rules.change_sharing_mode) == (False, True, False)
    assert rules.policy.half_life_s == 12 * 3600.0
    assert rules.policy.rules("vision") == ProjectRules(weight=3.0, quota=Quota(kinds={"T4": 2}), guaranteed={"T4": 1})
    assert rules.policy.rules("another") == ProjectRules()


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("placement:\n  backfil: true\n", 2, "placement.backfil: is not known; did you mean 'backfill'?"),
        ("- a\n", None, "must be a mapping of keys such as 'placement:'"),
        ("placement: {\n", 2, ""),
    ],
)
def test_what_is_wrong_is_pointed_at(tmp_path, text, line, said):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(CumuloError) as caught:
        config.read(tmp_path)
    assert caught.value.code == "invalid_request"
    assert caught.value.message.startswith(f"{path}:{line}: {said}" if line else f"{path}: {said}")


def test_one_that_cannot_be_read_is_an_error(tmp_path):
    (tmp_path / "config.yaml").mkdir()
    with pytest.raises(CumuloError, match=r"config\.yaml can't be read: is a directory"):
        config.read(tmp_path)
