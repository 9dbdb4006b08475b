from itertools import combinations

import pytest

from cumulo.catalog.kinds import all_kinds
from cumulo.catalog.mig import Engines, MigLayout, Placement, mig_layout, mig_profiles

WITH_MIG = [kind.name for kind in all_kinds() if kind.mig_layout]


def layout_of(kind: str) -> MigLayout:
    layout = mig_layout(kind)
    assert layout is not None
    return layout


@pytest.mark.parametrize("kind", WITH_MIG)
def test_every_placement_lies_on_the_grid(kind: str) -> None:
    layout = layout_of(kind)
    assert layout.profiles
    for profile in layout.profiles:
        assert profile.placements
        for placement in profile.placements:
            assert 0 <= placement.start < placement.start + placement.size <= layout.grid_size
        assert profile.compute_slices <= layout.compute_slices
        assert 1 <= profile.max_instances <= len(profile.placements)


@pytest.mark.parametrize("kind", WITH_MIG)
def test_as_many_instances_fit_as_the_profile_allows(kind: str) -> None:
    for profile in layout_of(kind).profiles:
        assert any(
            not any(one.overlaps(other) for one, other in combinations(chosen, 2))
            for chosen in combinations(profile.placements, profile.max_instances)
        )


def test_profiles_by_name() -> None:
    layout = layout_of("H100-80GB")
    profile = layout.profile("3G.40GB")
    assert profile is not None
    assert (profile.sms, profile.nvml_id, profile.placements) == (60, 9, (Placement(0, 4), Placement(4, 4)))
    assert layout.profile("3g.20gb") is None


def test_media_engines_are_a_budget() -> None:
    layout = layout_of("RTXPRO6000")
    assert layout.engines == Engines(decoders=4, encoders=4, jpeg=4, ofa=1)
    decoders = {profile.name: profile.engines.decoders for profile in layout.profiles}
    assert (decoders["1g.24gb"], decoders["1g.24gb-me"], decoders["1g.24gb+me.all"]) == (1, 0, 4)


def test_grids_differ() -> None:
    assert [layout_of(kind).grid_size for kind in ("A30", "A100-80GB", "RTXPRO6000")] == [4, 8, 12]
    assert layout_of("H200-141GB").inferred
    assert not layout_of("A100-80GB").inferred


@pytest.mark.parametrize("kind", ["T4", "RTX4090", "GH200-144GB", "X900-256GB"])
def test_a_gpu_without_mig_or_of_unknown_layout_has_no_profiles(kind: str) -> None:
    assert mig_layout(kind) is None
    assert mig_profiles(kind) == ()


def test_touching_placements_do_not_overlap() -> None:
    assert not Placement(0, 4).overlaps(Placement(4, 4))
    assert Placement(0, 4).overlaps(Placement(3, 1))
