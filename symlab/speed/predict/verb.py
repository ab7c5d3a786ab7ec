"""symlab predict: its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem

from runner.request.options import Overrides, words
from runner.verb import argument, called, option, verb

EPILOG = """\
Nothing is measured, and no record is made: today's kernels are compiled, simulated with a clock, and weighed by the
floors of the type of GPU, which may be a file of your own: fabric.gpu=my/h200.yaml. Simulating takes seconds a case the
first time; profiles are kept in cache_dir. What is predicted: launches in graphs, l2=rotate, without stress and
libraries; matmuls on H200, by their measured times. A request for anything else is refused.

Exit codes: 0 predicted or scored; 1 a case failed in the simulator or was not finished in time; 2 the request is wrong,
or nothing can be predicted; 130 Ctrl-C.
"""


def _words_or_records(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Files behind --score, which takes records; else the words that an override can go on with."""
    if ctx.params.get("score"):
        return [CompletionItem(incomplete, type="file")]
    return words(ctx, parameter, incomplete)


@dataclass(frozen=True, slots=True)
class Options(Overrides):
    """What `symlab predict` was asked."""

    overrides: tuple[str, ...] = argument((), nargs=-1, shell_complete=_words_or_records)
    form: str = option(
        "json has all values, unrounded, and a line for each refused case.",
        "--format",
        default="text",
        type=click.Choice(("text", "json")),
    )
    score: bool = option(
        "Print the model's errors on the published records, or on the records that follow.",
        default=False,
    )


@verb("predict", Options, epilog=EPILOG, alone="a prediction needs one process")
def predict(options: Options, given: tuple[str, ...], tools: Any) -> int:
    """Predict times on a type of GPU, on a machine without any.

    OVERRIDES are those of symlab run; fabric.gpu names the type, such as h200. Experiments of GPUs are predicted, too.
    """
    return called("symlab.speed.predict.command:predict", options)
