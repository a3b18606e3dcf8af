"""Everything that reads rows of this app for a door. Each `<things>_visible_to(actor)` is a permission."""
