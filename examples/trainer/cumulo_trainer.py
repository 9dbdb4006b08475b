"""Preemption and well-timed checkpoints for Hugging Face's Trainer. Copy this file beside your script:

    arguments = TrainingArguments(output_dir=str(job.checkpoint_dir()), save_strategy="no", save_total_limit=2)
    trainer = Trainer(model, arguments, callbacks=[CumuloCallback()])
    trainer.train(resume_from_checkpoint=last_checkpoint())
    if not job.preempted():
        trainer.save_model(...)

It saves when it is worth it (`job.checkpoint_due`), and once more when the run must leave, and tells the progress.
Trainer itself skips the batches that were done. Outside Cumulo the callback does nothing.
"""

import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from cumulo import job

COMPLETE = "complete"


def last_checkpoint() -> str | None:
    """The newest folder that was written to its end; None at the very beginning."""
    found = [mark.parent for mark in job.checkpoint_dir().glob(f"checkpoint-*/{COMPLETE}")]
    return str(max(found, key=lambda folder: int(folder.name.rpartition("-")[2]))) if found else None


class CumuloCallback(TrainerCallback):
    """Asks after each step whether to save and whether to leave."""

    def __init__(self) -> None:
        self._asked_at = 0.0

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        last = state.log_history[-1] if state.log_history else {}
        job.progress(
            state.global_step, state.max_steps, unit="step", **({"loss": last["loss"]} if "loss" in last else {})
        )
        self._asked_at = time.monotonic()
        if job.checkpoint_due():
            control.should_save = True
        if job.preempted():
            control.should_training_stop = True
        return control

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Trainer writes many files: only now the folder is one to go on from."""
        (Path(args.output_dir) / f"checkpoint-{state.global_step}" / COMPLETE).touch()
        job.saved(time.monotonic() - self._asked_at)
