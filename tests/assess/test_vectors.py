"""Golden numbers: statistics, conformal thresholds and detection figures of every vector file in tests/data/vectors or VLA_MONITOR_VECTORS.

Numbers agree within 1e-9 absolute plus 1e-9 relative; null stands for undefined.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.alarms.conformal import functional_band, padded, split_threshold
from monitor.assess.detection import detection_figures
from monitor.assess.statistics import a12, a12_magnitude, auroc, calibration_error, mann_whitney, rho_strength, spearman

FOLDER = Path(os.environ.get("VLA_MONITOR_VECTORS", Path(__file__).parents[1] / "data" / "vectors"))


def vectors(group: str, kind: str) -> list[Any]:
    """The vectors of one group and kind; an empty list of a missing group."""
    return [
        pytest.param(vector, id=f"{path.stem}-{vector['id']}")
        for path in sorted(FOLDER.glob("*vectors*.json"))
        for vector in json.loads(path.read_text(encoding="utf-8")).get("groups", {}).get(group, [])
        if vector.get("kind") == kind
    ]


def check(found: Any, expected: Any, what: str) -> None:
    """Compare; null is None, and "inf" stands for "no finite threshold", our None."""
    if expected is None or expected == "inf":
        assert found is None, what
    else:
        assert found is not None, what
        np.testing.assert_allclose(np.asarray(found, dtype=np.float64), np.asarray(expected, dtype=np.float64), rtol=1e-9, atol=1e-9, err_msg=what)


@pytest.mark.parametrize("vector", vectors("statistics", "a12"))
def test_vector_a12(vector: dict[str, Any]) -> None:
    found, expected = a12(vector["input"]["x"], vector["input"]["y"]), vector["expected"]
    check(found.a12, expected["a12"], "a12")
    check(found.d, expected["d"], "d")
    assert found.magnitude == expected["magnitude"]


@pytest.mark.parametrize("vector", vectors("statistics", "spearman"))
def test_vector_spearman(vector: dict[str, Any]) -> None:
    found = spearman(vector["input"]["x"], vector["input"]["y"])
    check(found.rho, vector["expected"]["rho"], "rho")
    assert found.strength == vector["expected"]["strength"]


@pytest.mark.parametrize("vector", vectors("statistics", "mannwhitneyu"))
def test_vector_mann_whitney(vector: dict[str, Any]) -> None:
    found = mann_whitney(vector["input"]["x"], vector["input"]["y"])
    check(found.u, vector["expected"]["U_x"], "U")
    check(found.p, vector["expected"]["p_two_sided_asymptotic_cc"], "p")


@pytest.mark.parametrize("vector", vectors("statistics", "a12_category"))
def test_vector_a12_category(vector: dict[str, Any]) -> None:
    assert [a12_magnitude(value) for value in vector["input"]["values"]] == vector["expected"]["magnitude"]


@pytest.mark.parametrize("vector", vectors("statistics", "rho_category"))
def test_vector_rho_category(vector: dict[str, Any]) -> None:
    assert [rho_strength(value) for value in vector["input"]["values"]] == vector["expected"]["strength"]


@pytest.mark.parametrize("vector", vectors("later_work", "split_cp"))
def test_vector_split_threshold(vector: dict[str, Any]) -> None:
    for alpha in vector["input"]["alphas"]:
        check(split_threshold(vector["input"]["scores"], alpha), vector["expected"][f"alpha_{alpha}"], f"alpha {alpha}")


@pytest.mark.parametrize("vector", vectors("later_work", "functional_cp"))
@pytest.mark.parametrize("form", ["rank", "interp"])
def test_vector_functional_band(vector: dict[str, Any], form: str) -> None:
    given, expected = vector["input"], vector["expected"]
    length = max(len(row) for row in given["mean_set"] + given["calibration_set"])
    mean_set, rest = padded(given["mean_set"], length), padded(given["calibration_set"], length)
    band = functional_band(mean_set, rest, given["alpha"], interpolated=form == "interp")
    for name, found in (("mu", band.mu), ("sigma", band.sigma), ("D", band.distances), (f"h_{form}", band.h), (f"upper_{form}", band.upper)):
        if name in expected:
            check(found, expected[name], name)


@pytest.mark.parametrize("vector", vectors("later_work", "auroc"))
def test_vector_auroc(vector: dict[str, Any]) -> None:
    check(auroc(vector["input"]["success_scores"], vector["input"]["failure_scores"]), vector["expected"]["auroc"], "auroc")


@pytest.mark.parametrize("vector", vectors("later_work", "detection"))
def test_vector_detection(vector: dict[str, Any]) -> None:
    found, expected = detection_figures(vector["input"]["first_alarm"], vector["input"]["failed"]), vector["expected"]
    ours = {"bal_acc": "balanced_accuracy", "t_det_all": "detection_time"}
    for name, number in expected.items():
        check(getattr(found, ours.get(name, name)), number, name)


@pytest.mark.parametrize("vector", vectors("later_work", "calibration"))
def test_vector_calibration(vector: dict[str, Any]) -> None:
    given = vector["input"]
    found = calibration_error(given["confidence"], given["success"], given["bins"])
    for name, number in vector["expected"].items():
        check(getattr(found, name), number, name)
