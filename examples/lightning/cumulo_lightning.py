"""Preemption and well-timed checkpoints for Lightning. Copy this file beside your script:

    trainer = Trainer(callbacks=[CumuloCallback()], enable_checkpointing=False)
    trainer.fit(model, loader, ckpt_path=last_checkpoint())

It saves when it is worth it (`job.checkpoint_due`), and once more when the run must leave, and tells the progress.
Lightning goes on in the middle of an epoch exactly if the loader can: `Batches` in train.py shows how (torchdata's
StatefulDataLoader does the same for many workers). Outside Cumulo the callback does nothing.
"""

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from cumulo import job


def checkpoint_path() -> Path:
    return job.checkpoint_dir() / "lightning.ckpt"


def last_checkpoint() -> str | None:
    """What to go on from; None at the very beginning."""
    return str(checkpoint_path()) if checkpoint_path().exists() else None


class CumuloCallback(Callback):
    """Asks after each batch whether to save and whether to leave."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        job.preempted()  # takes SIGTERM in hand before there is anything to lose

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        total = trainer.estimated_stepping_batches
        job.progress(trainer.global_step, total if total != float("inf") else 0, unit="step")
        if job.checkpoint_due():
            with job.saving():  # beside the file and then in its place, so that a kill in between leaves the old one
                part = checkpoint_path().with_suffix(".part")
                trainer.save_checkpoint(part)
                part.replace(checkpoint_path())
        if job.preempted():
            trainer.should_stop = True
