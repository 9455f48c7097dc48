"""Whether a source holds what its model is made of, said without reading a number: what `inspect` and `count` ask.

The same account as for a load is kept, over tensors that have a name, a shape and a type alone. The next file to read is
../inspect.py.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from unembed.checkpoints.foreign.gguf import Tensors
from unembed.checkpoints.foreign.translate import Described, Named, Source, describe, ours_of


def described_whole(source: Source) -> Described:
    """The spec of a source whose tensors are all there, none too many and each of its shape.

    Raises: CheckpointError, SpecError as a load does.
    """
    described = describe(source)
    # tensors that may repeat one another are compared, number by number
    compared = source.family.duplicates
    stored = described.tensors if compared else Named(_outlines(source), described.tensors.file_names)
    ours_of(source, described._replace(tensors=stored))
    return described


def _outlines(source: Source) -> Mapping[str, Tensor]:
    if isinstance(source.tensors, Tensors):
        return {name: torch.empty(shape, device="meta") for name, shape in source.tensors.shapes().items()}
    return {name: torch.empty_like(tensor, device="meta") for name, tensor in source.tensors.items()}
