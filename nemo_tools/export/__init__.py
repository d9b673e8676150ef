"""A base configuration or an optimum in NeMo's words."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .nemo1_file import nemo1_script
    from .nemo2_call import IMPORTS, Call, Name, recipe_call, set_after, tokenizer_call
else:
    __getattr__ = lazy_names(__name__, __file__)
