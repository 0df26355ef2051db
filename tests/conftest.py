"""Property tests draw the same examples in every run; HYPOTHESIS_PROFILE=explore draws new ones."""

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_collection_modifyitems(items):
    """Start notebooks first: a minute each, they would keep one worker waiting for the other."""
    items.sort(key=lambda item: "test_notebooks" not in item.nodeid)
