"""What is written into docs/spot-replicas.md, and the plot beside it."""

import shutil

import pytest

from bench.advisor.report import DOCS, PART
from bench.spot import replicas, replicas_report
from bench.spot.replicas_report import NINE_ZONES, main
from tests.bench.spot.test_replicas import write_traces


def test_the_tables_and_the_plot_are_written(tmp_path, monkeypatch):
    folder = tmp_path / "traces" / NINE_ZONES
    folder.mkdir(parents=True)
    write_traces(folder, ticks=600, gap_s=3600.0)
    monkeypatch.setattr(replicas_report, "PLACES", {})
    monkeypatch.setattr(replicas_report, "SAVES", {"one": (NINE_ZONES, NINE_ZONES, 15.0)})
    monkeypatch.setattr(replicas, "MISSING", (10.0,))
    shutil.copy(DOCS / "spot-replicas.md", tmp_path)
    assert main([str(tmp_path / "traces"), "--docs", str(tmp_path)]) == 0
    made = {name: text for _, name, text, _ in PART.findall((tmp_path / "spot-replicas.md").read_text())}
    assert "| held out | cumulo, missing at 10x, an outage at twice | " in made["replicas"]
    assert "| one | 300 s | " in made["saves"]
    assert (tmp_path / "spot-replicas" / "frontier.png").exists()


def test_a_folder_without_the_traces_is_named(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "is no folder" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["replicas", "elsewhere", "saves"])
def test_the_document_shows_what_was_measured(name):
    made = {part: text for _, part, text, _ in PART.findall((DOCS / "spot-replicas.md").read_text())}
    assert made[name].count("\n|") >= 3
