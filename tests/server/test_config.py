"""The config file as the server reads it: absent, empty, wrong, and what rules come of it."""

import pytest

from cumulo.control.rates import Rates, Terms
from cumulo.control.rules import ProjectRules, Quota, Rules
from cumulo.domain.errors import CumuloError
from cumulo.server import config


def test_without_one_all_is_as_in_every_cloud(tmp_path):
    assert config.read(tmp_path) == (Rules(), Rates())
    (tmp_path / "config.yaml").write_text("# nothing yet\n")
    assert config.read(tmp_path) == (Rules(), Rates())


def test_what_it_says_holds(tmp_path):
    (tmp_path / "config.yaml").write_text(
        "placement: {preemption: false, change_sharing_mode: false}\n"
        "usage_half_life: 12h\n"
        "projects:\n  vision: {weight: 3, quota: {T4: 2}, guaranteed: {T4: 1}}\n"
    )
    rules, _ = config.read(tmp_path)
    assert (rules.policy.preemption, rules.policy.backfill, rules.change_sharing_mode) == (False, True, False)
    assert rules.policy.half_life_s == 12 * 3600.0
    assert rules.policy.rules("vision") == ProjectRules(weight=3.0, quota=Quota(kinds={"T4": 2}), guaranteed={"T4": 1})
    assert rules.policy.rules("another") == ProjectRules()


def test_what_it_charges_and_on_which_terms(tmp_path):
    (tmp_path / "config.yaml").write_text(
        "rates: {a100 80gb: 1.20, T4: 0.25}\n"
        "market:\n  spot_floor: {T4: 0.5}\n  reserved: {30d: 0.85, 365d: 0.6}\n  upfront: {365d: 0.55}\n"
        "  min_run: 5m\n  price_every: 2m\n"
    )
    _, rates = config.read(tmp_path)
    assert rates.gpu_nano_h == {"A100-80GB": 1_200_000_000, "T4": 250_000_000}
    day = 86400.0
    assert rates.terms == Terms(
        spot_floor={"T4": 500},
        reserved={30 * day: 850, 365 * day: 600},
        upfront={365 * day: 550},
        min_run_s=300.0,
        price_every_s=120.0,
    )
    (tmp_path / "config.yaml").write_text("market: {spot_floor: 0.3}\n")
    assert config.read(tmp_path).rates.terms == Terms(spot_floor_of_all=300)


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
