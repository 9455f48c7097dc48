"""A run's log says how many parameters decay and how many do not (A04c); adamw.py says that tables do."""

import re

import pytest

from unembed.checkpoints.load import load
from unembed.optim import adamw
from unembed.recipes.start import train


@pytest.mark.parametrize("tied", [True, False])
def test_the_log_names_both_sizes(tmp_path, tied):
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be, that is the question\n" * 20)
    said: list[str] = []
    settings = {"steps": 1, "context_length": 8, "batch_size": 2, "eval_every": 1, "tied": tied}
    train([text], recipe_name="nanogpt-cpu", out=tmp_path / "run", settings=settings, say=said.append)
    (line,) = [sentence for sentence in said if "decay" in sentence]
    total, decayed, undecayed = (int(n.replace(",", "")) for n in re.findall(r"[\d,]+\d", line))
    parameters = dict(load(tmp_path / "run").named_parameters())
    assert total == decayed + undecayed == sum(p.numel() for p in parameters.values())
    assert undecayed == sum(p.numel() for name, p in parameters.items() if name.endswith((".gain", ".bias")))
    assert "embed.table" in parameters
    assert ("head.table" in parameters) is not tied, "a shared table is counted once"


def test_the_documentation_says_what_becomes_of_tables():
    assert "Embedding and position tables decay like every matrix" in adamw.__doc__
