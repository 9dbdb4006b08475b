"""Teaches a small network the sine with a plain PyTorch loop that can be preempted at any moment.

However often that happens, it ends with the same weights: `checkpoint.py` is all there is to it.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
from checkpoint import Checkpoint

from cumulo import job

OUTPUT = Path(os.environ.get("CUMULO_OUTPUT_DIR", "."))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that each step takes longer")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    checkpoint = Checkpoint(model=model, optimizer=optimizer)
    first = checkpoint.restore()
    print(f"step {first} of {args.steps} on {device}", flush=True)

    for step in range(first, args.steps):
        x = (torch.rand(256, 1) * 6.3).to(device)
        loss = torch.nn.functional.mse_loss(model(x), torch.sin(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(args.pause)
        job.progress(step + 1, args.steps, unit="step", loss=loss.item())
        if checkpoint.after(step + 1):
            print(f"saved at step {step + 1}; it goes on from there", flush=True)
            return

    x = torch.linspace(0, 6.3, 1000, device=device)[:, None]
    with torch.no_grad():
        error = float((model(x) - torch.sin(x)).abs().mean())
    (OUTPUT / "report.json").write_text(json.dumps({"error": error, "steps": args.steps}) + "\n")
    print(f"mean error {error:.6f} after {args.steps} steps")


if __name__ == "__main__":
    main()
