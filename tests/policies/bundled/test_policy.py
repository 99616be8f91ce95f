"""The shipped weights behind the adapter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monitor.errors import PolicyError
from monitor.policy import Observation, Policy
from monitor.steps import Goal

pytest.importorskip("torch")
pytest.importorskip("transformers")

from policies.bundled import WEIGHTS, load
from policies.hf_tokens import HFTokenPolicy


@pytest.fixture(scope="module")
def policy() -> HFTokenPolicy:
    return load()


def observed(seed: int, instruction: str) -> Observation:
    """A made-up observation; what it shows matters less than that it is always the same."""
    rng = np.random.default_rng(seed)
    images = {name: rng.integers(0, 256, (96, 96, 3), dtype=np.uint8) for name in ("front", "wrist")}
    yaw = rng.uniform(-0.3, 0.3)
    return Observation(
        time=0.1 * seed,
        episode_id=f"e{seed}",
        step=seed,
        instruction=instruction,
        images=images,
        image_times=dict.fromkeys(images, 0.1 * seed),
        tcp_position=rng.uniform((0.35, -0.2, 0.02), (0.6, 0.2, 0.2)),
        tcp_quaternion=np.array([0, np.cos(yaw / 2), np.sin(yaw / 2), 0]),
        joints=rng.normal(size=7),
        gripper=float(rng.uniform()),
        goal=Goal(task="pick_up", object_position=np.zeros(3)),
    )


SENTENCES = (
    "pick up the red cube",
    "put the yellow cylinder in the tray",
    "move the blue cube near the pink cube",
    "put the green cylinder on the plate",
)


def test_spec_is_openvla_s_form(policy: HFTokenPolicy) -> None:
    assert isinstance(policy, Policy)
    spec = policy.spec
    assert spec.token_kind == "per_dimension"
    assert spec.logits_source == "raw"
    assert spec.action_dim == 7
    start, stop = spec.token_support or (0, 0)
    assert stop - start == 256
    assert stop == spec.vocab_size
    assert spec.cameras == ("front", "wrist")
    assert spec.control_hz == 10.0
    assert spec.action_low is not None
    assert spec.action_high is not None
    assert all(low < high for low, high in zip(spec.action_low, spec.action_high, strict=True))


def test_seven_tokens_inside_the_support(policy: HFTokenPolicy) -> None:
    start, stop = policy.spec.token_support or (0, 0)
    for seed, sentence in enumerate(SENTENCES):
        seen = observed(seed, sentence)
        policy.reset(sentence)
        step = policy.act(seen)
        assert step.token_ids is not None
        assert step.token_logits is not None
        assert step.token_logsumexp is not None
        assert step.token_ids.shape == (7,)
        assert ((start <= step.token_ids) & (step.token_ids < stop)).all()
        assert step.token_logits.shape == (7, 256)
        assert step.token_logits.dtype == np.float32
        np.testing.assert_array_equal(step.token_logits.argmax(1) + start, step.token_ids)
        inside = np.exp(step.token_logits - step.token_logsumexp[:, None]).sum(1)
        assert (inside > 0.9).all()
        assert (inside < 1 + 1e-5).all()
        np.testing.assert_array_equal(step.action, policy.coder.decode(step.token_ids))
        assert (step.time, step.episode_id, step.step, step.instruction) == (seen.time, seen.episode_id, seen.step, sentence)
        assert step.goal is seen.goal
        assert step.gripper == seen.gripper
        assert step.inference_seconds is not None


def test_acting_is_deterministic_and_has_no_memory(policy: HFTokenPolicy) -> None:
    one, other = observed(1, SENTENCES[0]), observed(2, SENTENCES[1])
    first = policy.act(one)
    policy.act(other)
    again = policy.act(one)
    np.testing.assert_array_equal(first.token_logits, again.token_logits)
    assert again.inference_id == first.inference_id + 2


def test_a_batch_gives_the_tokens_of_single_calls(policy: HFTokenPolicy) -> None:
    many = [observed(seed, SENTENCES[seed % 4]) for seed in range(8)]
    for single, batched in zip(map(policy.act, many), policy.act_batch(many), strict=True):
        np.testing.assert_array_equal(single.token_ids, batched.token_ids)
        np.testing.assert_allclose(single.token_logits, batched.token_logits, atol=1e-3)


def test_the_instruction_matters(policy: HFTokenPolicy) -> None:
    seen = observed(3, SENTENCES[0])
    assert not np.array_equal(policy.act(seen).token_logits, policy.act(replace(seen, instruction=SENTENCES[1])).token_logits)


def test_both_cameras_matter(policy: HFTokenPolicy) -> None:
    seen = observed(4, SENTENCES[0])
    usual = policy.act(seen).token_logits
    for name in ("front", "wrist"):
        dark = replace(seen, images={**seen.images, name: np.zeros((96, 96, 3), np.uint8)})
        assert not np.array_equal(usual, policy.act(dark).token_logits)


def test_what_it_says_when_something_is_missing(policy: HFTokenPolicy) -> None:
    seen = observed(5, SENTENCES[0])
    with pytest.raises(PolicyError, match="no picture 'wrist'"):
        policy.act(replace(seen, images={"front": seen.images["front"]}))
    with pytest.raises(PolicyError, match=r"wants \(96, 96, 3\)"):
        policy.act(replace(seen, images=dict.fromkeys(seen.images, np.zeros((64, 64, 3), np.uint8))))
    with pytest.raises(PolicyError, match="lacks yaw, gripper"):
        policy.act(replace(seen, tcp_quaternion=None, gripper=None))


def test_weights_are_small_and_safe() -> None:
    names = {file.name for file in WEIGHTS.iterdir()}
    assert "model.safetensors" in names
    assert not [name for name in names if Path(name).suffix in (".bin", ".pt", ".pkl", ".py")]
    assert (WEIGHTS / "model.safetensors").stat().st_size < 12e6
