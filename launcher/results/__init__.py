"""A results folder: its names, journal, lease and readers. Not: what is decided from them."""
