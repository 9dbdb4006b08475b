"""Reads the config file of a cloud at its start, and makes the rules of it that the control plane keeps to."""

from pathlib import Path
from typing import Final, NamedTuple

from cumulo.control.rates import Rates, Terms
from cumulo.control.rules import Policy, ProjectRules, Quota, Rules
from cumulo.domain.errors import CumuloError
from cumulo.wire.config_file import ConfigFile, ProjectFile, read_config
from cumulo.wire.yaml_file import read_yaml

FILE_NAME: Final = "config.yaml"


class Config(NamedTuple):
    """Who gets what next, and what it costs."""

    rules: Rules
    rates: Rates


def read(home: Path) -> Config:
    """What the state folder's config file says; what holds in every cloud where there is none.

    Raises CumuloError `invalid_request` with the file, the line and what to write instead.
    """
    path = home / FILE_NAME
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Config(Rules(), Rates())
    except OSError as error:
        raise CumuloError(
            "invalid_request", f"{path} can't be read: {(error.strerror or str(error)).lower()}"
        ) from None
    try:
        document = read_yaml(text, source=str(path), key="placement", empty=True)
    except CumuloError as error:
        raise CumuloError("invalid_request", error.message, details=error.details) from None
    try:
        file = read_config(document.data)
    except CumuloError as error:
        raise document.point(error) from None
    return Config(_rules(file), _rates(file))


def _rates(file: ConfigFile) -> Rates:
    market = file.market
    floors = dict(market.spot_floor)
    of_all = floors.pop("", None)
    terms = Terms(
        spot_floor=floors,
        spot_floor_of_all=of_all,
        reserved=market.reserved,
        upfront=market.upfront,
        min_run_s=market.min_run,
        price_every_s=market.price_every,
    )
    return Rates(gpu_nano_h=file.rates, terms=terms)


def _rules(file: ConfigFile) -> Rules:
    placement = file.placement
    return Rules(
        policy=Policy(
            projects={name: _project(project) for name, project in file.projects.items()},
            others=_project(file.others),
            half_life_s=file.usage_half_life,
            backfill=placement.backfill,
            preemption=placement.preemption,
            min_run_s=file.market.min_run,
            make_room=placement.make_room,
            most_moves=placement.most_moves,
        ),
        change_sharing_mode=placement.change_sharing_mode,
    )


def _project(file: ProjectFile) -> ProjectRules:
    quota = file.quota
    return ProjectRules(
        weight=file.weight,
        quota=Quota(gpus=quota.gpus, kinds=quota.kinds, cpus_milli=quota.cpus, memory_bytes=quota.memory),
        guaranteed=file.guaranteed,
    )
