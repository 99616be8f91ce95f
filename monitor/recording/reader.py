"""BagReader: the records of a bag, streaming, from whatever is left of it."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import yaml
from numpy.typing import NDArray
from PIL import Image
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from monitor.errors import BagError
from monitor.messages import AlarmRecord, EpisodeRecord, ReportRecord, alarm_from, episode_from, report_from, step_from
from monitor.recording.facts import END_NAME, RECORD_NAME, BagFacts, facts_from
from monitor.recording.mcap_scan import Damage, McapFile, RawMessage
from monitor.recording.recorder import CAMERA_TOPICS
from monitor.recording.sqlite_scan import SqliteFile
from monitor.recording.types import ALARM, COMPRESSED_IMAGE, EPISODE, IMAGE, REPORT, STEP, definition, typestore
from monitor.steps import PolicyStep

_STORAGE: dict[str, type[McapFile] | type[SqliteFile]] = {".mcap": McapFile, ".db3": SqliteFile}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecord:
    """A recorded picture. `time` in s (its header stamp, to 1 ns); `encoding` as the message has it: `jpeg`, `png`, or `rgb8`, `bgr8`, `mono8`."""

    camera: str
    time: float
    encoding: str
    data: NDArray[np.uint8]
    height: int = 0
    width: int = 0

    def pixels(self) -> NDArray[np.uint8]:
        """Decode to (H, W, 3) uint8 RGB. Raises BagError for an encoding that is not known or data that do not fit."""
        channels = {"rgb8": 3, "bgr8": 3, "mono8": 1}.get(self.encoding)
        try:
            if self.height == 0:
                with Image.open(io.BytesIO(self.data.tobytes())) as picture:
                    return np.asarray(picture.convert("RGB"))
            if channels is None:
                raise BagError(f"picture of camera {self.camera!r} at {self.time} s: encoding {self.encoding!r}, expected rgb8, bgr8 or mono8")
            pixels = self.data.reshape(self.height, self.width, channels)
        except (OSError, ValueError) as error:
            raise BagError(f"picture of camera {self.camera!r} at {self.time} s: cannot be decoded ({error}); leave it out") from error
        if channels == 1:
            return np.repeat(pixels, 3, axis=2)
        return pixels if self.encoding == "rgb8" else pixels[:, :, ::-1]


Record = PolicyStep | ReportRecord | AlarmRecord | EpisodeRecord | ImageRecord


class BagMessage(NamedTuple):
    """A record and where it stood. Times in ns since 1970: written, and published (header stamp, when recorded by us)."""

    topic: str
    log_time: int
    publish_time: int
    sequence: int
    record: Record


_READERS: dict[str, Callable[[Any, str], Record]] = {
    STEP: lambda message, topic: step_from(message),
    REPORT: lambda message, topic: report_from(message),
    ALARM: lambda message, topic: alarm_from(message),
    EPISODE: lambda message, topic: episode_from(message),
    COMPRESSED_IMAGE: lambda message, topic: ImageRecord(
        camera=_camera(message, topic), time=_stamp(message), encoding=str(message.format), data=message.data
    ),
    IMAGE: lambda message, topic: ImageRecord(
        camera=_camera(message, topic),
        time=_stamp(message),
        encoding=str(message.encoding),
        data=message.data,
        height=int(message.height),
        width=int(message.width),
    ),
}
_TYPES: dict[type[Any], tuple[str, ...]] = {
    PolicyStep: (STEP,),
    ReportRecord: (REPORT,),
    AlarmRecord: (ALARM,),
    EpisodeRecord: (EPISODE,),
    ImageRecord: (COMPRESSED_IMAGE, IMAGE),
}


class BagReader:
    """Reads a bag folder, with or without metadata.yaml, or a single .mcap or .db3 file. Writes nothing.

    Messages are recognised by type, whatever their topic; others are passed over. Each of the iterators below reads the bag anew, in the order
    of the file; `damage`, `notices` and `messages_read` tell of the pass that was finished last.

    Attributes:
        files: the files that are read, in order.
        notices: remarks that change no number ("metadata rebuilt in memory").
        damage: what is lost; empty for a whole bag.
        messages_read: number of records that were yielded. last_time: log time in ns of the last.

    Raises:
        BagError: there is nothing at `path` that can be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages_read = 0
        self.last_time: int | None = None
        self._custom: dict[str, str] = {}
        self._opening_damage: list[Damage] = []
        self._opening_notices: list[str] = []
        self._decoders: dict[tuple[str, str], Typestore | None] = {}
        self._storages = self._open(self._find())
        self.files = tuple(storage.path for storage in self._storages)
        self.damage = list(self._opening_damage)
        self.notices = list(self._opening_notices)

    @property
    def cut(self) -> bool:
        """True when the end of the recording is not there: an open episode is unfinished, not failed."""
        return any(damage.kind == "cut" for damage in self.damage)

    @property
    def metadata(self) -> dict[str, str]:
        """What the bag says about itself, as text (config, policy, versions, calibration: JSON); empty for other people's bags."""
        found = {key.removeprefix(f"{RECORD_NAME}."): value for key, value in self._custom.items() if key.startswith(f"{RECORD_NAME}.")}
        for storage in self._storages:
            found.update(storage.metadata.get(RECORD_NAME, {}))
        return found

    @property
    def ended_because(self) -> str:
        """Why recording ended by itself; empty if it was closed, or nobody knows. Known after a pass."""
        return self._storages[-1].metadata.get(END_NAME, {}).get("reason", "")

    @property
    def offered(self) -> dict[str, int]:
        """Messages that there were to record, by topic, lost ones included; empty where the bag does not tell. Known after a pass."""
        try:
            counts = json.loads(self._storages[-1].metadata.get(END_NAME, {}).get("offered", "{}"))
            return {str(topic): int(count) for topic, count in counts.items()}
        except (ValueError, TypeError, AttributeError):
            return {}

    def facts(self) -> BagFacts:
        """Configuration, policy and calibration of the recording. Raises BagError or ConfigError as `facts_from`."""
        return facts_from(self.metadata, str(self.path))

    def messages(self, kinds: Collection[type[Record]] = ()) -> Iterator[BagMessage]:
        """Yield the records of the given classes (default: all), with topic and times."""
        names = {name for kind in (kinds or _TYPES) for name in _TYPES[kind]}
        damage, notices = list(self._opening_damage), list(self._opening_notices)
        unreadable: Counter[str] = Counter()
        reasons: dict[str, str] = {}
        unstamped: Counter[str] = Counter()
        self.messages_read, self.last_time = 0, None
        for storage in self._storages:
            for raw in storage.messages(names.__contains__):
                try:
                    record = self._decode(raw)
                except Exception as error:  # foreign bytes: whatever they do to the decoder, the next message may be sound
                    unreadable[raw.topic] += 1
                    reasons.setdefault(raw.topic, str(error))
                    continue
                if isinstance(record, ImageRecord) and record.time == 0.0 and not raw.topic.startswith(CAMERA_TOPICS):
                    unstamped[raw.topic] += 1
                    record = replace(record, time=raw.log_time * 1e-9)
                self.messages_read += 1
                self.last_time = raw.log_time
                yield BagMessage(raw.topic, raw.log_time, raw.publish_time, raw.sequence, record)
            damage += storage.damage
        notices += [f"{self.path}: topic {topic}: {count} messages cannot be decoded ({reasons[topic]})" for topic, count in unreadable.items()]
        notices += [f"{self.path}: topic {topic}: {count} pictures have no stamp; log time is used" for topic, count in unstamped.items()]
        self.damage, self.notices = damage, notices

    def steps(self) -> Iterator[PolicyStep]:
        """Yield the recorded steps."""
        return cast(Iterator[PolicyStep], self._records(PolicyStep))

    def reports(self) -> Iterator[ReportRecord]:
        """Yield the recorded reports."""
        return cast(Iterator[ReportRecord], self._records(ReportRecord))

    def alarms(self) -> Iterator[AlarmRecord]:
        """Yield the alarms' changes of phase."""
        return cast(Iterator[AlarmRecord], self._records(AlarmRecord))

    def episodes(self) -> Iterator[EpisodeRecord]:
        """Yield beginnings and ends of episodes."""
        return cast(Iterator[EpisodeRecord], self._records(EpisodeRecord))

    def images(self) -> Iterator[ImageRecord]:
        """Yield the pictures, still encoded."""
        return cast(Iterator[ImageRecord], self._records(ImageRecord))

    def _records(self, kind: type[Record]) -> Iterator[Record]:
        return (message.record for message in self.messages((kind,)))

    def _find(self) -> list[Path]:
        if not self.path.exists():
            raise BagError(f"{self.path}: does not exist; give a bag folder or a single .mcap or .db3 file")
        if not self.path.is_dir():
            if self.path.suffix not in _STORAGE:
                raise BagError(f"{self.path}: files named {self.path.suffix or 'without suffix'} cannot be read; give a folder, .mcap or .db3")
            self._opening_notices.append(f"{self.path}: a single file; metadata rebuilt in memory")
            return [self.path]
        present = sorted((file for file in self.path.iterdir() if file.suffix in _STORAGE and file.is_file()), key=_split_number)
        listed = self._listed()
        if listed is None:
            self._opening_notices.append(f"{self.path}: metadata.yaml is absent or cannot be read; metadata rebuilt in memory")
            listed = present
        for file in listed:
            if not file.is_file():
                text = f"{file}: is listed in metadata.yaml but is not there; the other files are read"
                self._opening_damage.append(Damage(kind="missing", file=file, text=text))
        found = [file for file in listed if file.is_file()] or present
        if not found:
            raise BagError(f"{self.path}: holds no .mcap or .db3 file; give the folder of a recording")
        if any(file.suffix not in _STORAGE for file in found):
            raise BagError(f"{self.path}: holds compressed files ({found[0].name}); unpack them, or convert the bag with `ros2 bag convert`")
        return found

    def _listed(self) -> list[Path] | None:
        """Files named in metadata.yaml, in its order; None if there is no use in it."""
        try:
            tree = yaml.safe_load((self.path / "metadata.yaml").read_text(encoding="utf-8"))
            information = tree["rosbag2_bagfile_information"]
            files = [self.path / Path(str(name)).name for name in information["relative_file_paths"]]
            mode = str(information.get("compression_mode") or "").lower()
            custom = {str(key): str(value) for key, value in (information.get("custom_data") or {}).items()}
        except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError, AttributeError):
            return None
        if mode == "message":
            raise BagError(f"{self.path}: its messages are compressed one by one, which is not supported; convert the bag with `ros2 bag convert`")
        self._custom = custom
        return files or None

    def _open(self, files: list[Path]) -> list[McapFile | SqliteFile]:
        storages: list[McapFile | SqliteFile] = []
        refused: list[BagError] = []
        for file in files:
            try:
                storages.append(_STORAGE[file.suffix](file))
            except BagError as error:
                refused.append(error)
                self._opening_damage.append(Damage(kind="damaged", file=file, text=str(error)))
        if not storages:
            raise refused[0]
        return storages

    def _decode(self, raw: RawMessage) -> Record:
        key = (raw.type_name, raw.definition)
        if key not in self._decoders:
            self._decoders[key] = _typestore_for(raw)
        store = self._decoders[key]
        if store is None:
            raise BagError(f"definition of {raw.type_name} in the bag cannot be parsed")
        return _READERS[raw.type_name](store.deserialize_cdr(raw.data, raw.type_name), raw.topic)


