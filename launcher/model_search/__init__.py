"""The verb ``search`` part by part: keys, model, candidates, jobs, runs. Not: its reports."""
