"""What a check returns: a DataTree that prints as its verdict."""

from html import escape

import xarray as xr

__all__ = ["CheckedTree"]


class CheckedTree(xr.DataTree):
    """The DataTree that `check_normalizer` returns: it prints as the verdict."""

    def __repr__(self) -> str:  # type: ignore[override]  # xarray types it otherwise
        """Return the verdict; a child prints as any DataTree does."""
        if self.parent is not None or "normalizer" not in self.children:
            return super().__repr__()
        return f"{self['normalizer'].attrs['report']}\nGroups: {', '.join(self.children)}"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        if self.parent is not None or "normalizer" not in self.children:
            return super()._repr_html_()
        report = escape(str(self["normalizer"].attrs["report"]))
        return f"<pre>{report}</pre>{super()._repr_html_()}"
