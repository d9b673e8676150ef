"""What a script's source says without being run."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .facts import (
        FROM_CLASSES,
        FROM_FUNCTIONS,
        LIGHTNING_PACKAGES,
        Declared,
        ScriptFacts,
        declared_in,
        facts_of,
    )
    from .files import composed, own_modules, plain_text, script_path
    from .parser import (
        NamedFile,
        ScriptSource,
        SpaceFile,
        refused_flags,
    )
else:
    __getattr__ = lazy_names(__name__, __file__)
