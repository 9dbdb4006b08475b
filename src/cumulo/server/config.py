"""Reads the config file of a cloud at its start, and makes the rules of it that the control plane keeps to."""

from pathlib import Path
from typing import Final

from cumulo.control.rules import Policy, ProjectRules, Quota, Rules
from cumulo.domain.errors import CumuloError
from cumulo.wire.config_file import ConfigFile, ProjectFile, read_config
from cumulo.wire.yaml_file import read_yaml

FILE_NAME: Final = "config.yaml"


def read(home: Path) -> Rules:
    """The rules that the state folder's config file gives; those of every cloud where there is none.

    Raises CumuloError `invalid_request` with the file, the line and what to write instead.
    """
    path = home / FILE_NAME
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Rules()
    except OSError as error:
        raise CumuloError(
            "invalid_request", f"{path} can't be read: {(error.strerror or str(error)).lower()}"
        ) from None
    try:
        document = read_yaml(text, source=str(path), key="placement", empty=True)
    except CumuloError as error:
        raise CumuloError("invalid_request", error.message, details=error.details) from None
    try:
        return _rules(read_config(document.data))
    except CumuloError as error:
        raise document.point(error) from None


def _rules(file: ConfigFile) -> Rules:
    placement = file.placement
    return Rules(
        policy=Policy(
            projects={name: _project(project) for name, project in file.projects.items()},
            others=_project(file.others),
            half_life_s=file.usage_half_life,
            backfill=placement.backfill,
            preemption=placement.preemption,
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
