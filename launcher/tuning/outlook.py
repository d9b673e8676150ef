"""Says after each trial of a search what is left to gain. Not: what that is (certificate)."""

from __future__ import annotations

from autoconf_launch.autotuner.study import Study

from ..events import Event, Listener, Note, TrialFinished


def with_outlook(study: Study, listener: Listener) -> Listener:
    """The listener, told of the outlook after each trial that changes it."""
    said = ""

    def listen(event: Event) -> None:
        nonlocal said
        listener(event)
        if not isinstance(event, TrialFinished) or event.resumed:
            return
        found = study.certificate
        if found is not None and found.untried and found.sentence != said:
            said = found.sentence
            listener(Note(text=said, detail=True))

    return listen
