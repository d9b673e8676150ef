"""From machines, days and tokens to a model, its base configuration and NeMo's grids.

Pure, like all of ``autotuner``: tables come as values (``tuning_spaces.recommend_tables`` reads
them). Not: searches, which go through the study.
"""
