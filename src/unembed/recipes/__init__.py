"""Whole runs by name: data, tokenizer, model and training, put together by one function each.

base.py says what a recipe gives; RECIPES is the visible list. start.py, the next file to read, carries one out.
"""

from unembed.errors import UsageError, did_you_mean
from unembed.recipes import nanogpt_cpu, shared_table, small, speedrun, tour
from unembed.recipes.base import Recipe

RECIPES: tuple[Recipe, ...] = (small.RECIPE, nanogpt_cpu.RECIPE, speedrun.RECIPE, tour.RECIPE, shared_table.RECIPE)


def recipe(name: str) -> Recipe:
    """Finds a recipe by name. Raises: UsageError with the closest names."""
    by_name = {one.name: one for one in RECIPES}
    if not isinstance(name, str):
        raise UsageError(f"recipe is {repr(name)[:60]}, expected the name of one. There are: {', '.join(by_name)}")
    if name not in by_name:
        hint = did_you_mean(name, by_name, f"There are: {', '.join(by_name)}.", n=2)
        raise UsageError(f"no recipe is named {name!r}. {hint}")
    return by_name[name]
