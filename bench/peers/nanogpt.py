"""nanoGPT's model and training step, restated from what it does, to measure `unembed` against at the same work.

nanoGPT (github.com/karpathy/nanoGPT) is the best known small trainer, and its run on a CPU over Shakespeare's
characters is the one that our recipe `nanogpt-cpu` repeats. This file follows its choices where they cost or save time:
one matrix for queries, keys and values, fused causal attention, exact GELU, biases only on demand, a table shared by
embedding and head, dropout modules that are there even at 0, batches stacked from slices of a memory map that is opened
anew each time, two AdamW groups, the fused optimizer on CUDA only. Names of modules are nanoGPT's, so that its
checkpoints would fit. (nanoGPT counts its steps from 0 to 2,000 and takes 2,001; here 2,000 steps are 2,000.)

Run as a program it trains on a text and says the loss over the whole validation split:

    python bench/peers/nanogpt.py ../shared/data/text/tinyshakespeare.txt --seed 1337

The next file to read is ../train_step.py, which times this against ours.
"""

import argparse
import itertools
import json
import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """The run on a CPU of nanoGPT's README; a dropout of 0 and no biases."""

    vocab_size: int = 65
    block_size: int = 64
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128
    dropout: float = 0.0
    bias: bool = False
    batch_size: int = 12
    max_steps: int = 2000
    warmup_steps: int = 100
    max_learning_rate: float = 1e-3
    min_learning_rate: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.1
    grad_clip: float = 1.0


class LayerNorm(nn.Module):
    """A LayerNorm whose bias may be absent (PyTorch's own module had none to leave out when nanoGPT was written)."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalises the last axis, eps 1e-5."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalSelfAttention(nn.Module):
    """Attention with one projection for q, k and v and PyTorch's fused kernel."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.n_head = config.n_head
        self.dropout = config.dropout
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.resid_dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Mixes each position with those before it."""
        n_batch, n_pos, width = x.shape
        q, k, v = (
            part.view(n_batch, n_pos, self.n_head, width // self.n_head).transpose(1, 2)
            for part in self.c_attn(x).split(width, dim=2)
        )
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=dropout, is_causal=True)
        joined = mixed.transpose(1, 2).contiguous().view(n_batch, n_pos, width)
        out: Tensor = self.resid_dropout(self.c_proj(joined))
        return out


class MLP(nn.Module):
    """Four times wider inside, exact GELU."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Works on each position alone."""
        out: Tensor = self.dropout(self.c_proj(self.gelu(self.c_fc(x))))
        return out


