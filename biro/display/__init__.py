"""What any command shows: text of numbers and tables, progress, rates, style of pictures."""
