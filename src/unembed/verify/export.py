"""Claim: written in another format and read again, every number is the same to the last bit."""

import tempfile
from pathlib import Path

import torch

from unembed.checkpoints.foreign import huggingface
from unembed.checkpoints.foreign.export import exportable, write_huggingface
from unembed.checkpoints.foreign.translate import account, translate
from unembed.checkpoints.formats.safetensors import read_tensors
from unembed.checkpoints.formats.safetensors_write import encode_tensors
from unembed.checkpoints.load import open_source
from unembed.checkpoints.rules.repeats import settle
from unembed.checkpoints.rules.tensors import to_theirs
from unembed.errors import SpecError
from unembed.verify.claim import Claim, Subject, failed, judged

NAME = "export round trip"


def claim(subject: Subject) -> Claim:
    """Writes a Hugging Face folder, or the native weights where no family describes the model, and compares bits."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            prefers = None if subject.source is None else subject.source.family.name
            model, family, note = exportable(subject.model, prefers=prefers)
        except SpecError as error:
            return _native(subject, folder, str(error))
        written = write_huggingface(model, folder, family=family)
        back = translate(huggingface.open_folder(folder), dtype="file")
        if back.spec != model.spec:
            return failed(NAME, f"read again as {family.name}, the description is another one")
        ours, theirs = dict(model.named_parameters()), dict(back.named_parameters())
        changed = sorted(name for name in ours if not _equal(ours[name], theirs[name]))
        detail = f"{len(ours)} tensors as {family.name}, written and read again" + (f"; {note}" if note else "")
        declared: torch.dtype = getattr(torch, huggingface.read_config(folder / huggingface.CONFIG)["dtype"])
        if rounded := [name for name, one in written.items() if not _equal(one.to(declared).to(one.dtype), one)]:
            return failed(
                NAME, f"config.json says {str(declared)[6:]}, which cannot hold {len(rounded)} tensors: {rounded[:3]}"
            )
        if subject.source is not None and subject.source.family.name == family.name:
            detail += "; and back to the file's own tensors"
            changed += _changed_from_source(subject)
        return judged(
            NAME, float(len(changed)), 0.0, detail + (f"; changed: {changed[:3]}" if changed else "; bit-equal")
        )


def _changed_from_source(subject: Subject) -> list[str]:
    assert subject.source is not None
    family, spec = subject.source.family, subject.model.spec
    written = to_theirs(family.rules(spec), dict(subject.model.named_parameters()))
    # mapped afresh: the model's parameters are the memory of the first reading, and would agree with themselves
    again = open_source(Path(subject.source.where)) or subject.source
    stored = account(again).tensors
    tied, ignored = spec.ties_embeddings, subject.source.ignored
    instead = settle(family.duplicates, stored, stored.file_names, is_tied=tied, patterns=ignored).instead
    read = {name: stored[instead.get(name, name)] for name in written}
    return [name for name in written if not _equal(written[name].to(read[name].dtype), read[name])]


def _native(subject: Subject, folder: Path, why: str) -> Claim:
    tensors = {name: parameter.detach() for name, parameter in subject.model.named_parameters()}
    file = folder / "model.safetensors"
    with file.open("wb") as out:
        for piece in encode_tensors(tensors, label=file.name):
            out.write(piece)
    read = read_tensors(file)
    changed = [name for name in tensors if not _equal(tensors[name], read[name])]
    return judged(
        NAME,
        float(len(changed)),
        0.0,
        f"{len(tensors)} tensors in the native format, bit for bit; {why.split(':')[1].strip()}",
    )


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit-equal: torch.equal takes 0.0 for -0.0 and no NaN for itself."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    # flat first: a matrix of one column keeps odd strides when it is made contiguous
    one, other = (tensor.detach().contiguous().reshape(-1) for tensor in (one, other))
    return torch.equal(one.view(torch.uint8), other.view(torch.uint8)) if one.numel() else True
