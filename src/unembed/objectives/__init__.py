"""From scores to a number to bring down: loss.py (the loss), chunked.py (the same without holding the scores), parts.py
(what a token's loss is made of). Softmax lives here and in sampling, nowhere else."""

from unembed.objectives.chunked import chunked_next_token_loss
from unembed.objectives.loss import IGNORED, LossSum, bits_per_byte, next_token_loss
from unembed.objectives.parts import loss_parts

__all__ = ["IGNORED", "LossSum", "bits_per_byte", "chunked_next_token_loss", "loss_parts", "next_token_loss"]
