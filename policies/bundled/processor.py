"""Words and pictures of the bundled model: a word-level tokenizer made here, and a processor that loads with AutoProcessor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BatchFeature, PreTrainedTokenizerFast
from transformers.processing_utils import ProcessorMixin

SPECIALS = ("<pad>", "<image>", "<out>", "<unk>")
SENTENCE = "what action should the robot take to {instruction} ? state : {state} <out>"
"""OpenVLA's question, the robot's state as words (as pi0.5 has it), and the mark after which the action begins."""


def build_tokenizer(words: Sequence[str], state_names: Sequence[str], bins: int, action_bins: int) -> PreTrainedTokenizerFast:
    """Vocabulary: specials, words, `name` + number for each state bin, and at the end the action ids."""
    plain = dict.fromkeys(
        [*SPECIALS, *SENTENCE.replace("{instruction}", "").replace("{state}", "").replace("<out>", "").split(), *sorted(set(words))]
    )
    states = [f"{name}{i}" for name in state_names for i in range(bins)]
    actions = [f"<action{i}>" for i in range(action_bins)]
    vocabulary = {word: i for i, word in enumerate([*plain, *states, *actions])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", padding_side="left", model_max_length=256)  # type: ignore[no-untyped-call]
    made.add_special_tokens({"additional_special_tokens": ["<image>", "<out>"]})
    return made


class TinyVLAProcessor(ProcessorMixin):
    """Texts with their pictures to `input_ids`, `attention_mask` and `pixel_values`; shorter prompts are padded on the left."""

    attributes: ClassVar = ["tokenizer"]
    tokenizer_class = "PreTrainedTokenizerFast"

    def __init__(self, tokenizer: PreTrainedTokenizerFast, image_tokens: int = 72, image_size: int = 96, **kwargs: Any) -> None:
        self.image_tokens = image_tokens
        self.image_size = image_size
        super().__init__(tokenizer, **kwargs)  # type: ignore[no-untyped-call]

    def __call__(self, images: Any = None, text: str | Sequence[str] = "", return_tensors: str = "pt", **_: Any) -> BatchFeature:
        """Encode.

        Args:
            images: (cameras, S, S, 3) uint8, with a leading batch axis if `text` is a list.
            text: one prompt or B prompts.
            return_tensors: as transformers' processors take it; `pt`.
        """
        texts = [text] if isinstance(text, str) else list(text)
        pictures = np.asarray(images)
        if pictures.ndim == 4:
            pictures = pictures[None]
        if pictures.shape[2:] != (self.image_size, self.image_size, 3):
            raise ValueError(f"pictures have shape {pictures.shape[2:]}, the model wants ({self.image_size}, {self.image_size}, 3)")
        encoded = self.tokenizer(["<image>" * self.image_tokens + one for one in texts], padding=True, return_tensors=return_tensors)
        pixels = torch.from_numpy(np.ascontiguousarray(pictures)).permute(0, 1, 4, 2, 3).float() / 255
        return BatchFeature({"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"], "pixel_values": pixels})
