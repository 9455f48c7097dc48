"""What a model makes of held-out text: how far each layer may be believed, and how much of the gradient reaches it.

The commands, `import unembed` and the report measure with these, so that all of them read the same windows. Before it:
texts.py, which holds the text out. The next file to read is over_training.py.
"""

import torch

from unembed.corpora.windows import TokenSplit
from unembed.lenses.calibration import calibration
from unembed.lenses.gradient_flow import gradient_flow
from unembed.lenses.translators import Translators
from unembed.lenses.tuned_lens import held_out
from unembed.model.transformer import Transformer
from unembed.results import Result

LONGEST_WINDOW = 128  # of a calibration: most positions then have as much before them as the last
CALIBRATION_TOKENS = 2048  # enough for a curve of ten bins, and few enough for a model of a large vocabulary
FLOW_TOKENS = 2048


def calibration_on(
    val: TokenSplit, model: Transformer, n_tokens: int = CALIBRATION_TOKENS, *, tuned: Translators | None = None
) -> Result:
    """Each layer of a model on the first so many held-out tokens. Raises: UsageError as `calibration` does."""
    batches = list(held_out(val, min(LONGEST_WINDOW, model.spec.context_length), n_tokens))
    return calibration(model, batches, tuned=tuned)


def flow_on(val: TokenSplit, model: Transformer) -> Result:
    """The gradient by depth on the first held-out windows. Raises: as `gradient_flow` does."""
    length = min(model.spec.context_length, FLOW_TOKENS)
    inputs, targets = next(val.windows(length, max(1, FLOW_TOKENS // length)))
    return gradient_flow(model, torch.from_numpy(inputs), torch.from_numpy(targets))
