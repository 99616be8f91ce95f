"""Bags: write, read, replay (`monitor.recording.replay`)."""

from monitor.recording.facts import BagFacts
from monitor.recording.mcap_scan import Damage
from monitor.recording.reader import BagMessage, BagReader, ImageRecord
from monitor.recording.recorder import Recorder, RecorderStatus, new_bag_folder
from monitor.recording.writer import BagWriter

__all__ = ["BagFacts", "BagMessage", "BagReader", "BagWriter", "Damage", "ImageRecord", "Recorder", "RecorderStatus", "new_bag_folder"]
