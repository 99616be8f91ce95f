"""Labels by people: outcome and quality of episodes, by one or two raters, in a CSV file.

    episode_id,rater,success,quality
    bags/a:pick_3,anna,yes,high
    bags/a:pick_3,ben,yes,medium

`episode_id` is the id alone where that is unique, else `source:episode_id`. `success` is yes or no (true/false, 1/0); `quality` of a success is high,
medium or low; either may be empty. Where raters differ, the outcome and the quality are open, and the episode counts for neither.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from monitor.assess.series import EpisodeSeries
from monitor.assess.statistics import Agreement, cohen_kappa
from monitor.errors import StepError

Quality = Literal["high", "medium", "low"]
QUALITIES: tuple[Quality, ...] = ("high", "medium", "low")
RANK: Mapping[Quality, int] = {"high": 1, "medium": 2, "low": 3}  # Valle et al.: a positive correlation means worse quality

_WORDS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_COLUMNS = ("episode_id", "rater", "success", "quality")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Label:
    """What one rater says of one episode; None where the rater says nothing."""

    success: bool | None
    quality: Quality | None


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels by episode name (`source:episode_id`), then by rater."""

    by_episode: Mapping[str, Mapping[str, Label]]

    @property
    def raters(self) -> list[str]:
        """Names, sorted."""
        return sorted({rater for labels in self.by_episode.values() for rater in labels})

    def outcomes(self) -> dict[str, bool]:
        """Episodes whose raters agree on success or failure."""
        return self._agreed(lambda label: label.success)

    def qualities(self) -> dict[str, Quality]:
        """Successes whose raters agree on the quality."""
        good = self.outcomes()
        agreed: dict[str, Quality] = self._agreed(lambda label: label.quality)
        return {name: quality for name, quality in agreed.items() if good.get(name) is not False}

    def agreement(self) -> Agreement | None:
        """Cohen's kappa over quality, with failures as a quality of their own. None unless there are exactly two raters."""
        if len(self.raters) != 2:
            return None
        first, second = self.raters
        return cohen_kappa(
            [_word(labels.get(first)) for labels in self.by_episode.values()], [_word(labels.get(second)) for labels in self.by_episode.values()]
        )

    def _agreed(self, part: Callable[[Label], _T | None]) -> dict[str, _T]:
        agreed: dict[str, _T] = {}
        for name, labels in self.by_episode.items():
            said = {found for label in labels.values() if (found := part(label)) is not None}
            if len(said) == 1:
                agreed[name] = said.pop()
        return agreed


def read_labels(path: Path, episodes: Sequence[EpisodeSeries]) -> Labels:
    """Read a label file for these episodes; labels of others are kept under the name they are given.

    Raises:
        StepError: names the file and line: a column is missing or unknown, a word is not allowed, an id is ambiguous, or a rater says it twice.
    """
    names: dict[str, list[str]] = {}
    for episode in episodes:
        for name in (episode.name, episode.episode_id):
            names.setdefault(name, []).append(episode.name)
    found: dict[str, dict[str, Label]] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            _check_header(path, rows.fieldnames)
            for row in rows:
                where = f"{path}, line {rows.line_num}"
                given = (row["episode_id"] or "").strip()
                matches = names.get(given, [given])
                if len(set(matches)) > 1:
                    raise StepError(f"{where}: episode {given!r} is in several recordings; write one of: {', '.join(sorted(set(matches)))}")
                rater = (row.get("rater") or "").strip() or "1"
                labels = found.setdefault(matches[0], {})
                if rater in labels:
                    raise StepError(f"{where}: rater {rater!r} labels {given!r} a second time; keep one line")
                labels[rater] = _label(row, where)
    except (OSError, UnicodeDecodeError) as error:
        raise StepError(f"{path}: cannot be read ({error}); give a CSV file in UTF-8") from error
    return Labels(found)


def _check_header(path: Path, header: Sequence[str] | None) -> None:
    columns = list(header or ())
    unknown = [column for column in columns if column not in _COLUMNS]
    if "episode_id" not in columns or unknown or not {"success", "quality"} & set(columns):
        raise StepError(f"{path}: columns {', '.join(columns) or 'none'}; expected episode_id, success and/or quality, and rater where there are two")


def _label(row: Mapping[str, str | None], where: str) -> Label:
    outcome, quality = ((row.get(name) or "").strip().lower() for name in ("success", "quality"))
    if outcome and outcome not in _WORDS:
        raise StepError(f"{where}: success {outcome!r}, expected yes or no")
    if quality and quality not in QUALITIES:
        raise StepError(f"{where}: quality {quality!r}, expected high, medium or low")
    success = _WORDS.get(outcome)
    if success is False and quality:
        raise StepError(f"{where}: a failure has no quality; leave it empty, or correct success")
    return Label(success, quality if quality else None)


def _word(label: Label | None) -> str | None:
    if label is None:
        return None
    return label.quality or ("failure" if label.success is False else None)
