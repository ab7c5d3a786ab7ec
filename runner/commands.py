"""The commands that run cases, as click objects, from run to resume."""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from reports.audit.gate import Gate
from reports.audit.level import RERUNS
from runner.interrupt import exit_code_of, interruptible
from runner.request.options import CFG_PARTS, INFO_TOPICS, RunOptions
from runner.request.sizes import parse_bytes
from runner.request_error import RequestError
from runner.world.fabrics import FabricName
from runner.world.launcher import find
from simulator.options import Granularity, Memory

if TYPE_CHECKING:
    from runner.command.joined import JoinedCommand

MAX_LAUNCHES = 100
MAX_PROCESSES = 256

GIVEN = "runner.commands.given"
"""Where a context keeps its arguments as they were given."""

REFUSED = {
    ("--run", "-r"): "run decides by -m and hydra.mode, leave it out",
    ("--config-path", "-cp"): "conf/ is always the first folder of configurations, add one with --config-dir",
    ("--config-name", "-cn"): "every run begins with conf/config.yaml, choose an experiment with +exp=NAME",
    ("--experimental-rerun",): "Hydra's pickled jobs are not written, use symlab replay RECORDS",
    ("--shell-completion", "-sc"): "use symlab completion bash",
    ("--hydra-help",): "symlab run --help lists the flags of Hydra that run takes",
}
"""Flags of Hydra's that have no meaning here, each with the reason and what to use."""


class Run(click.Command):
    """Keeps the arguments as given, for the records. Says what is right for an option that is a key here."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = ctx.meta[GIVEN] = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from runner.request.misread import misread_option

            if meant := misread_option(error.option_name, given):
                raise RequestError(meant) from None
            raise


def _refused(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
    """Refuse a flag of Hydra's, with the reason."""
    names = tuple(parameter.opts)
    if value and not ctx.resilient_parsing:
        raise RequestError(f"{names[0]} is unsupported ({names[0]}), {REFUSED[names]}")


def _refuse_flags(command: click.Command) -> click.Command:
    """Add the options that are refused. Help and completion leave them out."""
    for names in REFUSED:
        takes_value = names[0] in ("--config-path", "--config-name", "--experimental-rerun")
        command.params.append(
            click.Option(names, is_flag=not takes_value, expose_value=False, hidden=True, callback=_refused)
        )
    return command


