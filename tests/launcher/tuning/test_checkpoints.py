"""Checkpoints of the user's that change while trials run are named."""

from pathlib import Path

from autoconf_launch.launcher.events import Event, ModelProfiled, Note
from autoconf_launch.launcher.tuning import Checkpoints, watching_checkpoints


def test_what_changed_or_went_is_named_once(tmp_path: Path) -> None:
    for name in ("kept.pt", "cut.ckpt", "gone.safetensors", "text.txt", "deep/a.pt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("of the user")
    own = tmp_path / "results"
    own.mkdir()
    seen = Checkpoints(tmp_path, (own,))
    assert seen.list_changed() == ()
    (tmp_path / "cut.ckpt").write_text("of")
    (tmp_path / "gone.safetensors").unlink()
    for name in ("text.txt", "new.pt", "results/model.pt", "deep/b.pt"):
        (tmp_path / name).write_text("of the trial")
    assert seen.list_changed() == ("cut.ckpt", "gone.safetensors")
    (tmp_path / "new.pt").unlink()
    assert seen.list_changed() == ()


def test_the_user_is_told_after_the_launch(tmp_path: Path) -> None:
    model = tmp_path / "model.pt"
    model.write_text("of the user")
    said: list[Event] = []
    tell = watching_checkpoints(said.append, Checkpoints(tmp_path))
    done = ModelProfiled(spec=None, wall_s=1.0)
    tell(done)
    assert said == [done]
    model.write_text("of a child process")
    tell(done)
    note = said[-1]
    assert isinstance(note, Note)
    assert note.warning
    assert note.text.startswith("model.pt changed while the profile run ran")
