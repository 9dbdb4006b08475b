"""What is written into docs/accuracy.md, and the plots beside it."""

from dataclasses import replace
from typing import NamedTuple

import pytest

from bench.advisor.plots import draw
from bench.advisor.report import DOCS, PART, errors, families, fill, main, ranking, rules, sources, title, write
from bench.advisor.score import Row, Target
from cumulo.advisor.estimate import Range


class Pairs(NamedTuple):
    right: int
    wrong: int

    @property
    def tau(self) -> float:
        return (self.right - self.wrong) / (self.right + self.wrong)


def row(expected: float, actual: float, gpu: str = "A100-80GB") -> Row:
    return Row(
        estimate=Range(expected / 2, expected, 2 * expected), actual=actual, gpu=gpu, baselines={"twice": 2 * actual}
    )  # fmt: skip


TARGETS = {"memory": Target([row(11, 10), row(9, 10), row(10, 10, "L4"), *[row(10, 100, "T4")] * 5], dropped=3)}


def test_a_row_tells_how_far_off_and_how_often_inside():
    _, _, line = errors(TARGETS)
    assert line.startswith("| fine-tuning and generating: peak memory | 8 | 3 | 90.0 % |")
    assert line.endswith("| −56.2 % | 38 % | 4.00 |")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("md", "molecular dynamics: ns a day"),
        ("md_by_gpu", "molecular dynamics, by GPU"),
        ("training_dense, model left out", "training, dense models, model left out"),
        ("something_new", "something new"),
    ],
)
def test_titles(name, told):
    assert title(name) == told


def test_families_with_few_rows_have_no_line():
    lines = list(families(TARGETS))[2:]
    assert [line.split(" | ")[1] for line in lines] == ["T4"]


def test_simple_rules_stand_beside_the_advisor():
    advisor, rule = list(rules(TARGETS))[2:]
    assert "| the advisor | 8 |" in advisor
    assert "| twice | 8 | 100.0 % | 100.0 % | 100.0 % |" in rule


def test_other_estimators_stand_beside_the_advisor_for_each_source():
    head, _, line = sources({"training_dense": Target([replace(row(11, 10), source="a_table")])})
    assert head == "| source | rows | the advisor | twice |"
    assert line == "| a table | 1 | 10.0 % | 100.0 % |"
    assert len(list(sources(TARGETS))) == 2


def test_the_order_of_gpus():
    orders = {"fitted": {"mlperf_training v4.0": Pairs(19, 1)}, "unseen": {}}
    assert list(ranking(orders))[-1] == "| mlperf training v4.0 | 20 | 0.90 | – |"


def test_a_plot_is_a_png_and_the_same_rows_give_the_same_one(tmp_path):
    for name in ("one", "two"):
        draw(TARGETS["memory"].rows, "memory", tmp_path / f"{name}.png")
    one, two = ((tmp_path / f"{name}.png").read_bytes() for name in ("one", "two"))
    assert one.startswith(b"\x89PNG")
    assert one == two


def test_the_document_is_filled_and_what_is_written_by_hand_stays(tmp_path):
    text = (DOCS / "accuracy.md").read_text()
    (tmp_path / "accuracy.md").write_text(text)
    write(tmp_path, TARGETS, TARGETS, {"fitted": {}, "unseen": {}})
    made = (tmp_path / "accuracy.md").read_text()
    assert PART.sub("", made) == PART.sub("", text)
    assert "![fine-tuning and generating: peak memory](accuracy/memory.png)" in made
    assert (tmp_path / "accuracy" / "memory.png").exists()
    with pytest.raises(KeyError, match="nothing"):
        fill("<!-- measured: nothing -->\n<!-- /measured -->", {})


def test_every_part_of_the_document_has_its_numbers():
    parts = PART.findall((DOCS / "accuracy.md").read_text())
    assert {name for _, name, _, _ in parts} == {"errors", "unseen", "rules", "sources", "ranking", "families", "plots"}
    assert all(body.strip() for _, _, body, _ in parts)


def test_a_folder_that_is_not_there(capsys):
    assert main(["/nowhere"]) == 2
    assert "is no folder" in capsys.readouterr().err
