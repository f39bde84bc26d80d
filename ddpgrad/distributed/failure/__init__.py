"""What a rank reports of a failure, how it travels, and which rank is to blame."""
