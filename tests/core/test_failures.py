from autoconf_launch.core import Failure, FailureKind


def test_what_no_file_takes_is_escaped() -> None:
    failure = Failure(
        kind=FailureKind.CRASHED, detail="bad \udc80 é", log_tail=("one \udcff", "two")
    )
    assert (failure.detail, failure.log_tail) == ("bad \\udc80 é", ("one \\udcff", "two"))
