"""Template tags of the design system; loaded with `{% load muster %}`."""
