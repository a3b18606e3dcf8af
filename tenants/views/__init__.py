"""Pages about who: members, tokens, secrets; and the shell that pages of every app are drawn in."""
