"""Settings of NLWeb."""

import msgspec

from portico.protocols import ActionForm


class NlwebSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[nlweb]"""

    widget: str = ""  # URI of the widget template for ChatGPT apps
    dual_frames: bool = False  # stream results so that clients of 0.54 read them too, when no version is said
    clarify_lists: bool = False  # ask back in 0.54 search lists too, though known pages for them show nothing then
    actions: tuple[ActionForm, ...] = ("HTTP",)  # forms in which an item's actions are offered
