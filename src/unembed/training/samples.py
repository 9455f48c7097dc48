"""What the model writes on its way: a short text now and then, the same one for the same seed and step.

A sample draws from a generator of its own and changes no number of the training, so a run with samples and one without
end bit-equal, and a resumed run writes the samples of the unbroken one. The next file to read is signals.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unembed.errors import InputError
from unembed.generation.sampling import Sampling
from unembed.generation.texts import continue_text, prompt_ids
from unembed.model.transformer import Transformer
from unembed.tokenizers.base import Tokenizer

MOST_TOKENS = 40
TEMPERATURE = 0.8


@dataclass(frozen=True)
class Sampler:
    """Writes a sample of a model in training, which must know its tokenizer: `prompt` is what it begins with, `seed` that of
    the run."""

    prompt: str
    seed: int

    def __call__(self, model: Transformer, step: int) -> dict[str, Any]:
        """The record of one sample: `step`, `split` (always `sample`), `prompt` and the continuation's `text`."""
        written = continue_text(
            model,
            self.prompt,
            n_tokens=min(MOST_TOKENS, model.spec.context_length),
            sampling=Sampling(temperature=TEMPERATURE),
            seed=sample_seed(self.seed, step),
        )
        return {"step": step, "split": "sample", "prompt": self.prompt, "text": written.values["text"]}


def sample_seed(seed: int, step: int) -> int:
    """The seed of the sample of a step."""
    drawn = np.random.SeedSequence([seed, step], spawn_key=(1,)).generate_state(
        1, np.uint64
    )  # apart from dropout's seeds
    return int(drawn[0] >> np.uint64(1))


def opening(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """What a sample begins with: nothing; or, in a tokenizer without anything to begin after, the first token of the text.

    A text without breaks or spaces, such as a DNA sequence, has no token that nothing could be read as.
    """
    try:
        prompt_ids(tokenizer, "")
    except InputError:
        return tokenizer.decode([int(ids[0])])
    return ""
