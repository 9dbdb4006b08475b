"""Simulations, rendering, vision, proofs, hashes and runs of unknown work."""

from dataclasses import replace

import pytest

from cumulo.advisor.plans import Estimate, Refusal
from cumulo.advisor.questions import Wanted
from cumulo.advisor.search import search
from cumulo.advisor.search_proofs import hashing, proving
from cumulo.advisor.search_run import held
from cumulo.advisor.search_science import floating_point, molecular_dynamics, rendering, timed_rendering, vision
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.kinds import find
from cumulo.catalog.vision import vision_network, vision_networks
from cumulo.domain.ask import parse_gpu_ask
from cumulo.domain.errors import CumuloError
from cumulo.domain.sharing import SharingMode
from tests.advisor.supplies import supply

HELD = coefficients()


def estimate(asked, kind, gpus=1):
    found = asked.estimate(supply(kind), gpus)
    assert isinstance(found, Estimate), found
    return found


def seconds(asked, kind, gpus=1):
    found = estimate(asked, kind, gpus).seconds
    assert found is not None
    return found.expected


def test_a_simulation_takes_one_gpu_and_its_rate_is_the_law_s():
    asked = molecular_dynamics("GROMACS", 1.4e6, 100, HELD)
    plans = search(asked, [supply("H100")], Wanted()).plans
    assert [plan.gpus for plan in plans] == [1]
    assert seconds(asked, "H100") == pytest.approx(100 / estimate(asked, "H100").rate.expected, rel=1e-6)
    assert seconds(asked, "H100") < seconds(asked, "T4")
    with pytest.raises(CumuloError, match="no results of"):
        molecular_dynamics("lammpz", 1e6, None, HELD)
    with pytest.raises(CumuloError, match="atoms"):
        molecular_dynamics("gromacs", 1, None, HELD)


def test_fp64_is_never_advised_where_it_is_for_show():
    asked = floating_point(1e18, "fp64")
    for name in ("B300-270GB", "L40S", "T4", "RTX4090"):
        refused = asked.estimate(supply(name), 1)
        assert isinstance(refused, Refusal), name
        assert refused.reason == "double"
    unknown = asked.estimate(supply("GB200", usd_h=None), 1)
    assert isinstance(unknown, Refusal)
    assert "unknown" in unknown.text
    assert seconds(asked, "H100") == pytest.approx(1e18 / 66.9e12)
    assert estimate(floating_point(None, "fp32"), "L40S").seconds is None


def test_frames_are_rendered_at_once_by_as_many_gpus():
    asked = rendering("cycles", 300, 1024, 1920 * 1080, HELD)
    assert seconds(asked, "L40S", 8) == pytest.approx(seconds(asked, "L40S") / 8)
    assert max(plan.gpus for plan in search(asked, [supply("L40S")], Wanted()).plans) <= 300
    assert any("ray-tracing" in note for note in estimate(asked, "A100-80GB").notes)
    with pytest.raises(CumuloError, match="no results of 'octane'") as refused:
        rendering("octane", 1, 1, 1, HELD)
    assert "--frame-time" in refused.value.hint


def test_a_frame_that_was_timed_says_more():
    asked = timed_rendering(10, 90.0, find("RTX4090")[0], HELD, engine="octane")
    assert seconds(asked, "RTX4090") == pytest.approx(900)
    assert seconds(asked, "RTX5090") < 900
    with pytest.raises(CumuloError, match="FP32 rate"):
        timed_rendering(10, 90.0, find("Gaudi2")[0], HELD, engine="x")


def test_vision_scales_with_operations_and_is_wider_where_nothing_is_known():
    resnet = vision(vision_network("resnet50"), 1_281_167, 90, HELD)
    heavier = vision(vision_network("yolov7"), 1_281_167, 90, HELD)
    assert seconds(heavier, "H100", 8) == pytest.approx(seconds(resnet, "H100", 8) * 104.7 / 8.18, rel=1e-6)
    narrow, wide = estimate(resnet, "H100", 8).rate, estimate(heavier, "H100", 8).rate
    assert wide.ratio > narrow.ratio
    with pytest.raises(CumuloError, match="did you mean YOLOv7"):
        vision_network("yolo7")


def test_networks_have_plausible_operations():
    for network in vision_networks().values():
        assert 0.1 < network.gflops < 1000
        assert network.pixels >= 224


def test_proofs():
    cycles = proving("risc0", constraints=None, cycles=1e6, proofs=100, coefficients=HELD)
    assert seconds(cycles, "RTX4090", 4) == pytest.approx(seconds(cycles, "RTX4090") / 4)
    small, large = (
        proving("Groth16", constraints=2.0**power, cycles=None, proofs=1, coefficients=HELD) for power in (20, 26)
    )
    assert seconds(large, "L40S") / seconds(small, "L40S") == pytest.approx(64, rel=0.05)
    assert estimate(small, "L40S").rate.ratio == pytest.approx(10)
    huge = proving("groth16", constraints=2.0**30, cycles=None, proofs=1, coefficients=HELD)
    refused = huge.estimate(supply("T4"), 1)
    assert isinstance(refused, Refusal)
    assert refused.reason == "memory"
    for system, told in (("plonk2", "no proof system"), ("groth16", "constraints"), ("risc0", "cycles")):
        with pytest.raises(CumuloError, match=told):
            proving(system, constraints=None, cycles=None, proofs=1, coefficients=HELD)


def test_hashes():
    asked = hashing("ethash", 1e15, HELD)
    assert seconds(asked, "A100-80GB") < seconds(asked, "T4")
    assert any("2022" in note for note in estimate(asked, "T4").notes)
    assert hashing("ntlm", None, HELD).endless
    with pytest.raises(CumuloError, match=r"known: .*ethash"):
        hashing("rot13", None, HELD)


def test_a_slice_does_its_share():
    part = replace(
        supply("A100-80GB", own=True, most=1), profile="3g.40gb", mode=SharingMode.MIG, share=3 / 7,
        memory_bytes=40 << 30,
    )  # fmt: skip
    asked = hashing("ethash", None, HELD)
    whole, half = estimate(asked, "A100-80GB").rate, asked.estimate(part, 1)
    assert isinstance(half, Estimate)
    assert half.rate.expected == pytest.approx(whole.expected / 2, rel=0.01)


def test_a_run_of_unknown_work_is_priced_for_its_time():
    asked = held("sim", parse_gpu_ask("H100:3"), nodes=2, seconds=7200)
    (plan, *_) = search(asked, [supply("H100", usd_h=2)], Wanted()).plans
    assert plan.gpus == 6
    assert plan.estimate.seconds is not None
    assert plan.estimate.seconds.expected == pytest.approx(7200)
    part = replace(supply("H100", own=True, most=9), profile="1g.10gb", mode=SharingMode.MIG, share=1 / 7)
    whole = held("sim", parse_gpu_ask("H100"), nodes=1, seconds=None).estimate(part, 1)
    assert isinstance(whole, Refusal)
    slices = held("sim", parse_gpu_ask("H100:mig-1g.10gb"), nodes=1, seconds=None).estimate(part, 1)
    assert isinstance(slices, Estimate)
