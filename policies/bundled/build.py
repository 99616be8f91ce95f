"""Making the model, its tokenizer and its checkpoint folder; registration with transformers' Auto classes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor, LlamaConfig

from policies.base import STATE_NAMES
from policies.bundled.dataset import CAMERAS, IMAGE_SIZE
from policies.bundled.model import TinyVLAConfig, TinyVLAForActionPrediction
from policies.bundled.processor import SENTENCE, TinyVLAProcessor, build_tokenizer

NORM_KEY = "vla_monitor_sim"
ACTION_BINS = 256
STATE_BINS = 256
STATE_LOW, STATE_HIGH = (0.26, -0.32, 0.0, -1.0, 0.0), (0.74, 0.32, 0.42, 1.0, 1.0)
LEAST_RANGE = 0.01
"""A dimension whose 1 % and 99 % quantiles are nearer than this counts from -0.05 to 0.05: the demonstrations do not use it."""


def register() -> None:
    """Teach transformers' Auto classes the bundled model; harmless when repeated."""
    AutoConfig.register(TinyVLAConfig.model_type, TinyVLAConfig, exist_ok=True)
    AutoModelForImageTextToText.register(TinyVLAConfig, TinyVLAForActionPrediction, exist_ok=True)
    AutoProcessor.register(TinyVLAConfig, TinyVLAProcessor, exist_ok=True)  # type: ignore[no-untyped-call]


def norm_stats(actions: NDArray[np.float32]) -> dict[str, Any]:
    """OpenVLA's statistics of actions (N, 7); the gripper (last) is not scaled."""
    low, high = np.quantile(actions.astype(np.float64), (0.01, 0.99), axis=0)
    unused = high - low < LEAST_RANGE
    low, high = np.where(unused, -0.05, low), np.where(unused, 0.05, high)
    mask = [True] * 6 + [False]
    return {NORM_KEY: {"action": {"q01": low.round(6).tolist(), "q99": high.round(6).tolist(), "mask": mask}}}


def build(
    words: Sequence[str], statistics: Mapping[str, Any], *, width: int = 192, layers: int = 4
) -> tuple[TinyVLAForActionPrediction, TinyVLAProcessor]:
    """A fresh model and its processor for the words of the instructions."""
    tokenizer = build_tokenizer(words, STATE_NAMES, STATE_BINS, ACTION_BINS)
    ids = {word: tokenizer.get_vocab()[word] for word in ("<pad>", "<image>", "<out>", f"{STATE_NAMES[0]}0")}
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=width * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=width // 48,
        max_position_embeddings=128,
        pad_token_id=ids["<pad>"],
        bos_token_id=None,
        eos_token_id=None,
    )
    config = TinyVLAConfig(
        text_config=text,
        norm_stats=dict(statistics),
        n_action_bins=ACTION_BINS,
        cameras=CAMERAS,
        image_size=IMAGE_SIZE,
        image_token_id=ids["<image>"],
        prompt_end_id=ids["<out>"],
        state_start_id=ids[f"{STATE_NAMES[0]}0"],
        state={"names": list(STATE_NAMES), "low": list(STATE_LOW), "high": list(STATE_HIGH), "bins": STATE_BINS},
        prompt_template=SENTENCE,
        pad_token_id=ids["<pad>"],
    )
    model = TinyVLAForActionPrediction(config)
    model.start_listening()
    return model, TinyVLAProcessor(tokenizer, image_tokens=config.image_tokens, image_size=IMAGE_SIZE)


def save_checkpoint(folder: Path, model: TinyVLAForActionPrediction, processor: TinyVLAProcessor) -> None:
    """Write a checkpoint folder: weights as float16 (loaded as float32), config, tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    halved = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    save_file(halved, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["dtype"] = "float16"
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def load_checkpoint(folder: Path) -> tuple[TinyVLAForActionPrediction, TinyVLAProcessor]:
    """Read what `save_checkpoint` wrote, as float32."""
    register()
    model = TinyVLAForActionPrediction.from_pretrained(folder, dtype=torch.float32, local_files_only=True, use_safetensors=True)
    return model, TinyVLAProcessor.from_pretrained(folder, local_files_only=True)
