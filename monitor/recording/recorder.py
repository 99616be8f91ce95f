"""Recorder: a bounded queue and one thread in front of a BagWriter, so that a slow or full disk never reaches the control loop."""

from __future__ import annotations

import io
import json
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from monitor.errors import BagError
from monitor.messages import EpisodeRecord, alarm_fields, episode_fields, report_fields, step_fields
from monitor.recording.facts import BagFacts
from monitor.recording.types import ALARM, COMPRESSED_IMAGE, EPISODE, IMAGE, REPORT, STEP, typestore
from monitor.recording.writer import BagWriter
from monitor.steps import AlarmState, PolicyStep, StepReport

STEP_TOPIC = "/vla_monitor/policy_step"
REPORT_TOPIC = "/vla_monitor/report"
ALARM_TOPIC = "/vla_monitor/alarm"
EPISODE_TOPIC = "/vla_monitor/episode"
CAMERA_TOPICS = "/vla_monitor/camera"

_TOPICS = {STEP_TOPIC: STEP, REPORT_TOPIC: REPORT, ALARM_TOPIC: ALARM, EPISODE_TOPIC: EPISODE}
_SMALL = 4096  # bytes, what a message without large arrays is taken to weigh in the queue
_SPACE_CHECK_S = 1.0
_LOOK_S = 0.05  # how often the thread looks for messages

State = Literal["idle", "recording", "closing", "stopped", "closed"]


class _Waiting(NamedTuple):
    topic: str
    kind: str
    fields: Callable[[], dict[str, Any]]
    stamp_ns: int
    frame: str
    log_time: int
    sequence: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderStatus:
    """A snapshot.

    Attributes:
        state: `idle` before open, `recording`, `closing`, `stopped` (the disk refused; see `reason`), `closed`.
        reason: why recording stopped, one sentence for an operator; empty otherwise.
        written: messages in the bag. dropped: messages refused because the queue was full or recording had stopped.
        failed: messages that could not be serialised (a text that is no Unicode, a picture that is no RGB image or has no time).
        waiting: messages in the queue. bytes_written: size of the file.
    """

    state: State
    reason: str
    folder: Path
    written: int
    dropped: int
    failed: int
    waiting: int
    bytes_written: int


