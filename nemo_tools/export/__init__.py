"""A base configuration or an optimum in NeMo's words."""

from .nemo1_file import nemo1_script
from .nemo2_call import IMPORTS, Call, Name, recipe_call, set_after, tokenizer_call
