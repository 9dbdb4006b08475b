"""A residual convolutional network (ResNet-18's shape) on made-up images of ImageNet's size."""

import torch
from torch import nn

BATCH = 64


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(given, made, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(made)
        self.second = nn.Conv2d(made, made, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(made)
        self.beside: nn.Module = nn.Identity()
        if stride != 1 or given != made:
            self.beside = nn.Sequential(nn.Conv2d(given, made, 1, stride, bias=False), nn.BatchNorm2d(made))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        inner = torch.relu(self.first_norm(self.first(images)))
        return torch.relu(self.second_norm(self.second(inner)) + self.beside(images))


def network() -> nn.Module:
    stages: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
    ]  # fmt: skip
    for given, made, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        stages += [Block(given, made, stride), Block(made, made, 1)]
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model = network().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
for _ in range(3):
    images = torch.randn(BATCH, 3, 224, 224).to(device)
    labels = torch.randint(0, 1000, (BATCH,)).to(device)
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