class Recorder:
    """Records one bag in the background.

    Every `record_*` returns at once, never raises and never waits for the disk; it tells by False that the message was dropped. Records, and the
    pictures given to it, must not be changed afterwards. Thread-safe. Per topic, messages are numbered from 0, dropped ones included, so that a
    reader sees every loss.

    Args:
        folder: the bag's folder; must not exist.
        facts: what the bag says about itself; `facts.config.recording` sets queue, pictures, chunks and free space.
        writer: what to write with; default a BagWriter for `folder`.
    """

    def __init__(self, folder: Path, facts: BagFacts, *, writer: BagWriter | None = None) -> None:
        self.folder = folder
        self._config = facts.config.recording
        self._writer = writer or BagWriter(folder, facts)
        self._limit = self._config.queue_mib * 2**20
        self._queue: deque[_Waiting] = deque()
        self._lock = threading.Lock()  # guards the queue and the counts below; held for a few operations, never over I/O
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._sequences: dict[str, int] = {}
        self._waiting_bytes = 0
        self._busy = 0
        self._state: State = "idle"
        self._reason = ""
        self._written = self._dropped = self._failed = 0
        self._next_space_check = 0.0

    def open(self) -> None:
        """Create the bag and start recording. With too little free space nothing is created and the state is `stopped`.

        Raises:
            BagError: the folder exists or cannot be made.
        """
        if self._state != "idle":
            raise BagError(f"{self.folder}: recorder is {self._state}; make a new Recorder for a new bag")
        reason = self._short_of_space()
        if reason:
            self._state, self._reason = "stopped", reason
            return
        try:
            self._writer.open()
            for topic, kind in _TOPICS.items():
                self._writer.add_topic(topic, kind)
        except OSError as error:
            self._give_up(_refused(error))
            return
        self._state = "recording"
        self._thread.start()

    def record_step(self, step: PolicyStep, *, stamp_ns: int | None = None) -> bool:
        """Record a step; `stamp_ns` is the header stamp (node clock), by default now."""
        return self._offer(STEP_TOPIC, STEP, lambda: step_fields(step), _step_size(step), stamp_ns)

    def record_report(self, report: StepReport, held: bool = False, *, stamp_ns: int | None = None) -> bool:
        """Record a report. Call it after `record_step` of the same step."""
        return self._offer(REPORT_TOPIC, REPORT, lambda: report_fields(report, held), _SMALL, stamp_ns)

    def record_alarm(self, alarm: AlarmState, report: StepReport, *, stamp_ns: int | None = None) -> bool:
        """Record an alarm that changed its phase at the report's step. Call it after `record_report`."""
        return self._offer(ALARM_TOPIC, ALARM, lambda: alarm_fields(alarm, report), _SMALL, stamp_ns)

    def record_episode(self, episode: EpisodeRecord, *, stamp_ns: int | None = None) -> bool:
        """Record the beginning or end of an episode."""
        return self._offer(EPISODE_TOPIC, EPISODE, lambda: episode_fields(episode), _SMALL, stamp_ns)

    def record_image(self, camera: str, time: float, image: NDArray[np.uint8]) -> bool:
        """Record a picture, (H, W, 3) uint8 RGB, taken at `time` in s, which becomes its header stamp; as `recording.images` says."""
        kept = self._config.images
        if kept == "none":
            return False
        try:
            stem, stamp, size = f"{CAMERA_TOPICS}/{re.sub(r'[^A-Za-z0-9_]', '_', camera) or '_'}", round(time * 1e9), image.nbytes
        except (TypeError, ValueError, OverflowError, AttributeError):  # no name, no time, no array
            with self._lock:
                self._failed += 1
            return False
        if kept == "raw":
            return self._offer(f"{stem}/image", IMAGE, lambda: _raw_fields(image), size, stamp, camera)
        quality = self._config.jpeg_quality
        return self._offer(f"{stem}/compressed", COMPRESSED_IMAGE, lambda: _jpeg_fields(image, quality), size, stamp, camera)

    def status(self) -> RecorderStatus:
        """Counts and state at this moment."""
        with self._lock:
            return RecorderStatus(
                state=self._state,
                reason=self._reason,
                folder=self.folder,
                written=self._written,
                dropped=self._dropped,
                failed=self._failed,
                waiting=len(self._queue) + self._busy,
                bytes_written=self._writer.bytes_written,
            )

    def close(self, timeout: float = 5.0) -> RecorderStatus:
        """Write what waits, close the bag and say how it ended.

        If the disk takes longer than `timeout` s, the bag is left as it is (readable, without index), and the reason says so. Never raises.
        """
        with self._lock:
            if self._state == "recording":
                self._state = "closing"
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)
            if self._thread.is_alive():
                self._halt(f"{self.folder}: the disk did not take the last messages within {timeout:g} s; the bag has no index")
        with self._lock:
            if self._state in ("idle", "closing"):
                self._state = "closed"
        return self.status()

    def _offer(self, topic: str, kind: str, fields: Callable[[], dict[str, Any]], size: int, stamp_ns: int | None, frame: str = "") -> bool:
        now = time.time_ns()
        share = 2 if topic.startswith(CAMERA_TOPICS) else 1  # pictures leave room for the steps
        with self._lock:
            sequence = self._sequences.get(topic, 0)
            self._sequences[topic] = sequence + 1
            full = len(self._queue) * share >= self._config.queue or (self._waiting_bytes + size) * share > self._limit
            if full or self._state != "recording":
                self._dropped += 1
                return False
            self._queue.append(_Waiting(topic, kind, fields, now if stamp_ns is None else stamp_ns, frame, now, sequence, size))
            self._waiting_bytes += size
            pressing = len(self._queue) * 4 >= self._config.queue or self._waiting_bytes * 4 >= self._limit
        if pressing:  # else the thread finds it by itself: waking it now would make it and the caller contend for the interpreter
            self._wake.set()
        return True

    def _run(self) -> None:
        """Body of the thread: owns the writer from here on."""
        try:
            while True:
                self._wake.wait(min(_LOOK_S, self._config.flush_s))
                self._wake.clear()
                closing = self._state != "recording"
                while (waiting := self._take()) is not None:
                    self._write(waiting)
                    if self._out_of_space():
                        return
                if closing:
                    break
                self._writer.flush_if_due()
                if self._out_of_space():
                    return
            self._close_writer()
        except OSError as error:
            self._give_up(_refused(error))
        except Exception as error:  # a fault in here must be seen by an operator, not end a thread in silence
            self._give_up(f"recording failed ({type(error).__name__}: {error}); what was written is readable: report this, start a new bag")

    def _take(self) -> _Waiting | None:
        with self._lock:
            if not self._queue:
                return None
            waiting = self._queue.popleft()
            self._busy = 1
            self._waiting_bytes -= waiting.size
            return waiting

    def _write(self, waiting: _Waiting) -> None:
        try:
            data = _serialise(waiting)
        except Exception:  # whatever a caller managed to put into a record, the rest of the recording goes on
            with self._lock:
                self._failed += self._busy
                self._busy = 0
            return
        self._writer.add_topic(waiting.topic, waiting.kind)
        self._writer.write(waiting.topic, data, log_time=waiting.log_time, publish_time=max(0, waiting.stamp_ns), sequence=waiting.sequence)
        with self._lock:
            self._written += self._busy  # 0: close() has given this message up
            self._busy = 0

    def _out_of_space(self) -> bool:
        """Close the bag in good order while there is still room to do it."""
        now = time.monotonic()
        if now < self._next_space_check:
            return False
        self._next_space_check = now + _SPACE_CHECK_S
        reason = self._short_of_space()
        if not reason:
            return False
        self._halt(reason)
        self._close_writer()
        return True

    def _close_writer(self) -> None:
        """Close the bag; it tells how many messages there were, so that a reader sees a loss at the end too."""
        with self._lock:
            end = {"reason": self._reason, "offered": json.dumps(self._sequences)}
        self._writer.close(end)

    def _short_of_space(self) -> str:
        wanted = self._config.min_free_mib
        place = next((path for path in (self.folder, *self.folder.absolute().parents) if path.exists()), None)
        if place is None or wanted == 0:
            return ""
        free = shutil.disk_usage(place).free // 2**20
        if free >= wanted:
            return ""
        return f"{place}: {free} MiB free, less than recording.min_free_mib ({wanted}); recording is off: free space and start a new bag"

    def _give_up(self, reason: str) -> None:
        self._writer.abort()
        self._halt(f"{self.folder}: {reason}")
        with self._lock:  # what stood in the open chunk is gone
            lost = self._written - self._writer.messages_safe
            self._written -= lost
            self._dropped += lost

    def _halt(self, reason: str) -> None:
        """Refuse what comes and count what waited as dropped."""
        with self._lock:
            self._dropped += len(self._queue) + self._busy
            self._queue.clear()
            self._waiting_bytes = self._busy = 0
            self._state, self._reason = "stopped", reason


