"""symlab run --cfg: the composed configuration as YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.request_error import RequestError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from runner.request.options import RunOptions


def show_configuration(options: RunOptions) -> None:
    """--cfg: the composed configuration as YAML, or one part of it; a document for each job of a sweep."""
    from runner.request.compose import plan_jobs
    from runner.request.composer import Composer, composed

    composer = Composer()
    planned = plan_jobs(options.overrides, options.multirun, composer)
    # Hydra's own section takes a compose in full for each job.
    compose = composed if options.cfg != "job" else lambda lines: composer.composition(lines).config
    documents = [_document(compose(lines), options) for lines in planned]
    if len(documents) == 1:
        print(documents[0], end="")
        return
    for number, (lines, document) in enumerate(zip(planned, documents, strict=True)):
        print(f"---\n# job {number + 1} of {len(planned)}: {' '.join(lines)}\n{document}", end="")


def _document(config: DictConfig, options: RunOptions) -> str:
    """What --cfg shows of one job."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from runner.request_error import first_line

    shown = config.hydra if options.cfg == "hydra" else config
    missing = object()
    part = OmegaConf.select(shown, options.package, default=missing) if options.package else shown
    if part is missing:
        raise RequestError(f"no '{options.package}' in the configuration (--package), give a key such as fabric")
    if not OmegaConf.is_config(part):
        return f"{part}\n"
    try:
        return OmegaConf.to_yaml(part, resolve=options.resolve)
    except OmegaConfBaseException as error:
        raise RequestError(f"{first_line(error)} ({error.full_key}), give a value") from error
