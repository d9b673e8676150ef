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
    from .source import (
        NamedFile,
        ScriptSource,
        SpaceFile,
        hydra_values,
        own_modules,
        plain_text,
        refused_flags,
        script_path,
    )
else:
    __getattr__ = lazy_names(__name__, __file__)
