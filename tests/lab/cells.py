"""Cells that more than one file of this folder runs."""

FOUR = """%%sky_remote nodes=4
import skyward_nb as sky
print("hello from rank", sky.instance_info().rank)
"""

# A live widget with a final picture in its place: first the picture, and then the widgets close.
# A view whose model is gone before it is replaced is an error in Lab.
SWAPPED = """import ipywidgets
live = ipywidgets.HTML("<p>live</p>")
box = ipywidgets.Tab([ipywidgets.VBox([live])], titles=["all"])
bundle = {**box._repr_mimebundle_(), "text/html": "<p>not live</p>", "text/plain": "plain"}
handle = display(bundle, raw=True, display_id=True)
for turn in range(20):
    live.value = f"<p>live {turn}</p>"
final = "<style>.final {color: rgb(1, 2, 3)}</style><p class='final'>final</p>"
handle.update({"text/html": final, "text/plain": "final"}, raw=True)
for widget in (live, *box.children, box):
    widget.close()
"""