def _complete_override(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """The words that an override can go on with."""
    from runner.request.words import is_folder, words_for

    if is_folder(incomplete):
        return [CompletionItem(incomplete, type="dir")]
    given = list(ctx.params.get("overrides") or ())
    config_dir = ctx.params.get("config_dir")
    for name, value in itertools.pairwise(given):  # behind the first override, options are not parsed while completing
        if name in ("--config-dir", "-cd"):
            config_dir = Path(value)
    found = words_for(incomplete, given, config_dir)
    return [CompletionItem(word.text, help=word.help, is_open=word.is_open) for word in found]


@contextmanager
def _requests_only() -> Iterator[None]:
    """Within, a ValueError that is no RequestError is a defect of ours: it ends in a traceback."""
    try:
        yield
    except RequestError:
        raise
    except ValueError as error:
        raise AssertionError(f"not a wrong request: {error}") from error


def _carried_out(work: Callable[[], int]) -> int:
    """Do the work of a command that runs cases, which handles interrupts once they run. Returns the exit code. Notes of
    an interrupt say what is left of it."""
    with interruptible():
        try:
            with _requests_only():
                return work()
        except KeyboardInterrupt as interrupt:
            notes = getattr(interrupt, "__notes__", ())
            print(f"symlab: interrupted{'; ' if notes else ' before anything ran'}{'; '.join(notes)}", file=sys.stderr)
            return exit_code_of(interrupt)


@click.command("run", cls=Run, add_help_option=False)
@click.argument("overrides", nargs=-1, shell_complete=_complete_override)
@click.option("-m", "--multirun", is_flag=True)
@click.option("-cd", "--config-dir", type=click.Path(file_okay=False, path_type=Path))
@click.option("-c", "--cfg", type=click.Choice(CFG_PARTS))
@click.option("-p", "--package")
@click.option("-q", "--quiet", is_flag=True)
@click.option("--plan", is_flag=True)
@click.option("--resolve", is_flag=True)
@click.option("-i", "--info", is_flag=False, flag_value="all", type=click.Choice(INFO_TOPICS))
@click.option("-h", "--help", is_flag=True)
@click.option("--version", is_flag=True)
@click.pass_context
def run(ctx: click.Context, /, **options: Any) -> int:
    """Run an experiment: on GPUs, or in the simulator."""
    from runner.command.start import start

    wanted = RunOptions(**options)
    shown = [name for name in ("plan", "cfg", "info") if getattr(wanted, name)]
    if len(shown) > 1:
        raise RequestError(f"--{shown[0]} and --{shown[1]} exclude each other (--{shown[1]}), give one of them")
    if not wanted.cfg and not wanted.help and (wanted.resolve or wanted.package):
        name = "--resolve" if wanted.resolve else "--package"
        raise RequestError(f"{name} has no effect without --cfg ({name}), add --cfg job")
    given = ctx.meta[GIVEN]
    return _carried_out(lambda: start(given, wanted, ctx.obj))


_refuse_flags(run)


_takes_code = click.option(
    "--code",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="A folder whose files may be run for records, too; repeatable.",
)

REPLAY_EPILOG = """\
Data is BIT-EQUAL when the digests of all outputs are; where only a bound is promised it is WITHIN BOUND. Speed has a
verdict (SAME, FASTER, SLOWER, INCONCLUSIVE) from four worlds on either side that alternate in time: where git has the
recorded commit, each launch is a world of that code and one of today's, in random order. Else it is INSIDE or
OUTSIDE the band.
What can't be compared is named with the reason. Records of GPUs are run again in the simulator where there is no GPU.

Exit codes: 0 the results are the same; 1 they are not; 2 the request is wrong, or nothing could be compared;
130 Ctrl-C.
"""


def _band(ctx: click.Context, parameter: click.Parameter, text: str) -> float:
    from reports.audit.statistics import parse_band

    try:
        return parse_band(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


def _size(ctx: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    return None if text is None else parse_bytes(text, parameter.opts[0])


@click.command("replay", epilog=REPLAY_EPILOG)
@click.argument("what", metavar="RECORDS", type=click.Path())
@click.option(
    "--launches", type=click.IntRange(1, MAX_LAUNCHES), default=1, metavar="N", show_default=True, help="New worlds."
)
@click.option(
    "--band",
    default="2%",
    metavar="PERCENT",
    show_default=True,
    callback=_band,
    help="Maximum change of a time that counts as SAME.",
)
@click.option(
    "--gate",
    type=click.Choice(tuple(map(str, Gate))),
    default=str(Gate.ANY),
    show_default=True,
    callback=lambda ctx, parameter, word: Gate(word),
    help="The findings that decide the exit code.",
)
@click.option(
    "--fabric",
    type=click.Choice(tuple(map(str, FabricName))),
    default="auto",
    show_default=True,
    help="What the cases run on; auto is the recorded fabric.",
)
@click.option(
    "--up-to",
    "up_to_bytes",
    metavar="SIZE",
    callback=_size,
    help="Maximum size of the cases that run again. Without it all do, but of GPUs' records in the simulator up to 1M.",
)
@click.option(
    "--records",
    type=click.Path(path_type=Path),
    default=Path("records"),
    metavar="DIR",
    show_default=True,
    help="The folder for new records.",
)
@click.option(
    "--mlflow",
    "mlflow_uri",
    default="sqlite:///mlflow.db",
    metavar="URI",
    show_default=True,
    help="Where the MLflow run is, if RECORDS is the id of one.",
)
@click.option("--track", "track_uri", default="", metavar="URI", help="Log the new runs to MLflow there.")
@_takes_code
@click.option("--changed-code", is_flag=True, help="Run brought files that are not those that ran, too.")
@click.pass_context
def replay(ctx: click.Context, /, **options: Any) -> int:
    """Run recorded cases again and compare the results.

    RECORDS is a record file, a folder, a bundle, or the id of an MLflow run. Everything is taken from the records.
    """
    outer = find(os.environ)
    if outer is not None:
        raise RequestError(f"a replay starts worlds of its own (replay), start it without {outer.launcher}")
    from runner.replay.replay import Wanted
    from runner.replay.replay import replay as replayed

    return _carried_out(lambda: replayed(Wanted(**options), ctx.obj))


EXPLORE_EPILOG = """\
A run is one case under one seed and one schedule, in a world of its own; a run that ends wrong, with a fault or in a
deadlock, and with --races one with a race, ends the search. The failure is then shrunk to few switches between warps,
printed as an interleaving, and kept in a file. Nothing found proves no absence.

Exit codes: 0 nothing was found; 1 a failure was found (with --replay: it fails again); 2 the request is wrong;
130 Ctrl-C, with what was done.
"""


def _seconds(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise RequestError(f"{value} is no number of seconds ({parameter.opts[0]}), give seconds, 0 or more")
    return value


@click.command("explore", epilog=EXPLORE_EPILOG)
@click.argument("overrides", nargs=-1, shell_complete=_complete_override)
@click.option("-m", "--multirun", is_flag=True, help="Explore the cases of a sweep.")
@click.option(
    "-cd",
    "--config-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="A folder of configurations beside conf/.",
)
@click.option("--case", default="", metavar="TEXT", help="Only cases whose id has this text; default: all.")
@click.option(
    "--seeds", type=click.IntRange(1), metavar="N", help="Number of seeds; default: as many as the time takes."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    callback=_seconds,
    help="Seconds for the search; default: 60, with --seeds no end.",
)
@click.option("--first-seed", type=click.IntRange(0), default=0, metavar="N", show_default=True, help="The first seed.")
@click.option(
    "--schedule",
    type=click.Choice(("random", "adversarial", "both")),
    default="both",
    show_default=True,
    help="Who runs next: drawn, or rather what is likely to break.",
)
@click.option(
    "--granularity",
    type=click.Choice(tuple(map(str, Granularity))),
    default=str(Granularity.access),
    show_default=True,
    help="Other threads may run after each access to memory, or after each basic block.",
)
@click.option(
    "--shrink",
    "shrink_s",
    type=click.FloatRange(0),
    default=30.0,
    metavar="S",
    show_default=True,
    callback=_seconds,
    help="Seconds for the search for fewer switches.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, MAX_PROCESSES),
    metavar="N",
    help="Number of processes; default: one a processor.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The JSON file for a failure; default: explore-CASE-SCHEDULE-SEED.json.",
)
@click.option(
    "--lines", type=click.IntRange(1), default=60, metavar="N", show_default=True, help="Lines of the interleaving."
)
@click.option(
    "--memory",
    type=click.Choice(tuple(map(str, Memory))),
    help="weak: each thread sees a store at a time of its own; default: the experiment's fabric.memory.",
)
@click.option(
    "--races", is_flag=True, help="A run in which the race checker finds a race fails, also if its output is right."
)
@click.option("--replay", type=click.Path(path_type=Path), metavar="FILE", help="Run the failure of a file again.")
@click.option(
    "--launcher",
    multiple=True,
    metavar="NAME",
    help="Spread the seeds: joblib, submitit_slurm .., or a line such as hydra.launcher.n_jobs=4; repeatable.",
)
def explore(**options: Any) -> int:
    """Run an experiment under many orders of threads.

    The first run that fails ends it. OVERRIDES are those of symlab run; all cases are simulated.
    """
    outer = find(os.environ)
    if outer is not None:
        raise RequestError(f"an exploration starts its own worlds (explore), start it without {outer.launcher}")
    from runner.explore.command import Options
    from runner.explore.command import explore as explored

    return _carried_out(lambda: explored(Options(**options)))


TUNE_EPILOG = """\
On a type of GPU with floors (conf/gpu, symlab calibrate) the model of symlab predict ranks all candidates, and the
six that it ranks best of each size are measured; --exhaustive measures all, by successive halving.

Each candidate's results are checked before it is timed and after. One that hangs, faults or is wrong is out, and the
search goes on. A search that was cut short goes on with the same command: what it measured is in FILE.search. The
finalists of each size are then run side by side, with records, and the table's figures are those of these records.

--sample N writes no table: it runs N random tunings beside the catalogue's own, from which symlab predict --score
RECORDS tells how far the model can be trusted with tunings.

Exit codes: 0 every case has a choice (--regret, --unseen: the regret is at most 1 % in the median, at no size surely
above 3 %, and no choice is surely slower than the catalogue's tuning); 1 otherwise; 2 the request is wrong; 130 Ctrl-C:
the same command goes on.
"""


@click.command("tune", cls=Run, epilog=TUNE_EPILOG)
@click.argument("overrides", nargs=-1, shell_complete=_complete_override)
@click.option("-m", "--multirun", is_flag=True, help="Search the cases of a sweep, such as op=all_reduce,broadcast.")
@click.option(
    "-cd",
    "--config-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="A folder of configurations beside conf/.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The table, in which other entries stay; default: tuned-GPU.json.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    callback=_seconds,
    help="Seconds for the search from the command's start, without the finalists; default: no limit.",
)
@click.option("--exhaustive", is_flag=True, help="Measure all candidates; ask no model first.")
@click.option(
    "--model-seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    callback=_seconds,
    help="Seconds for the model; default: half of --seconds, else no limit.",
)
@click.option(
    "--gpu", default="", metavar="NAME", help="The type of GPU whose floors the model takes; default: the device's own."
)
@click.option(
    "--processes",
    type=click.IntRange(1, MAX_PROCESSES),
    metavar="N",
    help="Number of processes that compile and simulate; default: one a processor.",
)
@click.option("--unseen", is_flag=True, help="Run the table's choices at twenty sizes that were not searched.")
@click.option(
    "--regret",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="RECORDS",
    help="Print how much slower a table's choices were than the quickest beside them; repeatable.",
)
@click.option(
    "--sample",
    type=click.IntRange(1),
    metavar="N",
    help="Search nothing: run N random tunings beside the catalogue's own, with records to score the model by.",
)
@click.option("--seed", type=click.IntRange(0), default=0, metavar="S", help="Of --sample: another one draws others.")
@click.pass_context
def tune(ctx: click.Context, /, **options: Any) -> int:
    """Search the best kernel and tuning for each size, for algorithms=best.

    OVERRIDES are those of symlab run, an op at least; algorithms are the project's own. Where no sizes are given, they
    are the powers of four from 1K to 256M. It needs GPUs.
    """
    outer = find(os.environ)
    if outer is not None:
        raise RequestError(f"a search starts its own worlds (tune), start it without {outer.launcher}")
    from runner.tune.command import Options as Wishes
    from runner.tune.command import tune as tuned

    wishes = Wishes(**options)
    if wishes.regret and (wishes.overrides or wishes.unseen):
        raise RequestError("--regret only reads records (--regret), leave overrides and --unseen out")
    if wishes.sample and (wishes.regret or wishes.unseen or wishes.exhaustive or wishes.gpu or wishes.output):
        raise RequestError("--sample only runs tunings (--sample), leave other options out")
    if wishes.unseen and (wishes.exhaustive or wishes.gpu or wishes.model_seconds is not None):
        raise RequestError(
            "--unseen runs the choices of a table (--unseen), leave --exhaustive, --gpu and --model-seconds out"
        )
    if not (wishes.overrides or wishes.regret or wishes.unseen):
        raise RequestError(
            "a search needs an op (op): symlab tune op=all_reduce world_size=2 runs its algorithms and their tunings "
            "at each power of four from 1K to 256M and writes a table, which took 151 s on "
            "two H200 (2026-11-27); --seconds 60 ends the search after a minute"
        )
    given = ctx.meta[GIVEN]
    return _carried_out(lambda: tuned(wishes, given, ctx.obj))


CALIBRATE_EPILOG = """\
Each floor is of one small kernel (kernels/floors/): an empty node of a graph, a flag to and fro, a load whose address
depends on the load before it, a copy, a sum in own memory, a bulk copy, all to one. Each is checked, timed by the GPU's
clock and recorded as any case. A probe that fails has no floor, and then no file is written.

With -o a file that exists keeps all but its floors; a new one is like the type. conf/gpu has committed floors only from
records: symlab calibrate --from RECORDS -o conf/gpu/TYPE.yaml.

Exit codes: 0 every probe passed; 1 one did not; 2 the request is wrong, or there are no GPUs; 130 Ctrl-C.
"""


@click.command("calibrate", cls=Run, epilog=CALIBRATE_EPILOG)
@click.argument("overrides", nargs=-1, shell_complete=_complete_override)
@click.option(
    "-cd",
    "--config-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="A folder of configurations beside conf/.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file of a type of GPU to write floors into; without it they are printed.",
)
@click.option(
    "--type", default="", metavar="NAME", help="The type of GPU; default: the one of conf/gpu that names the device."
)
@click.option(
    "--from",
    "records",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="RECORDS",
    help="Take floors from records of earlier calibrations; repeatable. Nothing runs.",
)
@click.option("--simulated", is_flag=True, help="Only check the probes, in the simulator: no times, no floors.")
@click.pass_context
def calibrate(ctx: click.Context, /, **options: Any) -> int:
    """Measure the floors of a type of GPU by small kernels.

    It takes 2 or more GPUs. OVERRIDES are those of symlab run, such as world_size=4 or timing.samples=20.
    """
    outer = find(os.environ)
    if outer is not None:
        raise RequestError(f"a calibration starts its own world (calibrate), start it without {outer.launcher}")
    from runner.calibrate.command import Options as Wishes
    from runner.calibrate.command import calibrate as calibrated

    given = ctx.meta[GIVEN]
    return _carried_out(lambda: calibrated(Wishes(**options), given))


PREDICT_EPILOG = """\
Nothing is measured, and no record is made: today's kernels are compiled, simulated with a clock, and weighed by the
floors of the type of GPU, which may be a file of your own: fabric.gpu=my/h200.yaml. Simulating takes seconds a case the
first time; profiles are kept in cache_dir. What is predicted: launches in graphs, window=kernel, l2=rotate, without
dependent launch, stress and libraries; a request for anything else is refused.

Exit codes: 0 predicted or scored; 1 a case failed in the simulator or was not finished in time; 2 the request is wrong,
or nothing can be predicted; 130 Ctrl-C.
"""


def _complete_override_or_records(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Files behind --score, which takes records; else the words that an override can go on with."""
    if ctx.params.get("score"):
        return [CompletionItem(incomplete, type="file")]
    return _complete_override(ctx, parameter, incomplete)


@click.command("predict", cls=Run, epilog=PREDICT_EPILOG)
@click.argument("overrides", nargs=-1, shell_complete=_complete_override_or_records)
@click.option("-m", "--multirun", is_flag=True, help="Predict the cases of a sweep, such as world_size=2,4,8.")
@click.option(
    "-cd",
    "--config-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="A folder of configurations beside conf/.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "markdown", "csv", "json")),
    default="text",
    show_default=True,
    help="csv and json have all values, unrounded, and a line for each refused case.",
)
@click.option("--explain", is_flag=True, help="Tell the critical path of each case, behind the table or within JSON.")
@click.option(
    "--ranges",
    is_flag=True,
    help="Tell for which ranges of sizes which algorithm is the fastest: behind the table, alone in csv and json.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write what is printed into a file, whole or not at all.",
)
@click.option(
    "--page",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a page with figures, tables and, with --explain, critical paths, too: a name that ends in .html.",
)
@click.option(
    "--score",
    is_flag=True,
    help="Print the model's errors on the published records, or on the records that follow.",
)
def predict(**options: Any) -> int:
    """Predict times on a type of GPU, on a machine without any.

    OVERRIDES are those of symlab run; fabric.gpu names the type, such as h200. Experiments of GPUs are predicted, too.
    """
    outer = find(os.environ)
    if outer is not None:
        raise RequestError(f"a prediction needs one process (predict), start it without {outer.launcher}")
    from runner.predict.command import Options as Asked
    from runner.predict.command import check
    from runner.predict.command import predict as predicted

    asked = Asked(**options)
    check(asked)
    return _carried_out(lambda: predicted(asked))


PUBLISH_EPILOG = """\
The plan is kept in FOLDER, and so is each finished world, at once: a later call, also on another machine that has a
copy of FOLDER, goes on with what is missing and runs nothing twice. Without other options FOLDER's plan is taken; more
experiments and more worlds extend it. A world that fails is named, does not stop the others, and runs again with the
next call. Worlds run in an empty folder: give paths in overrides in full.

Exit codes: 0 all worlds are there and passed; 1 a world or a case failed, or the audit has a finding; 2 the request is
wrong; 3 the time limit came first: the same command goes on; 130, 143 Ctrl-C and SIGTERM, with what was stored.
"""


@click.command("publish", cls=Run, epilog=PUBLISH_EPILOG)
@click.argument("folder", metavar="FOLDER", required=False, type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1, shell_complete=_complete_override)
@click.option(
    "-e",
    "--experiment",
    "experiments",
    multiple=True,
    metavar="NAME",
    help="An experiment, as in +exp=NAME; repeatable.",
)
@click.option(
    "--worlds",
    type=click.IntRange(1, MAX_LAUNCHES),
    metavar="N",
    help="Number of worlds of each experiment, and of each commit; default: 5.",
)
@click.option(
    "--commits",
    nargs=2,
    metavar="A B",
    help="Run two commits' code in pairs, in random order, into FOLDER/before and FOLDER/after; default: today's code.",
)
@click.option("-m", "--multirun", is_flag=True, help="The overrides have a sweep, such as world_size=2,4.")
@click.option(
    "-cd",
    "--config-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="A folder of configurations beside conf/.",
)
@click.option(
    "--limit-minutes",
    "limit_minutes",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    callback=_seconds,
    help="Begin no world that would end later, by the time of earlier ones of its experiment.",
)
@click.option(
    "--rerun",
    type=click.IntRange(0),
    default=RERUNS,
    metavar="N",
    show_default=True,
    help="Number of cases that the audit of a whole set runs again in the simulator.",
)
@click.option("--plan", is_flag=True, help="Print what is done and what would run, and run nothing.")
@click.option(
    "--derive",
    is_flag=True,
    help="Alone, without FOLDER: make all that follows from the bundles in reports/published.",
)
def publish(
    folder: Path | None,
    commits: tuple[str, ...] | None,
    limit_minutes: float | None,
    derive: bool,
    **options: Any,
) -> int:
    """Run experiments in several worlds each, for publication.

    FOLDER gets a bundle for each world, table, figure, kernels, the audit's level and a README.md that says what ran.
    OVERRIDES are those of symlab run, and hold for all experiments. Of the sets that were moved to reports/published,
    --derive makes the rest: sections of pages, tables and figures; kernels, profiles and levels that are missing; the
    score of symlab predict; the manifest.
    """
    outer = find(os.environ)
    if outer is not None:
        raise RequestError(f"publish starts its own worlds (publish), start it without {outer.launcher}")
    if derive:
        if click.get_current_context().meta[GIVEN] != ("--derive",):
            raise RequestError("--derive is of all that is published (--derive), give it alone, without FOLDER")
        from runner.publish.derived import derive as derived

        return _carried_out(derived)
    if folder is None:
        raise RequestError("no folder for the set (FOLDER), give one, such as records/h200-x2")
    from runner.publish.command import Options as Asked
    from runner.publish.command import publish as published

    limit_s = None if limit_minutes is None else 60 * limit_minutes
    return _carried_out(lambda: published(Asked(folder, commits=tuple(commits or ()), limit_s=limit_s, **options)))


RESUME_EPILOG = """\
Exit codes are those of the whole command: 0 all passed, or some passed and the others were refused; 1 a case was wrong
or failed; 2 the request is wrong, or the folder can't be resumed; 130 Ctrl-C, which leaves it resumable.
"""


@click.command("resume", epilog=RESUME_EPILOG)
@click.argument("records", metavar="RECORDS", type=click.Path(path_type=Path))
@click.option(
    "--uri",
    default="",
    metavar="URI",
    help="Where the command's run of MLflow is, if its configuration no longer says; none sends nothing.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say only errors, warnings and the last lines.")
@click.option(
    "--launcher",
    multiple=True,
    metavar="NAME",
    help="Launcher of what is left: basic, joblib .., or a line such as hydra.launcher.n_jobs=4; default: as it began.",
)
@_takes_code
@click.pass_context
def resume(
    ctx: click.Context, /, records: Path, uri: str, quiet: bool, code: tuple[Path, ...], launcher: tuple[str, ...]
) -> int:
    """Run what an interrupted, killed or failed command left undone.

    RECORDS is the folder of the command's records. The rest runs with the same configuration, into the same folder and
    the same run of MLflow.
    """
    from runner.case.allowed_code import allowed_code
    from runner.command.leading import led
    from runner.command.resume import recorded_command
    from runner.command.resume import resume as resumed

    def joined() -> JoinedCommand:
        return recorded_command(records, allowed_code([records], code, changed=True))

    lines = list(launcher) or None
    return _carried_out(lambda: led(lambda leader: resumed(records, uri, ctx.obj, leader, quiet, code, lines), joined))
