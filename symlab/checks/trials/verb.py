"""symlab litmus: the judge, the simulated GPUs, and the race checker on one program."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

TRIALS = 200
"""Number of runs of a litmus program, unless another one is given."""


def _programs(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The project's own litmus programs; for a word with a slash, files."""
    if "/" in incomplete or incomplete.startswith("."):
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(path.stem) for path in _own_programs() if path.stem.startswith(incomplete)]


def _own_programs() -> list[Path]:
    return sorted((Path(__file__).resolve().parent.parent / "litmus" / "programs").glob("*.litmus"))


@click.command(
    "litmus",
    epilog="Exit codes: 0 all conditions hold; 1 one fails, or a forbidden state was seen; 2 the request is wrong.",
)
@click.argument("files", nargs=-1, metavar="FILE..", shell_complete=_programs)
@click.option("--all", "is_all", is_flag=True, help="Judge all programs of the project, with one line for each.")
@click.option(
    "--seeds",
    metavar="NUMBER",
    type=click.IntRange(0, 100_000),
    help="Runs on simulated GPUs with weak memory, seeds from 0 on; 0: none, and no race checker. Default: 200, of "
    "--all 0.",
)
def litmus(files: tuple[str, ...], is_all: bool, seeds: int | None) -> int:
    """Print the final states of small programs that PTX allows, those that the machine showed, and races.

    A FILE is a litmus program, or the name of one of the project's own (symlab/checks/litmus/programs). For each state
    that no execution may have, it names the axiom and the steps that contradict it. symlab/checks/litmus/README.md has
    the format, and what the model covers.
    """
    from symlab.checks.litmus.outcomes import judged
    from symlab.checks.litmus.parse import read
    from symlab.checks.litmus.report import summary, text
    from symlab.checks.trials.races import verdict
    from symlab.checks.trials.trial import tried

    own = {path.stem: path for path in _own_programs()}
    if is_all == bool(files):
        raise ValueError(f"give litmus programs, or --all for the project's {len(own)}")
    paths = list(own.values()) if is_all else [own.get(name, Path(name)) for name in files]
    found = [judged(read(path)) for path in paths]
    holding = [all(one.holds(condition) for condition in one.program.conditions) for one in found]
    number = (0 if is_all else TRIALS) if seeds is None else seeds
    trials = [tried(one.program, range(number), one) for one in found] if number else []
    if is_all:
        print(summary(found))
        print(f"{len(found)} programs, all conditions hold in {sum(holding)}")
        for one in trials:
            if one.forbidden or one.unseen or one.refusal:
                print(f"{one.judgement.program.name}: {one.remark()}, {len(one.unseen)} allowed ones not seen")
    elif trials:
        remarks = [[one.remark(), verdict(one.judgement.program)] for one in trials]
        shown = zip(trials, remarks, strict=True)
        print("\n\n".join(text(one.judgement, [one.column()], said) for one, said in shown))
    else:
        print("\n\n".join(map(text, found)))
    return 0 if all(holding) and not any(one.forbidden for one in trials) else 1
