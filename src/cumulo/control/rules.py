"""What the admin decides about who gets what next, as the control plane keeps to it.

The policy itself is `placement`'s; what reads a config file gets its parts from here, since only this package speaks
to `placement`.
"""

from dataclasses import dataclass, field

from cumulo.placement.policy import DEFAULT_HALF_LIFE_S, Policy, ProjectRules, Quota

__all__ = ["DEFAULT_HALF_LIFE_S", "Policy", "ProjectRules", "Quota", "Rules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Who comes first, who yields, and whether a GPU that is empty may change its sharing mode."""

    policy: Policy = field(default_factory=Policy)
    change_sharing_mode: bool = True
