"""What ``plan_rows.py`` trains, and its ranks."""
