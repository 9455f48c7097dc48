"""`unembed verify`: what is claimed of every model, proved on the user's own."""

import sys

import click

from unembed.cli.looking import looking_command
from unembed.cli.models import ignored_tensors
from unembed.cli.render import say, write_page, write_result
from unembed.errors import InputError


@looking_command("verify")
@click.option("--claim", "names", multiple=True, help="Try this claim alone; may be given several times.")
def command(
    model: str, names: tuple[str, ...], tokenizer: str | None, like: str | None, output_format: str, quiet: bool
) -> None:
    """Prove on MODEL what is claimed of every model: counts, tie, cache, batches, tokenizer, export, parity,
    checkpoints, resume.

    Exit code 3 says that a claim failed; the result is printed all the same.

    Examples:

    \b
        unembed verify runs/mine
        unembed verify runs/mine --claim tie --format json
    """
    from unembed.results import Result, Table
    from unembed.verify import subject_of, verify
    from unembed.verify.claim import Claim

    def tell(claim: Claim) -> None:
        # the table on stdout has every claim: only who waits before a terminal is told of each as it comes
        if output_format == "table" and sys.stderr.isatty() and not sys.stdout.isatty():
            say(f"{claim.status:<8} {claim.name}", quiet=quiet)

    subject = subject_of(model, tokenizer=tokenizer, like=like, ignore_tensors=ignored_tensors())
    claims = verify(subject, names or None, tell)
    columns = {field: [getattr(claim, field) for claim in claims] for field in Claim._fields}
    whole = Result(name="verify", tables={"claims": Table(columns=columns)})
    write_page(whole)
    if output_format == "json":
        write_result(Result(name="verify", values={"claims": [claim._asdict() for claim in claims]}), output_format)
    else:
        write_result(whole, output_format)
    if bad := [claim.name for claim in claims if claim.status == "failed"]:
        raise InputError(f"{model}: {len(bad)} of {len(claims)} claims failed: {', '.join(bad)}")
