"""Llama 3.2 3B, fine-tuned whole in bfloat16: 2 packed sequences of 4,096 tokens, AdamW, no recomputation, eager.

Written as torchtune's recipe computes it, since its memory was published (60.0 GiB): norms and rotations in float32,
logits turned to float32, and let go before the backward pass.
"""

import torch
from torch import nn
from torch.nn import functional

LAYERS, WIDTH, HEADS, KEY_HEADS, INNER, VOCABULARY, LENGTH, BATCH = 28, 3072, 24, 8, 8192, 128_256, 4096, 2
HEAD = WIDTH // HEADS


class Norm(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        wide = given.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(given) * self.scale


class Rotation(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(LENGTH).float(), 1 / (5e5 ** (torch.arange(0, HEAD, 2).float() / HEAD)))
        self.register_buffer("turns", torch.stack([angles.cos(), angles.sin()], -1), persistent=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        pairs = given.float().reshape(*given.shape[:-1], -1, 2)
        turns = self.turns.view(1, LENGTH, 1, -1, 2)
        real = pairs[..., 0] * turns[..., 0] - pairs[..., 1] * turns[..., 1]
        other = pairs[..., 1] * turns[..., 0] + pairs[..., 0] * turns[..., 1]
        return torch.stack([real, other], -1).flatten(3).type_as(given)


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, KEY_HEADS * HEAD, bias=False)
        self.value = nn.Linear(WIDTH, KEY_HEADS * HEAD, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)
        self.before_attention, self.before_inner, self.rotation = Norm(), Norm(), Rotation()

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        batch, length, _ = given.shape
        inner = self.before_attention(given)
        query = self.rotation(self.query(inner).view(batch, length, HEADS, HEAD)).transpose(1, 2)
        key = self.rotation(self.key(inner).view(batch, length, KEY_HEADS, HEAD))
        value = self.value(inner).view(batch, length, KEY_HEADS, HEAD)
        repeat = (-1, -1, -1, HEADS // KEY_HEADS, -1)
        key, value = (each.unsqueeze(3).expand(repeat).flatten(2, 3).transpose(1, 2) for each in (key, value))
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        given = given + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        inner = self.before_inner(given)
        return given + self.down(functional.silu(self.gate(inner)) * self.up(inner))


class Llama(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.norm = nn.Embedding(VOCABULARY, WIDTH), Norm()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return functional.linear(self.norm(hidden), self.tokens.weight).float()


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens)
    after = torch.hstack((tokens[:, 1:], torch.full((BATCH, 1), -100, device="cuda")))
    return functional.cross_entropy(logits.reshape(-1, VOCABULARY), after.reshape(-1))


model = Llama().to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
for _ in range(2):
    loss = loss_of(model, torch.randint(0, VOCABULARY, (BATCH, LENGTH), device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
