"""Checkpoints for a training loop of your own in PyTorch. Copy this file beside your script:

    checkpoint = Checkpoint(model=model, optimizer=optimizer)
    for step in range(checkpoint.restore(), steps):
        train(step)
        if checkpoint.after(step + 1):
            return  # it must make room for others, and is saved

It saves when it is worth it (`job.checkpoint_due`), and once more when the run must leave. Outside Cumulo it does
nothing. Whatever has `state_dict` and `load_state_dict` can be a part: a scheduler, a scaler, a sampler.
"""

from typing import Any, Protocol

import torch

from cumulo import job


class Part(Protocol):
    """What can be saved and restored."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: Any, /) -> Any: ...


class Checkpoint:
    """The parts that are saved together, with the state of PyTorch's random numbers. One process saves."""

    def __init__(self, **parts: Part) -> None:
        self._parts = parts
        self._path = job.checkpoint_dir() / "checkpoint.pt"

    def restore(self) -> int:
        """How many steps are done: 0 at the very beginning."""
        if not self._path.exists():
            return 0
        saved = torch.load(self._path, map_location="cpu", weights_only=True)
        for name, part in self._parts.items():
            part.load_state_dict(saved["parts"][name])
        torch.set_rng_state(saved["random"])
        return int(saved["done"])

    def after(self, done: int) -> bool:
        """To be called after each step: saves if a save is due. True once the run must leave."""
        if job.checkpoint_due():
            with job.saving():
                self._save(done)
        return job.preempted()

    def _save(self, done: int) -> None:
        """Beside the file and then in its place, so that a kill in between leaves the old one."""
        parts = {name: part.state_dict() for name, part in self._parts.items()}
        part_path = self._path.with_suffix(".part")
        torch.save({"done": done, "parts": parts, "random": torch.get_rng_state()}, part_path)
        part_path.replace(self._path)
