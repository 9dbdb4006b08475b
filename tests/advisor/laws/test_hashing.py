"""Hash rates by their law."""

import pytest

from cumulo.advisor.laws.hashing import hash_algorithms, hashes_per_second
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.kinds import find
from cumulo.catalog.variants import Variant

CONSTANTS = coefficients()


def board(name: str) -> Variant:
    (kind,) = find(name)
    assert kind.typical
    return kind.typical


def rate(algorithm: str, gpu: str) -> float:
    found = hashes_per_second(algorithm, board(gpu), CONSTANTS)
    assert found
    return found.expected


def test_memory_hard_hashes_follow_the_bandwidth():
    assert rate("ethash", "A100-80GB") / rate("ethash", "T4") == pytest.approx(2039 / 320)
    assert rate("ethash", "RTX3080-10GB") == pytest.approx(97e6, rel=0.15)


def test_others_follow_the_shaders():
    assert rate("ntlm", "RTX4090") == pytest.approx(288e9, rel=0.05)
    assert rate("ntlm", "RTX4090") > rate("ntlm", "A100-80GB")


def test_every_algorithm_has_a_rate_and_no_other():
    for algorithm in hash_algorithms(CONSTANTS):
        assert rate(algorithm, "RTX4090") > 0
    with pytest.raises(KeyError):
        rate("bcrypt", "RTX4090")
