"""Text of random models, written token by token, for inference searches on this machine.

``python -m autoconf_launch.runtime.generation --base-config base.json --generation point.json``
"""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .generator import prepare_generator
    from .measure import measure_generation
else:
    __getattr__ = lazy_names(__name__, __file__)
