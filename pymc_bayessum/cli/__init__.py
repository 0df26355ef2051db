"""The parts of the command line: files, models, sampling, and what is shown of them."""
