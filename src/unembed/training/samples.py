"""What the model writes on its way: a short text now and then, the same one for the same seed and step.

A sample draws from a generator of its own and changes no number of the training, so a run with samples and one without
end bit-equal, and a resumed run writes the samples of the unbroken one. The next file to read is signals.py.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from unembed.generation.sampling import Sampling
from unembed.generation.texts import continue_text
from unembed.model.transformer import Transformer

MOST_TOKENS = 40
TEMPERATURE = 0.8


@dataclass(frozen=True)
class Sampler:
    """Writes a sample of a model in training, which must know its tokenizer; `seed` is that of the run."""

    seed: int

    def __call__(self, model: Transformer, step: int) -> dict[str, Any]:
        """The record of one sample: `step`, `split` (always `sample`) and the `text`.

        It begins after the model's `start_ids`, as a text without a prompt always does.
        """
        written = continue_text(
            model,
            n_tokens=min(MOST_TOKENS, model.spec.context_length),
            sampling=Sampling(temperature=TEMPERATURE),
            seed=sample_seed(self.seed, step),
        )
        return {"step": step, "split": "sample", "text": written.values["text"]}


def sample_seed(seed: int, step: int) -> int:
    """The seed of the sample of a step."""
    drawn = np.random.SeedSequence([seed, step], spawn_key=(1,)).generate_state(
        1, np.uint64
    )  # apart from dropout's seeds
    return int(drawn[0] >> np.uint64(1))
