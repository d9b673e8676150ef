"""Acts for the user: reads a command, launches its trials, keeps and tells what came of them."""
