"""A pretraining of any base configuration, for searches on this machine.

``python -m autoconf_launch.runtime.pretraining --base-config base.json --config config.json``
"""

from .train import build, family_of, vocabulary_of
