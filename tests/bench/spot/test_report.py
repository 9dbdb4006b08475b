"""The document's tables from rows that are made up."""

from bench.spot.deadlines import POLICIES
from bench.spot.report import CASES, settings_table, write

COSTS = {"greedy": 0.7, "time-sliced": 0.68, "uniform-progress": 0.6, "cumulo": 0.55, "optimum": 0.5}


def row(policy, deadline):
    return {"deadline_h": deadline, "overhead_h": 0.1, "policy": policy, "cost_ratio": COSTS[policy], "misses": 0}


ROWS = [row(policy, deadline) for deadline in (52.0, 60.0) for policy in POLICIES]
TOLD = {
    "cost_ratio": COSTS,
    "misses": dict.fromkeys(POLICIES, 0),
    "p95_regret": dict.fromkeys(POLICIES, 0.1),
    "gap_closed": 0.5,
    "gap_closed_mean_of_settings": 0.52,
    "solve_cpu_s": {"mean": 0.05, "most": 0.1},
    "decision_cpu_s": {"mean": 0.0002, "most": 0.0004},
}


def test_a_line_a_setting():
    lines = list(settings_table(ROWS))
    assert len(lines) == 4
    assert lines[2] == "| 52 h | 0.1 h | 0.700 | 0.680 | 0.600 | 0.550 | 0.500 | 50 % |"


def test_what_is_measured_is_filled_in_and_what_is_written_stays(tmp_path, capsys):
    (tmp_path / "spot-policy.md").write_text(
        "By hand.\n<!-- measured: summary -->\nold\n<!-- /measured -->\n"
        "<!-- measured: cpu -->\n<!-- /measured -->\nEnd.\n"
    )
    write(tmp_path, dict.fromkeys(CASES, (ROWS, TOLD)))
    text = (tmp_path / "spot-policy.md").read_text()
    assert text.startswith("By hand.\n")
    assert text.endswith("End.\n")
    assert "old" not in text
    assert "| cumulo | 0.550 | 0.100 | 0 | 50 % | 52 % |" in text
    assert [line.split(" | ")[1] for line in text.splitlines() if line.startswith("| in hindsight, December")] == [
        "cumulo"
    ]
    assert "| a solve, ms of CPU | 50 | 100 |" in text
    assert (tmp_path / "spot-policy" / "2022.png").stat().st_size > 1000
    assert "wrote" in capsys.readouterr().out
