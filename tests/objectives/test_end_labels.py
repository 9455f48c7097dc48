"""The end of a text is a label like any other, also where its id is used to pad (A07a)."""

import numpy as np
import torch

from unembed.corpora.windows import TokenSplit
from unembed.objectives import IGNORED, next_token_loss

END = 11
ROWS = [[5, 6, END], [7, 8, 9, 10, END]]


def test_worked_example_two_ends_and_eight_labels_count(generator):
    """Padding is hidden by its place, never by its id: of two rows filled up with the end token both ends are learnt."""
    longest = max(map(len, ROWS))
    targets = torch.tensor([[*row, *[IGNORED] * (longest - len(row))] for row in ROWS])
    logits = torch.randn(2, longest, 12, generator=generator, requires_grad=True)
    loss = next_token_loss(logits, targets)
    assert (targets == END).sum() == 2
    assert loss.n_tokens == 8
    loss.total.backward()
    assert (logits.grad[targets == END].abs().sum(-1) > 0).all(), "an end that is not learnt never stops"
    assert (logits.grad[targets == IGNORED] == 0).all()


def test_every_end_in_a_split_is_a_target_that_counts():
    """In training and in evaluation alike, wherever a window begins."""
    documents = [[*range(1, n), END] for n in (2, 5, 3, 9, 4, 7)]
    ids = np.array([i for document in documents for i in document], dtype=np.uint16)
    split = TokenSplit("train", ids)
    for context_length in (1, 3, 4, 50):
        targets = np.concatenate([t.ravel() for _, t in split.windows(context_length, 2)])
        assert (targets == END).sum() == len(documents)
        assert (targets != IGNORED).all()
    inputs, targets = split.batch(1, 0, 64, 6)
    assert (targets == END).sum() == sum((ids[s + 1 : s + 7] == END).sum() for s in split.sample(1, np.arange(64), 6))
    loss = next_token_loss(torch.zeros(*inputs.shape, 12), torch.from_numpy(targets))
    assert loss.n_tokens == targets.size
