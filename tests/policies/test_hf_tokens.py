"""HFTokenPolicy: OpenVLA's arithmetic, folders of several kinds, and what it says when something is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.errors import PolicyError
from monitor.policy import Observation, Policy

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from transformers import (  # noqa: E402
    GemmaConfig,
    PaliGemmaConfig,
    PaliGemmaForConditionalGeneration,
    PaliGemmaProcessor,
    PreTrainedTokenizerFast,
    SiglipImageProcessor,
    SiglipVisionConfig,
)

from policies.hf_tokens import ActionCoder, HFTokenPolicy  # noqa: E402

BINS = 32
LOW, HIGH = [-0.02, -0.04, -0.06, -0.1, -0.2, -0.3, 0.0], [0.02, 0.02, 0.08, 0.1, 0.2, 0.3, 1.0]
MASK = [True] * 6 + [False]
STATS = {"my_data": {"action": {"q01": LOW, "q99": HIGH, "mask": MASK}}}


def openvla_coder() -> ActionCoder:
    return ActionCoder(32000, 256, np.array(LOW), np.array(HIGH), np.array(MASK))


def reference_decode(token: int, low: float, high: float, scaled: bool) -> float:
    """OpenVLA's published arithmetic, one number at a time."""
    bins = np.linspace(-1, 1, 256)
    centres = (bins[:-1] + bins[1:]) / 2.0
    value = float(centres[np.clip((32000 - token) - 1, 0, centres.shape[0] - 1)])
    return 0.5 * (value + 1) * (high - low + 1e-8) + low if scaled else value


def test_decoding_is_openvla_s() -> None:
    coder = openvla_coder()
    assert coder.support == (31744, 32000)
    for token in (31744, 31745, 31800, 31871, 31872, 31998, 31999):
        wanted = [reference_decode(token, low, high, scaled) for low, high, scaled in zip(LOW, HIGH, MASK, strict=True)]
        np.testing.assert_array_equal(coder.decode([token] * 7), wanted)


def test_first_two_ids_decode_alike_and_the_last_is_the_lowest() -> None:
    coder = openvla_coder()
    np.testing.assert_array_equal(coder.decode([31744] * 7), coder.decode([31745] * 7))
    assert (coder.decode([31745] * 7) > coder.decode([31746] * 7)).all()
    assert coder.decode([31999] * 7)[6] == pytest.approx(-1 + 1 / 255)


def test_ids_outside_the_support_decode_as_the_nearest_bin() -> None:
    coder = openvla_coder()
    np.testing.assert_array_equal(coder.decode([5] * 7), coder.decode([31744] * 7))
    np.testing.assert_array_equal(coder.decode([32050] * 7), coder.decode([31999] * 7))


def test_encoding_then_decoding_stays_within_half_a_bin() -> None:
    coder = openvla_coder()
    rng = np.random.default_rng(0)
    actions = rng.uniform(LOW, HIGH, (500, 7))
    width = np.where(MASK, np.subtract(HIGH, LOW), 2) / 255
    assert (np.abs(coder.decode(coder.encode(actions)) - actions) <= width / 2 + 1e-8).all()
    beyond = coder.encode(np.stack([np.subtract(LOW, 3), np.add(HIGH, 3)]))
    assert beyond[0].tolist() == [31999] * 7
    assert beyond[1].tolist() == [31744] * 7


