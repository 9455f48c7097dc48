"""`unembed tie`: whether a model is really tied, with the evidence, and the repair."""

import shlex

import click

from unembed.cli.models import ignore_option, ignored_tensors
from unembed.cli.paths import complete_model
from unembed.cli.render import format_option, html_option, quiet_option, say, write_page, write_result
from unembed.errors import InputError, UsageError


@click.command(name="tie", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", shell_complete=complete_model)
@click.option("--repair", type=click.Choice(["tie", "untie"]), help="Write the model anew, tied or untied, at --out.")
@click.option("--out", metavar="DIR", help="Where the repaired model is written; a new place.")
@click.option("--keep", type=click.Choice(["embed", "head"]), help="Which table stays where the two differ.")
@click.option("--likeness", is_flag=True, help="Also measure how alike the two tables are; the model is opened for it.")
@click.option("--like", metavar="PRESET", help="The preset whose shape a microGPT .bin has; it holds none.")
@ignore_option
@html_option
@format_option
@quiet_option
def command(
    model: str,
    repair: str | None,
    out: str | None,
    keep: str | None,
    likeness: bool,
    like: str | None,
    output_format: str,
    quiet: bool,
) -> None:
    """Say whether MODEL is really tied: one table that embeds and scores, in the file, in memory and in an export.

    Exit code 3 says that something is broken; the result is printed all the same. With --repair the result is that of what
    was written.

    Examples:

    \b
        unembed tie runs/mine
        unembed tie exported --repair tie --out repaired
        unembed tie runs/untied --likeness
    """
    from unembed.checkpoints.load import find, open_found
    from unembed.results import Result, Table
    from unembed.tying.alike import likeness as compare
    from unembed.tying.doctor import examine_found

    if repair is None and (out is not None or keep is not None):
        raise UsageError("--out and --keep belong to --repair; say --repair tie or --repair untie")
    if repair is not None and out is None:
        raise UsageError(f"--repair {repair} writes a model; give the place with --out DIR")
    found = find(model, like=like, ignore_tensors=ignored_tensors())
    more = {}
    if repair is not None and out is not None:
        from unembed.tying.repair import repair as write

        done = write(found, repair, out, keep=keep)
        for note in (done.told, *done.converted.notes):
            say(note, quiet=quiet)
        more = {"written": str(done.converted.written), "repaired": done.told}
        found = find(done.converted.written)
    examined = examine_found(found)
    checks = examined.values["checks"]
    alike = compare(open_found(found)).tables if likeness else {}
    columns = {field: [check[field] for check in checks] for field in ("name", "status", "detail")}
    values = {**examined.values, **more}
    if values["repair"] is not None:
        # a command to copy
        values["repair"] = values["repair"].replace("unembed tie MODEL", _same(model, like))
    shown = {name: value for name, value in values.items() if name != "checks"}
    whole = Result(name="tie", values=shown, tables={"checks": Table(columns=columns), **alike})
    write_page(whole)
    if output_format == "json":
        write_result(Result(name="tie", values=values, tables=alike), output_format)
    else:
        write_result(whole, output_format)
    if bad := [check["name"] for check in checks if check["status"] == "broken"]:
        raise InputError(f"{model}: {len(bad)} of {len(checks)} checks say broken: {', '.join(bad)}")


def _same(model: str, like: str | None) -> str:
    """The command that meets this MODEL again, as it was given, in a shell."""
    words = ["unembed", "tie", f"./{model}" if model.startswith("-") else model]
    words += [word for name in ignored_tensors() for word in ("--ignore-tensor", name)]
    return shlex.join([*words, *(("--like", like) if like is not None else ())])
