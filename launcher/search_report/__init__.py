"""What a search for a training configuration leaves: tables, the best file, days and money."""
