"""What makes pages of the documentation: names from docstrings, figures from a run, the site."""
