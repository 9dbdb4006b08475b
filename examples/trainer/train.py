"""Teaches a small network the sine with Hugging Face's Trainer, preempted at any moment, by `cumulo_trainer.py`."""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from cumulo_trainer import CumuloCallback, last_checkpoint
from torch.utils.data import TensorDataset
from transformers import Trainer, TrainingArguments

from cumulo import job

OUTPUT = Path(os.environ.get("CUMULO_OUTPUT_DIR", "."))


class Sine(torch.nn.Module):
    """A model as Trainer wants it: it works out its own loss. `pause` seconds make a step take longer."""

    def __init__(self, pause: float) -> None:
        super().__init__()
        self.pause = pause
        self.layers = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        time.sleep(self.pause)
        y = self.layers(x)
        return {"loss": torch.nn.functional.mse_loss(y, labels), "logits": y}


def collate(rows: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, Any]:
    return {"x": torch.stack([x for x, _ in rows]), "labels": torch.stack([y for _, y in rows])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--pause", type=float, default=0.0)
    args = parser.parse_args()

    torch.manual_seed(0)
    x = torch.rand(4096, 1) * 6.3
    arguments = TrainingArguments(
        output_dir=str(job.checkpoint_dir()),
        max_steps=args.steps,
        per_device_train_batch_size=64,
        learning_rate=3e-3,
        save_strategy="no",  # CumuloCallback says when
        save_total_limit=2,
        report_to=[],
        logging_steps=50,
        disable_tqdm=True,
        seed=0,
    )
    trainer = Trainer(
        Sine(args.pause),
        arguments,
        train_dataset=TensorDataset(x, torch.sin(x)),
        data_collator=collate,
        callbacks=[CumuloCallback()],
    )
    trainer.train(resume_from_checkpoint=last_checkpoint())
    if job.preempted():
        print(f"saved at step {trainer.state.global_step}; it goes on from there", flush=True)
        return
    with torch.no_grad():
        error = float((trainer.model.layers(x) - torch.sin(x)).abs().mean())
    (OUTPUT / "report.json").write_text(json.dumps({"error": error, "steps": trainer.state.global_step}) + "\n")
    print(f"mean error {error:.6f} after {trainer.state.global_step} steps")


if __name__ == "__main__":
    main()