def _typestore_for(raw: RawMessage) -> Typestore | None:
    """Types as the bag itself declares them, so that older and newer definitions of ours are read alike."""
    if not raw.definition or raw.definition == definition(raw.type_name).text:
        return typestore()
    store = get_typestore(Stores.EMPTY)
    try:
        if raw.encoding == "ros2msg":
            store.register(get_types_from_msg(raw.definition, raw.type_name))
        else:
            types = {}
            for part in filter(None, raw.definition.split("=" * 80 + "\n")):
                types.update(get_types_from_idl(part.partition("\n")[2] if part.startswith("IDL: ") else part))
            store.register(types)
    except Exception:  # the parser's errors have no common base
        return None
    return store


def _split_number(file: Path) -> tuple[str, int, str]:
    """Sort key of a split bag: `bag_9` before `bag_10`."""
    found = re.fullmatch(r"(.*?)_?(\d+)", file.stem)
    return (found[1], int(found[2]), file.suffix) if found else (file.stem, -1, file.suffix)


def _camera(message: Any, topic: str) -> str:
    """Name of the camera: ours stands in the header; in other bags the topic is the name."""
    return str(message.header.frame_id) if topic.startswith(CAMERA_TOPICS) else topic


def _stamp(message: Any) -> float:
    return float(message.header.stamp.sec) + float(message.header.stamp.nanosec) * 1e-9
