"""A module for each verb, its own face: tables of strings name its functions."""
