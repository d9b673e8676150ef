"""The answer of ``recommend`` as one page. Not: its text (report), or how charts are drawn."""

from __future__ import annotations

from autoconf_launch.autotuner.sizing import Outlook

from ..estimates import Recommendation
from .charts import Traces, bar_trace, chart
from .page import Chart, HtmlPage


def recommend_page(answer: Recommendation, text: str) -> HtmlPage:
    """The text with charts of what the planner expects; of the formula alone there are none."""
    outlook = answer.planner.outlook
    return HtmlPage(
        title=f"autoconf-launch: a model of family {answer.family.name}",
        answer=text,
        charts=(_days(answer, outlook), _sensitivity(outlook)) if outlook else (),
    )


def _days(answer: Recommendation, outlook: Outlook) -> Chart:
    """What the planner and the formula say of the same model."""
    bars = {
        **bar_trace("days", ["planner", "NVIDIA's formula"], [outlook.days, answer.exact_days]),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [outlook.days_high - outlook.days, 0.0],
            "arrayminus": [outlook.days - outlook.days_low, 0.0],
        },
    }
    note = f"The line is the error band: {outlook.band.source}."
    return chart("Days of the training", note, (bars,), y="days", legend=False)


def _sensitivity(outlook: Outlook) -> Chart:
    """How far the days move with each assumption, the one that moves most on top."""
    found = outlook.sensitivities[::-1]
    names = [one.name.replace("_", " ") for one in found]
    sides = {
        "half": [one.days_at_half for one in found],
        "twice": [one.days_at_double for one in found],
    }
    traces: Traces = [
        {
            **bar_trace(name, [days - outlook.days for days in ends], names),
            "orientation": "h",
        }
        for name, ends in sides.items()
    ]
    note = "Days more or less where one assumption is half or twice as large."
    y = {"rangemode": "normal"}
    return chart("What the days depend on", note, traces, x="days more", y=y, barmode="overlay")