class Block(nn.Module):
    """Pre-norm: x + attn(norm(x)), then the same with the MLP."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, config.bias)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = LayerNorm(config.n_embd, config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        """One step of the residual stream."""
        x = x + self.attn(self.ln_1(x))
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class GPT(nn.Module):
    """The whole model; `wte` and `lm_head` share their weight."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.n_embd),
                "wpe": nn.Embedding(config.block_size, config.n_embd),
                "drop": nn.Dropout(config.dropout),
                "h": blocks,
                "ln_f": LayerNorm(config.n_embd, config.bias),
            }
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        # Each block adds twice to the stream: smaller last projections keep its variance the same at any depth.
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.n_layer))

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """The mean loss in nats over all positions."""
        pos = torch.arange(ids.shape[1], device=ids.device)
        x = self.transformer["drop"](self.transformer["wte"](ids) + self.transformer["wpe"](pos))
        for block in self.transformer["h"].children():
            x = block(x)
        logits = self.lm_head(self.transformer["ln_f"](x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-1)


def make_optimizer(model: nn.Module, config: Config) -> torch.optim.AdamW:
    """AdamW that decays matrices and tables, not gains and biases; fused on CUDA, PyTorch's default elsewhere."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    on_cuda = parameters[0].device.type == "cuda"
    return torch.optim.AdamW(groups, lr=config.max_learning_rate, betas=config.betas, fused=True if on_cuda else None)


def learning_rate(step: int, config: Config) -> float:
    """Rises in a line over the warm-up, then falls along half a cosine to the minimum at the last step."""
    if step < config.warmup_steps:
        return config.max_learning_rate * (step + 1) / (config.warmup_steps + 1)
    if step > config.max_steps:
        return config.min_learning_rate
    share = (step - config.warmup_steps) / (config.max_steps - config.warmup_steps)
    height = 0.5 * (1.0 + math.cos(math.pi * share))
    return config.min_learning_rate + height * (config.max_learning_rate - config.min_learning_rate)


def get_batch(path: Path, config: Config) -> tuple[Tensor, Tensor]:
    """Slices of ids at random offsets, and the same one further on: [batch, pos] each.

    The map is opened anew for each batch, as nanoGPT does to keep its memory from growing.
    """
    ids = np.memmap(path, dtype=np.uint16, mode="r")
    offsets = torch.randint(len(ids) - config.block_size, (config.batch_size,)).tolist()
    length = config.block_size
    x = torch.stack([torch.from_numpy(ids[i : i + length].astype(np.int64)) for i in offsets])
    y = torch.stack([torch.from_numpy(ids[i + 1 : i + 1 + length].astype(np.int64)) for i in offsets])
    return x, y


class Trainer:
    """The state of one run: `step()` draws a batch and takes one optimizer step.

    Any module that is called with ids and targets and returns their mean loss can take the model's place.
    """

    def __init__(self, train_ids: Path, config: Config, model: nn.Module) -> None:
        self.config = config
        self.train_ids = train_ids
        self.model = model
        self.optimizer = make_optimizer(self.model, config)
        self.n_steps = 0

    def step(self) -> Tensor:
        """Learning rate, batch, forward, backward, clip, optimizer; returns the loss of this batch, still a tensor."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.n_steps, self.config)
        x, y = get_batch(self.train_ids, self.config)
        loss: Tensor = self.model(x, y)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.n_steps += 1
        return loss


def write_ids(text: str, folder: Path) -> tuple[Path, Path, int]:
    """Writes the first nine tenths of a text, and the rest, as uint16 ids of characters; returns files and vocabulary."""
    characters = sorted(set(text))
    id_of = {character: number for number, character in enumerate(characters)}
    n_train = int(0.9 * len(text))
    paths = []
    for name, part in (("train", text[:n_train]), ("val", text[n_train:])):
        paths.append(folder / f"{name}.bin")
        np.array([id_of[character] for character in part], dtype=np.uint16).tofile(paths[-1])
    return paths[0], paths[1], len(characters)


@torch.no_grad()
def evaluate(model: GPT, val_ids: Path) -> float:
    """The mean loss in nats over every predicted token of a file, in windows that do not overlap."""
    ids = torch.from_numpy(np.fromfile(val_ids, dtype=np.uint16).astype(np.int64))
    x, y = ids[:-1], ids[1:]
    length = model.config.block_size
    n_whole = len(x) // length * length
    windows = [*range(0, n_whole, 256 * length), n_whole]
    pieces = [(x[a:b].view(-1, length), y[a:b].view(-1, length)) for a, b in itertools.pairwise(windows)]
    if n_whole < len(x):
        pieces.append((x[None, n_whole:], y[None, n_whole:]))
    model.eval()
    total_nats = sum(float(model(ids, targets)) * targets.numel() for ids, targets in pieces)
    model.train()
    return total_nats / len(y)


def main() -> None:
    """Trains on a text, prints one line of JSON."""
    parser = argparse.ArgumentParser(description="nanoGPT's run on a CPU, restated")
    parser.add_argument("text", type=Path, help="a text file, for instance tinyshakespeare.txt")
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--steps", type=int, default=Config.max_steps)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        train_ids, val_ids, vocab_size = write_ids(options.text.read_text(encoding="utf-8"), Path(folder))
        config = Config(vocab_size=vocab_size, max_steps=options.steps)
        model = GPT(config)
        trainer = Trainer(train_ids, config, model)
        started = time.perf_counter()
        for _ in range(options.steps):
            trainer.step()
        seconds = time.perf_counter() - started
        val_loss_nats = evaluate(model, val_ids)
    tokens = options.steps * config.batch_size * config.block_size
    print(
        json.dumps(
            {
                "seed": options.seed,
                "steps": options.steps,
                "val_loss_nats": val_loss_nats,
                "seconds": seconds,
                "tokens_per_second": tokens / seconds,
                "parameters": sum(p.numel() for p in model.parameters()),
            }
        )
    )


if __name__ == "__main__":
    main()
