"""One tuning run: loop, trials and their files, what comes after. Not: decisions (autotuner)."""
