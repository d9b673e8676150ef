from autoconf_launch.launcher.report import step_waterfall
from autoconf_launch.launcher.report.columns import waterfall_text

PARTS = (
    ("ideal", 4.0),
    ("kernels", 2.0),
    ("recompute", 0.0),
    ("launch", 0.001),
    ("bubble", 1.0),
    ("communication", 1.0),
    ("update", 0.0),
)
GOLDEN = """\
ideal                          4 s   50 %  ########################
kernel efficiency              2 s   25 %                          ############
launch floor               0.001 s    0 %                                      |
bubble                         1 s   12 %                                      ######
exposed communication          1 s   12 %                                            ######
recompute                      0 s    0 %
update                         0 s    0 %
step                       8.001 s  100 %  ================================================"""


def test_bars_go_on_where_the_one_before_ended() -> None:
    assert [line.rstrip() for line in waterfall_text(step_waterfall(PARTS)).splitlines()] == (
        GOLDEN.splitlines()
    )


def test_short_steps_are_drawn_in_milliseconds() -> None:
    text = waterfall_text(step_waterfall((("ideal", 0.002), ("update", 0.0000157))))
    assert [line.split("%")[0].split()[-3:-1] for line in text.splitlines()] == [
        ["2", "ms"],
        ["0.0157", "ms"],
        ["2.016", "ms"],
    ]
