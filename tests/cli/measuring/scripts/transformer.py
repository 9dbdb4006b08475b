"""A small language model with PyTorch's own layers: mixed precision, accumulation, clipping, a schedule."""

import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--accumulate", type=int, default=2)
options = parser.parse_args()

VOCABULARY, WIDTH, LENGTH = 8192, 512, 256


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(tokens) + self.places
        return self.head(self.norm(self.layers(hidden, mask=self.mask, is_causal=True)))


model = torch.compile(Model().cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
scaler = torch.amp.GradScaler("cuda")
for step in range(4):
    for _ in range(options.accumulate):
        tokens = torch.randint(0, VOCABULARY, (options.batch, LENGTH + 1), device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            scores = model(tokens[:, :-1])
            loss = functional.cross_entropy(scores.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
        scaler.scale(loss / options.accumulate).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    schedule.step()
    torch.cuda.synchronize()
    print(step, loss.detach().cpu().numpy(), torch.cuda.max_memory_allocated())
