"""The words of the program as frozen values. Standard library only, no input or output."""
