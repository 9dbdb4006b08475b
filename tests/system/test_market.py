"""GPUs that cost something, bought in every way through the command line, with real processes.

The GPUs are those that a small library of ours claims to find, since emulated ones have no price.
"""

from pathlib import Path
from typing import Any

import pytest

from tests import stub_gpus
from tests.system.cloud import Cloud, eventually

pytestmark = pytest.mark.system

CONFIG = """
rates: {A100-80GB: 2.00}
market: {spot_floor: 0.25, min_run: 1s, price_every: 1s, reserved: {1h: 0.5}}
projects: {vision: {}}
"""
RUN = "sleep 300"
SMALL = ("--cpus", "0.1", "--memory", "0.2", "--runtime", "process")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stub_gpus.library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def cloud(new_cloud: Any, libraries: Path) -> Cloud:
    """Four GPUs at two dollars an hour."""
    made: Cloud = new_cloud()
    made.home.mkdir()
    (made.home / "config.yaml").write_text(CONFIG)
    made.env |= stub_gpus.environment(libraries, made.folder, gpus=4)
    made.start()
    return made


def launched(cloud: Cloud, name: str, *flags: str) -> dict[str, Any]:
    cloud.launch(RUN, "--name", name, *SMALL, *flags)
    eventually(lambda: cloud.run(name)["status"] == "running")
    return cloud.run(name)


def prices(cloud: Cloud) -> dict[str, float]:
    """Of a whole GPU by purchase option."""
    found = cloud.cli("offers", "A100", "--json").json
    return {row["purchase"]: row["price_usd_h"] for row in found}


def status(cloud: Cloud, name: str) -> str:
    return str(cloud.run(name)["status"])


def test_bids_make_the_price_and_the_lowest_makes_room(cloud: Cloud):
    assert prices(cloud)["spot"] == 0.5
    launched(cloud, "low", "--gpus", "A100:2", "--spot", "--max-price", "1.00")
    launched(cloud, "steady", "--gpus", "A100:2", "--spot")
    cloud.launch(RUN, "--name", "rich", "--gpus", "A100:2", "--spot", "--max-price", "1.50", *SMALL)
    eventually(lambda: status(cloud, "rich") == "running")
    assert status(cloud, "low") == "recovering"
    eventually(lambda: prices(cloud)["spot"] == 1.0)
    cloud.launch(RUN, "--name", "poor", "--gpus", "A100", "--spot", "--max-price", "0.80", *SMALL)
    told = cloud.ok("why", "poor")
    assert told.startswith("its bid of 0.80 is below the spot price of A100-80GB, 1.00 USD per GPU-hour")
    history = cloud.cli("offers", "--history", "A100", "--json").json
    assert [row["price_usd_h"] for row in history][:: len(history) - 1] == [0.5, 1.0]
    assert "A100-80GB in local: spot $1.00/h now, on demand $2.00/h" in cloud.ok("offers", "--history")
    assert "as spot, at most $1.50/h for a GPU" in cloud.ok("status", "rich")


def test_a_bid_that_can_never_win_or_contradicts_itself_is_refused(cloud: Cloud):
    launch = ("launch", "-y", "-d", "--no-workdir", "--gpus", "A100", *SMALL)
    low = cloud.cli(*launch, "--spot", "--max-price", "0.40", "--", "true")
    assert (low.code, "A100-80GB costs at least 0.50" in low.err) == (2, True)
    alone = cloud.cli(*launch, "--max-price", "1", "--", "true")
    assert (alone.code, "add use_spot: true (--spot)" in alone.err) == (2, True)


def test_a_reservation_is_lent_drawn_on_billed_and_over(cloud: Cloud):
    launched(cloud, "spare", "--gpus", "A100:4", "--spot")
    create = ("reservations", "create", "--gpus", "A100:3", "--term", "1h", "--project", "vision")
    assert "3x A100-80GB for project vision" in cloud.ok(*create, "--name", "nightly")
    over = cloud.cli(*create)
    assert over.code == 4
    assert "1 A100-80GB can be reserved from now for 1h 00m, 3 asked: 3 of 4 are reserved" in over.err
    assert "3 can be had from" in over.err
    cloud.launch(RUN, "--name", "greedy", "--gpus", "A100:2", *SMALL)
    assert "3 of 4 A100-80GB are reserved (3 by project vision" in cloud.ok("why", "greedy")
    flags = ("--gpus", "A100:2", "--project", "vision", "--reservation", "nightly")
    launched(cloud, "train", *flags)
    assert status(cloud, "spare") == "recovering"
    (row,) = cloud.cli("reservations", "--json").json
    assert (row["in_use"], row["price_usd_h"]) == (2.0, 1.0)
    bill = {row["name"]: float(row["cost_usd"]) for row in cloud.cli("usage", "--json").json["items"]}
    assert bill["train"] == 0.0
    assert bill["reservation nightly"] > 0
    cloud.ok("reservations", "give-back", "nightly")
    assert cloud.ok("reservations") == "Nothing is reserved.\n"
    eventually(lambda: "run.rebought" in cloud.ok("events", "train"))
    assert status(cloud, "train") == "running"


def test_prices_and_bills_survive_a_server_that_is_killed(cloud: Cloud):
    launched(cloud, "steady", "--gpus", "A100:4", "--spot")
    cloud.launch(RUN, "--name", "waits", "--gpus", "A100", "--spot", "--max-price", "1.25", *SMALL)
    eventually(lambda: prices(cloud)["spot"] == 1.25)
    cloud.kill()
    cloud.start()
    assert prices(cloud)["spot"] == 1.25
    cloud.ok("cancel", "waits")
    eventually(lambda: prices(cloud)["spot"] == 0.5)
    cloud.ok("cancel", "steady", "--wait", "--grace", "0")
    bill = {row["name"]: row for row in cloud.cli("usage", "--json").json["items"]}
    assert float(bill["steady"]["cost_usd"]) == pytest.approx(float(cloud.run("steady")["cost_usd"]), abs=1e-6)
