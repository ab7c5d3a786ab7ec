"""Completion in bash by click, with a script and words of our own: overrides have "=", ":" and "[" in them.

`symlab completion bash` prints the script. It asks this program for words with a variable, _SYMLAB_COMPLETE, and gives
it the line up to the cursor. An answer is a line for each word: its kind (plain, file, dir) and the word. A word that
more has to follow is of the kind open.
"""

from __future__ import annotations

import os
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, split_arg_string

from symlab.command import SETTINGS

VARIABLE = "_SYMLAB_COMPLETE"


class Bash(BashComplete):
    """Words as bash wants them: without what stands before the last character that breaks words."""

    source_template = """\
# Completion of symlab in bash. In ~/.bashrc: source <(symlab completion bash)
%(complete_func)s() {
    local kind word
    COMPREPLY=()
    while IFS=' ' read -r kind word; do
        case $kind in
            file) compopt -o default ;;
            dir) compopt -o dirnames -o nospace ;;
            open) compopt -o nospace; COMPREPLY+=("$word") ;;
            plain) COMPREPLY+=("$word") ;;
        esac
    done < <(_SYMLAB_LINE="${COMP_LINE:0:COMP_POINT}" _SYMLAB_BREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "${1/#\\~/$HOME}" 2>/dev/null)
}
complete -F %(complete_func)s %(prog_name)s
"""

    @staticmethod
    def _check_version() -> None:
        """The script needs nothing newer than bash 4."""

    def get_completion_args(self) -> tuple[list[str], str]:
        return arguments_of(os.environ["_SYMLAB_LINE"])

    def format_completion(self, item: CompletionItem[Any]) -> str:
        raw = os.environ["_SYMLAB_LINE"].rpartition(" ")[2]
        cut = max((raw.rfind(one) for one in os.environ["_SYMLAB_BREAKS"] if not one.isspace()), default=-1)
        before = raw[: cut + 1].replace("\\", "")
        return f"{'open' if item.is_open else item.type} {item.value.removeprefix(before)}"


def arguments_of(line: str) -> tuple[list[str], str]:
    """Return the arguments before the cursor, and the one that is being typed."""
    words = split_arg_string(line)
    last = words.pop() if words and not line[-1:].isspace() else ""
    return words[1:], last


def answered() -> bool:
    """Print the words that our script asks for. Return whether it does."""
    if os.environ.get(VARIABLE) != "bash_complete":
        return False
    from symlab.verbs import symlab

    print(Bash(symlab, dict(SETTINGS), "symlab", VARIABLE).complete())
    return True


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash",)))
def completion(shell: str) -> None:
    """Print a script that completes words in a shell.

    It completes commands, options, experiments, keys and their values. For bash (4 or later) put the line
    `source <(symlab completion bash)` into ~/.bashrc.
    """
    print(Bash(click.Command("symlab"), {}, "symlab", VARIABLE).source(), end="")
