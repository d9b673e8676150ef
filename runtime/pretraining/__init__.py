"""A pretraining of any base configuration, for searches on this machine. Not: the runtime itself.

``python -m autoconf_launch.runtime.pretraining --base-config base.json --config config.json``
"""
