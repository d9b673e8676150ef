"""What a candidate needs and how long it takes, by formula. Not: which one is best."""
