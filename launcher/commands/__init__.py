"""One module per verb, each a face of its own: tables of strings name what it answers by."""
