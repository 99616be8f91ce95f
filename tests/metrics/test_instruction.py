"""Facts about the instruction."""

from monitor import Monitor, PolicySpec, PolicyStep, Status

SPEC = PolicySpec(name="p", action_low=(-1.0,) * 7, action_high=(1.0,) * 7)


def told(*sentences: str, episode: str = "e", monitor: Monitor | None = None) -> list[tuple[float | None, float | None]]:
    """Values of empty and changes, one pair a step."""
    monitor = monitor or Monitor(SPEC)
    reports = [
        monitor.update(PolicyStep(time=n / 10, episode_id=episode, step=n, action=[0.0] * 7, instruction=text))  # type: ignore[arg-type]
        for n, text in enumerate(sentences)
    ]
    return [(report["instruction/empty"].value, report["instruction/changes"].value) for report in reports]


def test_a_policy_that_is_never_told_anything_takes_no_instruction() -> None:
    monitor = Monitor(SPEC)
    assert told("", "", monitor=monitor) == [(None, None)] * 2
    report = monitor.update(PolicyStep(time=1.0, episode_id="e", step=9, action=[0.0] * 7))  # type: ignore[arg-type]
    assert report["instruction/empty"].status is Status.UNAVAILABLE


def test_words_that_vanish_are_empty_and_a_change() -> None:
    assert told("go", "go", " ", "") == [(0, 0), (0, 0), (1, 1), (1, 2)]


def test_changes_are_counted() -> None:
    assert told("go", "stop", "stop", "go")[-1] == (0, 2)


def test_a_new_episode_starts_anew() -> None:
    monitor = Monitor(SPEC)
    told("go", "stop", monitor=monitor)
    assert told("go", episode="f", monitor=monitor) == [(0, 0)]
