"""Teaches a small network the sine with Lightning, preempted at any moment; `cumulo_lightning.py` does it."""

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from cumulo_lightning import CumuloCallback, last_checkpoint
from lightning.pytorch import LightningModule, Trainer

from cumulo import job

OUTPUT = Path(os.environ.get("CUMULO_OUTPUT_DIR", "."))


class Batches:
    """Shuffled batches that know where they are, so that a restored run goes on with the next one."""

    def __init__(self, x: torch.Tensor, *, size: int) -> None:
        self._x, self._size = x, size
        self._epoch = self._next = 0

    def __len__(self) -> int:
        return len(self._x) // self._size

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        order = torch.randperm(len(self._x), generator=torch.Generator().manual_seed(self._epoch))
        while self._next < len(self):
            rows = order[self._next * self._size : (self._next + 1) * self._size]
            self._next += 1
            yield self._x[rows], torch.sin(self._x[rows])
        self._epoch, self._next = self._epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self._epoch, "next": self._next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._epoch, self._next = state["epoch"], state["next"]


class Sine(LightningModule):
    """`pause` seconds make a step take longer."""

    def __init__(self, pause: float) -> None:
        super().__init__()
        self.pause = pause
        self.layers = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        time.sleep(self.pause)
        x, y = batch
        return torch.nn.functional.mse_loss(self.layers(x), y)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--pause", type=float, default=0.0)
    args = parser.parse_args()

    torch.manual_seed(0)
    x = torch.rand(4096, 1) * 6.3
    model = Sine(args.pause)
    trainer = Trainer(
        max_steps=args.steps,
        callbacks=[CumuloCallback()],
        enable_checkpointing=False,  # CumuloCallback does that
        enable_progress_bar=False,
        logger=False,
    )
    trainer.fit(model, Batches(x, size=64), ckpt_path=last_checkpoint())
    if job.preempted():
        return
    with torch.no_grad():
        error = float((model.layers(x) - torch.sin(x)).abs().mean())
    (OUTPUT / "report.json").write_text(json.dumps({"error": error, "steps": trainer.global_step}) + "\n")
    print(f"mean error {error:.6f} after {trainer.global_step} steps")


if __name__ == "__main__":
    main()
