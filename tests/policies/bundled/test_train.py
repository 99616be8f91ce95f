"""Model, data and training on made-up frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from policies.bundled import load  # noqa: E402
from policies.bundled.build import NORM_KEY, build, load_checkpoint, norm_stats, save_checkpoint  # noqa: E402
from policies.bundled.dataset import CORRECTION_SEEDS, TRAINING_SEEDS, Frames  # noqa: E402
from policies.bundled.dataset import load as load_frames  # noqa: E402
from policies.bundled.dataset import save as save_frames  # noqa: E402
from policies.bundled.model import TinyVLAForActionPrediction  # noqa: E402
from policies.bundled.processor import TinyVLAProcessor  # noqa: E402
from policies.bundled.train import Batches, Plan, prepare, train  # noqa: E402

SENTENCES = ("pick up the red cube", "put the blue cube in the tray")


def made_up(count: int = 48, seed: int = 0) -> Frames:
    """Frames with a bright square whose place decides the action."""
    rng = np.random.default_rng(seed)
    images = np.full((count, 2, 96, 96, 3), 90, np.uint8)
    spots = rng.integers(5, 80, (count, 2))
    for image, (row, column) in zip(images, spots, strict=True):
        image[:, row : row + 10, column : column + 10] = (230, 20, 20)
    action = np.zeros((count, 7), "f4")
    action[:, :2] = (spots / 48 - 1) * 0.02
    action[:, 6] = rng.integers(0, 2, count)
    goal = np.concatenate([rng.uniform(0.3, 0.6, (count, 3)), np.full((count, 3), np.nan), np.zeros((count, 1))], 1).astype("f4")
    state = rng.uniform((0.3, -0.2, 0, -0.3, 0), (0.6, 0.2, 0.2, 0.3, 1), (count, 5)).astype("f4")
    return Frames(images, state, np.array([SENTENCES[i % 2] for i in range(count)]), action, goal, np.arange(count))


def small_model(frames: Frames) -> tuple[TinyVLAForActionPrediction, TinyVLAProcessor]:
    torch.manual_seed(0)
    return build(" ".join(SENTENCES).split(), norm_stats(frames.action), width=96, layers=3)


@pytest.fixture(scope="module")
def frames() -> Frames:
    return made_up()


@pytest.fixture(scope="module")
def data(frames: Frames) -> Batches:
    model, processor = small_model(frames)
    return prepare(frames, model.config, processor)


def test_a_few_steps_lower_the_loss(frames: Frames, data: Batches) -> None:
    torch.set_num_threads(1)
    model, _ = small_model(frames)
    plan = Plan(steps=30, batch=16, rate=2e-3, warmup=5, sigma=(2.0, 2.0), settle=1, processes=1)
    losses = [row["loss"] for row in train(model, data, plan)]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    assert not model.training


def test_training_repeats_from_its_seed(frames: Frames, data: Batches) -> None:
    plan = Plan(steps=3, batch=4, settle=1, processes=1, seed=5)
    runs = [[row["loss"] for row in train(small_model(frames)[0], data, plan)] for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0] != [row["loss"] for row in train(small_model(frames)[0], data, replace(plan, seed=6))]


def test_a_saved_checkpoint_acts_through_the_adapter(frames: Frames, tmp_path: Path) -> None:
    model, processor = small_model(frames)
    save_checkpoint(tmp_path / "made", model, processor)
    again, _ = load_checkpoint(tmp_path / "made")
    for (name, old), new in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
        assert new.dtype == old.dtype
        torch.testing.assert_close(old.half().to(old.dtype) if old.is_floating_point() else old, new, msg=name)
    policy = load(tmp_path / "made")
    assert policy.spec.name == "bundled"
    assert policy.spec.token_support == (policy.coder.vocab_size - 256, policy.coder.vocab_size)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_generating_agrees_with_the_forward_pass(frames: Frames, data: Batches, attention: str) -> None:
    """Also with the attention that training uses: one that overlooks the mask would let the model copy its labels."""
    model, _ = small_model(frames)
    model.eval()
    model.language_model.config._attn_implementation = attention
    ids, mask, pixels, *_ = data.take(np.arange(4))
    with torch.inference_mode():
        out = model.generate(
            ids, attention_mask=mask, pixel_values=pixels, max_new_tokens=7, do_sample=False, output_logits=True, return_dict_in_generate=True
        )
        seen = torch.cat([mask, torch.ones(4, 6, dtype=mask.dtype)], 1)
        whole = model(out.sequences[:, :-1], pixels, seen, logits_to_keep=7).logits
        other = torch.cat([ids, data.bins[:4, :6]], 1)
        changed = model(other, pixels, seen, logits_to_keep=7).logits
    torch.testing.assert_close(torch.stack(out.logits, 1), whole, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(changed[:, 0], whole[:, 0], atol=1e-4, rtol=1e-4)


def test_the_prefix_sees_itself_and_never_the_actions(frames: Frames, data: Batches) -> None:
    model, _ = small_model(frames)
    ids = torch.cat([data.ids[:2], data.bins[:2, :6]], 1)
    positions, mask = model._layout(ids, None)
    length, mask = data.ids.shape[1], mask == 0
    assert mask[0, 0, :length, :length].all()
    assert not mask[0, 0, :length, length:].any()
    assert mask[0, 0, length:, :length].all()
    assert torch.equal(mask[0, 0, length:, length:], torch.ones(6, 6).tril().bool())
    limit = model.config.text_config.max_position_embeddings
    assert positions[0, length:].tolist() == list(range(limit - 7, limit - 1))


def test_statistics_follow_openvla_and_avoid_empty_ranges(frames: Frames) -> None:
    stats = norm_stats(frames.action)[NORM_KEY]["action"]
    assert stats["mask"] == [True] * 6 + [False]
    assert stats["q01"][0] == pytest.approx(np.quantile(frames.action[:, 0], 0.01), abs=1e-5)
    assert (stats["q01"][3], stats["q99"][3]) == (-0.05, 0.05)


def test_frames_come_back_from_disk(frames: Frames, tmp_path: Path) -> None:
    save_frames(tmp_path / "a.npz", frames)
    both = load_frames([tmp_path / "a.npz", tmp_path / "a.npz"])
    assert len(both) == 2 * len(frames)
    np.testing.assert_array_equal(both.images[: len(frames)], frames.images)
    assert both.instruction[1] == SENTENCES[1]
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]


def test_seed_ranges_are_apart() -> None:
    assert 0 < TRAINING_SEEDS < CORRECTION_SEEDS
