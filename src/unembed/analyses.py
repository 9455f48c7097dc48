"""The visible list of everything that can be asked of a run: each entry is a function from a run to a Result.

Adding a line here gives an analysis its section in the report. The order is the order of the page: what came of the run,
then what it says, then what is inside, then where it all comes from. The next file to read is views/run.py, or
report/write.py for what becomes of the list.
"""

from collections.abc import Callable
from dataclasses import dataclass

from unembed.results import Result
from unembed.views import accounts, inside, looking, progress, truth, tying
from unembed.views.run import RunView


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One entry: its name (the report's section), its function, and for which runs it makes sense."""

    name: str
    make: Callable[[RunView], Result]
    applies: Callable[[RunView], bool] = lambda run: True


ANALYSES: tuple[Analysis, ...] = (
    Analysis(name="loss", make=progress.loss),
    Analysis(name="rates", make=progress.rates),
    Analysis(name="agreement", make=inside.agreement, applies=lambda run: run.learns_grammar and run.has_data),
    Analysis(name="samples", make=progress.samples),
    Analysis(name="parameters", make=accounts.parameters),
    Analysis(name="tying", make=accounts.tying),
    Analysis(name="two_gradients", make=tying.two_gradients, applies=tying.can_be_split),
    Analysis(name="gradients", make=progress.gradients, applies=lambda run: run.has_data),
    Analysis(name="lens", make=inside.lens),
    Analysis(name="calibration", make=truth.calibration, applies=truth.can_be_calibrated),
    Analysis(name="truth", make=truth.truth, applies=lambda run: run.learns_grammar and run.has_data),
    Analysis(name="layers_over_training", make=truth.layers_over_training, applies=truth.can_be_calibrated),
    Analysis(name="attribution", make=looking.attribution),
    Analysis(name="attention", make=looking.attention),
    Analysis(name="stream", make=looking.stream),
    Analysis(name="token_map", make=inside.token_space, applies=inside.has_a_plane),
    Analysis(name="data", make=accounts.data, applies=lambda run: run.has_data),
)
