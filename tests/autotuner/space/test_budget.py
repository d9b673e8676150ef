import pytest

from autoconf_launch.autotuner.space import SearchBudget, longer_budget, parse_budget, parse_share
from autoconf_launch.core import ConfigError

from ...rows import some


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20m", 1200), ("90s", 90), ("1h30m", 5400), ("0.5h", 1800), ("2d", 172800), ("20 m", 1200)],
)
def test_a_time_is_read_in_its_units(text: str, seconds: float) -> None:
    assert parse_budget(text) == SearchBudget(seconds=seconds)


@pytest.mark.parametrize("text", ["30trials", "30 trials", "30TRIALS"])
def test_a_number_of_trials_is_read(text: str) -> None:
    assert parse_budget(text) == SearchBudget(trials=30)


def test_money_is_time_at_a_known_price() -> None:
    assert parse_budget("$15").limit_s(usd_per_hour=30.0) == 1800.0
    assert parse_budget("1h,$15").limit_s(usd_per_hour=30.0) == 1800.0
    with pytest.raises(ConfigError, match="price of this machine is not known"):
        parse_budget("$15").limit_s(usd_per_hour=None)
    assert parse_budget("3trials").limit_s(usd_per_hour=None) is None
    assert parse_budget("20m,30trials") == SearchBudget(seconds=1200, trials=30)


@pytest.mark.parametrize("text", ["", "20", "m", "-5m", "15$", "20m 3", "20m,", "1e3s"])
def test_other_forms_are_refused_with_those_that_are_known(text: str) -> None:
    with pytest.raises(ConfigError, match=r"must be a time \(90s, 20m"):
        parse_budget(text)


@pytest.mark.parametrize("text", ["0m", "$0", "0trials", "0h0m"])
def test_no_time_no_trial_and_no_money_is_no_budget(text: str) -> None:
    with pytest.raises(ConfigError, match="must be more than zero"):
        parse_budget(text)


@pytest.mark.parametrize(
    ("text", "share"), [("2%", 0.02), ("0.02", 0.02), ("0", 0.0), ("5 %", 0.05)]
)
def test_a_share_is_read_as_a_fraction_or_in_percent(text: str, share: float) -> None:
    assert parse_share(text, "--good-enough") == pytest.approx(share)


@pytest.mark.parametrize("text", ["2", "150%", "-1%", "some"])
def test_what_is_no_share_is_refused_by_its_flag(text: str) -> None:
    with pytest.raises(ConfigError, match="--good-enough is"):
        parse_share(text, "--good-enough")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.0, "30s"), (61.0, "90s"), (91.0, "2m"), (301.0, "6m"), (601.0, "15m"), (3601.0, "2h")],
)
def test_a_longer_budget_is_a_round_time_that_can_be_typed(seconds: float, text: str) -> None:
    assert longer_budget(seconds) == text
    found = some(parse_budget(text).seconds)
    assert found >= seconds
