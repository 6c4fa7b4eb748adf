"""The problems on which chi-squared is measured, and the calls that are measured on them."""
