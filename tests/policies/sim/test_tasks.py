"""Scenes, instructions and success rules."""

from itertools import combinations

import numpy as np
import pytest

from policies.sim.scene import HALF, PLATE_HEIGHT, TRAY_FLOOR
from policies.sim.tasks import SPACING, TASKS, WORKSPACE_HIGH, WORKSPACE_LOW, Facts, instruction, rule_holds, sample_scene


def facts(position, *, target=None, speed=0.0, touching_target=False, touching_fingers=False):
    return Facts(
        object_position=np.array(position),
        object_rotation=np.eye(3),
        object_speed=speed,
        target_position=None if target is None else np.array(target),
        touching_target=touching_target,
        touching_fingers=touching_fingers,
        grasped=touching_fingers,
    )


@pytest.mark.parametrize("task", TASKS)
def test_things_lie_apart_and_on_the_workspace(task):
    counts = set()
    for seed in range(200):
        scene = sample_scene(task, seed)
        points = {name: np.array(place[:2]) for name, place in scene.places.items()}
        assert all(np.hypot(*(a - b)) >= SPACING for a, b in combinations(points.values(), 2))
        assert all((p >= WORKSPACE_LOW).all() and (p <= WORKSPACE_HIGH).all() for p in points.values())
        assert scene.object in points
        assert (scene.target is None) == (task == "pick_up")
        counts.add(len(scene.distractors))
    assert counts == {0, 1, 2, 3}


def test_the_seed_decides_the_scene():
    assert sample_scene("put_in", 7) == sample_scene("put_in", 7)
    assert sample_scene("put_in", 7) != sample_scene("put_in", 8)


@pytest.mark.parametrize(
    ("task", "target", "sentence"),
    [
        ("pick_up", None, "pick up the red cube"),
        ("move_near", "green cylinder", "move the red cube near the green cylinder"),
        ("put_on", "plate", "put the red cube on the plate"),
        ("put_in", "tray", "put the red cube in the tray"),
    ],
)
def test_instructions_name_object_and_target(task, target, sentence):
    assert instruction(task, "red cube", target) == sentence


def test_an_unknown_task_is_named():
    with pytest.raises(ValueError, match="unknown task 'juggle'; tasks: pick_up"):
        sample_scene("juggle", 0)


def test_pick_up_needs_two_centimetres():
    assert rule_holds("pick_up", facts([0.5, 0, HALF + 0.021]))
    assert not rule_holds("pick_up", facts([0.5, 0, HALF + 0.019]))


def test_move_near_needs_a_gap_of_five_centimetres_release_and_rest():
    target, near, far = [0.5, 0, HALF], [0.5, 2 * HALF + 0.049, HALF], [0.5, 2 * HALF + 0.051, HALF]
    assert rule_holds("move_near", facts(near, target=target))
    assert not rule_holds("move_near", facts(far, target=target))
    assert not rule_holds("move_near", facts(near, target=target, touching_fingers=True))
    assert not rule_holds("move_near", facts(near, target=target, speed=0.1))
    assert not rule_holds("move_near", facts([*near[:2], 0.1], target=target))


def test_put_on_needs_contact_above_the_plate():
    target, on_top = [0.5, 0, 0], [0.52, 0, PLATE_HEIGHT + HALF]
    assert rule_holds("put_on", facts(on_top, target=target, touching_target=True))
    assert not rule_holds("put_on", facts(on_top, target=target))
    assert not rule_holds("put_on", facts(on_top, target=target, touching_target=True, touching_fingers=True))
    assert not rule_holds("put_on", facts([0.57, 0, HALF], target=target, touching_target=True))


def test_put_in_needs_the_inside():
    target = [0.5, 0, 0]
    assert rule_holds("put_in", facts([0.53, 0.03, TRAY_FLOOR + HALF], target=target))
    assert not rule_holds("put_in", facts([0.57, 0, TRAY_FLOOR + HALF], target=target))
    assert not rule_holds("put_in", facts([0.53, 0.03, 0.05], target=target))
    assert not rule_holds("put_in", facts([0.53, 0.03, TRAY_FLOOR + HALF], target=target, touching_fingers=True))
