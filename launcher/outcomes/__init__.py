"""What came of a launch, from exit codes, results and logs. Not: what follows from it."""