@pytest.fixture(scope="module")
def paligemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random PaliGemma in OpenVLA's layout: another architecture, vocabulary, picture size and number of bins than the bundled model."""
    folder = tmp_path_factory.mktemp("paligemma")
    words = [
        "<pad>",
        "<eos>",
        "<bos>",
        "<unk>",
        *["In", ":", "What", "action", "should", "the", "robot", "take", "to", "pick", "up", "cube", "?", "Out"],
    ]
    vocabulary = {word: i for i, word in enumerate(words)}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>")
    images = SiglipImageProcessor(size={"height": 28, "width": 28})
    images.image_seq_length = 4
    processor = PaliGemmaProcessor(images, tokenizer)
    tokenizer.add_tokens([f"<action{i}>" for i in range(BINS)])
    torch.manual_seed(3)
    config = PaliGemmaConfig(
        vision_config=SiglipVisionConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14, projection_dim=32
        ),
        text_config=GemmaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
        ),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        projection_dim=32,
        hidden_size=32,
    )
    config.norm_stats, config.n_action_bins = STATS, BINS
    PaliGemmaForConditionalGeneration(config).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def rewritten(folder: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a checkpoint folder with another config.json."""
    target.mkdir()
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    config = json.loads((target / "config.json").read_text())
    change(config)
    (target / "config.json").write_text(json.dumps(config))
    return target


def seen(**images: np.ndarray) -> Observation:
    return Observation(time=0.5, episode_id="e", step=3, instruction="pick up cube", images=images, image_times=dict.fromkeys(images, 0.4))


def picture(size: int = 28, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)


def test_another_architecture_works_through_the_same_adapter(paligemma: Path) -> None:
    policy = HFTokenPolicy(paligemma, prompt="<image>In: What action should the robot take to {instruction}?\nOut:", threads=1)
    assert isinstance(policy, Policy)
    start, stop = policy.spec.token_support or (0, 0)
    assert stop - start == BINS
    assert stop == policy.spec.vocab_size
    assert policy.spec.cameras == ("front",)
    assert policy.spec.action_low == (*LOW[:6], -1.0)
    step = policy.act(seen(front=picture()))
    assert step.token_ids is not None
    assert step.token_ids.shape == (7,)
    assert step.token_logits is not None
    assert step.token_logits.shape == (7, BINS)
    assert step.token_logsumexp is not None
    assert (step.token_logsumexp > step.token_logits.max(1)).all()
    np.testing.assert_array_equal(step.action, policy.coder.decode(step.token_ids))
    assert (step.episode_id, step.step, step.time, dict(step.image_times)) == ("e", 3, 0.5, {"front": 0.4})


def test_binary_gripper_changes_the_action_and_not_the_raw_action(paligemma: Path) -> None:
    policy = HFTokenPolicy(paligemma, prompt="<image>Out: {instruction}", binary_gripper=True, threads=1)
    step = policy.act(seen(front=picture()))
    assert step.raw_action is not None
    assert step.token_ids is not None
    assert step.action[6] in (0.0, 1.0)
    assert step.action[6] == float(step.raw_action[6] >= 0.5)
    np.testing.assert_array_equal(step.raw_action, policy.coder.decode(step.token_ids))


def test_missing_statistics_name_the_file_and_the_remedy(paligemma: Path, tmp_path: Path) -> None:
    folder = rewritten(paligemma, tmp_path / "bare", lambda config: config.pop("norm_stats"))
    with pytest.raises(PolicyError, match=r"bare/config\.json has no norm_stats.*dataset_statistics\.json"):
        HFTokenPolicy(folder)


def test_several_statistics_need_a_key(paligemma: Path, tmp_path: Path) -> None:
    folder = rewritten(
        paligemma, tmp_path / "two", lambda config: config.update(norm_stats={"bridge": STATS["my_data"], "fractal": STATS["my_data"]})
    )
    with pytest.raises(PolicyError, match="norm_key: bridge, fractal"):
        HFTokenPolicy(folder)
    with pytest.raises(PolicyError, match=r"no statistics 'other'.*bridge, fractal"):
        HFTokenPolicy(folder, norm_key="other")
    assert HFTokenPolicy(folder, norm_key="bridge", prompt="<image>{instruction}").spec.action_dim == 7


def test_incomplete_statistics(paligemma: Path, tmp_path: Path) -> None:
    folder = rewritten(paligemma, tmp_path / "half", lambda config: config.update(norm_stats={"d": {"action": {"q01": LOW}}}))
    with pytest.raises(PolicyError, match="'d' lack action q01 or q99"):
        HFTokenPolicy(folder)


def test_folders_that_are_no_checkpoint(paligemma: Path, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no checkpoint folder"):
        HFTokenPolicy(tmp_path / "absent")
    folder = rewritten(paligemma, tmp_path / "pickled", lambda config: None)
    for weights in folder.glob("*.safetensors"):
        weights.rename(weights.with_suffix(".bin"))
    with pytest.raises(PolicyError, match=r"no \*\.safetensors weights"):
        HFTokenPolicy(folder)
    folder = rewritten(paligemma, tmp_path / "unknown", lambda config: config.update(model_type="never_heard_of"))
    with pytest.raises(PolicyError, match="unknown does not load under transformers"):
        HFTokenPolicy(folder)
    folder = rewritten(paligemma, tmp_path / "broken", lambda config: None)
    (folder / "model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(PolicyError, match="broken does not load"):
        HFTokenPolicy(folder)


def test_incomplete_weights_are_refused(paligemma: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = rewritten(paligemma, tmp_path / "lacking", lambda config: None)
    weights = load_file(folder / "model.safetensors")
    lost = next(name for name in weights if "q_proj" in name)
    save_file({name: tensor for name, tensor in weights.items() if name != lost}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(PolicyError, match="the weights lack 1 tensors"):
        HFTokenPolicy(folder)


def test_a_model_that_does_not_see_is_refused(paligemma: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = HFTokenPolicy._generate
    blind = lambda self, pictures, prompts: original(self, [np.zeros((28, 28, 3), np.uint8)], prompts)  # noqa: E731
    monkeypatch.setattr(HFTokenPolicy, "_generate", blind)
    with pytest.raises(PolicyError, match="does not see"):
        HFTokenPolicy(paligemma, prompt="<image>{instruction}")
    HFTokenPolicy(paligemma, prompt="<image>{instruction}", check_images=False)


def test_pictures_that_are_missing_or_wrong(paligemma: Path) -> None:
    policy = HFTokenPolicy(paligemma, prompt="<image>{instruction}", threads=1)
    with pytest.raises(PolicyError, match=r"no picture 'front' \(it has: side\)"):
        policy.act(seen(side=picture()))
    with pytest.raises(PolicyError, match=r"shape \(28, 28\)"):
        policy.act(seen(front=picture()[..., 0]))
    with pytest.raises(PolicyError, match="type float64"):
        policy.act(seen(front=picture() / 255.0))


def test_no_instruction(paligemma: Path) -> None:
    policy = HFTokenPolicy(paligemma, prompt="<image>{instruction}", threads=1)
    bare = Observation(time=0, episode_id="e", step=0, instruction="", images={"front": picture()})
    with pytest.raises(PolicyError, match="has no instruction"):
        policy.act(bare)
    policy.reset("pick up cube")
    assert policy.act(bare).instruction == "pick up cube"
