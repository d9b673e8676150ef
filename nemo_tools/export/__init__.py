"""A base configuration or an optimum in NeMo's words."""

from .nemo2_call import IMPORTS, Call, Name, recipe_call, set_after, tokenizer_call
