"""Read by every Python of a probed launch: arms the probe once torch is imported, if it ever is.

Works only with files: the Python may be another than the launcher's and need not have our
package. Our modules load under a private name, so that an installed copy is never shadowed.
Not: the probe itself (``runtime/probe.py``). Parses on old Pythons, to say that they are too old.
"""

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader

# mypy: ignore-errors
# ruff: noqa: PTH100, PTH103, PTH112, PTH113, PTH118, PTH120


_PROBE_VARIABLE = "AUTOCONF_LAUNCH_PROBE"
_BATCH_VARIABLE = "AUTOCONF_LAUNCH_DATALOADER_BATCH"
PACKAGE = "_autoconf_launch_probe"
_OWN = b"autoconf_launch"
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
OLDEST = (3, 10)


class _RenamedLoader(SourceFileLoader):
    """Loads our files; absolute imports among them follow the private name."""

    def get_code(self, fullname):
        """Compile from source: compiled files next to it would hold the public name."""
        source = self.get_data(self.path)
        source = source.replace(b"from " + _OWN + b".", b"from " + PACKAGE.encode() + b".")
        return compile(source, self.path, "exec", dont_inherit=True)


class OwnFiles:
    """Finds ``core`` and ``runtime`` below the private package."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == PACKAGE:
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [ROOT]
            return spec
        if not name.startswith(PACKAGE + "."):
            return None
        file = os.path.join(ROOT, *name.split(".")[1:])
        folder = os.path.isdir(file)
        file = os.path.join(file, "__init__.py") if folder else file + ".py"
        if not os.path.isfile(file):
            return None
        spec = ModuleSpec(name, _RenamedLoader(name, file), origin=file, is_package=folder)
        spec.has_location = True
        if folder:
            spec.submodule_search_locations = [os.path.dirname(file)]
        return spec


class AfterTorch:
    """Steps aside for the finder that finds torch, and arms the probe when its import is done."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        try:
            spec = self._find_by_others(name, path, target)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._arm_after(spec.loader)
        return spec

    @staticmethod
    def _find_by_others(name, path, target):
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                return spec
        return None

    def _arm_after(self, loader):
        original = loader.exec_module

        def exec_module(module):
            original(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                arm()

        loader.exec_module = exec_module


def arm():
    """Start the probe; whatever goes wrong is left in a file and never reaches the script."""
    try:
        if sys.version_info < OLDEST:
            raise RuntimeError(
                f"the script's Python is {sys.version.split()[0]}, but the probe needs 3.10"
            )
        load_probe().arm_probe()
    except Exception as error:
        leave_sign("broken", f"{type(error).__name__}: {error}")


def load_probe():
    """The probe's module, under its private name."""
    if OwnFiles not in sys.meta_path:
        sys.meta_path.insert(0, OwnFiles)
    return import_module(PACKAGE + ".runtime.probe")


def leave_sign(name, text):
    """Write a sign of ``core/rank.py``, once."""
    import json

    try:
        task = json.loads(os.environ[_PROBE_VARIABLE])
        file = os.path.join(task["folder"], "probe", name + "." + task["attempt"])
        os.makedirs(os.path.dirname(file), exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(descriptor, text.encode(errors="replace"))
        os.close(descriptor)
    except (OSError, ValueError, KeyError):
        pass


def run_the_other():
    """Run the sitecustomize that would have been found without us."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def is_asked():
    """True if the environment asks for the probe, which leaves its first sign."""
    if _PROBE_VARIABLE in os.environ:
        leave_sign("injected", sys.executable or "")
    return _PROBE_VARIABLE in os.environ or _BATCH_VARIABLE in os.environ


if __name__ == "sitecustomize":
    if is_asked():
        sys.meta_path.insert(0, AfterTorch())
    run_the_other()
