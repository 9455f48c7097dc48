"""`unembed completion`: the few lines that make a shell complete commands, options, presets and run folders.

click knows how shells ask; what is answered for a MODEL, a recipe or a setting stands in paths.py, the next file to read.
bash gets lines of our own: click's put a space after a folder and let the shell expand a `*` in a name.
"""

import click

from unembed.cli.render import lang_option, quiet_option

PROGRAM, VARIABLE = "unembed", "_UNEMBED_COMPLETE"
BASH = """\
_unembed_completion() {
    local IFS=$'\\n' line
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            file,*|dir,*) compopt -o default -o filenames ;;
            plain,*/) COMPREPLY+=("${line#plain,}"); compopt -o nospace ;;
            plain,*) COMPREPLY+=("${line#plain,}") ;;
        esac
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _UNEMBED_COMPLETE=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F _unembed_completion unembed
"""
WHERE = {
    "bash": 'put  eval "$(unembed completion bash)"  into ~/.bashrc',
    "zsh": 'put  eval "$(unembed completion zsh)"  into ~/.zshrc, after compinit',
    "fish": "run  unembed completion fish > ~/.config/fish/completions/unembed.fish",
}


@click.command(name="completion", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("shell", type=click.Choice(list(WHERE)), metavar="SHELL")
@lang_option
@quiet_option
def command(shell: str, lang: str | None, quiet: bool) -> None:
    """Print what makes SHELL complete unembed's commands, options, presets and run folders.

    Examples:

    \b
        eval "$(unembed completion bash)"
        unembed completion zsh
        unembed completion fish
    """
    import sys

    from unembed.cli.render import say

    click.echo(source(shell), nl=False)
    say(WHERE[shell], quiet=quiet or not sys.stdout.isatty())


def source(shell: str) -> str:
    """The lines for a shell."""
    from click.shell_completion import get_completion_class

    from unembed.cli.main import cli

    if shell == "bash":
        return BASH
    kind = get_completion_class(shell)
    assert kind is not None
    return kind(cli, {}, PROGRAM, VARIABLE).source()
