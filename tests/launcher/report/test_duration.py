import pytest

from autoconf_launch.launcher.report import duration_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (12.0, "12 s"),
        (90.0, "1.5 minutes"),
        (3600.0, "1 hour"),
        (14.1 * 3600, "14.1 hours"),
        (2.3 * 86400, "2.3 days"),
        (1234.5 * 86400, "1,234 days"),
    ],
)
def test_a_time_has_the_largest_unit_that_it_fills(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
