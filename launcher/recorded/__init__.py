"""Measurements of others and of earlier runs, as data. Not: what they are scored against."""
