"""Any transformers image-text-to-text model that emits one action token for each action dimension: OpenVLA and the bundled model.

The checkpoint folder follows OpenVLA: `config.json` holds `norm_stats` ({key: {"action": {"q01", "q99", "mask"}}}) and `n_action_bins`; the last
ids of the vocabulary are the actions. Optional entries: `prompt_template` (with {instruction} and {state}), `cameras`, `image_size`, and `state`
({"names", "low", "high", "bins"}: the robot's state as words of the prompt).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import transformers
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from transformers import AutoConfig, AutoProcessor, GenerationConfig

from monitor.errors import PolicyError
from monitor.policy import Observation, PolicySpec
from monitor.steps import PolicyStep
from policies.base import bin_index, tool_state

Float = NDArray[np.float64]

OPENVLA_PROMPT = "In: What action should the robot take to {instruction}?\nOut:"
OPENVLA_SPACE_ID = 29871
"""The lone-space token that OpenVLA was trained to see after "Out:"; its tokenizer leaves it out."""

ACTION_NAMES = ("dx", "dy", "dz", "drx", "dry", "drz", "gripper")


@dataclass(frozen=True, slots=True)
class ActionCoder:
    """OpenVLA's arithmetic between token ids and actions.

    Attributes:
        vocab_size: ids of the tokenizer; the head may be wider (padding rows).
        bins: ids that stand for actions; they decode to `bins - 1` different values.
        low, high: (D,) the 1 % and 99 % quantiles of the training actions.
        mask: (D,) True where low and high apply; elsewhere the action is the bin's centre itself.
    """

    vocab_size: int
    bins: int
    low: Float
    high: Float
    mask: NDArray[np.bool_]

    @classmethod
    def from_config(cls, config: Any, norm_key: str | None, *, place: str = "config.json") -> ActionCoder:
        """From a checkpoint's config.

        Raises:
            PolicyError: `norm_stats` is missing, incomplete, or has several groups and none is named.
        """
        action = _action_stats(config, norm_key, place)
        low, high = np.asarray(action["q01"], np.float64), np.asarray(action["q99"], np.float64)
        mask = np.asarray(action.get("mask", np.ones(len(low), bool)), bool)
        if not low.shape == high.shape == mask.shape or low.ndim != 1:
            raise PolicyError(
                f"{place}: q01, q99 and mask of the action statistics have shapes {low.shape}, {high.shape}, {mask.shape}; they must be equal, (D,)"
            )
        text = config.get_text_config()
        return cls(text.vocab_size - int(getattr(config, "pad_to_multiple_of", 0) or 0), int(getattr(config, "n_action_bins", 256)), low, high, mask)

    @property
    def support(self) -> tuple[int, int]:
        """Half-open range of the action ids."""
        return self.vocab_size - self.bins, self.vocab_size

    def decode(self, ids: ArrayLike) -> Float:
        """Ids (..., D) to actions (..., D). An id outside the support decodes as the nearest bin, as OpenVLA does; `leak` tells of it."""
        index = np.clip(self.vocab_size - np.asarray(ids, np.int64) - 1, 0, self.bins - 2)
        edges = np.linspace(-1.0, 1.0, self.bins)
        centre = ((edges[:-1] + edges[1:]) / 2)[index]
        return np.where(self.mask, 0.5 * (centre + 1) * (self.high - self.low + 1e-8) + self.low, centre)

    def encode(self, actions: ArrayLike) -> NDArray[np.int64]:
        """Actions (..., D) to ids (..., D)."""
        given = np.asarray(actions, np.float64)
        scaled = np.where(self.mask, 2 * (given - self.low) / (self.high - self.low + 1e-8) - 1, given)
        index: NDArray[np.int64] = np.digitize(np.clip(scaled, -1, 1), np.linspace(-1.0, 1.0, self.bins)).astype(np.int64)
        return self.vocab_size - index


def _action_stats(config: Any, norm_key: str | None, place: str) -> Mapping[str, Any]:
    stats = getattr(config, "norm_stats", None)
    if not stats:
        raise PolicyError(
            f"{place} has no norm_stats, so tokens cannot be turned into actions; copy the statistics of the fine-tuning data into it: "
            '{"norm_stats": {"my_data": {"action": {"q01": [...], "q99": [...], "mask": [...]}}}} (OpenVLA writes them to dataset_statistics.json)'
        )
    if norm_key is None and len(stats) > 1:
        raise PolicyError(f"{place} has statistics of {len(stats)} data sets; name one with norm_key: {', '.join(sorted(stats))}")
    key = norm_key if norm_key is not None else next(iter(stats))
    if key not in stats:
        raise PolicyError(f"{place} has no statistics {key!r}; norm_key may be: {', '.join(sorted(stats))}")
    action: Mapping[str, Any] = stats[key].get("action", {})
    if "q01" not in action or "q99" not in action:
        raise PolicyError(f"{place}: norm_stats of {key!r} lack action q01 or q99")
    return action


class HFTokenPolicy:
    """A checkpoint folder as a Policy. Greedy decoding, raw logits of each action token.

    Args:
        checkpoint: folder with config.json, safetensors weights, tokenizer and processor. Nothing is downloaded.
        norm_key: which group of `norm_stats`; may be left out if there is one.
        cameras: names of the observation's pictures, in the model's order; default: the config's `cameras`, else ("front",).
        device, dtype: where and how to compute.
        threads: torch threads; 1 is best for small models on the control path, None leaves torch's setting.
        prompt: template instead of the checkpoint's.
        binary_gripper: send 0 or 1 as gripper action, split at 0.5; `raw_action` keeps what the model said.
        control_hz: rate for which the policy was made.
        trust_remote_code: run Python code from the folder.
        check_images: refuse a model whose logits do not depend on the pictures (OpenVLA's code does so, silently, under transformers 4.57).

    Raises:
        PolicyError: the folder cannot be loaded or lacks something.
    """

    def __init__(
        self,
        checkpoint: str | Path,
        *,
        norm_key: str | None = None,
        cameras: Sequence[str] | None = None,
        device: str = "cpu",
        dtype: Literal["float32", "bfloat16", "float16"] = "float32",
        threads: int | None = None,
        prompt: str | None = None,
        binary_gripper: bool = False,
        control_hz: float = 10.0,
        trust_remote_code: bool = False,
        check_images: bool = True,
    ) -> None:
        folder = Path(checkpoint)
        if threads is not None:
            torch.set_num_threads(threads)
        self._config, self._processor, self._model = _load(folder, device, getattr(torch, dtype), trust_remote_code)
        self._place = str(folder / "config.json")
        self._coder = ActionCoder.from_config(self._config, norm_key, place=self._place)
        self._device, self._binary = device, binary_gripper
        self._prompt = prompt or getattr(self._config, "prompt_template", None) or OPENVLA_PROMPT
        self._state: Mapping[str, Any] = getattr(self._config, "state", None) or {"names": []}
        self._size: int | None = getattr(self._config, "image_size", None)
        self._instruction = ""
        self._inferences = 0
        self._spec = self._make_spec(folder.name, cameras, control_hz)
        length = self._spec.action_dim
        self._generation = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=length, min_new_tokens=length, do_sample=False, output_logits=True, return_dict_in_generate=True, pad_token_id=0
        )
        if check_images:
            self._check_images()

    @property
    def spec(self) -> PolicySpec:
        """Facts about the policy."""
        return self._spec

    @property
    def coder(self) -> ActionCoder:
        """The arithmetic between ids and actions."""
        return self._coder

    def reset(self, instruction: str) -> None:
        """Take a new instruction; the policy has no memory of steps."""
        self._instruction = instruction
        self._inferences = 0

    def act(self, observation: Observation) -> PolicyStep:
        """One inference.

        Raises:
            PolicyError: a picture or a part of the state is missing or has the wrong shape.
        """
        return self.act_batch([observation])[0]

    def act_batch(self, observations: Sequence[Observation]) -> list[PolicyStep]:
        """One inference for several observations, with the tokens that `act` gives for each. `inference_seconds` is the whole batch's time."""
        begun = time.perf_counter()
        batch = len(observations)
        pictures = [self._pictures(observation) for observation in observations]
        prompts = [self._worded(observation) for observation in observations]
        ids, logits = self._generate(pictures[0] if batch == 1 else pictures, prompts[0] if batch == 1 else prompts)
        first, last = self._coder.support
        raw = self._coder.decode(ids)
        action = raw.copy()
        if self._binary:
            action[:, -1] = raw[:, -1] >= 0.5
        whole = torch.logsumexp(logits, -1).numpy()
        support = logits[..., first:last].numpy()
        seconds = time.perf_counter() - begun
        self._inferences += 1
        return [
            PolicyStep(
                time=seen.time,
                episode_id=seen.episode_id,
                step=seen.step,
                instruction=self._asked(seen),
                action=action[i],
                raw_action=raw[i],
                inference_id=self._inferences - 1,
                token_logits=support[i],
                token_logsumexp=whole[i],
                token_ids=ids[i],
                tcp_position=seen.tcp_position,
                tcp_quaternion=seen.tcp_quaternion,
                joints=seen.joints,
                gripper=seen.gripper,
                goal=seen.goal,
                image_times=seen.image_times,
                inference_seconds=seconds,
            )
            for i, seen in enumerate(observations)
        ]

    def _generate(self, pictures: Any, prompts: str | list[str]) -> tuple[NDArray[np.int64], torch.Tensor]:
        """Token ids (B, D) and float32 logits (B, D, V) on the CPU."""
        inputs = dict(self._processor(images=pictures, text=prompts, return_tensors="pt"))
        if self._config.model_type == "openvla":
            inputs = _openvla_inputs(inputs)
        inputs = {name: value.to(self._device, self._model.dtype if value.is_floating_point() else None) for name, value in inputs.items()}
        with torch.inference_mode():
            out = self._model.generate(**inputs, generation_config=self._generation)
        count = self._spec.action_dim
        return out.sequences[:, -count:].cpu().numpy(), torch.stack(out.logits, 1).float().cpu()

    def _asked(self, observation: Observation) -> str:
        return observation.instruction or self._instruction

    def _worded(self, observation: Observation) -> str:
        sentence = self._asked(observation)
        if not sentence:
            raise PolicyError(
                f"observation {observation.episode_id!r} step {observation.step} has no instruction; call reset(instruction) or fill it in"
            )
        names = self._state["names"]
        words = ""
        if names:
            values = zip(names, tool_state(observation, names), self._state["low"], self._state["high"], strict=True)
            words = " ".join(f"{name}{bin_index(value, low, high, self._state['bins'])}" for name, value, low, high in values)
        return self._prompt.format(instruction=sentence.lower(), state=words)

    def _pictures(self, observation: Observation) -> list[NDArray[np.uint8]]:
        found = []
        for name in self._spec.cameras:
            if name not in observation.images:
                have = ", ".join(observation.images) or "none"
                place = f"observation {observation.episode_id!r} step {observation.step}"
                raise PolicyError(f"{place} has no picture {name!r} (it has: {have}); map your camera to that name")
            picture = np.asarray(observation.images[name])
            if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
                raise PolicyError(f"picture {name!r} has shape {picture.shape} and type {picture.dtype}, expected (height, width, 3) uint8 RGB")
            if self._size is not None and picture.shape != (self._size, self._size, 3):
                raise PolicyError(
                    f"picture {name!r} has shape {picture.shape}, this checkpoint wants ({self._size}, {self._size}, 3): resize it before"
                )
            found.append(picture)
        return found

    def _make_spec(self, name: str, cameras: Sequence[str] | None, control_hz: float) -> PolicySpec:
        coder = self._coder
        low, high = (np.where(coder.mask, limit, edge) for limit, edge in ((coder.low, -1.0), (coder.high, 1.0)))
        usual = len(low) == len(ACTION_NAMES)
        dimensions: dict[str, Any] = {} if usual else {"action_names": tuple(f"a{i}" for i in range(len(low))), "groups": {}}
        return PolicySpec(
            name=getattr(self._config, "policy_name", None) or name,
            version=str(getattr(self._config, "policy_version", None) or "0"),
            action_low=tuple(low.tolist()),
            action_high=tuple(high.tolist()),
            token_kind="per_dimension",
            token_support=coder.support,
            vocab_size=int(self._config.get_text_config().vocab_size),
            control_hz=control_hz,
            cameras=tuple(cameras if cameras is not None else getattr(self._config, "cameras", None) or ("front",)),
            **dimensions,
        )

    def _check_images(self) -> None:
        size = self._size or 224
        state = Observation(
            time=0,
            episode_id="check",
            step=0,
            instruction="pick up the object",
            tcp_position=np.zeros(3),
            tcp_quaternion=np.array([0.0, 1, 0, 0]),
            gripper=1.0,
        )
        noise = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
        prompt = self._worded(state)
        seen = [self._generate([picture] * len(self._spec.cameras), prompt)[1] for picture in (np.zeros_like(noise), noise)]
        if torch.equal(*seen):
            version = transformers.__version__
            raise PolicyError(
                f"{self._place}: a black and a noisy picture give identical logits: under transformers {version} this model does not see (known "
                "for OpenVLA's code under 4.57; 4.40.1 works). check_images=False skips this test"
            )


def _load(folder: Path, device: str, dtype: torch.dtype, trust: bool) -> tuple[Any, Any, Any]:
    """Config, processor and model of a folder, offline."""
    if not (folder / "config.json").is_file():
        raise PolicyError(
            f"{folder} is no checkpoint folder: it has no config.json; give the folder of a model you downloaded (nothing is fetched here)"
        )
    if not list(folder.glob("*.safetensors")):
        raise PolicyError(
            f"{folder} has no *.safetensors weights; other formats can run code when loaded and are refused: convert with save_pretrained"
        )
    options = {"local_files_only": True, "trust_remote_code": trust}
    if not sys.stderr.isatty():
        transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # a bar in a log is noise
    try:
        config = AutoConfig.from_pretrained(folder, **options)
        processor = AutoProcessor.from_pretrained(folder, **options)  # type: ignore[no-untyped-call]
        model, report = _auto_class(config).from_pretrained(folder, dtype=dtype, use_safetensors=True, output_loading_info=True, **options)
    except (OSError, ValueError, KeyError, ImportError, AttributeError, RuntimeError, SafetensorError) as error:
        hint = "" if trust else "; if the folder brings its own code that you trust, set trust_remote_code"
        raise PolicyError(f"{folder} does not load under transformers {transformers.__version__}: {error}{hint}") from error
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise PolicyError(f"{folder}: the weights lack {len(missing)} tensors of the model ({', '.join(missing[:3])} ...); the files are incomplete")
    return config, processor, model.to(device).eval()


def _auto_class(config: Any) -> Any:
    """AutoModelForImageTextToText, or the older class that OpenVLA's code declares, where transformers still has it."""
    declared = getattr(config, "auto_map", None) or {}
    if "AutoModelForVision2Seq" in declared and "AutoModelForImageTextToText" not in declared:
        old = getattr(transformers, "AutoModelForVision2Seq", None)
        if old is None:
            raise ImportError("its code declares AutoModelForVision2Seq, which transformers 5 has not; use transformers 4.40.1 in a venv of its own")
        return old
    return transformers.AutoModelForImageTextToText


def _openvla_inputs(inputs: dict[str, Any]) -> dict[str, Any]:
    """OpenVLA's own preparation: the lone space after the prompt, and no attention mask (it would be one token short)."""
    ids = inputs["input_ids"]
    if not bool((ids[:, -1] == OPENVLA_SPACE_ID).all()):
        ids = torch.cat([ids, torch.full_like(ids[:, :1], OPENVLA_SPACE_ID)], 1)
    return {name: value for name, value in inputs.items() if name != "attention_mask"} | {"input_ids": ids}
