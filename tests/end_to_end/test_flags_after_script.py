"""A launcher's flag after the script: refused before any result is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Place

SCRIPT = (Path(__file__).parent / "scripts" / "plain_loop.py").read_text().replace("4096", "256")
TUNE = (
    "--autotuning=tune",
    "--num_gpus=1",
    "--max-parallel-trials=1",
    "--soak_steps=0",
    "--end_profile_step=4",
    "--budget=1trials",
    "--allow-global-batch-change",
)
WORDS = ("mine.py", "--batch-size", "4")


@pytest.fixture(autouse=True)
def script(place: Place, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = place.folder / "mine.py"
    path.write_text(SCRIPT)
    return path


def test_a_flag_of_ours_after_the_script_is_refused_before_anything_moves(place: Place) -> None:
    place.results.mkdir()
    for flags, verb in ((TUNE, "tune "), ((), "")):
        code, output = place.here(*flags, *WORDS, "--quiet")
        assert code == 2
        assert output == (
            "autoconf-launch: --quiet is given after mine.py, whose parser does not know it; give "
            f"flags of the launcher before the script: autoconf-launch {verb}--quiet … mine.py.\n"
        )
    assert list(place.results.iterdir()) == []


@pytest.mark.slow
def test_results_that_a_wrong_command_moved_aside_are_found_by_the_right_one(
    place: Place,
) -> None:
    assert place.run(*TUNE, *WORDS)[0] == 0
    measured = (place.results / "z0_gas1_tmbspg4" / "result.json").read_bytes()
    assert place.run(*TUNE, *WORDS, "--unknown")[0] == 3
    code, output = place.run(*TUNE, *WORDS)
    assert (code, "its results are back from" in output) == (0, True), output
    assert (place.results / "z0_gas1_tmbspg4" / "result.json").read_bytes() == measured


@pytest.mark.slow
def test_a_script_that_has_such_a_flag_itself_gets_it(place: Place, script: Path) -> None:
    own = "parser.add_argument('--quiet', action='store_true')"
    script.write_text(SCRIPT.replace("arguments =", f"{own}\narguments =", 1))
    code, output = place.run("--num_gpus=1", *WORDS, "--quiet")
    assert (code, "trained with 4" in output) == (0, True), output
