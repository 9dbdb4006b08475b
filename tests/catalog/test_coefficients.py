"""The file of constants: sections, tables with what stands for the rest, spreads."""

import json

import pytest

from cumulo.catalog.coefficients import Coefficients, Section, coefficients

SECTION = Section({"rate": 2, "by": {"Hopper": 0.9, "other": 0.7}, "spread": {"time": [0.8, 1.25]}})


def test_numbers_tables_and_spreads_are_read():
    assert SECTION.number("rate") == 2.0
    assert SECTION.table("by")["Hopper"] == 0.9
    assert SECTION.spread("time") == (0.8, 1.25)


def test_the_first_name_that_a_table_knows_counts_and_else_the_rest():
    assert SECTION.pick("by", None, "Hopper", "other") == 0.9
    assert SECTION.pick("by", "Volta") == 0.7


def test_a_constant_that_is_not_there_is_an_error():
    with pytest.raises(KeyError):
        SECTION.number("missing")


def test_a_section_is_replaced_and_the_others_stay():
    held = Coefficients(version=1, laws=SECTION)
    changed = held.replaced("training", {"rate": 3})
    assert changed.training.number("rate") == 3
    assert changed.laws is SECTION
    assert SECTION.with_values(rate=5).number("rate") == 5


def test_what_ships_has_every_section_that_was_fitted_and_says_on_what():
    held = coefficients()
    assert held.version == 1
    assert held.training.values
    assert held.memory.values
    assert {"training", "memory"} <= held.sources.keys()


def test_a_file_that_is_not_there_has_no_constants(tmp_path):
    assert coefficients(tmp_path / "none.json").training.values == {}
    path = tmp_path / "some.json"
    path.write_text(json.dumps({"version": 1, "laws": {"rate": 4}}))
    assert coefficients(path).laws.number("rate") == 4
