"""What is said before the first step."""

from types import SimpleNamespace

import pytest

from small import run_config, trainer_of
from unembed.recipes.outcome import opening


def said(n, dropout):
    trainer = trainer_of(run_config(dropout=dropout))
    trainer.processes = SimpleNamespace(n=n, rank=0, is_first=True)
    return " ".join(opening(trainer))


@pytest.mark.parametrize(("n", "dropout", "warns"), [(1, 0.0, False), (1, 0.2, False), (4, 0.0, False), (4, 0.2, True)])
def test_dropout_over_several_processes_is_said_to_depend_on_their_number(n, dropout, warns):
    sentence = f"dropout is drawn by each of the {n} processes for itself: another number of them drops other entries"
    assert (sentence in said(n, dropout)) is warns
