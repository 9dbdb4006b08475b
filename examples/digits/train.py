"""Trains a small neural network on scikit-learn's handwritten digits, an epoch at a time.

It keeps a checkpoint after every epoch and goes on from it, tells its progress, and leaves the model and a report in
the output folder. Outside Cumulo it does the same in the current folder.
"""

import argparse
import json
import os
import pickle
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

CHECKPOINT = Path(os.environ.get("CUMULO_CHECKPOINT_DIR", ".")) / "checkpoint.pickle"
OUTPUT = Path(os.environ.get("CUMULO_OUTPUT_DIR", "."))
PROGRESS = os.environ.get("CUMULO_PROGRESS")
CLASSES = np.arange(10)


def save(path: Path, state: object) -> None:
    """Writes beside the file and renames, so that a kill in between leaves the old one."""
    part = path.with_suffix(".part")
    part.write_bytes(pickle.dumps(state))
    part.replace(path)


def tell(done: int, total: int, **metrics: float) -> None:
    """One line of progress, for the bar and for `cumulo status`."""
    if PROGRESS:
        with open(PROGRESS, "a") as file:
            file.write(json.dumps({"done": done, "total": total, "unit": "epoch", "metrics": metrics}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    scaler = StandardScaler().fit(train_x)
    train_x, test_x = scaler.transform(train_x), scaler.transform(test_x)

    model = MLPClassifier(hidden_layer_sizes=(96, 48), alpha=1e-3, learning_rate_init=1e-3, random_state=0)
    order = np.random.default_rng(0)
    first = 0
    if CHECKPOINT.exists():
        first, model, order = pickle.loads(CHECKPOINT.read_bytes())  # noqa: S301 - this run wrote it itself
        print(f"going on from epoch {first} of the checkpoint")
    print(f"{len(train_x)} images to train on, {len(test_x)} to test; GPUs: {os.environ.get('CUDA_VISIBLE_DEVICES')!r}")

    began = time.monotonic()
    for epoch in range(first + 1, args.epochs + 1):
        for batch in np.array_split(order.permutation(len(train_x)), len(train_x) // args.batch):
            model.partial_fit(train_x[batch], train_y[batch], classes=CLASSES)
        accuracy = float(model.score(test_x, test_y))
        save(CHECKPOINT, (epoch, model, order))
        tell(epoch, args.epochs, loss=float(model.loss_), accuracy=accuracy)
        if epoch % 5 == 0 or epoch == args.epochs:
            print(f"epoch {epoch:3d}  loss {model.loss_:.4f}  test accuracy {accuracy:.4f}")

    accuracy = float(model.score(test_x, test_y))
    save(OUTPUT / "model.pickle", (scaler, model))
    report = {"accuracy": accuracy, "tested": len(test_x), "epochs": args.epochs, "seconds": time.monotonic() - began}
    (OUTPUT / "report.json").write_text(json.dumps(report) + "\n")
    print(f"test accuracy {accuracy:.4f}; the model is in {OUTPUT / 'model.pickle'}")


if __name__ == "__main__":
    main()
