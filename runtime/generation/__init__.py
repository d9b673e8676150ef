"""Text of random models, written token by token, for inference searches on this machine.

``python -m autoconf_launch.runtime.generation --base-config base.json --generation point.json``
"""

from .generator import prepare_generator
from .measure import measure_generation
