"""A folder to be put on PYTHONPATH by itself: it holds ``sitecustomize`` and nothing else."""
