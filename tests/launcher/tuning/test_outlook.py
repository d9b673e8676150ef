import numpy as np

from autoconf_launch.autotuner.search import Study
from autoconf_launch.autotuner.space import AutotuningSettings, PredictionTable, Record
from autoconf_launch.launcher.events import Event, Note, TrialFinished
from autoconf_launch.launcher.tuning import with_outlook

from ..controlled import answers_for_all, space

SPACE = space(4)


def say(*, resumed: bool = False) -> list[str]:
    """Notes while a study is told of its baseline and one more trial."""
    count = len(SPACE.table)
    predictions = PredictionTable(
        step_s_C=np.linspace(1.0, 3.0, count),
        peak_bytes_C=np.ones(count),
        band=0.1,
        how="by the test",
    )
    study = Study(SPACE, predictions, AutotuningSettings())
    heard: list[Event] = []
    listen = with_outlook(study, heard.append)
    for record in answers_for_all(SPACE)[:2]:
        known = Record(
            trial=record.trial,
            outcome=record.outcome,
            wall_s=record.wall_s,
            prediction=predictions.row(0),
        )
        study.tell(known)
        listen(TrialFinished(record=known, best=study.best, elapsed_s=1.0, resumed=resumed))
    return [event.text for event in heard if isinstance(event, Note)]


def test_what_is_left_to_gain_is_said_after_each_trial() -> None:
    texts = say()
    assert len(texts) == len(set(texts)) == 2
    assert all("left" in text for text in texts)


def test_trials_of_an_earlier_session_say_nothing() -> None:
    assert say(resumed=True) == []


def test_every_event_is_handed_on() -> None:
    heard: list[Event] = []
    study = Study(SPACE, None, AutotuningSettings())
    with_outlook(study, heard.append)(Note(text="a"))
    assert heard == [Note(text="a")]
