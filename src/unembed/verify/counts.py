"""Claim: the parameters counted from the description are those in memory, and those in the file."""

from unembed.checkpoints.foreign.translate import account
from unembed.model import counts
from unembed.verify.claim import Claim, Subject, failed, judged

NAME = "counts"


def claim(subject: Subject) -> Claim:
    """Compares names, shapes and total of counts.py with the module's, and with the numbers that the file holds."""
    model = subject.model
    expected = {tensor.name: tensor.shape for tensor in counts.tensors(model.spec)}
    held = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    if expected != held:
        odd = sorted(name for name in expected.keys() | held.keys() if expected.get(name) != held.get(name))
        return failed(NAME, f"the description and the model differ in {odd[:4]}")
    total = counts.count(model.spec).parameters
    in_memory = sum(parameter.numel() for parameter in {id(p): p for p in model.parameters()}.values())
    detail = f"{total:,} by the description, {in_memory:,} in memory"
    worst = abs(total - in_memory)
    if (in_file := _in_file(subject)) is not None:
        numbers, excused = in_file
        worst = max(worst, abs(numbers - excused - total))
        detail += f", {numbers - excused:,} in the file" + (f" and {excused:,} excused" if excused else "")
    return judged(NAME, float(worst), 0.0, detail)


def _in_file(subject: Subject) -> tuple[int, int] | None:
    """All numbers of the file, and those that the load report excuses."""
    if subject.checkpoint is not None:
        return sum(tensor.numel() for tensor in subject.checkpoint.weights().values()), 0
    report = subject.model.load_report
    if subject.source is None or report is None:
        return None
    sizes = {name: tensor.numel() for name, tensor in account(subject.source).tensors.items()}
    names = {excused.name for excused in report.excused}
    return sum(sizes.values()), sum(size for name, size in sizes.items() if name in names)
