"""A pretraining of any base configuration, for searches on this machine.

``python -m autoconf_launch.runtime.pretraining --base-config base.json --config config.json``
"""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .train import build, family_of, vocabulary_of
else:
    __getattr__ = lazy_names(__name__, __file__)
