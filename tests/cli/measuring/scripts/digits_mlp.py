"""A classifier of handwritten digits, as a newcomer writes it: data on the host, batches moved to the GPU."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    digits = load_digits()
    images = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    loader = DataLoader(
        TensorDataset(images, torch.tensor(digits.target)), batch_size=128, shuffle=True, num_workers=2, pin_memory=True
    )
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(5):
        model.train()
        total, right = 0.0, 0
        for inputs, labels in loader:
            inputs, labels = inputs.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            optimizer.zero_grad()
            scores = model(inputs)
            loss = nn.functional.cross_entropy(scores, labels)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(inputs)
            right += (scores.argmax(1) == labels).sum().item()
        print(f"epoch {epoch}: loss {total / len(images):.3f}, accuracy {right / len(images):.3f}")


if __name__ == "__main__":
    main()
