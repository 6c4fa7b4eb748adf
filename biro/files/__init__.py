"""Write files as a whole or not at all, and read the files of others without trusting them."""
