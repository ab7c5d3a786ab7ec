"""Configuration files as people write them: what is wrong in one is said with its name, its line and its key."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cases.record.request import as_today
from runner.request.overrides import check_value
from runner.request.schema import SECTIONS
from runner.request_error import RequestError, first_line

PACKAGE = "# @package _global_"
"""The first line of an experiment: its keys are those of the whole configuration, not of a section "exp"."""


class ConfigurationFiles(FileConfigSource):
    """Hydra's source of YAML files, with sizes and check in all forms of the command line, and errors in one line."""

    def load_config(self, config_path: str) -> ConfigResult:
        """A file's configuration. RequestError for what can't be read as one."""
        name = f"{config_path.removesuffix('.yaml')}.yaml"
        try:
            result = super().load_config(config_path)
            content = (Path(self.path) / name).read_bytes()
        except yaml.YAMLError as error:
            raise RequestError(_syntax(name, error)) from error
        except UnicodeDecodeError as error:
            raise RequestError(f"{name} is not UTF-8 text ({error.reason}), write it in UTF-8") from error
        except OSError as error:
            raise RequestError(f"can't read {name}: {error.strerror} ({name}), name a file that can be read") from error
        except (ValueError, OmegaConfBaseException) as error:
            raise RequestError(f"can't read {name}: {first_line(error)} ({name}), write it as key: value") from error
        if content.startswith(codecs.BOM_UTF8):  # it hides the first line
            raise RequestError(f"{name} begins with a byte order mark (BOM), save it as UTF-8 without one")
        if not isinstance(result.config, DictConfig):
            raise RequestError(f"{name} is a list, write it as key: value")
        if name.startswith("exp/") and result.header.get("package") != "_global_":
            raise RequestError(f"{name} lacks '{PACKAGE}' on its first line (exp), add it")
        if name == "config.yaml":  # that of an older commit, from which the audit composes again, may have them
            today: Any = OmegaConf.to_container(result.config, resolve=False)
            result.config = OmegaConf.create(as_today(today))
        _write_out(result.config, "sizes", "list")
        _write_out(result.config, "check", "results")
        _check_keys(result.config, "" if name.startswith("exp/") or "/" not in name else Path(name).parts[0], name)
        if name.startswith("exp/"):
            self._write_out_places(result.config, name)
        return result

    def _write_out_places(self, config: DictConfig, name: str) -> None:
        """Relative paths of brought kernels and functions begin at the folder of the file that names them.

        In the project's own conf/ they become paths from the project's root, so that records are the same in every
        checkout; in another folder of configurations, absolute ones.
        """
        folder = (Path(self.path) / name).parent
        near = Path("conf", name).parent if self.provider == "main" else folder.resolve()
        given = config._get_node("algorithms") if "algorithms" in config else None
        if isinstance(given, ListConfig) and not given._is_none() and not given._is_missing():
            listed = OmegaConf.to_container(given, resolve=False)
            assert isinstance(listed, list)
            config["algorithms"] = [_from(near, folder, value) for value in listed]
        section = config._get_node("custom") if "custom" in config else None
        if isinstance(section, DictConfig) and not section._is_none() and not section._is_missing():
            values: Any = OmegaConf.to_container(section, resolve=False)
            then = values.get("then")
            for one in (values, *(then if isinstance(then, list) else ())):
                for key in ("kernel", "reference") if isinstance(one, dict) else ():
                    if key in one:
                        one[key] = _from(near, folder, one[key])
            buffers = values.get("buffers")
            for buffer in buffers.values() if isinstance(buffers, dict) else ():
                if isinstance(buffer, dict) and "fill" in buffer:
                    buffer["fill"] = _from(near, folder, buffer["fill"])
            config["custom"] = values


def read_with_care(config_dir: Path | None = None) -> None:
    """Have the Hydra that was just initialized read its files through ConfigurationFiles, and search config_dir, too.

    config_dir comes after conf/ and before the schema, as with Hydra's own --config-dir.
    """
    loader = GlobalHydra.instance().config_loader()
    if config_dir is not None:
        loader.get_search_path().prepend("command-line", f"file://{config_dir.resolve()}", SearchPathQuery("schema"))
    repository = loader.repository  # type: ignore[attr-defined]
    if config_dir is not None:
        repository.initialize_sources(loader.get_search_path())
    # By scheme: Hydra's plugin loader has imported its own copy of the class.
    repository.sources[:] = [
        ConfigurationFiles(source.provider, source.path) if source.scheme() == "file" else source
        for source in repository.sources
    ]


def _check_keys(config: DictConfig, section: str, name: str) -> None:
    """RequestError for a key or a value that the table of keys does not have. section: where the file's keys lie."""
    for given, value in OmegaConf.to_container(config, resolve=False).items():  # type: ignore[union-attr]
        key = f"{section}.{given!s}" if section else str(given)
        if key == "hydra" and not isinstance(value, dict):
            raise RequestError(f"hydra is a section (hydra in {name}), give it keys: {{mode: MULTIRUN, sweeper: ..}}")
        if key not in ("defaults", "hydra", "custom") and section in SECTIONS:
            check_value(key, value, f" in {name}")


def _write_out(config: DictConfig, section: str, key: str) -> None:
    """sizes: [1K, 4K] and sizes: 4K are short for sizes: {list: ...}, check: false for check: {results: false}, as on
    the command line."""
    node = config._get_node(section) if section in config else None
    value = None if node is None or OmegaConf.is_interpolation(config, section) else config[section]
    if isinstance(value, (ListConfig, str, int)) and isinstance(value, bool) == (section == "check"):
        config[section] = {key: value}


def _from(near: Path, folder: Path, value: object) -> object:
    """A place whose relative path begins at folder, as one that begins at near; anything else as it is."""
    if not isinstance(value, str):
        return value
    where, colon, name = value.rpartition(":")
    is_file = where.endswith((".py", ".ptx", ".yaml")) or "/" in where
    if not colon or "${" in value or where.startswith(("/", "~")) or not is_file:
        return value
    if not (folder / where).is_file():
        return value
    is_same = os.path.exists(plain := os.path.normpath(folder / where)) and os.path.samefile(plain, folder / where)
    return f"{os.path.normpath(near / where) if is_same else near / where}:{name}"


_RIGHT = {
    "duplicate key": "give each key once",
    "'\\t'": "indent with spaces",
    "<stream end>": "close what is open",
    "',' or": "close what is open",
}
"""What is right, by what YAML says is wrong."""


def _syntax(name: str, error: yaml.YAMLError) -> str:
    """ "exp/mine.yaml:2: expected ',' or ']', but got ..": where YAML noticed, and what."""
    problem = str(getattr(error, "problem", None) or first_line(error))
    mark = getattr(error, "problem_mark", None)
    if "<stream end>" in problem:
        # Something was opened and not closed: people have to look at its beginning, not at the end of the file.
        mark = getattr(error, "context_mark", None) or mark
    place = f"{name}:{mark.line + 1}" if mark is not None else name
    right = next((right for said, right in _RIGHT.items() if said in problem), "write it as key: value")
    return f"{place}: {problem.removeprefix('but ')} (YAML), {right}"
