"""The config file: what it may say, and what is said about what it may not."""

import pytest

from cumulo.domain.errors import CumuloError
from cumulo.domain.quantities import GIB
from cumulo.wire.config_file import read_config


def test_nothing_need_be_said():
    file = read_config({})
    assert (file.placement.backfill, file.placement.preemption, file.placement.make_room) == (True, True, False)
    assert (file.usage_half_life, file.projects, file.others.weight) == (7 * 86400.0, {}, 1.0)


def test_all_that_may_be_said():
    file = read_config(
        {
            "placement": {"backfill": False, "most_moves": 5, "change_sharing_mode": False},
            "usage_half_life": "1d",
            "projects": {
                "vision": {
                    "weight": 2,
                    "quota": {"gpus": 8, "cpus": 64, "memory": "500GB", "a100 80gb": 4, "Homemade 9": 1},
                    "guaranteed": {"A100-80GB": 2},
                }
            },
            "others": {"quota": {"T4": 0}},
        }
    )
    vision = file.projects["vision"]
    assert (vision.quota.gpus, vision.quota.cpus, vision.quota.memory) == (8, 64_000, 500 * GIB)
    assert vision.quota.kinds == {"A100-80GB": 4, "Homemade 9": 1}
    assert (vision.guaranteed, file.others.quota.kinds) == ({"A100-80GB": 2}, {"T4": 0})


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"placment": {}}, "placment: is not known; did you mean 'placement'?"),
        ({"placement": {"backfil": True}}, "placement.backfil: is not known; did you mean 'backfill'?"),
        ({"rates": {"A100-80GB": "1.20"}}, "rates.A100-80GB: must be USD per GPU-hour, from 0 to 10000, not text"),
        ({"rates": {"A100": 1}}, "rates.A100: may be A100-40GB or A100-80GB; name one of them"),
        ({"market": {"spot_floor": 1.5}}, "market.spot_floor: must be a part of the on-demand price, from 0 to 1"),
        ({"market": {"spot_floor": {"T4": -1}}}, "market.spot_floor.T4: must be a part of the on-demand price"),
        ({"market": {"reserved": {"soon": 0.5}}}, "market.reserved.soon: 'soon' is not a duration"),
        ({"market": {"reserved": 0.5}}, "market.reserved: must be a mapping of terms to numbers"),
        ({"placement": {"most_moves": 0}}, "placement.most_moves: Input should be greater than or equal to 1"),
        ({"projects": {"v": {"quota": {"gpu": 4}}}}, "projects.v.quota.gpu: is not known; did you mean gpus?"),
        (
            {"projects": {"v": {"quota": {"A100": 4}}}},
            "projects.v.quota.A100: may be A100-40GB or A100-80GB; name one of them",
        ),
        (
            {"projects": {"v": {"guaranteed": {"A100-90GB": 4}}}},
            "projects.v.guaranteed.A100-90GB: is not known; did you mean A100-40GB or A100-80GB?",
        ),
        ({"others": {"guaranteed": 4}}, "others.guaranteed: must be a mapping of GPU kinds to numbers"),
        ({"others": {"quota": 4}}, "others.quota: must be a mapping such as gpus: 8, not a number"),
        ({"others": {"weight": 0}}, "others.weight: Input should be greater than 0"),
        ({"projects": {"Über": {}}}, "can't be a name"),
        ({"usage_half_life": "soon"}, "usage_half_life: "),
        ({"usage_half_life": 1}, "usage_half_life: Input should be greater than or equal to 60"),
    ],
)
def test_what_is_wrong_is_said_with_its_path(data, text):
    with pytest.raises(CumuloError) as caught:
        read_config(data)
    assert text in caught.value.message
    assert caught.value.code == "invalid_request"
