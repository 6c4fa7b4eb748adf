"""How functions are compiled, and how compiled code is kept on disk and found again."""