def new_bag_folder(parent: Path) -> Path:
    """A name for a new bag, made from local date and time: `vla_2026-11-30_07-45-00`, with `_2` and so on if that is taken."""
    stem = time.strftime("vla_%Y-%m-%d_%H-%M-%S")
    folder, number = parent / stem, 1
    while folder.exists():
        number += 1
        folder = parent / f"{stem}_{number}"
    return folder


def _refused(error: OSError) -> str:
    return f"cannot write ({error.strerror or error}); recording is off, what was written is readable: free space, start a new bag"


def _step_size(step: PolicyStep) -> int:
    size = _SMALL
    for array in (step.token_logits, step.token_probs, step.samples, step.chunk):
        if array is not None:
            size += array.nbytes
    return size


def _serialise(waiting: _Waiting) -> memoryview:
    store = typestore()
    types: Mapping[str, Any] = store.types
    seconds, nanoseconds = divmod(waiting.stamp_ns, 1_000_000_000)
    stamp = types["builtin_interfaces/msg/Time"](sec=seconds, nanosec=nanoseconds)
    header = types["std_msgs/msg/Header"](stamp=stamp, frame_id=waiting.frame)
    return store.serialize_cdr(types[waiting.kind](header=header, **waiting.fields()), waiting.kind)


def _checked(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise BagError(f"picture of {image.dtype} and shape {image.shape}; expected (H, W, 3) of uint8")
    return np.ascontiguousarray(image)


def _jpeg_fields(image: NDArray[np.uint8], quality: int) -> dict[str, Any]:
    buffer = io.BytesIO()
    Image.fromarray(_checked(image)).save(buffer, format="JPEG", quality=quality)
    return {"format": "jpeg", "data": np.frombuffer(buffer.getbuffer(), dtype=np.uint8)}


def _raw_fields(image: NDArray[np.uint8]) -> dict[str, Any]:
    image = _checked(image)
    height, width, _ = image.shape
    return {"height": height, "width": width, "encoding": "rgb8", "is_bigendian": 0, "step": 3 * width, "data": image.reshape(-1)}
