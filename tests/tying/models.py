"""Small modules whose two matrices stand in every relation that a program has been seen to leave them in.

They are plain PyTorch, so that nothing in them is ours. The next file to read is test_in_memory.py.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn

V, D = 13, 12


class Tiny(nn.Module):
    """ids -> rows -> one layer -> scores; `lm_head.weight` is a matrix of its own until somebody ties it."""

    def __init__(self, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.wte = nn.Embedding(V, D)
        self.mix = nn.Linear(D, D, bias=False)
        self.lm_head = nn.Linear(D, V, bias=False)

    def hidden(self, ids):
        return torch.tanh(self.mix(self.wte(ids).to(self.mix.weight.dtype)))

    def forward(self, ids):
        weight = self.lm_head.weight
        hidden = self.hidden(ids)
        is_wide = isinstance(weight, torch.Tensor) and weight.is_floating_point()
        return self.lm_head(hidden.to(weight.dtype) if is_wide else hidden)


class Table(nn.Module):
    """A head over whatever tensor it is given, [vocab, d] or (turned) [d, vocab]."""

    def __init__(self, weight, *, turned=False):
        super().__init__()
        if isinstance(weight, nn.Parameter):
            self.weight = weight
        else:
            object.__setattr__(self, "weight", weight)  # a plain attribute: neither parameter nor buffer
        self.turned = turned

    def forward(self, x):
        weight = self.weight.T if self.turned else self.weight
        return F.linear(x.to(weight.dtype), weight)


class Int8(nn.Module):
    """A head of whole numbers and a scale for each row, as quantising libraries make it."""

    def __init__(self, weight):
        super().__init__()
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, x):
        return F.linear(x, self.weight.float() * self.scale)


def tied():
    model = Tiny()
    model.lm_head.weight = model.wte.weight
    return model


def with_head(weight_of, **options):
    """Tiny whose head is over `weight_of(model.wte.weight)`."""
    model = Tiny()
    model.lm_head = Table(weight_of(model.wte.weight), **options)
    return model


def over(pool, embed, head):
    """Tiny with both matrices taken out of one tensor, as two parameters."""
    model = Tiny()
    model.wte.weight = nn.Parameter(embed(pool))
    model.lm_head.weight = nn.Parameter(head(pool))
    return model


def pool(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


class FromTable(Tiny):
    """Scores with a matrix that each forward makes anew."""

    def __init__(self, make):
        super().__init__()
        del self.lm_head
        self.make = make

    def forward(self, ids):
        return self.hidden(ids) @ self.make(self).T


class TwoTowers(nn.Module):
    """An encoder's table, a decoder's and a head's."""

    def __init__(self, *, encoder):
        super().__init__()
        torch.manual_seed(1)
        self.decoder = tied()
        self.encoder = nn.ModuleDict({"embed": nn.Embedding(V, D), "mix": nn.Linear(D, D)})
        if encoder == "shared":
            self.encoder["embed"].weight = self.decoder.wte.weight
        elif encoder == "copied":
            self.encoder["embed"].weight = nn.Parameter(self.decoder.wte.weight.detach().clone())

    def forward(self, ids):
        return self.decoder(ids)


def trained(model, optimizer=None, *, steps=1, lr=0.05):
    """A few steps of plain gradient descent (or of `optimizer`) towards always answering 3."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        logits = model(torch.tensor([[1, 2, 4]]))
        F.cross_entropy(logits.flatten(0, 1), torch.tensor([3, 3, 3])).backward()
        optimizer.step()
    return optimizer


def copied_apart(model):
    """Each part copied for itself: what deepcopy keeps together is lost."""
    made = Tiny()
    made.wte, made.mix, made.lm_head = (copy.deepcopy(part) for part in (model.wte, model.mix, model.lm_head))
    return made
