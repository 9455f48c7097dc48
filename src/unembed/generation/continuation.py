"""What was generated after one prompt. The next file to read is decode.py, which fills it."""

from dataclasses import dataclass, field
from typing import Literal

Stopped = Literal["length", "end", "context", "stop"]


@dataclass
class Continuation:
    """What was generated after one prompt: ids, natural log-probabilities of the unfiltered distribution, and why it ended.

    The end token is not among the ids; the tokens that spell a stop string are, so the ids are all that was drawn but the
    end. `n_slides` counts how often the context was full and the last three quarters were read again, `n_forwards` the
    forwards that made a token or several, `n_guessed` and `n_guessed_right` the guesses that were tried on the way.
    """

    prompt_ids: list[int]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: Stopped | None = None
    n_slides: int = 0
    n_forwards: int = 0
    n_guessed: int = 0
    n_guessed_right: int = 0

    def newest_id(self) -> int:
        """The last id of prompt and continuation together."""
        return self.ids[-1] if self.ids else self.prompt_ids[-1]
