"""Fleets, asks and mixes drawn by hypothesis, as the array core sees them."""

import numpy as np
from hypothesis import strategies as st

from cumulo.domain.quantities import GIB
from cumulo.placement.fleet.appraisal import Appraisal, capacity_of
from cumulo.placement.fleet.losses import Asked
from cumulo.placement.fleet.mix import AskShape
from cumulo.placement.fleet.rows import CLOSED, EMPTY, MPS, TIMESLICE, Kind, Row, Rows

KINDS = (Kind("", 0, ()), Kind("A100-80GB", 80 * GIB, ("exclusive", "mps")), Kind("T4", 15 * GIB, ("exclusive",)))
MILLI = (100, 190, 250, 470, 500, 810)


@st.composite
def row(draw):
    """A row of a node that has no other kind: CPU-only, or up to 8 devices, some of them shared or closed."""
    kind = draw(st.integers(0, 2))
    count = draw(st.integers(1, 8)) if kind else 0
    device = st.one_of(
        st.just((1000, EMPTY)),
        st.just((0, CLOSED)),
        st.tuples(st.sampled_from([190, 340, 530, 750, 900]), st.sampled_from([MPS, TIMESLICE])),
    )
    cpus, memory = draw(st.sampled_from([4, 16, 96])) * 1000, draw(st.sampled_from([8, 64, 512])) * GIB
    return Row(
        kind=kind,
        node_cpus=cpus,
        node_memory=memory,
        node_devices=count,
        devices=tuple(draw(device) for _ in range(count)),
        cpus=draw(st.integers(0, cpus)),
        memory=draw(st.sampled_from([0, memory // 2, memory])),
        ready=draw(st.booleans()) or draw(st.booleans()),
    )


def fleets(most=12):
    return st.lists(row(), min_size=1, max_size=most).map(lambda rows: Rows(KINDS, rows))


@st.composite
def asks(draw):
    what = draw(st.sampled_from(["none", "whole", "fraction"]))
    milli = 0 if what == "none" else 1000 if what == "whole" else draw(st.sampled_from(MILLI))
    admitted = draw(st.sampled_from([(0, 1, 1), (0, 1, 0), (0, 0, 1)]))
    return Asked(
        gpus=0 if what == "none" else draw(st.sampled_from([1, 2, 4, 8])) if what == "whole" else 1,
        milli=np.array([milli * each for each in admitted], dtype=np.int16),
        cpus=draw(st.sampled_from([1000, 4000, 12000])) if what == "none" else draw(st.sampled_from([-1, 1000, 9000])),
        memory=GIB if what == "none" else draw(st.sampled_from([-1, GIB, 40 * GIB])),
        mode=draw(st.sampled_from([MPS, TIMESLICE])) if what == "fraction" else EMPTY,
    )


@st.composite
def appraisals(draw):
    """An appraisal that has seen a mix, with or without anything having ended."""
    made = Appraisal()
    for _ in range(draw(st.integers(0, 8))):
        asked = draw(asks())
        shape = AskShape(asked.gpus, tuple(int(each) for each in asked.milli), max(1000, asked.cpus))
        for _ in range(draw(st.integers(1, 30))):
            made.see(shape, max(GIB, asked.memory))
    made.note(placed=100, ended=draw(st.sampled_from([0, 50, 100])))
    return made


def worth(appraisal, rows):
    return appraisal.review(capacity_of(rows), rows.state.free.shape[1])
