"""The maximum of a posterior of thousands of gains, whose precision falls into blocks of segments."""
